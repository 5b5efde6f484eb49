# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Steps, plans of them, consent, and the hosts that an operator names."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import OPERATIONS, context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import (
    OperationError,
    Step,
    unplanned,
    without_consent,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plan import samples

STEPS = st.lists(
    st.builds(
        Step, st.sampled_from(["drain", "delete-node", "reset"]), st.sampled_from(["w1", "w2"]), st.just("x")
    ),
    max_size=6,
)


@given(STEPS, st.data())
def test_what_is_left_of_a_plan_is_in_it(planned: list[Step], data: st.DataObject) -> None:
    done = data.draw(st.integers(0, len(planned)))
    assert unplanned(planned[done:], [step.as_dict() for step in planned]) == []


@given(STEPS, STEPS)
def test_accepted_steps_are_a_part_of_the_plan_in_its_order(planned: list[Step], now: list[Step]) -> None:
    if unplanned(now, [step.as_dict() for step in planned]):
        return
    left = iter(planned)
    assert all(any(step == entry for entry in left) for step in now)


def test_steps_that_a_plan_does_not_have() -> None:
    drain, reset = Step("drain", "w1", "drain w1"), Step("reset", "w1", "reset w1")
    planned = [drain.as_dict(), reset.as_dict()]
    assert unplanned([reset, drain], planned) == [drain], "another order is another plan"
    other = Step("reset", "w2", "reset w2")
    assert unplanned([drain, other], planned) == [other]
    assert unplanned([drain, drain], planned) == [drain]
    gone = Step("reset", "w1", "reset w1", destructive=True)
    assert unplanned([gone], planned) == [gone], "nobody was told that it cannot be undone"
    assert unplanned([reset], [gone.as_dict()]) == []


def test_consent() -> None:
    steps = [Step("drain", "w1", "drain w1"), Step("reset", "w1", "reset w1", destructive=True)]
    assert without_consent(steps, False) == steps[1:]
    assert without_consent(steps, True) == []


def site_with(*names: str) -> t.Any:
    return types.SimpleNamespace(
        name="small", hosts={name: types.SimpleNamespace(name=name) for name in names}
    )


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, []),
        ("", []),
        ("w2", ["w2"]),
        (" w2 , w1,w2,", ["w2", "w1"]),
        (["w1", "w2"], ["w1", "w2"]),
        (("w1,w2",), []),
    ],
)
def test_named_hosts(value: t.Any, names: list[str]) -> None:
    if value == ("w1,w2",):
        with pytest.raises(OperationError, match="names w1,w2, which the inventory of small does not have"):
            context.named_hosts(site_with("w1", "w2"), value)
        return
    assert [host.name for host in context.named_hosts(site_with("w1", "w2"), value)] == names


@pytest.mark.parametrize("operation", ["node_remove", "member_remove", "node_replace", "site"])
def test_what_cannot_be_undone_takes_no_groups(operation: str) -> None:
    session = t.cast("t.Any", types.SimpleNamespace(site=site_with("w1")))
    session.site.hosts["w1"].groups = ("etcd",)
    with pytest.raises(OperationError, match="names etcd, which the inventory of small does not have"):
        _ = context.Context(session, {"ironspan_hosts": "etcd"}, operation).hosts


def test_unknown_hosts_are_all_named() -> None:
    with pytest.raises(OperationError, match="ironspan_hosts names w8, w9, which"):
        context.named_hosts(site_with("w1"), "w8,w1,w9")


def test_every_operation_with_steps_has_its_module_and_all_have_a_playbook() -> None:
    from tests.support.playbooks import ROOT

    for name, operation in OPERATIONS.items():
        module = context.module_of(name)
        assert callable(module.steps) if operation.steps else module is None, name
        assert (ROOT / "playbooks" / f"{name}.yml").is_file(), name
    with pytest.raises(OperationError, match=r"there is no operation 'sit'; write one of .*\bsite\b"):
        context.module_of("sit")


@pytest.mark.parametrize(
    ("which", "hosts"), [("all", ["w1", "w2"]), ("none", []), ("named", ["w2"]), ("targets", ["w1"])]
)
def test_hosts_that_a_plan_compares(which: str, hosts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "OPERATIONS", {"x": types.SimpleNamespace(compared=which)})
    session = types.SimpleNamespace(site=site_with("w1", "w2"))
    made = context.Context(t.cast("t.Any", session), {"ironspan_hosts": "w2"})
    steps = [Step("drain", "w1", "drain"), Step("check", "", "check"), Step("reset", "w1", "reset")]
    assert context.compared_hosts("x", made, steps) == hosts
    assert context.compared_hosts("site", made, []) == ["w1", "w2"]


def test_a_plan_of_steps_alone() -> None:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.build import build, kinds_of
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import parse

    from ironspan.cli.plan_page import page
    from ironspan.cli.plan_text import shown

    steps = [
        Step("drain", "w1", "drain w1 <now>", disruption="pods move", seconds=60),
        Step("etcd-remove", "w1", "remove w1", "3 members, 2 needed", destructive=True),
    ]
    operation = {"name": "node_remove", "steps": [step.as_dict() for step in steps]}
    plan = build(samples.site(), {}, samples.CLUSTER, samples.NOW, operation=operation)
    assert parse(plan.data) == plan
    assert kinds_of(plan.content) == {"node_remove"}
    assert plan.content["summary"]["steps"] == 2 and plan.content["summary"]["seconds"] == 80
    assert plan.content["warnings"] == ["Cannot be undone: remove w1."]
    text = shown(plan)
    for words in ("node_remove.yml on site small", "  1. drain w1 <now>", "users notice: pods move",
                  "  2. remove w1", "3 members, 2 needed", "cannot be undone"):  # fmt: skip
        assert words in text
    assert "drain w1 &lt;now&gt;" in page(plan)
    with pytest.raises(PlanError, match=r"steps.0.what"):
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import seal

        broken = {**plan.content, "steps": [{**plan.content["steps"][0], "what": 1}]}
        parse(seal(broken).data)


def test_arguments_of_an_operation() -> None:
    variables = {
        "ironspan_hosts": "w1",
        "ironspan_plan": "x.plan.json",
        "ironspan_allow_destructive": True,
        "site_name": "small",
    }
    given = context.arguments_of("node_remove", variables)
    assert given == {"ironspan_hosts": "w1"}
    context.insist_on_the_same(given, {"ironspan_hosts": "w1"})
    context.insist_on_the_same({"ironspan_days": "90"}, {"ironspan_days": 90})
    for now, planned, words in (
        ({}, given, "made with -e ironspan_hosts=w1, this run has none"),
        (given, {}, "made without arguments, this run has ironspan_hosts"),
        ({"ironspan_hosts": "w2"}, given, "made with -e ironspan_hosts=w1, this run has ironspan_hosts"),
    ):
        with pytest.raises(OperationError, match=words):
            context.insist_on_the_same(now, planned)
