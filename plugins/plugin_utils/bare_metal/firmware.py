# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Firmware of servers that run: the files a site has, and what a server still needs of them.

Files come from the image server of the site's Ironic, in a folder that is called as their digest. What a BMC
does with one is its own matter: it checks the maker's signature, and says which version runs then.
"""

from __future__ import annotations

import datetime
import re
import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_values import EMPTY_SHA256
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

FILES, URL = "site_bare_metal_firmware", "site_bare_metal_firmware_url"
RECORD = "ironspan_firmware"
"""Where Ironic's entry of a server (``extra``) has which versions were asked for last, and when."""
COMPONENTS = ("bios", "bmc")
"""What Ironic 39.0.0 updates under names that all servers share; adapters have names of their own."""
LARGEST = 4 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._+-]*/)*[A-Za-z0-9][A-Za-z0-9._+-]*")
_STEP = re.compile(r"\ANode \S+ failed step \{.*?\}: (.*)\Z", re.DOTALL)
_TASK = re.compile(r"\AFirmware update failed for node \S+, firmware \S+\. Error: (.*)\Z", re.DOTALL)


class FirmwareFile(t.NamedTuple):
    """A file with firmware.

    Args:
        component: ``bios`` or ``bmc``.
        version: that runs once it is written, as the server says it then.
        file: its path below the mirror.
        sha256: its digest.
        size: its bytes.
        model: of the servers that it is for; "" for all.
    """

    component: str
    version: str
    file: str
    sha256: str
    size: int
    model: str = ""

    def address(self, base: str) -> str:
        """Return where BMCs get it.

        Args:
            base: address of the folder whose folders are called as the digests of what is in them.
        """
        return f"{base.rstrip('/')}/{self.sha256}/{self.file.rpartition('/')[2]}"


def problems_of(settings: t.Any) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with the files that a site names: path below the variable, what, and the remedy.

    Args:
        settings: of ``site_bare_metal_firmware``.
    """
    seen: dict[tuple[str, str, str], int] = {}
    for index, entry in enumerate(settings if isinstance(settings, list) else ()):
        where = f"[{index}]"
        if not isinstance(entry, Mapping):
            yield where, f"is {entry!r}", "write component, version, file, sha256 and size"
            continue
        if unknown := sorted(set(map(str, entry)) - set(FirmwareFile._fields)):
            yield where, f"has {', '.join(unknown)}", f"write {', '.join(FirmwareFile._fields)}"
        if entry.get("component") not in COMPONENTS:
            remedy = f"write {' or '.join(COMPONENTS)}"
            yield f"{where}.component", f"is {entry.get('component')!r}", remedy
        version = entry.get("version")
        if (
            not isinstance(version, str)
            or not version
            or version != version.strip()
            or not version.isprintable()
        ):
            yield (
                f"{where}.version",
                f"is {entry.get('version')!r}",
                "write it in quotes, as the server says it",
            )
        if not _PATH.fullmatch(str(entry.get("file") or "")):
            remedy = (
                "write a path below the mirror, of letters, digits and ._+- such as firmware/bios-2.1.bin"
            )
            yield f"{where}.file", f"is {entry.get('file')!r}", remedy
        if not _SHA256.fullmatch(str(entry.get("sha256") or "")):
            yield (
                f"{where}.sha256",
                f"is {entry.get('sha256')!r}",
                "write the 64 digits that sha256sum prints",
            )
        size = entry.get("size")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= LARGEST:
            yield f"{where}.size", f"is {size!r}", f"write its bytes, 1 to {LARGEST}"
        if not isinstance(entry.get("model", ""), str):
            yield (
                f"{where}.model",
                f"is {entry['model']!r}",
                "write the model as the expected servers have it",
            )
        if entry.get("sha256") == EMPTY_SHA256:
            yield (
                f"{where}.sha256",
                "is the digest of an empty file",
                "fetch the file again, and write its own",
            )
        key = tuple(str(entry.get(name) or "").lower() for name in ("component", "version", "model"))
        if (first := seen.setdefault((key[0], key[1], key[2]), index)) != index:
            yield where, f"is for the same servers as [{first}]", "leave one of the two"
        yield from _beside(settings[:index], entry, where)


def _beside(
    others: Sequence[t.Any], entry: Mapping[str, t.Any], where: str
) -> Iterator[tuple[str, str, str]]:
    """Yield how a file contradicts one of those before it: the same bytes are one size and one version."""
    for index, other in enumerate(others):
        if not isinstance(other, Mapping):
            continue
        same = [name for name in ("file", "sha256") if entry.get(name) and entry.get(name) == other.get(name)]
        if same == ["file"]:
            message = f"is another one than that of [{index}], and the file is the same"
            yield f"{where}.sha256", message, "write what sha256sum prints of this file"
        elif "sha256" in same and entry.get("size") != other.get("size"):
            message = f"is another one than that of [{index}], and the digest is the same"
            yield f"{where}.size", message, "write the size of this file"
        elif "sha256" in same and (
            entry.get("component") == other.get("component") and entry.get("version") != other.get("version")
        ):
            message = f"is the digest of [{index}] too, which is another version"
            yield f"{where}.sha256", message, "write what sha256sum prints of this version's file"


def files_of(settings: t.Any) -> tuple[FirmwareFile, ...]:
    """Return the files that a site names.

    Args:
        settings: of ``site_bare_metal_firmware``.

    Raises:
        RemoteError: there are problems; all of them.
    """
    if problems := [f"{FILES}{where} {what}; {remedy}" for where, what, remedy in problems_of(settings)]:
        raise RemoteError("; ".join(problems))
    return tuple(FirmwareFile(**entry) for entry in settings or ())


def wanted_firmware(server: ExpectedServer, files: Sequence[FirmwareFile], base: str) -> list[dict[str, str]]:
    """Return what a server shall run, and from where it gets it: "" where the site has no file for it.

    Args:
        server: as it is expected.
        files: that the site has.
        base: as for ``FirmwareFile.address``.
    """
    found = []
    for component, version in server.firmware:
        fitting = [
            file
            for file in files
            if (file.component, file.version.lower()) == (component, version.lower())
            and file.model.lower() in ("", server.model.lower())
        ]
        # One for the very model goes before one for all.
        file = max(fitting, key=lambda one: bool(one.model), default=None)
        address = file.address(base) if file else ""
        found.append({"component": component, "version": version, "url": address})
    return found


def due(wanted: Sequence[Mapping[str, str]], versions: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Return what of the wanted firmware does not run yet.

    Args:
        wanted: of ``wanted_firmware``.
        versions: what runs, by component.
    """
    return [one for one in wanted if versions.get(one["component"], "").lower() != one["version"].lower()]


