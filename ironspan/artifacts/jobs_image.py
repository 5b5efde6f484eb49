# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The image that a controller's jobs run in, made without a container engine, with its bill of materials.

It has what ``execution-environment/`` asks ansible-builder for: Python and OpenSSH of Debian, and the wheels
of ``execution-environment/requirements.txt``. A wheel is unpacked, nothing of it is run. ironspan itself lies
in ``/opt/ironspan``, as in a checkout.
"""

from __future__ import annotations

import configparser
import json
import pathlib
import re
import tarfile
import typing as t
import zipfile

import ironspan
from ironspan.artifacts import cache, debian, environments, image, pack, wheels
from ironspan.artifacts.lock import Base, Image
from ironspan.artifacts.system import bill
from ironspan.cli.outcome import CommandError

Say = t.Callable[[str], None]
NAME = "ironspan.internal/execution-environment"
PYTHON = "3.13"
"""Of the Debian release of the base."""
BASE = Base(
    name="jobs",
    suite="trixie",
    packages=(
        "base-files", "bash", "ca-certificates", "coreutils", "dash", "dumb-init", "findutils", "git", "grep",
        "libc-bin", "openssh-client", "procps", "python3", "rsync", "sed", "tar", "util-linux",
    ),
    licence="GPL-3.0-or-later AND GPL-2.0-only AND LGPL-2.1-or-later AND PSF-2.0 AND MIT",
    links={"/usr/bin/sh": "dash"},
    applets=(),
)  # fmt: skip
PACKAGES = "usr/lib/python3/dist-packages"
PROJECT = "opt/ironspan"
COPIED = (
    "ansible.cfg", "artifacts.lock.yml", "galaxy.yml", "LICENSE", "meta", "playbooks", "plugins", "roles",
    "ironspan",
)  # fmt: skip
"""Of the checkout, what a job needs."""
COLLECTIONS = ("kubernetes/core/",)
"""Of the package ``ansible``, which brings a hundred, the collections that the playbooks use."""
USER = 1000
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_ENTRY = """\
#!/bin/sh
# A pod may run as a user that nobody knows; ssh refuses to work for one without a line in passwd.
if ! getent passwd "$(id -u)" > /dev/null 2>&1 && [ -w /etc/passwd ]; then
  echo "runner:x:$(id -u):0:runner:/runner:/bin/bash" >> /etc/passwd
