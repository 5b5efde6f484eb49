# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Owners and permission bits of files, by the names that a document uses."""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.files import mode_text
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

CACHE_KEY = "accounts"
"""To be forgotten by whoever adds a user or group."""


def ownership_fields(mode: str) -> t.Dict[str, Field]:
    """Return the parameters mode, owner and group, with a default mode."""
    return {
        "mode": Field((str,), default=mode),
        "owner": Field((str,), default="root"),
        "group": Field((str,), default="root"),
    }


def mode_mistakes(spec: Spec) -> t.List[str]:
    """Return what is wrong with ``mode``: it is octal digits in quotes, such as "0644"."""
    mode = spec.get("mode", "0644")
    if 3 <= len(mode) <= 4 and all(digit in "01234567" for digit in mode):
        return []
    return [f'mode must be three or four octal digits such as "0644", found {mode!r}']


def ownership_matters(host: Host) -> bool:
    """Tell whether this process can give files away; below a private root it may not be allowed to."""
    return host.root == "/" or os.geteuid() == 0


def user_id(host: Host, name: str) -> t.Optional[int]:
    """Return the number of a user, None if there is no such user. A number stands for itself."""
    return _number(host, name, "/etc/passwd", "pwd")


def group_id(host: Host, name: str) -> t.Optional[int]:
    """Return the number of a group, None if there is no such group. A number stands for itself."""
    return _number(host, name, "/etc/group", "grp")


def entries(host: Host, path: str) -> t.Dict[str, t.List[str]]:
    """Return the lines of /etc/passwd or /etc/group by name, each split at its colons."""

    def read() -> t.Dict[str, t.List[str]]:
        try:
            text = paths.read(host.path(path)).decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return {}
        lines = [line.split(":") for line in text.split("\n")]
        # The first of two lines with one name counts, as for the C library.
        return {line[0]: line for line in reversed(lines) if len(line) >= 4}

    found: t.Dict[str, t.List[str]] = host.cached(f"{CACHE_KEY}:{path}", read)
    return found


def forget(host: Host) -> None:
    """Drop what was read of users and groups."""
    for path in ("/etc/passwd", "/etc/group"):
        host.forget_cached(f"{CACHE_KEY}:{path}")


def _number(host: Host, name: str, path: str, module: str) -> t.Optional[int]:
    if name.isdigit():
        return int(name)
    line = entries(host, path).get(name)
    if line is not None and line[2].isdigit():
        return int(line[2])
    if name == "root":
        return 0
    if host.root == "/":
        # Not a local account: a directory service may know it.
        import grp
        import pwd

        try:
            return pwd.getpwnam(name).pw_uid if module == "pwd" else grp.getgrnam(name).gr_gid
        except KeyError:
            return None
    return None


def differences(spec: Spec, status: os.stat_result, host: Host) -> t.Tuple[State, State]:
    """Compare permission bits and owners.

    Args:
        spec: with mode, and optionally owner and group.
        status: of the existing file or folder.
        host: the host.

    Returns:
        What is and what shall be, only of what differs. An owner that does not exist yet differs.
    """
    before: State = {}
    after: State = {}
    if stat.S_IMODE(status.st_mode) != int(spec["mode"], 8):
        before["mode"], after["mode"] = mode_text(status), f"{int(spec['mode'], 8):04o}"
    if ownership_matters(host):
        for parameter, number, find in (
            ("owner", status.st_uid, user_id),
            ("group", status.st_gid, group_id),
        ):
            name = spec.get(parameter, "root")
            if find(host, name) != number:
                before[parameter], after[parameter] = _name(host, parameter, number), name
    return before, after


def _name(host: Host, parameter: str, number: int) -> str:
    for name, line in entries(host, "/etc/passwd" if parameter == "owner" else "/etc/group").items():
        if line[2] == str(number):
            return name
    return str(number)


def resolve(spec: Spec, host: Host) -> t.Optional[t.Tuple[int, int]]:
    """Return the user and group id that a specification asks for, None where ownership does not matter.

    Raises:
        ResourceError: there is no such user or group.
    """
    if not ownership_matters(host):
        return None
    numbers = []
    for parameter, find in (("owner", user_id), ("group", group_id)):
        name = spec.get(parameter, "root")
        number = find(host, name)
        if number is None:
            word = "user" if parameter == "owner" else "group"
            raise ResourceError(
                f"there is no {word} {name!r}", "Declare it with kind user, and require that."
            )
        numbers.append(number)
    return numbers[0], numbers[1]


def set_ownership(path: str, spec: Spec, host: Host) -> None:
    """Give an existing file or folder its owner and mode.

    Args:
        path: a path on this machine.
        spec: with mode, and optionally owner and group.
        host: the host.
    """
    paths.set_owner_and_mode(path, int(spec["mode"], 8), resolve(spec, host))


def need_folder(path: str, host: Host) -> None:
    """Check that the folder of a path is there, or that the document makes it.

    Args:
        path: absolute path as in the document.
        host: the host.

    Raises:
        ResourceError: neither.
    """
    folder = os.path.dirname(path)
    if not paths.is_folder(host.path(folder)) and not host.declared(folder):
        raise ResourceError(
            f"the folder {folder} does not exist and the document does not make it",
            f"Declare a directory resource with path {folder}, or require the package that brings it.",
        )


def make_folders(folder: str, host: Host) -> None:
    """Make a folder and those above it (mode 0755), each undone by a rollback.

    Args:
        folder: absolute path as in the document.
        host: the host.
    """
    missing = []
    while not paths.is_folder(host.path(folder)):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        host.backup(path)
        paths.make_folder(host.path(path), 0o700)
        paths.set_owner_and_mode(host.path(path), 0o755, follow=False)
