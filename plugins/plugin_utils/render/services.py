# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The resources of a program that a role installs: what every program has, where every program has it.

    /opt/ironspan/NAME/bin/ironspan-NAME    the program, packed (docs/artifacts.md) or a single file
    /etc/ironspan/NAME.json                 its settings
    /var/lib/ironspan/NAME                  what it remembers
    ironspan-NAME.service                   its unit

Programs from before these places have others, which stay: what moves on hosts is another program there.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render import programs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import to_json

UNITS = "/etc/systemd/system"
_NOT_OURS = ("/opt", "/etc", "/usr", "/usr/local", "/usr/local/lib")
"""Folders that every host has."""
_FOLDER_IDS = {1: ("folder",), 2: ("root", "bin"), 3: ("root", "folder", "bin")}
"""Ids of the folders above a program, by their number."""

Resource = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where a program and what belongs to it is on a host.

    Args:
        program, settings, state: paths; an empty one is not there.
        unit: name of its unit, without the ending.
    """

    program: str
    settings: str
    state: str
    unit: str

    @classmethod
    def of(cls, name: str, others: Mapping[str, str]) -> Places:
        """Return the places of a program.

        Args:
            name: of the program.
            others: those that are elsewhere, by their names here.
        """
        usual = cls(
            f"/opt/ironspan/{name}/bin/ironspan-{name}",
            f"/etc/ironspan/{name}.json",
            f"/var/lib/ironspan/{name}",
            f"ironspan-{name}",
        )
        return dataclasses.replace(usual, **others)


def unit_file(id: str, name: str, content: str) -> str:
    """Return the resource of a unit's file.

    Args:
        id: of the resource.
        name: of the unit, with its ending.
        content: of the file.
    """
    return _lines([{"kind": "file", "id": id, "path": f"{UNITS}/{name}", "content": content}])


def service(
    name: str,
    program: Mapping[str, t.Any] | str,
    settings: str | Mapping[str, t.Any] = "",
    unit: str | None = None,
    *,
    description: str = "",
    command: str = "run",
    memory: str = "128M",
    user: str = "",
    writable: Sequence[str] = (),
    secret: bool = False,
    keep: bool = False,
    requires: Sequence[str] = (),
    restart_on: Sequence[str] = (),
    prefix: str = "",
    places: Mapping[str, str] | None = None,
    ids: Mapping[str, str] | None = None,
    caller: Callable[[], str] | None = None,
) -> str:
    """Return the resources of a program; those in a ``{% call %}`` block are there before its unit starts.

    Args:
        name: of the program.
        program: ``artifact(...)`` of a packed one, or ``program(...)``, the text of a single file.
        settings: text of its settings file, or what it holds; empty for a program without.
        unit: text of its unit; without it ``description`` makes one. With neither the program is only
            installed, for units that the role declares itself.
        description: one line for people, for the unit.
        command: how the unit starts it.
        memory: what it may use, as systemd writes it.
        user: account of its own that it runs as, which is made. When empty it is root, with nothing of root's
            rights but reading and writing files of others. What an account remembers is in a folder
            /var/lib/ironspan-NAME.
        writable: further folders that it may write to.
        secret: whether nobody but root reads the settings.
        keep: whether what it remembers stays where the role declares the program no longer.
        requires: ids of what must be there before it starts.
        restart_on: ids of what it restarts for, besides program, settings and unit.
        prefix: before the ids of the resources, where a role has several programs.
        places: other places, by the names of ``Places``.
        ids: other ids, by the usual ones. An empty one leaves the resource out: another program has it.
        caller: the ``{% call %}`` block.
    """
    # No account but root comes through /var/lib/ironspan.
    own_state = {"state": f"/var/lib/ironspan-{name}"} if user else {}
    at = Places.of(name, {**own_state, **(places or {})})

    def named(part: str) -> str:
        usual = prefix + part if part != "service" or not prefix else prefix.rstrip("-")
        return (ids or {}).get(part, usual)

    def folder(part: str, path: str, mode: str = "") -> Resource:
        return {"kind": "directory", "id": named(part), "path": path, **({"mode": mode} if mode else {})}

    above = _above(at.program)
    parts = [part if prefix else f"program-{part}" for part in _FOLDER_IDS[len(above)]]
    found = [folder(part, path) for part, path in zip(parts, above, strict=True)]
    if len(above) > 1:
        found[-2]["with_contents"] = True  # beside its own folder the program unpacks itself
    if user:
        found.append({"kind": "user", "id": named("user"), "name": user, "home": at.state or "/nonexistent"})
    if isinstance(program, str):
        found.append({"kind": "file", "id": named("program"), "path": at.program, "content": program})
    else:
        wanted = {"url_path": program["path"], "sha256": program["sha256"], "size": program["size"]}
        found.append({"kind": "artifact", "id": named("program"), **wanted, "path": at.program})
    if settings:
        found += [folder("configuration", path) for path in _above(at.settings)]
        text = settings if isinstance(settings, str) else json.dumps(settings, indent=1) + "\n"
        file = {"kind": "file", "id": named("settings"), "path": at.settings, "content": text}
        found.append({**file, "mode": "0600"} if secret else file)
    if at.state:
        found.append({**folder("data", at.state, "0700"), **({} if keep else {"with_contents": True})})
    if user:
        for resource in found:
            if resource["id"] in (named("settings") if secret else "", named("data")):
                resource |= {"owner": user, "group": user, "requires": [named("user")]}
    own = caller() if caller else ""
    if unit is None and description:
        start = programs.starts(at.program, command)
        if isinstance(program, str):
            start = programs.single(at.program, at.settings if settings else "")
        folders = [at.state, *writable] if at.state else writable
        shut = programs.sandbox(folders, "") if user else programs.sandbox(folders)
        account = f"User={user}\nGroup={user}\n" if user else ""
        unit = programs.always(description, start, f"{account}MemoryMax={memory}\n{shut}\n")
    runs: list[Resource] = []
    if unit:
        restarts = [named("program"), *([named("settings")] if settings else []), named("unit"), *restart_on]
        runs = [
            {"kind": "file", "id": named("unit"), "path": f"{UNITS}/{at.unit}.service", "content": unit},
            {
                "kind": "systemd_unit",
                "id": named("service"),
                "name": f"{at.unit}.service",
                "requires": [*([named("data")] if at.state else []), *requires],
                "restart_on": restarts,
            },
        ]
    found = [resource for resource in found if resource["id"]]
    return _lines(found) + own + _lines(runs)


def _above(path: str) -> list[str]:
    """Return the folders above a path that a program brings, outermost first."""
    parts = path.split("/")[1:-1]
    folders = ["/" + "/".join(parts[: number + 1]) for number in range(len(parts))]
    return [folder for folder in folders if folder not in _NOT_OURS]


def _lines(resources: Sequence[Resource]) -> str:
    return "".join(f"- {to_json(resource)}\n" for resource in resources)
