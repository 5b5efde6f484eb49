# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What BMCs come with: accounts and certificates of the factory, from a file that only its owner can read.

    default: {username: ADMIN, password: ...}
    SN0001: {username: root, password: ..., sha256: 5f0c...}
    SN0002: {username: root, password: ..., authority: vendor.pem}

It is no part of an inventory. After the first run nothing of it is needed any more.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import typing as t
from collections.abc import Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Trust
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

NOBODY = Trust()
DEFAULT = "default"
_KEYS = ("username", "password", "sha256", "authority")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclasses.dataclass(frozen=True, slots=True)
class Factory:
    """What one BMC comes with.

    Args:
        login: the account of the factory; None when nothing is known of it.
        trust: which certificates are taken before the site has signed one.
        own: whether this was written for its serial number, and so tells it from others.
    """

    login: Login | None = None
    trust: Trust = NOBODY
    own: bool = False


UNKNOWN = Factory()


class FactoryAccounts:
    """The file.

    Args:
        entries: serial number in capitals, or ``default``, to what it comes with.
    """

    def __init__(self, entries: Mapping[str, Factory] | None = None) -> None:
        self._entries = dict(entries or {})

    def of(self, serial: str) -> Factory:
        """Return what the BMC of a server comes with."""
        return self._entries.get(serial) or self._entries.get(DEFAULT) or UNKNOWN


def read_factory(file: str | Path) -> FactoryAccounts:
    """Read the file; "" is none.

    Raises:
        BmcError: others can read it, or something in it is wrong: all of that at once, never with a password.
    """
    if not file:
        return FactoryAccounts()
    path = Path(file).expanduser()
    problems: list[str] = []
    entries: dict[str, Factory] = {}
    try:
        content = yaml.load(_private(path), Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise BmcError(f"{path}:{mark.line + 1 if mark else 1}: this is not YAML", "correct it") from None
    if not isinstance(content, dict):
        raise BmcError(f"{path} is no mapping", "write SERIAL: {username: ..., password: ...}")
    for key, value in content.items():
        serial = DEFAULT if key == DEFAULT else str(key).upper()
        if serial in entries:
            problems.append(f"{serial}: it is there twice")
        entries[serial] = _entry(serial, value, path, problems)
    if problems:
        raise BmcError(f"{path} has problems: {'; '.join(problems)}", "correct them")
    return FactoryAccounts(entries)


def _entry(serial: str, value: t.Any, path: Path, problems: list[str]) -> Factory:
    if not isinstance(value, dict):
        problems.append(f"{serial}: write {{username: ..., password: ...}}")
        return UNKNOWN
    for key in value:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            problems.append(f"{serial}: {key!s:.40} is not known; write {near or ', '.join(_KEYS)}")
    username, password = value.get("username"), value.get("password")
    if not (isinstance(username, str) and username and isinstance(password, str) and password):
        problems.append(f"{serial}: username and password are texts; put them into quotes")
        return UNKNOWN
    sha256 = str(value.get("sha256") or "").replace(":", "").lower()
    if sha256 and not _SHA256.fullmatch(sha256):
        problems.append(f"{serial}: sha256 is not 64 hexadecimal digits")
    if sha256 and serial == DEFAULT:
        problems.append(f"{DEFAULT}: a certificate is one server's; write sha256 under its serial number")
    return Factory(
        Login(username, password),
        Trust(_authority(serial, value.get("authority"), path, problems), frozenset(filter(None, [sha256]))),
        own=serial != DEFAULT,
    )


def _authority(serial: str, file: t.Any, path: Path, problems: list[str]) -> str:
    if not file:
        return ""
    try:
        found = (path.parent / str(file)).read_text(encoding="ascii")
    except (OSError, ValueError):
        problems.append(f"{serial}: the authority {file!s:.100} cannot be read")
        return ""
    if "-----BEGIN CERTIFICATE-----" not in found:
        problems.append(f"{serial}: {file!s:.100} has no certificate in PEM")
    return found


def _private(path: Path) -> str:
    """Return the text of a file that nobody else can read; what is opened is what is checked."""
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_mode & 0o077:
                raise BmcError(
                    f"{path} can be read by others (mode {stat.S_IMODE(status.st_mode):04o})",
                    f"run: chmod 0600 {path}",
                )
            return file.read()
    except FileNotFoundError:
        raise BmcError(f"{path} is not there", "name the file of factory accounts (docs/bmc.md)") from None
    except (OSError, ValueError) as error:
        raise BmcError(f"{path} cannot be read: {getattr(error, 'strerror', '') or 'no UTF-8'}") from None
