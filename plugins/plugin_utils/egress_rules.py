# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What hosts let their pods reach: rules in force, with who answers for them and how often they were used."""

from __future__ import annotations

import datetime
import json
import re
import typing as t
from collections.abc import Mapping

_ENTRY = re.compile(
    r"^ *# (?P<about>\{[^\n]*\})\n"
    r' *meta time < (?P<until>\d+) [^\n]* counter name "(?P<counter>allow_\d+)" accept$',
    re.MULTILINE,
)
_DAY = 86_400


class Rule(t.NamedTuple):
    """One entry of the allow-list as a host has it in force."""

    destination: str
    networks: list[str]
    protocol: str
    ports: list[str]
    last_day: str
    ended: bool
    owner: str
    reason: str
    packets: int


def rules_of(answer: Mapping[str, t.Any], now: float) -> list[Rule]:
    """Return the entries that a host has in force, in the order of its table.

    Args:
        answer: of the module ``egress_rules``.
        now: Unix time in seconds.

    Returns:
        The entries; owner and reason are empty where the table is not what the host's file says.
    """
    said = {found["counter"]: found for found in _ENTRY.finditer(answer["file"])}
    try:
        listed = json.loads(answer["rules"])["nftables"]
    except (ValueError, KeyError, TypeError):
        return []
    found = (_rule(item["rule"]["expr"], answer["counters"], said, now) for item in listed if "rule" in item)
    return [rule for rule in found if rule]


def _rule(
    parts: list[dict[str, t.Any]],
    counters: Mapping[str, int],
    said: Mapping[str, re.Match[str]],
    now: float,
) -> Rule | None:
    counter = next((part["counter"] for part in parts if isinstance(part.get("counter"), str)), "")
    matches = [part["match"] for part in parts if "match" in part]
    end = next((each["right"] for each in matches if each["left"].get("meta", {}).get("key") == "time"), None)
    if end is None:
        return None
    until = datetime.datetime.fromisoformat(str(end)).replace(tzinfo=datetime.UTC).timestamp()
    networks, ports, protocol = [], [], ""
    for each in matches:
        payload = each["left"].get("payload", {})
        if payload.get("field") == "daddr":
            networks = _items(each["right"])
        elif payload.get("field") == "dport":
            ports, protocol = _items(each["right"]), str(payload["protocol"])
    entry = said.get(counter)
    about = json.loads(entry["about"]) if entry and int(entry["until"]) == int(until) else {}
    last = datetime.datetime.fromtimestamp(until - _DAY, datetime.UTC).date()
    return Rule(
        destination=about.get("destination") or ", ".join(networks),
        networks=networks,
        protocol=protocol,
        ports=ports,
        last_day=str(last),
        ended=until <= now,
        owner=about.get("owner", ""),
        reason=about.get("reason", ""),
        packets=counters.get(counter, 0),
    )


def _items(right: t.Any) -> list[str]:
    """Return what a rule compares with, as people write it."""
    if isinstance(right, Mapping) and "set" in right:
        return [text for item in right["set"] for text in _items(item)]
    if isinstance(right, Mapping) and "prefix" in right:
        return [f"{right['prefix']['addr']}/{right['prefix']['len']}"]
    if isinstance(right, Mapping) and "range" in right:
        return ["-".join(str(end) for end in right["range"])]
    return [str(right)]


def report_of(answers: Mapping[str, Mapping[str, t.Any] | None], now: float) -> dict[str, t.Any]:
    """Return what every host has in force.

    Args:
        answers: of the module, by host; None or a failure of a host that did not answer.
        now: Unix time in seconds.

    Returns:
        ``hosts`` by name (``rules``, ``dropped`` packets by reason, and ``problem``), and ``ok``.
    """
    hosts: dict[str, dict[str, t.Any]] = {}
    for name, answer in answers.items():
        if answer is None or "counters" not in answer:
            hosts[name] = {"rules": [], "dropped": {}, "problem": "did not answer"}
            continue
        dropped = {key: number for key, number in answer["counters"].items() if not key.startswith("allow_")}
        rules = rules_of(answer, now)
        problem = "" if answer["rules"] else "the table is not loaded: pods reach everything"
        if any(not rule.owner for rule in rules):
            problem = "the table is not what this host's file says: systemctl reload ironspan-egress"
        hosts[name] = {"rules": [rule._asdict() for rule in rules], "dropped": dropped, "problem": problem}
    return {"hosts": hosts, "ok": not any(host["problem"] for host in hosts.values())}


def as_text(report: Mapping[str, t.Any]) -> str:
    """Return a report as lines for people."""
    lines = []
    for name, host in report["hosts"].items():
        lines.append(f"{name}:" + (f" {host['problem']}" if host["problem"] else ""))
        for rule in host["rules"]:
            end = f"{'ended' if rule['ended'] else 'until'} {rule['last_day']}"
            who = f"{rule['owner'] or 'nobody'}: {rule['reason'] or 'unknown'}"
            what = f"{rule['destination']} {rule['protocol']} {','.join(rule['ports'])}"
            lines.append(f"  {what}  {end}  {rule['packets']} packets  {who}")
        dropped = ", ".join(f"{key} {number}" for key, number in host["dropped"].items() if number)
        if host["dropped"]:
            lines.append(f"  dropped: {dropped or 'nothing'}")
    return "\n".join(lines)
