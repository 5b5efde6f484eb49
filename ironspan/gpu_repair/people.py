# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The repair of GPU nodes in words and tables, from the nodes themselves and what the controller tells."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping, Sequence

from ironspan.gpu_repair import records
from ironspan.gpu_repair.model import (
    ACTION,
    DONE,
    EVENTS,
    PREFLIGHT,
    RECORD,
    RELEASE,
    SEEN,
    Node,
    State,
)
from ironspan.gpu_repair.reading import Object, condition, node_of

TODO: Mapping[State, str] = {
    State.JOINING: "nothing: it is tested when its kubelet is ready and its agent has named its GPUs",
    State.TESTING: "nothing; the agent's journal says how its preflight goes (journalctl -u ironspan-gpud)",
    State.READY: "nothing",
    State.SUSPECT: "nothing; it is drained when its turn comes",
    State.DRAINING: "look at what holds its pods back (below)",
    State.RESETTING: "nothing",
    State.REBOOTING: "nothing",
    State.POWER_CYCLE: "cycle its power: ironspan bmc power cycle {node} --expected FILE --allow-destructive",
    State.RETEST: "nothing; the agent's journal says how its preflight goes (journalctl -u ironspan-gpud)",
    State.TRIAGE: "look at it (ironspan gpu dossier {node}); then ironspan gpu release {node} --reason TEXT, "
    "with --rma where a part is to be replaced",
    State.RMA: "replace the part; with other serial numbers it comes back by itself",
    State.REPLACED: "nothing",
}


class Row(t.NamedTuple):
    """One line of the table of nodes."""

    node: str
    rack: str
    state: str
    since: str
    worst: str
    next: str


def rows(found: Sequence[Object], told: Mapping[str, t.Any], *, everything: bool = False) -> list[Row]:
    """Return a row for each node with GPUs, those in repair first.

    Args:
        found: Node objects.
        told: what the controller told last.
        everything: those that are at work, too.
    """
    made = []
    for each in found:
        node = _node(each)
        marked = node.record or node.gated or node.held or node.serials
        wants = node.name in _mapping(told, "waiting") or node.name in _mapping(told, "proposed")
        if marked and (everything or wants or node.unreadable or node.state is not State.READY):
            made.append(_row(node, told))
    return sorted(made, key=lambda row: (row.state == str(State.READY), row.node))


def table(made: Sequence[Row]) -> list[str]:
    """Return rows as lines of equal columns."""
    if not made:
        return ["no node is in repair"]
    lines = [Row("NODE", "RACK", "STATE", "SINCE", "WORST", "NEXT"), *made]
    wide = [min(48, max(len(line[column]) for line in lines)) for column in range(5)]
    return [
        "  ".join([*(_cut(line[column], wide[column]) for column in range(5)), line.next]) for line in lines
    ]


def head(told: Mapping[str, t.Any]) -> list[str]:
    """Return what the controller says of itself, in lines."""
    if not told:
        return ["the controller has told nothing yet: is gpu_repair_enabled set, and does one run?"]
    lines = [
        f"mode {told.get('mode')}: {told.get('out')} of at most {told.get('most_out')} nodes out of service "
        f"(of {told.get('nodes')}), {told.get('at_work')} of at most {told.get('most_at_once')} in repair"
    ]
    if told.get("frozen"):
        lines.append(f"FROZEN since {told.get('written')}: {told['frozen']}")
    if told.get("storm"):
        lines.append(
            f"STORM: {told['storm']} nodes wait; no repair begins until two people say so: ironspan gpu storm"
        )
    return lines


