# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Remote things: from what is there to what is wanted, held to the plan, and finished after a kill."""

from __future__ import annotations

import dataclasses
import json
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote import compare, work
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.begun import FILE, Begun
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import (
    Consent,
    bring,
    bring_as_planned,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.secrecy import insist_on_none
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    Found,
    RemoteError,
    State,
    Step,
    Thing,
    from_plan,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.remote.fake import KilledError, Servers, Service

ALL = Consent(allowed=True)
Wanted = dict[str, State | None]
NAMES = ("a-1", "a-2", "b-1")
wanted_states = st.fixed_dictionaries(
    {"image": st.sampled_from(("debian", "ubuntu")), "power": st.sampled_from(("on", "off"))}
)
states = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "state": st.sampled_from(("enrolled", "deploying", "deployed")),
            "image": st.sampled_from(("", "debian", "ubuntu")),
            "power": st.sampled_from(("on", "off")),
        }
    ),
)


def quiet(text: str) -> None:
    pass


def on(image: str = "debian", power: str = "on") -> State:
    return {"image": image, "power": power}


def planned(service: Service, wanted: Wanted) -> list[dict[str, t.Any]]:
    """Return what a plan file has, as it is read again."""
    things = compare.compared(Servers(service), wanted)
    return t.cast("list[dict[str, t.Any]]", json.loads(json.dumps([thing.as_dict() for thing in things])))


def state_of(service: Service, name: str) -> State:
    return {key: value for key, value in service.servers[name].items() if key != "uid"}


@given(st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), wanted_states)), st.data())
@settings(max_examples=60, deadline=None)
def test_steps_lead_from_any_state_to_what_is_wanted(wanted: Wanted, data: st.DataObject) -> None:
    service = Service()
    for name in NAMES:
        if state := data.draw(states):
            service.servers[name] = {**state, "uid": f"first-{name}"}
    things = compare.compared(Servers(service), wanted)
    expected = {thing.name: thing.after for thing in things}
    outcome = bring(Servers(service), wanted, ALL, quiet)
    assert not outcome.problems
    assert {name: state_of(service, name) for name in service.servers} == {
        name: state for name, state in expected.items() if state is not None
    }
    assert bring(Servers(service), wanted, ALL, quiet).done == [], "a second run changes nothing"


@pytest.mark.parametrize("with_plan", [False, True])
def test_what_is_held_is_left_alone_and_named_and_the_others_are_finished(with_plan: bool) -> None:
    service = Service()
    wanted: Wanted = {"a-1": on(), "a-2": on()}
    held = {"a-1": "somebody is on it"}
    if with_plan:
        plan = planned(service, wanted)
        outcome = bring_as_planned(Servers(service), plan, True, Begun(None), quiet, held=held)
    else:
        outcome = bring(Servers(service), wanted, ALL, quiet, held=held)
    assert [problem.partition(" ")[2] for problem in outcome.problems] == ["a-1: somebody is on it"]
    assert set(service.servers) == {"a-2"}
    assert bring(Servers(service), wanted, ALL, quiet).problems == []
    assert set(service.servers) == {"a-1", "a-2"}


