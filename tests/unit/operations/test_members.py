# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The steps that add, remove and replace members, and the arithmetic that forbids some."""

from __future__ import annotations

import types
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import Listed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.quorum import Quorum
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import (
    OPERATIONS,
    member_add,
    member_remove,
    member_replace,
    membership,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
    Context,
    compared_hosts,
    left_for_site,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step
from hypothesis import given
from hypothesis import strategies as st

GROUPS = {
    "az-1": ("control_plane", "etcd"),
    "az-2": ("control_plane", "etcd"),
    "az-3": ("etcd", "haproxy"),
    "az-4": ("etcd",),
    "az-5": ("etcd",),
    "rack-1": ("nodes",),
}


class FakeHost(types.SimpleNamespace):
    def in_group(self, group: str) -> bool:
        return group in self.groups


def make_site(names: t.Iterable[str], addresses: dict[str, str] | None = None) -> t.Any:
    hosts = {
        name: FakeHost(
            name=name,
            address=(addresses or {}).get(name, f"10.0.0.{name[-1]}"),
            groups=GROUPS[name],
            variables={"etcd_peer_port": 2380, "etcd_client_port": 2379},
        )
        for name in names
    }

    def group(name: str) -> list[t.Any]:
        return [host for host in hosts.values() if name in host.groups]

    return types.SimpleNamespace(
        name="small", hosts=hosts, api_address="10.0.0.3", group=group, events_servers=[]
    )


def entry(number: int, name: str | None = None, *, started: bool = True, learner: bool = False) -> Listed:
    clients = (f"https://10.0.0.{number}:2379",) if started else ()
    name = f"az-{number}" if name is None else name
    return Listed(str(number), name, (f"https://10.0.0.{number}:2380",), clients, learner)


THREE = (entry(1), entry(2), entry(3))
NODES = {"az-1", "az-2", "rack-1"}
SMALL = ("az-1", "az-2", "az-3", "rack-1")


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Context]:
    def make(
        named: str,
        listed: t.Sequence[Listed] = THREE,
        healthy: t.Collection[int] = (1, 2, 3),
        names: t.Iterable[str] = SMALL,
        nodes: t.Collection[str] = NODES,
        addresses: dict[str, str] | None = None,
    ) -> Context:
        members = _members(listed, healthy)
        for module in (member_add, member_remove, member_replace):
            monkeypatch.setattr(module, "Members", lambda _session: members)
        monkeypatch.setattr(Context, "nodes", lambda _self: {name: {} for name in nodes})
        session: t.Any = types.SimpleNamespace(site=make_site(names, addresses))
        return Context(session, {"ironspan_hosts": named})

    return make


def _members(listed: t.Sequence[Listed], healthy: t.Collection[int]) -> membership.Members:
    members = membership.Members.__new__(membership.Members)
    voters = [member for member in listed if not member.learner]
    well = frozenset(str(number) for number in healthy)
    members.count = Quorum(len(voters), len([m for m in voters if m.id in well]), (), well)
    members.listed = list(listed)
    return members


@pytest.mark.parametrize("leaving", [True, False])
def test_backup_agents_follow_where_there_are_backups(context: Callable[..., Context], leaving: bool) -> None:
    made = context("az-3")
    hosts: dict[str, t.Any] = dict(made.site.hosts)
    for host in hosts.values():
        host.variables["etcd_backup_stores"] = [{"kind": "file"}]
    gone = [hosts["az-3"]]
    found = short(membership.following(made, gone, {"az-3"} if leaving else (), leaving))
    assert [step for step in found if "backup" in step] == ["restart-backup az-1", "restart-backup az-2"]
    for host in hosts.values():
        host.variables["etcd_backup_stores"] = []
    assert not [step for step in short(membership.following(made, gone)) if "backup" in step]


@pytest.mark.parametrize("addresses", [{}, {"az-3": "10.0.0.33"}])
def test_events_begin_anew_when_a_member_does(
    context: Callable[..., Context], addresses: dict[str, str]
) -> None:
    made = context("az-3", addresses=addresses)
    t.cast("t.Any", made.site).events_servers = ["https://10.0.0.1:2389"]
    found = short(member_replace.steps(made))
    assert [step for step in found if "events" in step] == ["restart-events az-1", "restart-events az-2"]
    assert found.index("reset az-3") < found.index("restart-events az-1")


def short(steps: list[Step]) -> list[str]:
    return [f"{step.action} {step.target}".strip() for step in steps]


def test_the_operations_are_known() -> None:
    assert {"member_add", "member_remove", "member_replace"} <= set(OPERATIONS)


def test_the_member_that_started_the_cluster_is_replaced(context: Callable[..., Context]) -> None:
    steps = member_replace.steps(context("az-1"))
    assert short(steps) == [
        "etcd-remove az-1",
        "drain az-1",
        "reset az-1",
        "delete-node az-1",
        "etcd-add-learner az-1",
        "etcd-promote az-1",
        "join az-1",
    ]
    assert [step.arithmetic for step in steps if step.arithmetic] == [
        "3 members, 2 needed, 3 healthy; after: 2 members, 2 needed, 2 healthy",
        "2 members, 2 needed, 2 healthy; after: 3 members, 2 needed, 3 healthy",
    ]
    assert [step.action for step in steps if step.destructive] == ["etcd-remove", "reset", "delete-node"]