def story(found: Object, told: Mapping[str, t.Any]) -> list[str]:
    """Return why a node is where it is, its history, and what to do."""
    node = _node(found)
    row, record = _row(node, told), node.record
    lines = [f"{node.name}: {row.state}" + (f" since {row.since}" if row.since else "")]
    if node.unreadable:
        lines.append("  what was known of it cannot be read")
    if record:
        lines.append(f"  why: {record.reason}")
        lines += [f"  evidence: {line}" for line in record.evidence]
        if record.expires:
            lines.append(f"  until: {records.moment(record.expires)}")
        lines += [f"  tried: {each.do} at {records.moment(each.at)}" for each in record.tries]
    waits = _mapping(told, "waiting").get(node.name)
    if waits:
        lines.append(f"  waits: {waits}")
    proposed = _mapping(told, "proposed").get(node.name)
    if proposed:
        lines.append(f"  would be {proposed} (mode {told.get('mode')})")
    lines.append(f"  to do: {TODO[node.state].format(node=node.name)}")
    if node.events:
        lines.append("  what it reports:")
        lines += [
            f"    {event.key} {event.gpu} since {event.since} {event.detail}".rstrip()
            for event in node.events
        ]
    if node.preflight:
        said = {True: "passed", False: "failed", None: "no verdict"}[node.preflight.passed]
        lines.append(f"  preflight of this boot: {said}, ended {records.moment(node.preflight.ended)}")
        lines += [f"    failed: {line}" for line in node.preflight.failed]
        lines += [f"    missing: {line}" for line in node.preflight.missing]
    if record and record.history:
        lines.append("  history:")
        lines += [f"    {records.moment(at)} {state}: {why}" for at, state, why in record.history]
    return lines


def dossier(found: Object, events: Sequence[Object], told: Mapping[str, t.Any], now: float) -> str:
    """Return all that the cluster knows of a node's fault, as one text for who repairs or replaces it.

    Args:
        found: the Node object.
        events: Event objects about it.
        told: what the controller told last.
        now: seconds since the epoch.
    """
    name, info = found["metadata"]["name"], found.get("status", {}).get("nodeInfo", {})
    annotations = found["metadata"].get("annotations") or {}
    lines = [f"# GPU fault of {name}", "", f"Written {records.moment(now)} by ironspan gpu dossier.", ""]
    lines += ["## Where it is", "", *story(found, told), "", "## Host", ""]
    lines += [f"{key}: {value}" for key, value in sorted(info.items())]
    for kind in ("GPUHealthy", "GPUPreflight"):
        said = condition(found, kind)
        lines.append(f"condition {kind}: {said.get('status', 'none')} {said.get('message', '')}".rstrip())
    for title, key in (
        ("GPUs: serial numbers, UUIDs, PCI addresses", SEEN),
        ("Events, with what the kernel said", EVENTS),
        ("Preflight", PREFLIGHT),
        ("What was asked of its agent", ACTION),
        ("What its agent answered", DONE),
        ("A person's word", RELEASE),
        ("The controller's record", RECORD),
    ):
        lines += ["", f"## {title}", "", _pretty(annotations.get(key))]
    lines += ["", "## Events of the cluster", ""]
    lines += [
        f"{each.get('lastTimestamp') or each.get('eventTime')} {each.get('reason')}: {each.get('message')}"
        for each in events
    ]
    text = "\n".join(lines) + "\n"
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def state_of(found: Object) -> State:
    """Return the state of a Node object."""
    return _node(found).state


def record_text(found: Object) -> t.Any:
    """Return the record on a Node object as data, None when there is none that can be read."""
    try:
        return json.loads((found["metadata"].get("annotations") or {}).get(RECORD, "null"))
    except ValueError:
        return None


def _node(found: Object) -> Node:
    return node_of(found, "", ())


def _row(node: Node, told: Mapping[str, t.Any]) -> Row:
    record, state = node.record, "unreadable" if node.unreadable else str(node.state)
    worst = record.evidence[0] if record and record.evidence else ""
    if not worst and node.events:
        worst = f"{node.events[0].key} {node.events[0].gpu}".strip()
    following = _mapping(told, "waiting").get(node.name) or _mapping(told, "proposed").get(node.name) or ""
    if not following and node.state is not State.READY:
        following = TODO[node.state].format(node=node.name)
    if record and record.expires and node.state is not State.READY:
        following = f"until {records.moment(record.expires)}: {following}"
    since = records.moment(record.since) if record else ""
    return Row(node.name, str(_mapping(told, "racks").get(node.name, "")), state, since, worst, following)


def _mapping(told: Mapping[str, t.Any], name: str) -> Mapping[str, str]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}


def _pretty(text: t.Any) -> str:
    if not text:
        return "(nothing)"
    try:
        return json.dumps(json.loads(text), indent=1)
    except ValueError:
        return str(text)


def _cut(text: str, width: int) -> str:
    return (text if len(text) <= width else text[: width - 3] + "...").ljust(width)
