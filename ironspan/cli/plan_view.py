# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What both displays of a plan show: its numbers, its hosts, and the lines that differ."""

from __future__ import annotations

import difflib
import json
import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import CONSENTED, EFFECTS

CONTEXT = 3


class Line(t.NamedTuple):
    """One line of a difference; sign is "+", "-", " ", "@", or "!" for a step that needs consent."""

    sign: str
    text: str


class Item(t.NamedTuple):
    """One thing that changes, on a host, in the cluster or beside them."""

    name: str
    kind: str
    action: str
    reason: str
    lines: list[Line]


def duration(seconds: int) -> str:
    """Return a length of time in the unit that people would use."""
    if seconds < 90:
        return f"{seconds} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def difference(before: str, after: str) -> list[Line]:
    """Return the lines of a unified diff, without its header."""
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), n=CONTEXT, lineterm="")
    lines = [Line(line[0] if line else " ", line[1:]) for line in found][2:]
    return [Line("@", f"@{line.text}") if line.sign == "@" else line for line in lines]


def attributes(change: Mapping[str, t.Any]) -> list[Line]:
    """Return the attributes that differ, each before and after."""
    before, after = change["before"], change["after"]
    # Digests say nothing that the text does not.
    hidden = {"sha256"} if "text" in change else set()
    lines = []
    for name in sorted((before.keys() | after.keys()) - hidden):
        if name in before and before[name] != after.get(name):
            lines.append(Line("-", f"{name}: {_value(before[name])}"))
        if name in after and after[name] != before.get(name):
            lines.append(Line("+", f"{name}: {_value(after[name])}"))
    return lines


def _value(value: t.Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def items_of(host: Mapping[str, t.Any]) -> Iterator[Item]:
    """Yield what changes on a host, in order; last what waits for an input that only the run has."""
    for change in host["changes"]:
        lines = attributes(change)
        if "text" in change:
            lines += difference(change["text"]["before"], change["text"]["after"])
        yield Item(change["resource"], change["kind"], change["action"], change["reason"], lines)
    for entry in host["pending"]:
        what, _, name = entry["needs"].partition(":")
        yield Item(entry["resource"], entry["kind"], "then", f"needs the {what} {name}, made by the run", [])


def cluster_items(cluster: Mapping[str, t.Any]) -> Iterator[Item]:
    """Yield what changes in the cluster."""
    for change in cluster["changes"]:
        action = "delete" if not change["after"] else "update" if change["before"] else "create"
        lines = difference(change["before"], change["after"])
        if action == "delete":
            lost = change.get("loss")
            lines = [Line("!", f"{lost} is lost: needs consent")] if lost else []
        yield Item(change["name"], change["kind"], action, change.get("why", ""), lines)


def remote_items(things: Sequence[Mapping[str, t.Any]]) -> Iterator[Item]:
    """Yield the remote things that change, and those that are left alone because something is wrong."""
    for thing in things:
        name, lines = f"{thing['kind']} {thing['name']}", []
        for number, step in enumerate(thing["steps"], 1):
            asked = CONSENTED & set(step["effects"])
            details = [EFFECTS[effect] for effect in step["effects"] if effect != "costs"]
            details += [f"costs {step['costs']}"] if step["costs"] else []
            details += [f"users notice: {step['disruption']}"] if step["disruption"] else []
            details += [f"about {duration(step['seconds'])}"] if step["seconds"] else []
            more = f" ({', '.join(details)})" if details else ""
            lines.append(Line("!" if asked else " ", f"{number}. {step['what']}{more}"))
        lines += difference(_yaml(thing["found"]), _yaml(thing["after"]))
        lines += [Line(" ", f"note: {note}") for note in thing["notes"]]
        if thing["steps"]:
            action = "create" if thing["found"] is None else "delete" if thing["after"] is None else "update"
            yield Item(name, thing["kind"], action, "", lines)
        elif thing["fault"]:
            yield Item(name, thing["kind"], "skip", thing["fault"], lines)


def _yaml(state: Mapping[str, t.Any] | None) -> str:
    # Every command imports this file, and few show a thing.
    import yaml

    return yaml.safe_dump(dict(state)) if state else ""


def details_of(step: Mapping[str, t.Any]) -> list[str]:
    """Return what a reviewer weighs about a step: first what it is compared by, then the words."""
    return [
        f"step: {step['action']}{f' of {step["target"]}' if step['target'] else ''}",
        *([str(step["arithmetic"])] if step["arithmetic"] else []),
        *([f"users notice: {step['disruption']}"] if step["disruption"] else []),
        *([f"about {duration(step['seconds'])}"] if step["seconds"] else []),
        *(["cannot be undone"] if step["destructive"] else []),
    ]


def facts(content: Mapping[str, t.Any]) -> list[tuple[str, str]]:
    """Return the numbers at the top, as (name, value)."""
    summary, approvals = content["summary"], content["policy"]["approvals"]
    return [
        *([("approvals wanted when it was made", str(approvals))] if approvals else []),
        ("hosts that change", f"{summary['hosts_changing']} of {summary['hosts']}"),
        *([("steps", str(summary["steps"]))] if content["steps"] else []),
        ("changes on hosts", str(summary["changes"] + summary["pending"])),
        ("changes in the cluster", str(summary["cluster_changes"])),
        *([("changes of remote things", str(summary["remote_changes"]))] if content["remote"] else []),
        ("running services restarted", str(summary["interrupts"])),
        ("reboots", str(summary["reboots"])),
        ("estimated time", duration(summary["seconds"])),
    ]