def test_a_dead_member_is_replaced(context: Callable[..., Context]) -> None:
    steps = member_replace.steps(context("az-3", healthy=(1, 2)))
    assert short(steps) == ["etcd-remove az-3", "reset az-3", "etcd-add-learner az-3", "etcd-promote az-3"]
    assert steps[0].arithmetic.startswith("3 members, 2 needed, 2 healthy; after: 2 members, 2 needed, 2 ")


def test_a_member_at_a_new_address_makes_the_api_servers_follow(context: Callable[..., Context]) -> None:
    steps = member_replace.steps(context("az-3", addresses={"az-3": "10.0.0.33"}))
    assert short(steps)[-2:] == ["restart-api-server az-1", "restart-api-server az-2"]


def test_a_host_at_the_address_of_a_member_that_is_gone_takes_its_place(
    context: Callable[..., Context],
) -> None:
    listed = (entry(1), entry(2), entry(3, "az-9"))
    steps = member_replace.steps(context("az-3", listed, healthy=(1, 2)))
    assert steps[0].what == "remove the member az-9 at 10.0.0.3 from etcd"


REFUSED = [
    (member_replace, "az-2", {"healthy": (1, 2)}, "after: 2 members, 2 needed, 1 healthy"),
    (member_remove, "az-2", {"healthy": (1, 2)}, "after: 2 members, 2 needed, 1 healthy"),
    (member_replace, "az-1,az-2", {}, "one after the other"),
    (member_replace, "", {}, "no host is named"),
    (member_add, "rack-1", {}, "neither in the group etcd nor in control_plane"),
    (member_replace, "az-9", {}, "does not have"),
    (member_remove, "az-3", {}, "the site has no load balancer of the API"),
    (member_remove, "az-1,az-2", {}, "the site has no control plane"),
    (member_replace, "az-1", {"names": ("az-1", "az-3")}, "the only control plane"),
    (member_add, "az-3", {"listed": (entry(1), entry(2), entry(3, "az-9"))}, "is that of the member az-9"),
]


@pytest.mark.parametrize(("operation", "named", "state", "message"), REFUSED)
def test_refusals_have_a_remedy(
    context: Callable[..., Context], operation: t.Any, named: str, state: dict[str, t.Any], message: str
) -> None:
    with pytest.raises(OperationError, match=message) as refused:
        operation.steps(context(named, **state))
    assert refused.value.remedy


def test_others_follow_before_a_host_leaves(context: Callable[..., Context]) -> None:
    steps = member_remove.steps(context("az-1"))
    assert short(steps) == [
        "restart-api-server az-2",
        "reload-load-balancer az-3",
        "etcd-remove az-1",
        "drain az-1",
        "reset az-1",
        "delete-node az-1",
    ]


def test_a_plan_of_a_removal_asks_nothing_of_hosts_that_may_be_dead(context: Callable[..., Context]) -> None:
    made = context("az-1")
    assert compared_hosts("member_remove", made, member_remove.steps(made)) == ["az-2", "az-3"]


FIVE = ("az-1", "az-2", "az-3", "az-4", "az-5", "rack-1")


def test_two_members_are_added_each_with_its_arithmetic(context: Callable[..., Context]) -> None:
    steps = member_add.steps(context("az-4,az-5", names=FIVE))
    assert short(steps) == [
        "etcd-add-learner az-4",
        "etcd-promote az-4",
        "etcd-add-learner az-5",
        "etcd-promote az-5",
        "restart-api-server az-1",
        "restart-api-server az-2",
    ]
    assert [step.arithmetic for step in steps if step.arithmetic] == [
        "3 members, 2 needed, 3 healthy; after: 4 members, 3 needed, 4 healthy",
        "4 members, 3 needed, 4 healthy; after: 5 members, 3 needed, 5 healthy",
    ]


def test_what_is_done_is_no_step_any_more(context: Callable[..., Context]) -> None:
    assert member_add.steps(context("az-1,az-3")) == []
    learner = (*THREE, entry(4, learner=True))
    assert short(member_add.steps(context("az-4", learner, names=FIVE)))[:2] == [
        "etcd-add-learner az-4",
        "etcd-promote az-4",
    ]


def test_a_control_plane_is_added_to_a_store_that_it_is_in(context: Callable[..., Context]) -> None:
    steps = member_add.steps(context("az-2", nodes={"az-1", "rack-1"}))
    assert short(steps) == [
        "reload-load-balancer az-3",
        "restart-api-server az-1",
        "join az-2",
    ]


def test_what_an_operation_leaves_for_site_is_said(context: Callable[..., Context]) -> None:
    steps = member_add.steps(context("az-2", nodes={"az-1", "rack-1"}))
    (note,) = left_for_site("member_add", steps)
    assert note.startswith("where az-2 is new in the inventory, or has another address: now ironspan apply.")
    assert left_for_site("member_add", []) == []
    assert left_for_site("site", steps) == left_for_site("node_remove", steps) == []


@given(
    healthy=st.sets(st.integers(1, 5)),
    operations=st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.integers(1, 7)), max_size=8),
)
def test_no_sequence_of_allowed_steps_loses_the_quorum(
    healthy: set[int], operations: list[tuple[str, int]]
) -> None:
    members = _members([entry(number) for number in range(1, 6)], healthy)
    for what, number in operations:
        host: t.Any = FakeHost(
            name=f"az-{number}", address=f"10.0.0.{number}", variables={"etcd_peer_port": 2380}
        )
        before = members.count
        try:
            steps = members.remove(host) if what == "remove" else members.add(host)
        except OperationError as error:
            assert str(before) in error.message
            assert members.count is before
            continue
        if steps:
            assert members.count.kept
            assert before.kept
