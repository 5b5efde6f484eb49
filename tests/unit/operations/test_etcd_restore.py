# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The steps that restore etcd, and what is refused before anything is stopped."""

from __future__ import annotations

import types
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import etcd_restore
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context, step_groups
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operations.test_members import SMALL, make_site, short

Make = Callable[..., Context]


def survey(
    cluster: str = "", commit: int = 0, *, pods: bool = False, backup: bool = True, **more: t.Any
) -> dict[str, t.Any]:
    data = {"cluster": cluster, "member": "1", "commit": commit, "bytes": 5 << 20} if cluster else None
    return {
        "configured": True,
        "backup": backup,
        "going_on": {},
        "unfinished": bool(more.get("going_on")),
        "pods": ["kube-apiserver"] if pods else [],
        "problems": [],
        "data": data,
        **more,
    }


def answers(healthy: t.Collection[str]) -> list[Member]:
    ids = {f"az-{number}": str(number) for number in (1, 2, 3)}
    return [
        Member(name, name, healthy=True, cluster="c", member=number, leader="1", listed=tuple(ids.values()))
        if name in healthy
        else Member(name, name, error="no route to host")
        for name, number in ids.items()
    ]


NOBODY = {
    "az-1": survey(pods=True),
    "az-2": survey(pods=True),
    "az-3": survey(),
}


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    def context(
        surveys: dict[str, dict[str, t.Any]], healthy: t.Collection[str] = (), **arguments: t.Any
    ) -> Context:
        monkeypatch.setattr(Context, "etcd_members", lambda _self: answers(healthy))
        session: t.Any = types.SimpleNamespace(site=make_site(SMALL))
        variables = {f"ironspan_{name}": value for name, value in arguments.items()}
        hostvars = {name: {etcd_restore.SURVEY: survey} for name, survey in surveys.items()}
        return Context(session, {**variables, "hostvars": hostvars})

    return context


def test_all_data_are_lost(make: Make) -> None:
    steps = etcd_restore.steps(make(NOBODY))
    assert short(steps) == [
        "etcd-rebuild az-1",
        "stop-control-plane az-1",
        "stop-control-plane az-2",
        "etcd-set-aside az-2",
        "etcd-set-aside az-3",
        "etcd-begin az-1",
        "etcd-restore az-1",
        "start-control-plane az-1",
        "start-control-plane az-2",
        "etcd-join az-2",
        "etcd-join az-3",
    ]
    assert {step.action for step in steps if step.destructive} == {
        "etcd-set-aside",
        "etcd-begin",
        "etcd-restore",
    }


@pytest.mark.parametrize("how", ["plan", "planned"])
def test_by_a_plan_the_others_join_afterwards(make: Make, how: str) -> None:
    last = etcd_restore.steps(make(NOBODY, **{how: "x"}))[-1]
    assert (last.action, last.target) == ("etcd-join-later", "")
    assert "by a plan of member_add, az-2, az-3 join" in last.what


def test_hosts_are_grouped_by_their_steps(make: Make) -> None:
    groups = step_groups("etcd_restore", etcd_restore.steps(make(NOBODY)))
    assert groups["__ironspan_step_etcd_set_aside"] == ["az-2", "az-3"]
    assert groups["__ironspan_step_start_control_plane"] == ["az-1", "az-2"]
    assert step_groups("member_add", [Step("join", "az-1", "joins")]) == {}


def test_the_store_is_made_anew_where_the_data_reach_furthest(make: Make) -> None:
    surveys = {"az-1": survey(pods=True), "az-2": survey("c", 90, pods=True), "az-3": survey("c", 101)}
    # A member that was started without data.
    surveys["az-1"]["data"] = {"cluster": "", "member": "", "commit": 0, "bytes": 20480}
    restore = next(s for s in etcd_restore.steps(make(surveys)) if s.action == "etcd-restore")
    assert restore.target == "az-3"
    assert "its own data (commit index 101), whichever is newer" in restore.what
    # What is asked for is not these data.
    for arguments in ({"point": "revision:5"}, {"source": "backup"}):
        steps = etcd_restore.steps(make(surveys, **arguments))
        assert "etcd-restore az-1" in short(steps)


def test_a_survivor_alone_needs_no_backup(make: Make) -> None:
    surveys = {name: survey(backup=False) for name in NOBODY} | {"az-2": survey("c", 9, backup=False)}
    steps = etcd_restore.steps(make(surveys, source="survivor"))
    assert "etcd-restore az-2" in short(steps)
    assert "etcd-rebuild" not in {step.action for step in steps}
    with pytest.raises(OperationError, match="take ironspan_source=survivor"):
        etcd_restore.steps(make(surveys))


def test_hosts_that_do_not_answer_are_left_out(make: Make) -> None:
    steps = etcd_restore.steps(make({"az-2": survey(pods=True)}))
    assert [step.what.split()[0] for step in steps if step.action == "etcd-leave-out"] == ["az-1", "az-3"]
    assert [step for step in steps if step.action == "etcd-join"] == []


RECORD = {"point": "latest", "finished": False, "cluster": "new", "bump": 10**9}


