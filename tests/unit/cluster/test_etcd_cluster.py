# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How etcd members start, join and leave, and what is refused."""

from __future__ import annotations

import json
import time
import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd as members_asked
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd_cluster
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import Listed, QuorumError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("az-1", "az-2", "az-3")


def host(number: int, address: str = "") -> t.Any:
    variables = {"etcd_peer_port": 2380, "etcd_client_port": 2379}
    return types.SimpleNamespace(
        name=f"az-{number}", address=address or f"10.0.0.{number}", variables=variables
    )


HOSTS = [host(number) for number in (1, 2, 3)]


@given(compared=st.sets(st.sampled_from(NAMES)), bare=st.sets(st.sampled_from(NAMES)))
def test_a_store_begins_only_when_it_is_known_of_every_host_that_it_has_no_data(
    compared: set[str], bare: set[str]
) -> None:
    inputs = etcd_cluster.first_start(HOSTS, compared, bare)
    assert bool(inputs) == (compared & bare == set(NAMES))
    for name in inputs:
        given_ = json.loads(inputs[name][etcd_cluster.INPUT])
        assert given_["state"] == "new"
        assert given_["cluster"].split(",") == [f"az-{n}=https://10.0.0.{n}:2380" for n in (1, 2, 3)]


def test_no_store_begins_where_control_planes_have_one_elsewhere() -> None:
    assert etcd_cluster.first_start(HOSTS, NAMES, NAMES[:2], ["az-1"]) == {}
    with pytest.raises(ClusterError, match="No host of the group etcd has data, but az-1 belongs to"):
        etcd_cluster.first_start(HOSTS, NAMES, NAMES, ["az-1"])


class FakeStore:
    """The members' answers and the list that they change."""

    def __init__(self, healthy: t.Collection[int], listed: list[Listed]) -> None:
        self.healthy = healthy
        self.entries = listed
        self.calls: list[str] = []

    def answers(self, addresses: dict[str, str], _context: t.Any, _port: int) -> list[Member]:
        found = []
        for name, address in addresses.items():
            number = int(name.removeprefix("az-"))
            if number not in self.healthy:
                found.append(Member(name, address, error="Connection refused"))
                continue
            found.append(
                Member(
                    name,
                    address,
                    healthy=True,
                    cluster="c",
                    member=str(number),
                    leader=str(min(self.healthy)),
                    listed=tuple(entry.id for entry in self.entries),
                    learners=tuple(entry.id for entry in self.entries if entry.learner),
                )
            )
        return found

    def listed(self, *, wait: bool = True) -> list[Listed]:
        return list(self.entries)

    def add_learner(self, name: str, url: str) -> list[Listed]:
        self.calls.append(f"add {name} {url}")
        if all(url not in entry.peer_urls for entry in self.entries):
            self.entries.append(Listed("99", "", (url,), (), True))
        return self.listed()

    def promote(self, identifier: str, _seconds: float, _progress: t.Any) -> None:
        self.calls.append(f"promote {identifier}")

    def remove(self, identifier: str) -> bool:
        self.calls.append(f"remove {identifier}")
        self.entries = [entry for entry in self.entries if entry.id != identifier]
        return True


def entry(number: int, name: str | None = None, *, started: bool = True, learner: bool = False) -> Listed:
    urls = (f"https://10.0.0.{number}:2380",)
    clients = (f"https://10.0.0.{number}:2379",) if started else ()
    return Listed(str(number), f"az-{number}" if name is None else name, urls, clients, learner)


THREE = [entry(1), entry(2), entry(3)]


@pytest.fixture
def etcd(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., tuple[etcd_cluster.EtcdCluster, FakeStore]]:
    def make(
        healthy: t.Collection[int], listed: list[Listed], hosts: list[t.Any] | None = None, without: str = ""
    ) -> tuple[etcd_cluster.EtcdCluster, FakeStore]:
        fake = FakeStore(healthy, list(listed))
        monkeypatch.setattr(etcd_cluster, "ask_members", fake.answers)
        monkeypatch.setattr(members_asked, "ELECTION_SECONDS", 0)
        monkeypatch.setattr(etcd_cluster, "Membership", lambda *_: fake)
        site = types.SimpleNamespace(group=lambda _name: hosts or HOSTS)
        session: t.Any = types.SimpleNamespace(site=site, etcd_context=lambda: None)
        return etcd_cluster.EtcdCluster(session, [without]), fake

    return make


Make = t.Callable[..., tuple[etcd_cluster.EtcdCluster, FakeStore]]


def test_a_new_member_joins_without_a_vote(etcd: Make) -> None:
    made, fake = etcd({1, 2}, THREE[:2], without="az-3")
    inputs, numbers = made.add(HOSTS[2], NAMES, ["az-3"])
    given_ = json.loads(inputs[etcd_cluster.INPUT])
    assert given_ == {
        "state": "existing",
        "cluster": ",".join(f"az-{n}=https://10.0.0.{n}:2380" for n in (1, 2, 3)),
    }
    assert numbers == "2 members, 2 needed, 2 healthy; after: 3 members, 2 needed, 3 healthy"
    assert fake.calls == ["add az-3 https://10.0.0.3:2380"]


def test_a_first_member_that_never_started_joins_those_that_did(etcd: Make) -> None:
    made, _ = etcd({1, 2}, [entry(1), entry(2), entry(3, started=False)], without="az-3")
    inputs, numbers = made.add(HOSTS[2], NAMES, ["az-3"])
    assert json.loads(inputs[etcd_cluster.INPUT])["state"] == "existing"
    assert numbers == "3 members, 2 needed, 2 healthy"