def obstacle(wanted: Sequence[Mapping[str, str]], versions: Mapping[str, str], interface: str) -> str:
    """Return why a server's firmware cannot be brought to what is declared, "" when nothing is in the way.

    Args:
        wanted: what does not run yet.
        versions: what runs, by component.
        interface: Ironic's firmware interface of the server.
    """
    if not wanted:
        return ""
    if interface == "no-firmware":
        return (
            "Ironic does not update its firmware; write firmware_interface: redfish in site_bare_metal_node"
        )
    reasons = []
    for one in wanted:
        component, version = one["component"], one["version"]
        if component not in COMPONENTS:
            known = " and ".join(COMPONENTS)
            reasons.append(f"firmware_{component} is declared, and Ironic updates {known} only")
        elif component not in versions:
            reasons.append(f"Ironic has not read the version of its {component}; `manage` it there once")
        elif not one["url"]:
            reasons.append(
                f"{component} {versions[component]} runs, {version} is declared, and no file has it; "
                f"add that to {FILES}"
            )
    return "; ".join(reasons)


def not_served(wanted: Sequence[Mapping[str, str]], absent: Mapping[str, str]) -> str:
    """Return which files a BMC would ask for in vain, "" when there are none.

    Args:
        wanted: what does not run yet.
        absent: addresses that have no file, with what their server says.
    """
    return "; ".join(
        f"the file for {one['component']} {one['version']} is not there, {one['url']} {absent[one['url']]}; "
        f"site.yml brings what {FILES} names to the host of the group ironic, or put it into {URL}"
        for one in wanted
        if one["url"] in absent
    )


def service_steps(wanted: Sequence[Mapping[str, str]]) -> dict[str, t.Any]:
    """Return the arguments of Ironic's step, the BMC first: newer ones know how to write a newer BIOS."""
    ordered = sorted(wanted, key=lambda one: one["component"] != "bmc")
    settings = [{"component": one["component"], "url": one["url"]} for one in ordered]
    return {"service_steps": [{"interface": "firmware", "step": "update", "args": {"settings": settings}}]}


def said_of(wanted: Sequence[Mapping[str, str]], versions: Mapping[str, str]) -> str:
    """Return from what to what components go, for people."""
    return ", ".join(
        f"{one['component']} {versions.get(one['component']) or '?'} -> {one['version']}" for one in wanted
    )


def asked_fields(wanted: Sequence[Mapping[str, str]]) -> dict[str, t.Any]:
    """Return what ``IronicApi.change`` is given before an update is asked for."""
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    versions = {one["component"]: one["version"] for one in wanted}
    return {f"extra/{RECORD}": {"versions": versions, "at": now}}


def asked_at(entry: Mapping[str, t.Any]) -> str:
    """Return when an update was asked for last, "" for never; whatever it is given, it returns.

    Args:
        entry: of a node, with ``extra``.
    """
    extra = entry.get("extra")
    record = extra.get(RECORD) if isinstance(extra, Mapping) else None
    at = record.get("at") if isinstance(record, Mapping) else None
    return at if isinstance(at, str) and len(at) == len("2026-01-01T00:00:00Z") else ""


def own_words(error: str) -> str:
    """Return what a BMC said of an update, without what Ironic says around it."""
    for pattern in (_STEP, _TASK):
        if matched := pattern.match(error.strip()):
            error = matched[1]
    return error
