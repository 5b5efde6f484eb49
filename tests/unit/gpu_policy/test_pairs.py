# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which idle nodes test each other, and which one is named when a test fails."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping, Sequence

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import idle, pairs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.pairs import Choice, Outcome, Pair
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped

from ironspan.gpu_repair import model
from ironspan.gpu_repair.reading import node_of
from ironspan.gpud import actions
from ironspan.gpud.preflight import ask

from .test_idle import DAY, NOW, node, pod, stamp


def before(days: float, passed: bool | None = True) -> dict[str, t.Any]:
    entry = {"id": "0", "passed": passed, "ended": stamp(NOW - days * DAY)}
    return {"annotations": {pairs.PAIRS: json.dumps([entry])}}


def choose(racks: Mapping[str, str], *nodes: t.Any, pods: t.Any = (), days: int = 7) -> Choice:
    return pairs.choose(racks, nodes, pods, days=days, now=NOW)


def test_names_are_those_of_the_agent_and_the_repair_controller() -> None:
    assert (pairs.PAIRS, pairs.VERDICT) == (ask.PAIRS, model.PAIR_EVENTS)
    assert {str(state) for state in (model.State.JOINING, model.State.TESTING)} == idle.NEW
    assert shipped().rule(shipped().event(pairs.EVENT)).action == "A4"


def test_two_of_a_rack_that_were_tested_the_longest_ago_and_never_across_racks() -> None:
    racks = {"a": "r1", "b": "r1", "c": "r1", "d": "r2", "e": "", "f": "r1", "g": "r1"}
    made = choose(
        racks, node("a", **before(9)), node("b"), node("c", **before(30)), node("d"), node("e"),
        node("f", **before(2)), node("g", **before(1)),
    )  # fmt: skip
    # One of two that is due is enough; who has the odd number waits.
    assert made.pairs == [Pair("b", "c"), Pair("a", "f")]
    assert made.left == {
        "d": "no other node of its rack is left",
        "g": "no other node of its rack is left",
        "e": "it has no rack: write site_rack, or put it into a group rack_NAME",
    }
    fresh = choose({"a": "r", "b": "r"}, node("a", **before(1)), node("b", **before(2)))
    assert fresh.pairs == []
    assert fresh.left["a"] == "tested less than 7 days ago"
    # A test that was ended says nothing.
    assert choose({"a": "r", "b": "r"}, node("a", **before(1, None)), node("b", **before(1))).pairs


def test_idle_ones_with_idle_ones_and_new_ones_with_new_ones() -> None:
    new: dict[str, t.Any] = {"spec": {"taints": [{"key": model.PREFLIGHT_TAINT}]}}
    repaired: dict[str, t.Any] = {"annotations": {model.RECORD: '{"state":"retest"}'}, **new}
    racks = dict.fromkeys("abcdefg", "r1")
    joining: dict[str, t.Any] = {"annotations": {model.RECORD: '{"state":"joining"}'}, **new}
    made = choose(
        racks, node("a"), node("b", **new), node("c", **joining), node("d"), node("e", **repaired),
        node("f"), node("g"), pods=[pod("f")],
    )  # fmt: skip
    assert sorted(made.pairs) == [Pair("a", "d"), Pair("b", "c")]
    assert made.left["e"] == "it is in repair"
    assert made.left["f"] == "a pod uses its GPUs"


def test_both_get_the_same_request_and_their_agents_take_it() -> None:
    told = pairs.actions(Pair("rack-1", "rack-2"), "10.0.0.1", 2393, NOW)
    first, second = (actions.read(told[name]) for name in ("rack-1", "rack-2"))
    assert first is not None and first.pairing is not None
    assert second is not None and second.pairing is not None
    assert (first.id, first.do, first.expires) == (second.id, "pair", NOW + pairs.ANSWER_S)
    assert (first.pairing.peer, first.pairing.listens) == ("rack-2", True)
    assert (second.pairing.peer, second.pairing.listens) == ("rack-1", False)
    assert second.pairing.address == "10.0.0.1"


# -- which one it was --


class World:
    """Nodes of which some are broken, and ways between two that are."""

    def __init__(self, *broken: str) -> None:
        self.broken, self.ran = set(broken), []  # type: ignore[var-annotated]

    def run(self, asked: Sequence[Pair]) -> dict[Pair, Outcome]:
        names = [name for pair in asked for name in pair]
        assert len(names) == len(set(names)), "a node tests one other at a time"
        self.ran += asked
        return {pair: self.one(pair) for pair in asked}

    def one(self, pair: Pair) -> Outcome:
        if "-".join(pair) in self.broken or self.broken & set(pair):
            return Outcome(False, "A10 4 of 21 Gbit/s")
        return Outcome(None, "ended") if "yields" in pair else Outcome(True, "A10 23 of 21 Gbit/s")