@pytest.mark.parametrize(
    ("listed", "joining", "message"),
    [
        (THREE, HOSTS[2], "az-3 has no data, and etcd lists it as member 3: its data are lost"),
        (
            [entry(1), entry(2), entry(3, "az-9")],
            HOSTS[2],
            r"az-3 cannot join etcd: its address 10\.0\.0\.3 is that of the member az-9, which",
        ),
        (THREE, host(3, "10.0.0.33"), "az-3 has no data, and etcd lists it as member 3"),
    ],
    ids=["empty disk", "address of another member", "new address"],
)
def test_who_must_be_replaced(etcd: Make, listed: list[Listed], joining: t.Any, message: str) -> None:
    made, fake = etcd({1, 2}, listed, without="az-3")
    with pytest.raises(ClusterError, match=message) as refused:
        made.add(joining, NAMES, ["az-3"])
    assert "playbooks/member_replace.yml -e ironspan_hosts=az-3" in refused.value.remedy
    assert fake.calls == []


@pytest.mark.parametrize(
    ("healthy", "compared", "bare", "beside"),
    [
        (set(), NAMES, ["az-3"], "beside az-1, az-2 with data"),
        ({1}, ["az-3"], ["az-3"], "beside az-1, az-2 not looked at in this run"),
        (set(), ["az-1", "az-3"], ["az-3"], "beside az-1 with data; az-2 not looked at in this run"),
    ],
)
def test_no_store_begins_beside_members_that_are_down(
    etcd: Make, healthy: set[int], compared: list[str], bare: list[str], beside: str
) -> None:
    made, fake = etcd(healthy, THREE, without="az-3")
    with pytest.raises(QuorumError) as refused:
        made.add(HOSTS[2], compared, bare)
    # The host that asks is none of those that answer.
    assert beside in refused.value.message
    assert "needed" in refused.value.message
    assert fake.calls == []


REMOVALS = [
    ({1, 2, 3}, THREE, 1, "3 members, 2 needed, 3 healthy; after: 2 members, 2 needed, 2 healthy"),
    ({1, 2}, THREE, 3, "3 members, 2 needed, 2 healthy; after: 2 members, 2 needed, 2 healthy"),
    ({1, 2}, THREE, 1, None),
    ({1}, [entry(1)], 1, None),
    ({1}, THREE, 2, None),
    (
        {1, 2},
        [entry(1), entry(2), entry(3, learner=True)],
        3,
        "2 members, 2 needed, 2 healthy; after: 2 members, 2 needed, 2 healthy",
    ),
]


@pytest.mark.parametrize(("healthy", "listed", "number", "numbers"), REMOVALS)
def test_removal(
    etcd: Make, healthy: set[int], listed: list[Listed], number: int, numbers: str | None
) -> None:
    made, fake = etcd(healthy, listed)
    if numbers is None:
        with pytest.raises(QuorumError, match=f"Cannot remove az-{number}"):
            made.remove(host(number))
        assert fake.calls == []
        return
    assert made.remove(host(number)) == (True, numbers)
    assert fake.calls == [f"remove {number}"]
    assert made.remove(host(number))[0] is False


def test_a_host_that_came_to_anothers_address_has_two_entries(etcd: Make) -> None:
    replaced = host(3, "10.0.0.9")
    made, fake = etcd({1, 2}, [entry(1), entry(2), entry(9, "az-7"), entry(3)])
    listed = made.membership().listed()
    first = etcd_cluster.belongs_to(listed, replaced)
    assert first is not None
    assert first.name == "az-3"
    # Four members with two healthy have no quorum: nothing may be removed here.
    with pytest.raises(QuorumError, match="no quorum now"):
        made.remove(replaced)
    assert fake.calls == []


def test_promotion(etcd: Make) -> None:
    made, fake = etcd({1, 2}, [entry(1), entry(2), entry(3, learner=True)], without="az-3")
    assert made.promote(HOSTS[2], 1, print) is True
    assert fake.calls == ["promote 3"]


def test_who_has_started_and_has_no_vote(etcd: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, fake = etcd({1, 2, 3}, [*THREE[:2], entry(3, learner=True)])
    assert made.without_vote() == [HOSTS[2]]
    for third in (entry(3), entry(3, "", started=False, learner=True), entry(9, "foreign", learner=True)):
        fake.entries[2] = third
        assert made.without_vote() == []
    monkeypatch.setattr(fake, "listed", lambda **_: (_ for _ in ()).throw(ClusterError("no quorum", "")))
    assert made.without_vote() == []


def test_an_election_is_waited_for(etcd: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = etcd({1, 2, 3}, THREE)
    monkeypatch.setattr(members_asked, "ELECTION_SECONDS", 60)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    healthy = made.answers()
    rounds = [[member._replace(leader="0") for member in healthy]] * 2 + [healthy]
    monkeypatch.setattr(made, "answers", lambda: rounds.pop(0))
    assert made.settled()[1].kept
    assert rounds == []


def test_nobody_is_waited_for_when_nobody_answers(etcd: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = etcd(set(), THREE)
    monkeypatch.setattr(members_asked, "ELECTION_SECONDS", 60)
    assert made.settled()[1].healthy == 0


def test_a_stranger_with_data_is_not_started(etcd: Make) -> None:
    made, _ = etcd({1, 2}, THREE[:2])
    made.insist_listed(HOSTS[:2])
    with pytest.raises(ClusterError, match="etcd does not list az-3, although it has data"):
        made.insist_listed(HOSTS)
    # Without a quorum nobody knows.
    etcd({1}, THREE[:2])[0].insist_listed(HOSTS)


def test_a_member_that_was_removed_and_has_data_is_not_taken_for_one(etcd: Make) -> None:
    made, _ = etcd({1, 2}, THREE[:2], without="az-3")
    with pytest.raises(ClusterError, match="etcd does not list az-3, although it has data"):
        made.promote(HOSTS[2], 1, print)
