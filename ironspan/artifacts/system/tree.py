# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The tree of a system: packages, wheels, own files, and nothing of the machine that made it."""

from __future__ import annotations

import collections.abc
import os
import pathlib
import shutil
import subprocess
import zipfile

from ironspan.artifacts import toolchain, wheels
from ironspan.artifacts.lock import expand
from ironspan.artifacts.system.declared import System
from ironspan.cli.outcome import CommandError

PYTHON_FOLDER = "opt/python"
"""Where wheels are unpacked; what starts a program of theirs puts it on the path."""
FORGOTTEN = (
    "etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/ssh/ssh_host_*", "etc/.pwd.lock",
    "etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap", "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
    "etc/nvme/host*", "etc/passwd-", "etc/shadow-", "etc/group-", "etc/gshadow-", "etc/subuid-",
    "etc/subgid-", "root/.*",
    "run/*", "tmp/*", "var/tmp/*", "var/log/*.log", "var/log/apt/*", "var/log/journal/*", "var/cache/apt/*",
    "var/cache/ldconfig/*", "var/cache/debconf/*-old", "var/lib/apt/lists/*", "var/lib/dpkg/*-old",
    "var/lib/systemd/random-seed", "initrd.img.old", "vmlinuz.old",
)  # fmt: skip
"""What differs from one build to the next, or would be the same secret or name on all servers."""


def make(system: System, arch: str, scratch: pathlib.Path, brought: list[pathlib.Path]) -> pathlib.Path:
    """Make the tree of a system.

    Args:
        system: the entry of the lock file.
        arch: this machine's architecture: what the packages bring is run to set them up.
        scratch: an empty folder; the tree comes below it.
        brought: its wheels.

    Returns:
        The tree. Root owns it, and nothing in it is newer than the system's date.

    Raises:
        CommandError: mmdebstrap failed; the message has the end of its output.
    """
    tree = scratch / "tree"
    packages = [expand(package, arch) for package in system.packages]
    command = [
        "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", f"--architectures={arch}",
        f"--keyring={toolchain.DEBIAN_KEYRING}", f"--include={','.join(packages)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in system.drop),
        system.suite, str(tree),
    ]  # fmt: skip
    mirror = os.environ.get("IRONSPAN_DEBIAN_MIRROR", "")
    # In a mount namespace of its own: what a killed run mounted in the tree is gone with it, and
    # deleting the tree reaches nothing of this machine.
    call(
        [*ALONE, *command, *([mirror] if mirror else [])],
        system.epoch,
        "Check the connection to the Debian mirror (IRONSPAN_DEBIAN_MIRROR names another one).",
    )
    for path in brought:
        _unpack(path, tree / PYTHON_FOLDER)
    if brought:
        _compile(tree, system.epoch)
    _forget(tree)
    for name, source in system.own_files().items():
        _own(source, tree / name)
    for verb, names in system.units.items():
        call([*ALONE, "chroot", tree, "systemctl", verb, *names], system.epoch)
    (tree / "etc/machine-id").touch()
    settle(tree, system.epoch)
    return tree


ALONE = ("unshare", "--mount", "--propagation", "private", "--kill-child", "--fork")


def call(
    command: collections.abc.Sequence[str | pathlib.Path],
    epoch: int,
    remedy: str = "",
    stdin: str | None = None,
) -> str:
    """Run a program of a build, with the build's time and no setting of this machine's user.

    Raises:
        CommandError: it failed; the message has the end of what it said.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MTOOLS", "MKE2FS"))}
    answer = subprocess.run(
        [str(part) for part in command],
        capture_output=True, text=True, check=False, input=stdin if stdin is not None else "",
        env={**own, "LC_ALL": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": str(epoch)},
    )  # fmt: skip
    if answer.returncode != 0:
        tail = "\n".join(f"  {line}" for line in (answer.stderr or answer.stdout).splitlines()[-8:])
        program = pathlib.Path(command[len(ALONE) if command[: len(ALONE)] == list(ALONE) else 0]).name
        raise CommandError(f"{program} failed:\n{tail}", remedy)
    return answer.stdout


def of_tree(tree: pathlib.Path, program: str) -> list[str | pathlib.Path]:
    """Return the beginning of a command that runs a program of the tree on this machine.

    Its own file system maker, say: another release than this machine's makes other bytes.
    """
    loader = min(tree.glob("usr/lib*/ld-linux-*.so.*"))
    libraries = min(tree.glob("usr/lib/*-linux-gnu"))
    return [loader, "--library-path", libraries, tree / program]


def settle(tree: pathlib.Path, epoch: int) -> None:
    """Let nothing in a tree be newer than the build's date."""
    for path in (tree, *tree.rglob("*")):
        if path.lstat().st_mtime > epoch:
            os.utime(path, (epoch, epoch), follow_symlinks=False)


def kernel(tree: pathlib.Path) -> pathlib.Path:
    """Return the tree's kernel.

    Raises:
        CommandError: it has none, or several.
    """
    found = sorted(tree.glob("boot/vmlinuz-*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise CommandError(
            f"a system boots one kernel, and the packages brought: {names}",
            "Name one linux-image package in the lock file.",
        )
    return found[0]


def _unpack(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Unpack a wheel: nothing is run, no script is made."""
    with zipfile.ZipFile(wheel) as source:
        names = [name for name in source.namelist() if not name.endswith(("/RECORD", ".pth"))]
        moved = [name for name in names if ".data/" in name]
        if moved:
            raise CommandError(f"{wheel.name} has {moved[0]}, which unpacking alone does not install")
        source.extractall(folder, names)


def _compile(tree: pathlib.Path, epoch: int) -> None:
    """Compile what wheels brought: a system that runs from memory would do it again at each start.

    By its content, not its time, and with one order of sets: the same bytes each time.
    """
    options = ["-q", "--invalidation-mode", "unchecked-hash", f"/{PYTHON_FOLDER}"]
    call([*ALONE, "env", "PYTHONHASHSEED=0", "chroot", tree, "python3", "-m", "compileall", *options], epoch)


def _forget(tree: pathlib.Path) -> None:
    for pattern in FORGOTTEN:
        for path in tree.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _own(source: pathlib.Path, target: pathlib.Path) -> None:
    content = source.read_bytes()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.write_bytes(content)
    target.chmod(0o755 if content.startswith(b"#!") else 0o644)


def fetched(system: System, arch: str, scratch: pathlib.Path) -> list[pathlib.Path]:
    """Let pip bring the wheels that a system's list pins, each checked by its digest; sorted."""
    if not system.wheels:
        return []
    lines = system.pinned.read_text(encoding="utf-8").splitlines()
    wheels.download(lines, arch, system.python, scratch / "wheels", ["--require-hashes"])
    return sorted((scratch / "wheels").glob("*.whl"))
