# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``user``: a local account, usually of a service, with a group of its own."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    Spec,
    State,
)

_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")


class UserKind:
    """Makes the account with useradd, without a password; never removes one that it did not make."""

    name = "user"
    stays = "users stay, files may belong to them"
    fields: t.Mapping[str, Field] = {
        "name": Field((str,), required=True),
        "uid": Field((int,)),
        "group": Field((str,)),
        "home": Field((str,)),
        "shell": Field((str,), default="/usr/sbin/nologin"),
        "system": Field((bool,), default=True),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Look at the forms of names and numbers."""
        mistakes = []
        for parameter in ("name", "group"):
            if parameter in spec and not _NAME.match(spec[parameter]):
                mistakes.append(f"{parameter} is not a valid account name: {spec[parameter]!r}")
        if not 0 <= spec.get("uid", 0) < 2**32 - 1:
            mistakes.append(f"uid is out of range: {spec['uid']}")
        for parameter in ("home", "shell"):
            if parameter in spec and not re.match(r"/[^:\n]*\Z", spec[parameter]):
                mistakes.append(f"{parameter} must be an absolute path, found {spec[parameter]!r}")
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare with /etc/passwd and /etc/group; only what is written in the specification counts."""
        accounts.forget(host)
        wanted = _wanted(spec)
        found = _found(spec["name"], host)
        if found is None:
            return Change("create", {"state": "absent"}, {"state": "present", **wanted}, "does not exist")
        after = {key: value for key, value in wanted.items() if found[key] != value}
        before = {key: found[key] for key in after}
        return Change("update", before, after, f"{' and '.join(after)} differ") if after else None

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Make the group, then the user; or change what differs."""
        group = _group(spec)
        had_group = accounts.group_id(host, group) is not None
        made_before = bool(host.note(spec["id"]).get("made_group"))
        host.remember(spec["id"], {"made_group": not had_group or made_before})
        if not had_group:
            numbered = ["--gid", str(spec["uid"])] if "uid" in spec and group == spec["name"] else []
            host.run(["groupadd", *(["--system"] if spec["system"] else []), *numbered, group])
        if change.action == "create":
            argv = [
                "useradd",
                "--no-user-group",
                "--no-create-home",
                "--gid",
                group,
                "--shell",
                spec["shell"],
            ]
            if spec["system"]:
                argv.append("--system")
            argv += ["--home-dir", spec.get("home", "/nonexistent")]
            if "uid" in spec:
                argv += ["--uid", str(spec["uid"])]
            host.run([*argv, spec["name"]])
        else:
            host.run(["usermod", *_options(change.after), spec["name"]])
        accounts.forget(host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Remove what was made, or change it back."""
        accounts.forget(host)
        found = _found(spec["name"], host)
        if change.action == "create":
            if found is not None:
                host.run(["userdel", spec["name"]])
        elif found is not None:
            host.run(["usermod", *_options(change.before), spec["name"]])
        accounts.forget(host)
        group = _group(spec)
        if host.note(spec["id"]).get("made_group") and accounts.group_id(host, group) is not None:
            host.run(["groupdel", group])
        accounts.forget(host)


def _group(spec: Spec) -> str:
    return str(spec.get("group", spec["name"]))


def _wanted(spec: Spec) -> State:
    wanted: State = {"group": _group(spec), "shell": spec["shell"]}
    for parameter in ("uid", "home"):
        if parameter in spec:
            wanted[parameter] = spec[parameter]
    return wanted


def _found(name: str, host: Host) -> t.Optional[State]:
    line = accounts.entries(host, "/etc/passwd").get(name)
    if line is None or len(line) < 7:
        return None
    groups = accounts.entries(host, "/etc/group")
    group = next((known for known, fields in groups.items() if fields[2] == line[3]), line[3])
    return {"uid": int(line[2]), "group": group, "home": line[5], "shell": line[6]}


def _options(values: State) -> t.List[str]:
    names = {"uid": "--uid", "group": "--gid", "home": "--home", "shell": "--shell"}
    return [part for key, value in values.items() for part in (names[key], str(value))]


KIND = UserKind()