def test_an_unfinished_restore_goes_on_where_it_was(make: Make) -> None:
    surveys = {**NOBODY, "az-3": survey(going_on=RECORD)}
    steps = short(etcd_restore.steps(make(surveys)))
    assert "etcd-rebuild az-3" not in steps
    assert "etcd-begin az-3" in steps
    # It serves already: the API stays up, and nobody but old data are set aside.
    released = {**RECORD, "released": True}
    surveys = {
        "az-1": survey("new", pods=True),
        "az-2": survey("old", pods=True),
        "az-3": survey("new", going_on=released),
    }
    assert short(etcd_restore.steps(make(surveys, ("az-3", "az-1")))) == [
        "etcd-set-aside az-2",
        "etcd-begin az-3",
        "etcd-restore az-3",
        "start-control-plane az-1",
        "start-control-plane az-2",
        "etcd-join az-1",
        "etcd-join az-2",
    ]


@pytest.mark.parametrize(
    ("surveys", "healthy", "arguments", "says"),
    [
        (NOBODY, ("az-1", "az-2"), {}, "has its quorum .3 members, 2 needed, 2 healthy"),
        (NOBODY, (), {"point": "now"}, "ironspan_point: 'now' is not of its form; write latest"),
        (NOBODY, (), {"point": "revision:0"}, "ironspan_point: 'revision:0' is not of its form"),
        (NOBODY, (), {"source": "tape"}, "write one of auto, backup, survivor"),
        (NOBODY, (), {"source": "survivor"}, "no host has data"),
        (NOBODY, (), {"source": "survivor", "point": "revision:5"}, "leave ironspan_point out"),
        (NOBODY, (), {"hosts": "rack-1"}, "name the one host"),
        ({}, (), {}, "no host of the group etcd can be reached .az-1, az-2, az-3"),
        ({"az-1": survey()}, ("az-3",), {}, "etcd still runs on az-3, which cannot be reached"),
        (
            {**NOBODY, "az-1": survey("a", 1), "az-3": survey("b", 2)},
            (),
            {},
            "data of different clusters .az-1: cluster a; az-3: cluster b",
        ),
        ({**NOBODY, "az-2": survey(problems=["it is a mount point"])}, (), {}, "- az-2: it is a mount"),
        ({**NOBODY, "az-1": survey(configured=False)}, (), {}, "az-1 was never a member"),
        ({**NOBODY, "az-1": survey(backup=False)}, (), {}, "az-1 has no backup program"),
        ({**NOBODY, "az-3": survey(going_on=RECORD)}, (), {"hosts": "az-1"}, "on az-3 is not finished"),
    ],
)
def test_refusals(
    make: Make,
    surveys: dict[str, dict[str, t.Any]],
    healthy: tuple[str, ...],
    arguments: dict[str, str],
    says: str,
) -> None:
    with pytest.raises(OperationError, match=f"(?s){says}"):
        etcd_restore.steps(make(surveys, healthy, **arguments))


def test_a_quorum_is_given_up_with_consent_only(make: Make) -> None:
    everybody = ("az-1", "az-2", "az-3")
    assert etcd_restore.steps(make(NOBODY, everybody, force="true"))
    with pytest.raises(OperationError, match="what was written since then is lost"):
        etcd_restore.steps(make(NOBODY, everybody, force="no"))


def point_of(text: str) -> str:
    return str(value_of({"ironspan_point": text}, "ironspan_point"))


@given(st.integers(min_value=1, max_value=2**63 - 1))
def test_points_are_accepted_as_they_are(revision: int) -> None:
    assert point_of(f"revision:{revision}") == f"revision:{revision}"


@pytest.mark.parametrize("point", ["latest", "time:2026-11-22T02:00:00Z", "time:2026-11-22T02:00:00.5+01:00"])
def test_points(point: str) -> None:
    assert point_of(point) == point


def no_point(text: str) -> bool:
    # An empty text says nothing, so the latest point is meant.
    return bool(text) and text.strip() != "latest" and not text.startswith(("rev", "time"))


@given(st.text(max_size=30).filter(no_point))
def test_nothing_else_is_a_point(text: str) -> None:
    with pytest.raises(OperationError):
        point_of(text)


def test_a_plan_of_a_restore_is_for_the_store_that_it_was_made_for(make: Make) -> None:
    """A forced plan worked again and again until it expired: each time the store went back."""
    before = {"az-1": survey("old", 5), "az-2": survey("old", 5), "az-3": survey()}
    planned = etcd_restore.bound_to(make(before, force=True))
    assert planned == {"clusters": ["old"]}
    etcd_restore.insist_on_bound(make(before, force=True), planned)
    # Killed on the way, it goes on: the host still knows the restore.
    on_the_way = {**before, "az-1": survey("new", 5, going_on={"cluster": "new"})}
    etcd_restore.insist_on_bound(make(on_the_way, force=True), planned)
    etcd_restore.insist_on_bound(make(NOBODY, force=True), planned)
    # Finished, it is used up.
    after = {"az-1": survey("new", 9), "az-2": survey("new", 9), "az-3": survey("new", 9)}
    for bound in (planned, etcd_restore.bound_to(make(NOBODY)), {}):
        with pytest.raises(
            OperationError, match=r"is cluster new now, so the plan was applied already.*new plan"
        ):
            etcd_restore.insist_on_bound(make(after, force=True), bound)


@given(st.sets(st.sampled_from("abc"), min_size=1), st.sampled_from("abcd"))
def test_a_restore_always_makes_a_store_that_its_plan_does_not_know(known: set[str], now: str) -> None:
    hosts = {"az-1": {etcd_restore.SURVEY: survey(now)}}
    session: t.Any = types.SimpleNamespace(site=make_site(SMALL))
    context = Context(session, {"hostvars": hosts})
    if now in known:
        etcd_restore.insist_on_bound(context, {"clusters": sorted(known)})
        return
    with pytest.raises(OperationError):
        etcd_restore.insist_on_bound(context, {"clusters": sorted(known)})
