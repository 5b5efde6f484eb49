# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The Debian tree under every host's overlay: made once with debootstrap, shared by all labs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ironspan.lab import files, mounts, processes
from ironspan.lab.errors import LabError
from ironspan.lab.layout import cache_root

SUITE = "trixie"
ARCHIVE = "http://deb.debian.org/debian"
#: Debian's own keys. Where they are missing, as on a fresh Ubuntu, debootstrap would take what it gets.
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "python3", "openssh-server", "iproute2", "nftables",
    "iptables", "conntrack", "ethtool", "socat", "kmod", "sudo", "openssl", "haproxy", "ca-certificates",
    "iputils-ping", "procps", "curl", "mount", "util-linux", "mariadb-server", "nginx-light",
)  # fmt: skip
#: Units a host does without. Terminals, timers and first-boot helpers cost boot time; the rest would
#: reach through to the machine: binfmt and pstore are its own, udev would replay its devices.
MASKED = (
    "getty.target", "console-getty.service", "getty-static.service", "getty@.service", "remote-fs.target",
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer",
    "systemd-tmpfiles-clean.timer", "tmp.mount", "ldconfig.service", "systemd-firstboot.service",
    "systemd-hwdb-update.service", "systemd-journal-catalog-update.service", "systemd-random-seed.service",
    "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "proc-sys-fs-binfmt_misc.mount",
    "systemd-pstore.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount",
    "systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket",
    "systemd-udev-trigger.service", "systemd-udev-settle.service", "systemd-networkd.service",
    "systemd-hibernate-clear.service", "sshd-keygen.service",
)  # fmt: skip
#: Text files of the tree beside what the packages bring.
FILES = {
    "etc/ssh/sshd_config.d/ironspan-lab.conf": """\
# A lab host: one host key, one way in, room for many connections at once.
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
MaxStartups 100:30:200
MaxSessions 100
""",
    "etc/locale.conf": "LANG=C.UTF-8\n",  # Debian links /etc/default/locale to it
    "etc/systemd/journald.conf.d/ironspan-lab.conf": """\
# On disk, small, and without the machine's kernel log.
[Journal]
Storage=persistent
SystemMaxUse=64M
RuntimeMaxUse=8M
ReadKMsg=no
Audit=no
""",
    "etc/systemd/system.conf.d/ironspan-lab.conf": """\
[Manager]
ShowStatus=no
DefaultTimeoutStopSec=15s
""",
}
# Raise when the code below changes what the tree holds in a way PACKAGES, MASKED and FILES do not show.
_REVISION = 2


def stamp() -> str:
    """Short digest of everything the tree is made from; names the tree in the cache."""
    recipe = json.dumps([_REVISION, SUITE, ARCHIVE, PACKAGES, MASKED, FILES], sort_keys=True)
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def tree_path() -> Path:
    """Where the finished tree is, or will be."""
    return cache_root() / f"base-{stamp()}"


def building_path(name: str) -> Path:
    """Where the lab called `name` builds a tree; renamed to `tree_path` when it is whole."""
    return cache_root() / f"building-{name}"


def ensure(name: str, folder: Path, progress: Callable[[str, str, str], None]) -> Path:
    """Return the finished tree, building it first when the cache has none (2 minutes, 660 MB).

    Args:
        name: The lab that asks.
        folder: The lab's folder: log, and mark of the building process.
        progress: Called with (what, state, detail).
    """
    tree = tree_path()
    if tree.is_dir():
        progress("base image", "skip", str(tree))
        return tree
    with files.locked(cache_root() / ".lock"):
        if not tree.is_dir():
            progress("base image", "start", f"debootstrap {SUITE}, about 2 minutes, once")
            building = building_path(name)
            mounts.remove_tree(building)
            _debootstrap(building, folder)
            customise(building)
            os.sync()  # a whole tree or none, also after a power cut
            building.rename(tree)
            _remove_older(tree)
    progress("base image", "done", str(tree))
    return tree


def _remove_older(tree: Path) -> None:
    """Delete trees of earlier recipes that no host stands on."""
    used = {option for mount in mounts.current() for option in mount.options}
    for other in cache_root().glob("base-*"):
        if other != tree and f"lowerdir={other}" not in used:
            mounts.remove_tree(other)


def _insist_on_verification() -> None:
    """Refuse where the signature of the archive could not be checked."""
    packages = [] if KEYRING.is_file() else ["debian-archive-keyring"]
    packages += [] if shutil.which("gpgv") else ["gpgv"]
    if packages:
        raise LabError(
            f"the hosts' base image is made of Debian packages, whose signature cannot be checked without "
            f"{' and '.join(packages)}; install with: apt-get install -y {' '.join(packages)}"
        )


def _debootstrap(target: Path, folder: Path) -> None:
    _insist_on_verification()
    log = folder / "log" / "debootstrap.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # In its own mount namespace: debootstrap mounts /proc in the tree, and killed leaves it there.
    command = [
        "unshare", "--mount", "--propagation", "private", "--kill-child",
        "debootstrap", "--force-check-gpg", f"--keyring={KEYRING}", "--variant=minbase",
        f"--include={','.join(PACKAGES)}", SUITE, str(target), ARCHIVE,
    ]  # fmt: skip
    with log.open("wb") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, processes.MARKER: str(folder), "LC_ALL": "C"},
        )  # fmt: skip
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise LabError(f"debootstrap failed, see {log}:\n{tail}", exit_code=1)


def customise(tree: Path) -> None:
    """Make a plain Debian tree the base of lab hosts: masks, settings, nothing host-specific left in it."""
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for name in ("etc/machine-id", "etc/hostname", "etc/resolv.conf"):
        (tree / name).unlink(missing_ok=True)
    units = tree / "etc/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    for unit in MASKED:
        _link(units / unit, "/dev/null")
    # These set kernel.* values, which belong to the whole machine.
    for settings in (tree / "usr/lib/sysctl.d").glob("*.conf"):
        if any(line.strip().startswith(("kernel.", "vm.")) for line in settings.read_text().splitlines()):
            _link(tree / "etc/sysctl.d" / settings.name, "/dev/null")
    for unit in ("haproxy", "mariadb", "nginx"):
        (units / f"multi-user.target.wants/{unit}.service").unlink(missing_ok=True)
    for name, content in FILES.items():
        files.write_atomic(tree / name, content)
    for useless in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(tree / useless, ignore_errors=True)
        (tree / useless).mkdir(parents=True)
    # Tells systemd that /etc and /var belong to this /usr, so that no update service runs at boot.
    for name in ("etc/.updated", "var/.updated"):
        (tree / name).touch()


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def purge() -> list[str]:
    """Delete the cache of base trees; LabError while a lab stands on one. Returns what was deleted."""
    root = cache_root()
    if not root.is_dir():
        return []
    with files.locked(root / ".lock") as lock:
        trees = [entry for entry in root.iterdir() if entry != lock.path]
        for mount in mounts.current():
            used = [option for option in mount.options if option.startswith(f"lowerdir={root}/")]
            if used:
                raise LabError(f"the base image is in use by {mount.path}; take that lab down first")
        for entry in trees:
            mounts.remove_tree(entry)
        lock.forget()
        root.rmdir()
    return [str(entry) for entry in trees]