@given(
    wanted_states, states, st.integers(0, 9), st.sampled_from(("same", "another controller")), st.booleans()
)
@settings(max_examples=120, deadline=None)
def test_a_killed_run_is_finished_by_the_same_plan(
    tmp_path_factory: pytest.TempPathFactory,
    wanted: State,
    before: State | None,
    kill_after: int,
    who: str,
    goes: bool,
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    service = Service()
    if before:
        service.servers["a-1"] = {**before, "uid": "first"}
    wants: Wanted = {"a-1": None if goes else wanted}
    plan = planned(service, wants)
    service.kill_after = kill_after
    killed = True
    try:
        bring_as_planned(Servers(service), plan, True, Begun(folder), quiet)
        killed = False
    except KilledError:
        pass
    service.kill_after = None
    begun_work = list(service.log)
    second = bring_as_planned(Servers(service), plan, True, Begun(folder if who == "same" else None), quiet)
    if second.problems:
        assert killed and who != "same", "the same controller always finishes"
        wipes = {"deploy", "wait", "delete"}
        assert not [what for _, what in service.log[len(begun_work) :] if what in wipes]
    else:
        assert compare.compared(Servers(service), wants)[0].steps == ()
    assert [what for _, what in service.log].count("enrol") <= 1, "nothing is made twice"


@given(wanted_states, states, states, st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_moved_is_never_wiped(
    wanted: State, before: State | None, moved: State | None, another: bool
) -> None:
    """Whatever somebody did meanwhile: without a mark, what is there is wiped only as it was signed."""
    service = Service()
    if before:
        service.servers["a-1"] = {**before, "uid": "first"}
    plan = planned(service, {"a-1": wanted})
    service.servers.pop("a-1", None)
    if moved:
        service.servers["a-1"] = {**moved, "uid": "second" if another or not before else "first"}
    same = moved == before and not (moved and another)
    outcome = bring_as_planned(Servers(service), plan, True, Begun(None), quiet)
    if not same:
        assert not [what for _, what in service.log if what == "deploy"]
        left = compare.compared(Servers(service), {"a-1": wanted})[0].steps
        assert bool(outcome.problems) == bool(left)
    else:
        assert not outcome.problems


READ, WIPE = Step("read", "read it"), Step("read", "read it", frozenset({"wipes"}))


@pytest.mark.parametrize(
    ("planned_steps", "steps", "begun", "ok"),
    [
        ((READ, WIPE), (WIPE,), True, True),
        ((READ, WIPE), (WIPE,), False, False),
        ((WIPE, READ), (READ,), False, True),
        ((READ, WIPE), (READ,), True, True),
        ((WIPE, READ), (WIPE,), True, False),
        ((WIPE, READ), (Step("write", "write it"),), True, False),
        ((WIPE, READ), (Step("read", "read what is left"),), True, True),
        ((READ,), (READ, READ), True, False),
        ((), (READ,), True, False),
        ((READ,), (), False, True),
    ],
)
def test_only_the_last_steps_of_a_plan_may_be_left(
    planned_steps: tuple[Step, ...], steps: tuple[Step, ...], begun: bool, ok: bool
) -> None:
    plan = Thing("k", "n", {}, Found({"at": 1}, "i"), planned_steps)
    now = Thing("k", "n", {}, Found({"at": 2}, "i"), steps)
    assert (compare.refused(plan, now, begun) == "") is ok
    same = compare.refused(plan, dataclasses.replace(now, found=plan.found), begun)
    if steps == planned_steps:
        assert same == ""


def test_another_thing_of_the_same_name_is_refused() -> None:
    service = Service()
    service.servers["a-1"] = {"state": "deployed", "image": "debian", "power": "off", "uid": "first"}
    plan = planned(service, {"a-1": on()})
    service.servers["a-1"]["uid"] = "second"
    outcome = bring_as_planned(Servers(service), plan, True, Begun(None), quiet)
    assert outcome.problems == [
        "fake_server a-1: it is another one than when the plan was made; make a new plan"
    ]
    assert not service.log


def test_a_removal_is_a_step_that_needs_consent() -> None:
    service = Service()
    service.servers["b-1"] = {"state": "deployed", "image": "debian", "power": "on", "uid": "first"}
    (kept, gone) = compare.compared(Servers(service), {"a-1": on()})
    assert [step.verb for step in gone.steps] == ["delete"] and gone.after is None
    with pytest.raises(RemoteError, match=r"delete b-1.*nothing was changed") as caught:
        bring(Servers(service), {"a-1": on()}, Consent(), quiet)
    assert "ironspan_allow_destructive" in str(caught.value)
    assert not service.log
    assert bring(Servers(service), {"a-1": on()}, Consent(), quiet, check=True).done == [
        "enrol a-1", "deploy debian on a-1", "switch a-1 on", "delete b-1",
    ]  # fmt: skip
    assert not bring(Servers(service), {"a-1": on()}, Consent(named=("a-1", "b-1")), quiet).problems
    assert list(service.servers) == ["a-1"]
    assert kept.found.state is None


def test_consent_to_one_thing_is_none_to_another() -> None:
    things = compare.compared(Servers(Service()), {"a-1": on(), "a-2": on()})
    assert compare.without_consent(things, False, ("a-1",)) == ["deploy debian on a-2"]
    assert compare.without_consent(things, True) == []


def test_a_plan_needs_consent_where_it_is_applied() -> None:
    service = Service()
    plan = planned(service, {"a-1": on()})
    with pytest.raises(RemoteError, match="deploy debian on a-1"):
        bring_as_planned(Servers(service), plan, False, Begun(None), quiet)
    assert not service.log


def test_one_that_fails_ends_no_other() -> None:
    service = Service(
        fail={"a-1": "agent did not call back", "mistake": "a-3", "find a-4": "BMC answers 401"}
    )
    service.servers["a-4"] = {"state": "enrolled", "image": "", "power": "off", "uid": "first"}
    names = [f"a-{number}" for number in range(1, 9)]
    outcome = bring(Servers(service), {name: on() for name in names}, ALL, quiet)
    assert len(outcome.problems) == 3
    told = "\n".join(outcome.problems)
    for words in ("conductor said: agent did not call back", "done before: nothing", "ZeroDivisionError"):
        assert words in told
    assert "fake_server a-4: BMC answers 401" in told
    deployed = [name for name in names if service.servers.get(name, {}).get("state") == "deployed"]
    assert deployed == ["a-2", "a-5", "a-6", "a-7", "a-8"]


def test_many_at_a_time_and_not_too_many_of_a_lane() -> None:
    service = Service()
    service.slow_s = 0.01
    kind = Servers(service)
    kind.at_once = 3
    wanted = {f"{rack}-{number}": on() for rack in "ab" for number in range(12)}
    said: list[str] = []
    things = compare.compared(kind, wanted)
    outcomes = work.apply(kind, things, said.append, quiet_s=0.02)
    assert [outcome.name for outcome in outcomes] == list(wanted)
    assert not [outcome for outcome in outcomes if outcome.error]
    assert 3 < service.busiest <= 6
    assert service.lists == 1
    assert any("of 24 done; " in line and "more" in line for line in said)
    assert threading.active_count() < 20


def test_what_is_quick_is_not_talked_about() -> None:
    said: list[str] = []
    service = Service()
    bring(Servers(service), {"a-1": on()}, ALL, said.append)
    assert said == []


def test_what_can_never_be_refuses_the_whole() -> None:
    service = Service()
    with pytest.raises(RemoteError, match=r"can never have that image.*nothing was changed"):
        bring(Servers(service), {"a-1": on(), "a-2": on("impossible")}, ALL, quiet)
    assert not service.log


SECRETS: list[dict[str, t.Any]] = [
    {"password": "x"},
    {"bmc": {"ipmi_password": "x"}},
    {"nested": [{"account_key": "x"}]},
    {"bearer_token": "x"},
    {"note": "-----BEGIN EC PRIVATE KEY-----"},
    {"url": "https://acme.blob.core.windows.net/c?sv=1&sig=abc"},
    {"url": "https://user:pass@bmc.example"},
    {"text": "DefaultEndpointsProtocol=https;AccountKey=abc"},
    {"text": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.x"},
]


@pytest.mark.parametrize("state", SECRETS, ids=str)
@pytest.mark.parametrize("part", ["wanted", "found", "after"])
def test_secrets_are_refused_and_not_repeated(state: dict[str, t.Any], part: str) -> None:
    thing = Thing("k", "n", {}, Found({}), (), {})
    change: t.Any = Found(state) if part == "found" else state
    with pytest.raises(RemoteError, match=f"has a secret in {part}") as caught:
        insist_on_none(dataclasses.replace(thing, **{part: change}))
    assert "abc" not in str(caught.value) and "pass@" not in str(caught.value)


@pytest.mark.parametrize(
    "state",
    [
        {"token_file": "/x", "secret_name": "bmc", "secretUri": "https://v/secrets/x", "password": ""},
        {"key_count": 3, "keys": ["a"], "public_key": "ssh-ed25519 AAAA", "password": None},
    ],
)
def test_where_a_secret_is_may_be_said(state: dict[str, t.Any]) -> None:
    insist_on_none(Thing("k", "n", state, Found(None)))


def test_a_secret_in_a_step_or_a_note_is_refused() -> None:
    told = Found({}, notes=("open https://h/?x=1&sig=abc",))
    for thing in (
        Thing("k", "n", {}, told),
        Thing("k", "n", {}, Found({}), (Step("go", "with -----BEGIN PRIVATE KEY"),)),
    ):
        with pytest.raises(RemoteError, match="has a secret in"):
            insist_on_none(thing)


def test_a_thing_comes_back_from_its_plan() -> None:
    (thing,) = compare.compared(Servers(Service()), {"a-1": on()})
    again = from_plan(json.loads(json.dumps(thing.as_dict())))
    assert again == thing


def test_marks_outlive_a_line_that_was_cut(tmp_path: Path) -> None:
    thing = Thing("k", "n", {}, Found(None))
    begun = Begun(tmp_path)
    assert not begun.has(thing)
    begun.mark(thing)
    begun.mark(thing)
    with (tmp_path / FILE).open("a") as file:
        file.write('["k", "ot')
    again = Begun(tmp_path)
    other = dataclasses.replace(thing, name="other")
    assert again.has(thing) and not again.has(other)
    again.mark(other)
    assert Begun(tmp_path).has(other)
    assert not Begun(None).has(thing)


def test_a_lane_whose_budget_of_failures_is_spent_begins_no_other() -> None:
    service = Service(fail={"a-1": "no disk", "a-2": "no disk"})
    kind = Servers(service)
    kind.at_once, kind.most_failures = 1, 2
    outcome = bring(kind, {name: on() for name in ("a-1", "a-2", "a-3", "b-1")}, ALL, quiet)
    assert [problem.partition(":")[0] for problem in outcome.problems] == ["a-1", "a-2", "a-3"]
    assert "a-3: not begun, because 2 of a failed before" in outcome.problems[2]
    assert sorted(service.servers) == ["b-1"]
    assert [what for what, _ in outcome.timings["b-1"]] == [step.what for step in outcome.things[3].steps]
    assert all(seconds >= 0 for steps in outcome.timings.values() for _, seconds in steps)
    assert "a-3" in outcome.timings and outcome.timings["a-3"] == []
