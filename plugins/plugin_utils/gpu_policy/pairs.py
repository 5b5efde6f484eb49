# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which two nodes of a rack test each other, and which of them it was when the test failed.

Nodes say of themselves how it went. A test counts when both have it in their evidence, and a node is named
only by tests with two others.
"""

from __future__ import annotations

import collections
import datetime
import json
import typing as t
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import idle

Object = Mapping[str, t.Any]
PAIRS, VERDICT = "ironspan.io/gpu-pairs", "ironspan.io/gpu-pair-events"
EVENT = "nvml pair_failed"
ANSWER_S = 120.0
"""Seconds in which the agents may begin; each looks for requests every ten."""
IDLE, NEW = "idle", "new"


class Pair(t.NamedTuple):
    """Two nodes; the first one listens."""

    first: str
    second: str


class Choice(t.NamedTuple):
    """Who tests whom.

    Args:
        pairs: those whose last test is the longest ago first.
        spare: rack and kind -> nodes that may be the third, the pairs' own too.
        left: node to reason.
    """

    pairs: list[Pair]
    spare: dict[str, list[str]]
    left: dict[str, str]


class Outcome(t.NamedTuple):
    """How it went.

    Args:
        well: None where it says nothing about either.
        why: for people.
    """

    well: bool | None
    why: str


class Settled(t.NamedTuple):
    """What all tests together say.

    Args:
        outcomes: of each pair, in the order in which they ran.
        bad: node -> the tests that name it.
        unsettled: pairs that failed and name neither, with the reason.
    """

    outcomes: dict[Pair, Outcome]
    bad: dict[str, str]
    unsettled: dict[Pair, str]


def choose(
    racks: Mapping[str, str], nodes: Iterable[Object], pods: Iterable[Object], *, days: int, now: float
) -> Choice:
    """Return which nodes test each other.

    Both of a pair are idle, or both are new ones that have to pass a preflight.

    Args:
        racks: GPU hosts of the inventory, and the rack of each.
        nodes: Node objects.
        pods: of all nodes.
        days: how old a node's last test with another one has to be; it is enough when one of two is due.
        now: seconds since 1970.
    """
    known = {str(node["metadata"]["name"]): node for node in nodes}
    working = {str(pod.get("spec", {}).get("nodeName")) for pod in pods if idle.works(pod)}
    left: dict[str, str] = {}
    places: dict[str, list[tuple[float, str]]] = collections.defaultdict(list)
    for name, rack in racks.items():
        why = idle.reason(known.get(name), name in working, now)
        kind = NEW if why == idle.TAINTED else IDLE
        if why not in ("", idle.TAINTED):
            left[name] = why
        elif not rack:
            left[name] = "it has no rack: write site_rack, or put it into a group rack_NAME"
        else:
            places[f"{rack} {kind}"].append((_tested(known[name]), name))
    pairs: list[tuple[float, Pair]] = []
    for found in places.values():
        found.sort()
        for (before, one), (after, other) in zip(found[::2], found[1::2], strict=False):
            if now - before >= days * 86400:
                pairs.append((before, Pair(*sorted((one, other)))))
            else:
                left |= dict.fromkeys((one, other), f"tested less than {days} days ago")
            del after
        if len(found) % 2:
            left[found[-1][1]] = "no other node of its rack is left"
    spare = {place: [name for _, name in found] for place, found in places.items()}
    return Choice([pair for _, pair in sorted(pairs)], spare, left)


def settle(choice: Choice, run: Callable[[Sequence[Pair]], Mapping[Pair, Outcome]]) -> Settled:
    """Let the pairs test each other, and let a third node say which one it was where they fail.

    Args:
        choice: who tests whom.
        run: lets pairs of different nodes test each other at the same time.
    """
    outcomes = dict(run(choice.pairs)) if choice.pairs else {}
    failed = [pair for pair, outcome in outcomes.items() if outcome.well is False]
    busy = {name for pair in failed for name in pair}
    thirds: dict[Pair, str] = {}
    for pair in failed:
        place = next((found for found in choice.spare.values() if pair.first in found), [])
        # Those that were well with another one just now come first.
        free = [name for name in place if name not in busy and name not in thirds.values()]
        free.sort(key=lambda name: not _well(name, outcomes))
        if free:
            thirds[pair] = free[0]
    for side in (0, 1):
        again = [Pair(*sorted((pair[side], third))) for pair, third in thirds.items()]
        if again:
            outcomes |= run(again)
    bad: dict[str, str] = {}
    unsettled: dict[Pair, str] = {}
    for pair in failed:
        if pair not in thirds:
            unsettled[pair] = "no third node of the rack is idle"
            continue
        tests = {name: outcomes[Pair(*sorted((name, thirds[pair])))] for name in pair}
        words = {True: "well", False: "bad", None: "not tested"}
        verdicts = [tests[name].well for name in pair]
        if sorted(verdicts, key=str) == [False, True]:
            name = pair[verdicts.index(False)]
            other = pair[verdicts.index(True)]
            bad[name] = (
                f"with {other}: {outcomes[pair].why}; with {thirds[pair]}: {tests[name].why}; "
                f"{other} is well with {thirds[pair]}"
            )
        else:
            told = ", ".join(f"{name} is {words[tests[name].well]}" for name in pair)
            unsettled[pair] = f"with {thirds[pair]} {told}: {outcomes[pair].why}"
    return Settled(outcomes, bad, unsettled)


def _well(name: str, outcomes: Mapping[Pair, Outcome]) -> bool:
    return any(name in pair and outcome.well for pair, outcome in outcomes.items())


def actions(pair: Pair, address: str, port: int, now: float) -> dict[str, str]:
    """Return the text of the annotation that asks each of two nodes.

    Args:
        pair: the nodes.
        address: of the first.
        port: on which it listens.
        now: seconds since 1970.
    """
    made = str(uuid.uuid4())
    until = datetime.datetime.fromtimestamp(now + ANSWER_S, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    asked = {"id": made, "do": "pair", "gpu": None, "expires": until}
    return {
        name: json.dumps(
            {**asked, "pair": {"with": other, "address": address, "port": port, "listens": listens}},
            separators=(",", ":"),
        )
        for name, other, listens in ((pair.first, pair.second, True), (pair.second, pair.first, False))
    }


def outcome(pair: Pair, asked: str, nodes: Mapping[str, Object], wanted: Sequence[str]) -> Outcome | None:
    """Return how the test of two nodes went; None while it runs.

    Args:
        pair: the nodes.
        asked: id of the request.
        nodes: Node objects by their names.
        wanted: tests that may not be left out.
    """
    found: list[Mapping[str, t.Any]] = []
    for name in pair:
        annotations = (nodes.get(name) or {"metadata": {}})["metadata"].get("annotations") or {}
        done = idle.mapping(annotations.get(idle.DONE))
        if done.get("id") == asked and done.get("ok") is not True:
            return Outcome(None, f"{name}: {str(done.get('detail'))[:160]}")
        found += [each for each in _list(annotations.get(PAIRS)) if each.get("id") == asked]
    if len(found) < len(pair):
        return None
    for name, each in zip(pair, found, strict=True):
        if each.get("yielded") is True:
            return Outcome(None, f"{name}: {str(each.get('why'))[:160]}")
    failures = [
        f"{result.get('test')} {_figures(result)}"
        for each in found
        for result in _list(each.get("results"))
        if result.get("passed") is False
    ]
    if failures:
        return Outcome(False, "; ".join(dict.fromkeys(failures))[:400])
    # One that was ended says nothing, whatever came out before.
    for name, each in zip(pair, found, strict=True):
        if each.get("passed") is not True:
            return Outcome(None, f"{name}: {str(each.get('why'))[:160]}")
    passed = [
        {str(result.get("test")) for result in _list(each.get("results")) if result.get("passed") is True}
        for each in found
    ]
    if lacks := [test for test in wanted if not all(test in each for each in passed)]:
        skipped = {
            f"{result.get('test')}: {str(result.get('detail'))[:120]}"
            for each in found
            for result in _list(each.get("results"))
            if result.get("passed") is None
        }
        return Outcome(None, f"skipped: {', '.join(lacks)}; {'; '.join(sorted(skipped))}"[:400])
    return Outcome(
        True, "; ".join(f"{each.get('test')} {_figures(each)}" for each in _list(found[0].get("results")))
    )


def events(why: str, boot: str, now: float) -> str:
    """Return the text of the annotation that tells the repair controller of a node that is bad."""
    at = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = {
        "event": EVENT,
        "gpu": "",
        "since": at,
        "last": at,
        "count": 1,
        "boot": boot,
        "detail": why[:400],
    }
    return json.dumps([entry], separators=(",", ":"))


def _figures(result: Mapping[str, t.Any]) -> str:
    words = []
    if isinstance(result.get("measured"), int | float):
        of = f" of {result['wanted']:g}" if isinstance(result.get("wanted"), int | float) else ""
        words.append(f"{result['measured']:g}{of} {str(result.get('unit'))[:16]}")
    return ", ".join([*words, *filter(None, [str(result.get("detail") or "")[:160]])])


def _tested(node: Object) -> float:
    """Return when a node's last test with another one that says something was; 0 for never."""
    annotations = node["metadata"].get("annotations") or {}
    times = [
        idle.moment(each.get("ended"))
        for each in _list(annotations.get(PAIRS))
        if each.get("passed") is not None
    ]
    return max(times, default=0.0)


def _list(value: t.Any) -> Sequence[Mapping[str, t.Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    entries: list[t.Any] = value if isinstance(value, list) else []
    return [each for each in entries if isinstance(each, dict)][:64]