fi
export HOME="${HOME:-/runner}"
exec "$@"
"""
_STUB = "#!/usr/bin/python3\nimport sys\nfrom {module} import {top}\nsys.exit({function}())\n"
_SCRIPT = re.compile(r"([A-Za-z0-9_.]+)\s*:\s*([A-Za-z0-9_.]+)")


def build(
    arch: str, place: cache.Cache, requirements: pathlib.Path, say: Say
) -> tuple[image.Laid, pathlib.Path]:
    """Make the image and lay it into the mirror.

    Args:
        arch: amd64 or arm64.
        place: the cache with the mirror.
        requirements: lock of the wheels, with hashes.
        say: told what is done, and what is waited for.

    Returns:
        The image, and its bill of materials (CycloneDX).

    Raises:
        CommandError: pip or mmdebstrap failed.
    """
    made = Image(
        ref=f"{NAME}:{ironspan.__version__}", licence="see its bill of materials", digests={}, base="",
        programs={},
        entrypoint=("/usr/local/bin/entrypoint", "dumb-init", "--"), command=("bash",), user=str(USER),
        buildable=True,
    )  # fmt: skip
    with place.locked("jobs-image", lambda: say("waiting for another build of the image")) as scratch:
        place.discard(scratch)
        say("Debian packages")
        packages = debian.make(BASE, arch, scratch / "base.layer", scratch)
        say("wheels")
        wheels.download(
            [requirements.read_text(encoding="utf-8")], arch, PYTHON, scratch / "wheels", ["--require-hashes"]
        )
        brought = sorted((scratch / "wheels").glob("*.whl"))
        say("packing")
        with (scratch / "jobs.layer").open("wb") as raw:
            _write(pack.Archive(raw), brought, scratch / "base.layer")
        layers = [image.existing_layer(scratch / name) for name in ("base.layer", "jobs.layer")]
        laid = image.lay_out(made, layers, arch, place, scratch)
        target = place.below_mirror(made.mirror_folder) / "bill.json"
        text = _bill(packages, brought, arch, scratch / "base.layer", laid.digest)
        cache.publish_text(text, target, scratch)
    return laid, target


def _write(archive: pack.Archive, brought: list[pathlib.Path], base: pathlib.Path) -> None:
    archive.text("etc/passwd", f"{debian.PASSWD}runner:x:{USER}:0:runner:/runner:/bin/bash\n", 0o664)
    archive.text("etc/ssl/openssl.cnf", "# Nothing but the defaults.\n")
    archive.text(_CERTIFICATES, _authorities(base))
    archive.folder("runner", 0o775)
    archive.text("usr/local/bin/entrypoint", _ENTRY, 0o755)
    for path in brought:
        unpack(archive, path)
    project = pathlib.Path(ironspan.__file__).resolve().parent.parent
    for name in COPIED:
        for path in sorted([project / name, *(project / name).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.tree(f"{PROJECT}/{path.relative_to(project)}", path)
    inside = "ansible_collections/ironspan/hybrid"
    archive.link(f"{PROJECT}/collections/{inside}", "../../..")
    archive.link(f"usr/share/ansible/collections/{inside}", f"/{PROJECT}")
    archive.text(f"{PACKAGES}/ironspan.pth", f"/{PROJECT}\n/{PROJECT}/collections\n")
    archive.text("usr/local/bin/ironspan", stub("ironspan.cli.main:main"), 0o755)
    archive.text("usr/local/bin/ironspan-events", stub("ironspan.events.main:main"), 0o755)
    archive.close()


def unpack(archive: pack.Archive, path: pathlib.Path) -> None:
    """Add a wheel's files as an installation would place them, and a program for each of its entry points.

    Raises:
        CommandError: it names a file outside of its folder.
    """
    with zipfile.ZipFile(path) as source:
        for name in sorted(source.namelist()):
            if name.endswith("/") or not _kept(name):
                continue
            _, data, inner = name.rpartition(".data/")
            kind, _, member = inner.partition("/") if data else ("purelib", "", name)
            if name.startswith("/") or ".." in pathlib.PurePosixPath(name).parts:
                raise CommandError(f"{path.name} has {name}, which is outside of its folder")
            if kind not in ("purelib", "platlib"):
                continue
            info = source.getinfo(name)
            with source.open(name) as content:
                archive.stream(f"{PACKAGES}/{member}", content, info.file_size, 0o644)
            if name.endswith(".dist-info/entry_points.txt"):
                for program, entry in scripts(source.read(name).decode()).items():
                    archive.text(f"usr/local/bin/{program}", stub(entry), 0o755)


def _kept(name: str) -> bool:
    if not name.startswith("ansible_collections/"):
        return True
    return name.removeprefix("ansible_collections/").startswith(COLLECTIONS)


def scripts(text: str) -> dict[str, str]:
    """Return the programs of ``entry_points.txt``: name to MODULE:FUNCTION."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return dict(parser["console_scripts"]) if parser.has_section("console_scripts") else {}


def stub(entry: str) -> str:
    """Return a program that calls an entry point, MODULE:FUNCTION.

    Raises:
        CommandError: it is written otherwise.
    """
    match = _SCRIPT.match(entry)
    if not match:
        raise CommandError(f"{entry!r} is no entry point, MODULE:FUNCTION")
    module, function = match.groups()
    return _STUB.format(module=module, top=function.partition(".")[0], function=function)


def _authorities(base: pathlib.Path) -> str:
    """Return Mozilla's authorities in one file, which Debian makes when the package is installed."""
    with tarfile.open(base) as layer:
        members = [one for one in layer if one.name.startswith("usr/share/ca-certificates/mozilla/")]
        found = (layer.extractfile(one) for one in sorted(members, key=lambda one: one.name) if one.isfile())
        return "".join(one.read().decode() for one in found if one)


def _bill(
    packages: list[str], brought: list[pathlib.Path], arch: str, base: pathlib.Path, digest: str
) -> str:
    with tarfile.open(base) as layer:
        texts = {
            one.name.split("/")[3]: t.cast("t.IO[bytes]", layer.extractfile(one)).read()
            for one in layer
            if one.isfile() and re.fullmatch(r"usr/share/doc/[^/]+/copyright", one.name)
        }
    listed = []
    for package in packages:
        name, _, version = package.partition("_")
        known = bill.licences_in(texts[name].decode(errors="replace")) if name in texts else ["unknown"]
        purl = f"pkg:deb/debian/{name}@{version}?arch={arch}&distro={BASE.suite}"
        listed.append(bill.component(name, version, purl, known))
    for path in brought:
        name, version = environments.Wheel(path.name, "", "").requirement.split("==")
        listed.append(bill.component(name, version, f"pkg:pypi/{name}@{version}", [wheels.licence_of(path)]))
    data = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": NAME, "version": digest}},
        "components": listed,
    }
    return json.dumps(data, indent=1, sort_keys=True) + "\n"
