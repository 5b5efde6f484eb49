# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts of a run: how each of them ended, shown by side and rack."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ironspan.pages import parts
from ironspan.pages.markup import Content, element
from ironspan.pages.parts import Tone
from ironspan.pages.words import count

SIDES: Mapping[str, str] = {"azure": "Azure", "on_prem": "On premises", "": "Not placed"}
"""What people call the two ends of the link."""
OPEN_HOSTS = 80
"""With more hosts than this only racks with a problem are open."""
_WORDS: Mapping[Tone, str] = {
    "bad": "failed", "warn": "unreachable or unfit", "new": "changed", "ok": "unchanged", "idle": "not begun",
}  # fmt: skip


class Standing(t.NamedTuple):
    """How a host ended.

    Args:
        tone: failed, unreachable or unfit, changed, unchanged, not begun.
        changes: how many things were changed on it.
        seconds: how long its tasks took.
        why: what is wrong with it, in one line.
    """

    tone: Tone
    changes: int = 0
    seconds: float = 0.0
    why: str = ""


def standings_of(run: Mapping[str, t.Any]) -> dict[str, Standing]:
    """Return how the hosts of a run ended, by name; the controller is none of them."""
    changes: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for phase in run["phases"]:
        for host, did in phase["hosts"].items():
            changes[host] = changes.get(host, 0) + did["changes"]
            seconds[host] = seconds.get(host, 0.0) + did["seconds"]
    tones: dict[str, Tone] = {host: "new" if made else "ok" for host, made in changes.items()}
    tones |= dict.fromkeys(run["waiting"], "idle")
    why: dict[str, str] = {}
    for failure in run["failures"]:
        host = failure["host"]
        worse: Tone = "warn" if failure["why"] in ("unreachable", "unfit") else "bad"
        tones[host] = "bad" if tones.get(host) == "bad" else worse
        why.setdefault(host, failure["reason"].partition("\n")[0])
    for host in run["waiting"]:
        why.setdefault(host, "compared, and something is still to do")
    tones.pop("localhost", None)
    return {
        host: Standing(tone, changes.get(host, 0), seconds.get(host, 0.0), why.get(host, ""))
        for host, tone in sorted(tones.items())
    }


def by_rack(places: Mapping[str, Mapping[str, Sequence[str]]], standings: Mapping[str, Standing]) -> Content:
    """Return hosts by side and rack.

    Args:
        places: side -> rack -> names of hosts, as the inventory has them.
        standings: by name; those of the inventory that are not in it had no part in the run.
    """
    if not standings:
        return parts.section("Hosts", element("p", "No host had a part in this run.", class_="soft card"))
    placed = {host for racks in places.values() for hosts in racks.values() for host in hosts}
    strangers = [host for host in standings if host not in placed]
    whole = {**places, **({"": {"": strangers}} if strangers else {})}
    opened = len(standings) <= OPEN_HOSTS
    content: list[Content] = [_legend(standings)]
    for side, racks in whole.items():
        shown = [
            _rack(rack, [(host, standings[host]) for host in hosts if host in standings], opened)
            for rack, hosts in sorted(racks.items())
            if any(host in standings for host in hosts)
        ]
        if not shown:
            continue
        if side or len(whole) > 1:
            content.append(element("h3", SIDES.get(side, side)))
        content.append(element("div", *shown, class_="racks"))
    return parts.section("Hosts", *content)


def _legend(standings: Mapping[str, Standing]) -> Content:
    tally = _tally(list(standings.values()))
    return element(
        "ul", *(parts.cell(tone, f"{number:,} {_WORDS[tone]}") for tone, number in tally), class_="legend"
    )


def _tally(standings: Sequence[Standing]) -> list[tuple[Tone, int]]:
    counts = [(tone, sum(each.tone == tone for each in standings)) for tone in _WORDS]
    return [(tone, number) for tone, number in counts if number]


def _rack(name: str, hosts: Sequence[tuple[str, Standing]], opened: bool) -> Content:
    hosts = sorted(hosts, key=lambda item: (list(_WORDS).index(item[1].tone), item[0]))
    tally = _tally([each for _, each in hosts])
    wrong = [(tone, number) for tone, number in tally if tone in ("bad", "warn", "idle")]
    words = ", ".join(f"{number:,} {_WORDS[tone]}" for tone, number in wrong)
    said = element("span", count(len(hosts), "host"), class_="tally soft")
    return parts.folded(
        [name or "without a rack", said, parts.tag(words, wrong[0][0]) if wrong else None],
        element("div", element("ul", *(_cell(*each) for each in hosts), class_="cells"), class_="inside"),
        opened=opened or bool(wrong),
        class_="card whole" if wrong else "card",
    )


def _cell(name: str, standing: Standing) -> Content:
    detail = f"({standing.changes})" if standing.changes else ""
    if standing.why:
        detail = f"{detail}{' ' if detail else ''}· {standing.why[:120]}"
    return parts.cell(standing.tone, name, detail)