@pytest.mark.parametrize(
    ("broken", "names", "bad", "unsettled"),
    [
        ((), "abcd", set(), set()),
        (("a",), "abcd", {"a"}, set()),
        (("b",), "abc", {"b"}, set()),
        (("a", "c"), "abcdef", {"a", "c"}, set()),
        (("a", "b"), "abcd", set(), {"ab"}),
        (("a",), "ab", set(), {"ab"}),
        (("a-b",), "abcd", set(), {"ab"}),
        (("a", "c"), "abcd", set(), {"ab", "cd"}),
    ],
)
def test_a_third_one_says_which_one_it_was(
    broken: tuple[str, ...], names: str, bad: set[str], unsettled: set[str]
) -> None:
    choice = choose(dict.fromkeys(names, "r1"), *(node(name) for name in names))
    world = World(*broken)
    found = pairs.settle(choice, world.run)
    assert set(found.bad) == bad
    assert {"".join(pair) for pair in found.unsettled} == unsettled
    for name, why in found.bad.items():
        assert why.count("A10 4 of 21 Gbit/s") == 2, (name, why)


def test_a_third_one_that_gives_way_settles_nothing() -> None:
    choice = choose({"a": "r", "b": "r", "yields": "r"}, node("a"), node("b"), node("yields", **before(1)))
    found = pairs.settle(choice, World("a").run)
    assert not found.bad
    assert "b is not tested" in found.unsettled[Pair("a", "b")]


# -- what both say --


def said(id: str = "1", passed: bool | None = True, why: str = "", **results: t.Any) -> dict[str, t.Any]:
    found = {"A10": True} | results
    rows = [{"test": test, "passed": each, "detail": f"of {test}"} for test, each in found.items()]
    return {pairs.PAIRS: json.dumps([{"id": id, "passed": passed, "why": why, "results": rows}])}


YIELDED = {pairs.PAIRS: json.dumps([{"id": "1", "passed": None, "why": "ended: work", "yielded": True}])}
NO = {idle.DONE: json.dumps({"id": "1", "ok": False, "detail": "processes use it"})}


@pytest.mark.parametrize(
    ("one", "other", "well", "why"),
    [
        (said(), said(), True, "A10"),
        (said(), said(id="0"), None, None),
        (said(), {}, None, None),
        (said(), said(passed=False, A10=False), False, "A10 of A10"),
        (said(passed=None, why="ended: a pod has a GPU"), said(), None, "a: ended: a pod has a GPU"),
        (said(passed=None, why="ended: work", A09=False), said(passed=False, A09=False), False, "A09"),
        (YIELDED, said(passed=False, A09=False), None, "a: ended: work"),
        (said(passed=None, why="the other node ended it"), said(passed=False, A09=False), False, "A09"),
        (said(A10=None), said(A10=None), None, "skipped: A10; A10: of A10"),
        (said(A09=None), said(A09=None), True, "A10"),
        (NO, {}, None, "a: processes use it"),
        ({pairs.PAIRS: "{"}, {pairs.PAIRS: "[3]"}, None, None),
    ],
)
def test_how_it_went(one: dict[str, str], other: dict[str, str], well: bool | None, why: str | None) -> None:
    nodes = {"a": node("a", annotations=one), "b": node("b", annotations=other)}
    found = pairs.outcome(Pair("a", "b"), "1", nodes, ["A10"])
    if why is None:
        assert found is None
    else:
        assert found is not None
        assert (found.well, why in found.why) == (well, True), found


def test_what_the_site_insists_on_is_not_skipped() -> None:
    nodes = {name: node(name, annotations=said(A09=None)) for name in "ab"}
    found = pairs.outcome(Pair("a", "b"), "1", nodes, ["A10", "A09"])
    assert found == Outcome(None, "skipped: A09; A09: of A09")


def test_the_repair_controller_reads_who_is_bad() -> None:
    text = pairs.events("with b: A10 4 of 21 Gbit/s", "boot-1", NOW)
    found = node("a", annotations={pairs.VERDICT: text})
    found["status"]["nodeInfo"] = {"bootID": "boot-1"}
    (event,) = node_of(found, "r1", ["A01"]).events
    assert (event.key, event.detail) == (pairs.EVENT, "with b: A10 4 of 21 Gbit/s")
    found["status"]["nodeInfo"] = {"bootID": "boot-2"}
    assert node_of(found, "r1", ["A01"]).events == ()
