# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Quorum arithmetic, and the calls that change the membership against a stand-in for etcd's gateway."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import members
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import (
    Listed,
    Membership,
    Quorum,
    QuorumError,
    initial_cluster,
    insist,
    quorum,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st


def member(number: int, **values: t.Any) -> Member:
    """Return a healthy member of three, the first of which leads."""
    base = {
        "healthy": True,
        "cluster": "c",
        "member": f"{number}",
        "leader": "1",
        "listed": ("1", "2", "3"),
    }
    return Member(f"az-{number}", f"10.0.0.{number}", **{**base, **values})


def dead(number: int) -> Member:
    return Member(f"az-{number}", f"10.0.0.{number}", error="Connection refused")


COUNTS = [
    ([member(1), member(2), member(3)], "3 members, 2 needed, 3 healthy", ()),
    ([member(1), member(2), dead(3)], "3 members, 2 needed, 2 healthy", ("az-3",)),
    ([member(1, leader="0"), dead(2), dead(3)], "3 members, 2 needed, 0 healthy", ("az-2", "az-3", "az-1")),
    ([dead(1), dead(2), dead(3)], "3 members, 2 needed, 0 healthy", ("az-1", "az-2", "az-3")),
    ([member(1, listed=("1",))], "1 member, 1 needed, 1 healthy", ()),
    ([member(1), member(2, healthy=False), member(3)], "3 members, 2 needed, 2 healthy", ("az-2",)),
    # A learner has no vote, whether it answers or not.
    (
        [
            member(1, listed=("1", "2", "4"), learners=("4",)),
            member(2, listed=("1", "2", "4"), learners=("4",)),
            member(4, listed=("1", "2", "4"), learners=("4",), learner=True),
        ],
        "2 members, 2 needed, 2 healthy",
        (),
    ),
    # Listed, and not in the inventory: it votes, and nobody knows how it is.
    ([member(n, listed=("1", "2", "3", "9")) for n in (1, 2, 3)], "4 members, 3 needed, 3 healthy", ()),
    # The list of a member that was away is old: the leader's counts.
    (
        [member(3, listed=("1", "2", "3", "4")), member(1), member(2)],
        "3 members, 2 needed, 3 healthy",
        (),
    ),
    # One is in another cluster.
    (
        [member(1), member(2), member(3, cluster="x", listed=("3",), leader="3")],
        "3 members, 2 needed, 2 healthy",
        ("az-3",),
    ),
    ([], "0 members, 1 needed, 0 healthy", ()),
]


@pytest.mark.parametrize(("answers", "text", "missing"), COUNTS)
def test_who_votes_and_who_is_healthy(answers: list[Member], text: str, missing: tuple[str, ...]) -> None:
    count = quorum(answers)
    assert str(count) == text
    assert count.missing == missing


STEPS = [
    (Quorum(3, 3), Quorum(3, 3).removing(True), True),
    (Quorum(3, 2), Quorum(3, 2).removing(False), True),
    (Quorum(3, 2), Quorum(3, 2).removing(True), False),
    (Quorum(2, 2), Quorum(2, 2).removing(True), True),
    (Quorum(2, 1), Quorum(2, 1).removing(False), False),
    (Quorum(1, 1), Quorum(1, 1).removing(True), False),
    (Quorum(3, 3), Quorum(3, 3).restarting(), True),
    (Quorum(3, 2), Quorum(3, 2).restarting(), False),
    (Quorum(1, 1), Quorum(1, 1).restarting(), False),
    (Quorum(1, 1), Quorum(1, 1).promoting(), True),
    (Quorum(3, 1), Quorum(3, 1).promoting(), False),
    (Quorum(5, 3), Quorum(5, 3).removing(False), True),
]


@pytest.mark.parametrize(("before", "after", "allowed"), STEPS)
def test_a_step_is_refused_with_the_arithmetic(before: Quorum, after: Quorum, allowed: bool) -> None:
    if allowed:
        assert insist(before, after, "do it") == f"{before}; after: {after}"
        return
    with pytest.raises(QuorumError, match="Cannot do it: etcd") as refused:
        insist(before, after, "do it")
    assert str(before) in str(refused.value)
    assert refused.value.remedy


def test_the_refusal_names_who_is_missing() -> None:
    count = quorum([member(1), member(2), dead(3)])
    with pytest.raises(QuorumError) as refused:
        insist(count, count.removing(True), "remove az-2")
    assert refused.value.message == (
        "Cannot remove az-2: etcd would lose its quorum (3 members, 2 needed, 2 healthy; "
        "after: 2 members, 2 needed, 1 healthy). Not healthy: az-3."
    )


@given(
    voters=st.integers(1, 9),
    data=st.data(),
    steps=st.lists(st.sampled_from(["remove healthy", "remove dead", "promote", "restart", "die"])),
)
def test_no_allowed_step_loses_the_quorum(voters: int, data: st.DataObject, steps: list[str]) -> None:
    state = Quorum(voters, data.draw(st.integers(0, voters)))
    for step in steps:
        if step == "die":
            # What nobody asks for may happen at any time; it is what the checks are made against.
            state = state.restarting()
            continue
        if step == "remove dead" and state.healthy == state.voters:
            continue
        after = {
            "remove healthy": state.removing(True),
            "remove dead": state.removing(False),
            "promote": state.promoting(),
            "restart": state.restarting(),
        }[step]
        try:
            insist(state, after, step)
        except QuorumError:
            # Refused for a reason: a majority was, or would be, missing.
            assert 2 * state.healthy <= state.voters or 2 * after.healthy <= after.voters
            continue
        assert 2 * after.healthy > after.voters
        assert after.voters >= 1
        state = state if step == "restart" else after


LISTED = [
    Listed("a", "az-1", ("https://10.0.0.1:2380",), ("https://10.0.0.1:2379",), False),
    Listed("b", "", ("https://10.0.0.2:2380",), (), True),
]


def test_initial_cluster_has_the_name_that_the_list_lacks() -> None:
    wanted = "az-1=https://10.0.0.1:2380,az-2=https://10.0.0.2:2380"
    assert initial_cluster(LISTED, "az-2", "https://10.0.0.2:2380") == wanted


def test_two_members_without_names_do_not_share_one() -> None:
    third = Listed("c", "", ("https://10.0.0.3:2380",), (), False)
    names = [part.split("=")[0] for part in initial_cluster([*LISTED, third], "az-2", "x").split(",")]
    assert sorted(names) == ["az-1", "b", "c"]


Answer = tuple[int, dict[str, t.Any]] | Exception
BEHIND = "etcdserver: can only promote a learner member which is in sync with leader"


class Gateway:
    """Stands in for the connections to all members."""

    def __init__(self, answer: Callable[[str, str, dict[str, t.Any]], Answer]) -> None:
        self.answer = answer
        self.calls: list[tuple[str, str]] = []

    def connection(self, address: str, port: int, **_: t.Any) -> t.Any:
        gateway = self

        class Response:
            status = 0
            content = b""

            def read(self) -> bytes:
                return self.content

        class Connection:
            def request(self, _method: str, path: str, body: str, _headers: t.Any) -> None:
                gateway.calls.append((address, path.rpartition("/")[2]))
                answer = gateway.answer(address, path, json.loads(body))
                if isinstance(answer, Exception):
                    raise answer
                self.response = Response()
                self.response.status = answer[0]
                self.response.content = json.dumps(answer[1]).encode()

            def getresponse(self) -> Response:
                return self.response

            def close(self) -> None:
                pass

        return Connection()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Membership]:
    def make(answer: Callable[[str, str, dict[str, t.Any]], Answer]) -> Membership:
        stand_in = Gateway(answer)
        monkeypatch.setattr(http.client, "HTTPSConnection", stand_in.connection)
        monkeypatch.setattr(time, "sleep", lambda _: None)
        membership = Membership({"az-1": "10.0.0.1", "az-2": "10.0.0.2"}, ssl.create_default_context())
        membership.calls = stand_in.calls  # type: ignore[attr-defined]
        return membership

    return make


def entry(number: int, name: str = "", *, learner: bool = False, started: bool = True) -> dict[str, t.Any]:
    return {
        "ID": str(number),
        "name": name,
        "peerURLs": [f"https://10.0.0.{number}:2380"],
        **({"clientURLs": [f"https://10.0.0.{number}:2379"]} if started else {}),
        **({"isLearner": True} if learner else {}),
    }


def listing(*entries: dict[str, t.Any]) -> Callable[[str, str, dict[str, t.Any]], Answer]:
    def answer(_address: str, path: str, _body: dict[str, t.Any]) -> Answer:
        if path.endswith("/add"):
            return 200, {"members": [*entries, entry(9, learner=True, started=False)]}
        return 200, {"members": list(entries)}

    return answer


def test_the_next_member_is_asked_when_one_is_silent(gateway: Callable[..., Membership]) -> None:
    def answer(address: str, _path: str, _body: dict[str, t.Any]) -> Answer:
        return ConnectionRefusedError(111, "refused") if address == "10.0.0.1" else (200, {"members": []})

    membership = gateway(answer)
    assert membership.listed() == []
    assert membership.calls == [("10.0.0.1", "list"), ("10.0.0.2", "list")]  # type: ignore[attr-defined]


def test_a_learner_that_is_asked_does_not_answer_for_the_others(gateway: Callable[..., Membership]) -> None:
    def answer(address: str, _path: str, _body: dict[str, t.Any]) -> Answer:
        if address == "10.0.0.1":
            return 503, {"message": "etcdserver: rpc not supported for learner"}
        return 200, {"members": [entry(1, "az-1", learner=True)]}

    assert [member.name for member in gateway(answer).listed()] == ["az-1"]


def test_without_a_quorum_every_reason_is_named(gateway: Callable[..., Membership]) -> None:
    def answer(address: str, _path: str, _body: dict[str, t.Any]) -> Answer:
        if address == "10.0.0.1":
            return TimeoutError()
        return 503, {"message": "etcdserver: request timed out"}

    with pytest.raises(ClusterError, match=r"az-1: no answer within 10 s; az-2: etcdserver: request timed"):
        gateway(answer).listed(wait=False)


@pytest.mark.parametrize(
    "action",
    [
        lambda made: made.listed(),
        lambda made: made.add_learner("az-9", "https://10.0.0.9:2380"),
        lambda made: made.promote("1"),
        lambda made: made.remove("1"),
    ],
)
def test_a_leader_that_goes_between_two_calls_fails_nothing(
    gateway: Callable[..., Membership], action: Callable[[Membership], object]
) -> None:
    lists = [0]

    def answer(address: str, path: str, body: dict[str, t.Any]) -> Answer:
        lists[0] += path.endswith("/list")
        if path.endswith("/list") and lists[0] <= 4:
            return 503, {"message": "etcdserver: leader changed"}
        return listing(entry(1, "az-1"))(address, path, body)

    action(gateway(answer))
    assert lists[0] == 5


def test_add_a_learner(gateway: Callable[..., Membership]) -> None:
    membership = gateway(listing(entry(1, "az-1")))
    assert [m.id for m in membership.add_learner("az-9", "https://10.0.0.9:2380")] == ["1", "9"]


def test_a_learner_that_waits_is_not_added_twice(gateway: Callable[..., Membership]) -> None:
    membership = gateway(listing(entry(1, "az-1"), entry(9, learner=True, started=False)))
    assert len(membership.add_learner("az-9", "https://10.0.0.9:2380")) == 2
    assert membership.calls == [("10.0.0.1", "list")]  # type: ignore[attr-defined]


REFUSED = [
    ([entry(9, "az-7")], "a member az-7 with the id 9 is listed there"),  # its address was another's
    ([entry(9, "az-9")], "a member az-9 with the id 9 is listed there"),  # its disk is empty
    ([entry(8, "az-9")], r"a member az-9 with the id 8 is listed there \(https://10.0.0.8:2380\)"),
    ([entry(3, "az-3", learner=True)], "az-3 is a learner still"),
]


@pytest.mark.parametrize(("entries", "message"), REFUSED)
def test_who_cannot_be_added(
    gateway: Callable[..., Membership], entries: list[dict[str, t.Any]], message: str
) -> None:
    membership = gateway(listing(*entries))
    with pytest.raises(ClusterError, match=message):
        membership.add_learner("az-9", "https://10.0.0.9:2380")
    assert {call for _, call in membership.calls} == {"list"}  # type: ignore[attr-defined]


def test_promotion_is_tried_until_the_learner_is_in_sync(gateway: Callable[..., Membership]) -> None:
    attempts = [0]

    def answer(_address: str, path: str, _body: dict[str, t.Any]) -> Answer:
        if path.endswith("/list"):
            return 200, {"members": [entry(255, "az-9", learner=attempts[0] < 3)]}
        attempts[0] += 1
        if attempts[0] < 3:
            return 400, {"message": BEHIND}
        return 200, {}

    gateway(answer).promote("ff")
    assert attempts == [3]


class Lost:
    """Two members: the one that is asked first does a change, and goes away before it answers."""

    def __init__(self, before: list[dict[str, t.Any]], after: list[dict[str, t.Any]], refusal: str) -> None:
        self.before, self.after, self.refusal = before, after, refusal
        self.done = False

    def __call__(self, address: str, path: str, _body: dict[str, t.Any]) -> Answer:
        if path.endswith("/list"):
            return 200, {"members": self.after if self.done else self.before}
        if path.endswith("/alarm"):
            return 200, {}
        if self.done:
            return 400, {"message": self.refusal}
        self.done = True
        return TimeoutError()


NEW = entry(9, learner=True, started=False)


@pytest.mark.parametrize(
    ("before", "after", "refusal", "action"),
    [
        (
            [entry(1)],
            [entry(1), NEW],
            "etcdserver: Peer URLs already exists",
            lambda made: [one.id for one in made.add_learner("az-9", "https://10.0.0.9:2380")] == ["1", "9"],
        ),
        (
            [entry(9, "az-9", learner=True)],
            [entry(9, "az-9")],
            "etcdserver: can only promote a learner member",
            lambda made: made.promote("9") is None,
        ),
        ([entry(1), entry(10)], [entry(1)], "etcdserver: member not found", lambda made: made.remove("a")),
    ],
)
def test_a_change_whose_answer_was_lost_is_done(
    gateway: Callable[..., Membership],
    before: list[dict[str, t.Any]],
    after: list[dict[str, t.Any]],
    refusal: str,
    action: Callable[[Membership], bool],
) -> None:
    assert action(gateway(Lost(before, after, refusal)))


def test_a_promotion_during_an_election_is_tried_again(gateway: Callable[..., Membership]) -> None:
    attempts = [0]

    def answer(_address: str, path: str, _body: dict[str, t.Any]) -> Answer:
        if path.endswith("/list"):
            return 200, {"members": [entry(9, "az-9", learner=attempts[0] < 5)]}
        attempts[0] += 1
        return (200, {}) if attempts[0] == 5 else (503, {"message": "etcdserver: leader changed"})

    gateway(answer).promote("9")
    assert attempts == [5]
    attempts[0] = 0
    with pytest.raises(ClusterError, match="No etcd member answers with a quorum"):
        gateway(answer).promote("9", seconds=-1)


def test_a_learner_that_never_catches_up_has_no_vote(gateway: Callable[..., Membership]) -> None:
    def answer(_address: str, path: str, _body: dict[str, t.Any]) -> Answer:
        if path.endswith("/list"):
            return 200, {"members": [entry(9, "az-9", learner=True)]}
        return 400, {"message": BEHIND}

    with pytest.raises(ClusterError, match=r"az-9 has not caught up with the leader in 0 s\. It has no vote"):
        gateway(answer).promote("9", seconds=0)


def test_a_cluster_that_has_just_changed_is_asked_again(gateway: Callable[..., Membership]) -> None:
    refusals = ["etcdserver: unhealthy cluster"] * 3

    def answer(_address: str, path: str, _body: dict[str, t.Any]) -> Answer:
        if path.endswith("/list"):
            return 200, {"members": [entry(10, "az-2")]}
        return (400, {"message": refusals.pop()}) if refusals else (200, {})

    assert gateway(answer).remove("a") is True
    assert refusals == []


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [("etcdserver: unhealthy cluster", "all members are healthy"), ("etcdserver: odd", "etcd's log")],
)
def test_refusals_have_remedies(
    gateway: Callable[..., Membership], monkeypatch: pytest.MonkeyPatch, reason: str, remedy: str
) -> None:
    monkeypatch.setattr(members, "SETTLING_SECONDS", 0)

    def answer(_address: str, path: str, _body: dict[str, t.Any]) -> Answer:
        return (200, {"members": []}) if path.endswith("/list") else (400, {"message": reason})

    with pytest.raises(ClusterError, match=f"refuses to add the member: {reason}") as refused:
        gateway(answer).add_learner("az-9", "https://10.0.0.9:2380")
    assert remedy in refused.value.remedy


def test_members_that_have_just_connected_are_given_a_moment(gateway: Callable[..., Membership]) -> None:
    tried: list[str] = []

    def answer(_address: str, path: str, _body: dict[str, t.Any]) -> Answer:
        if path.endswith("/list"):
            return 200, {"members": []}
        tried.append(path)
        if len(tried) == 1:
            return 400, {"message": "etcdserver: unhealthy cluster"}
        return 200, {"members": [entry(9, "", learner=True)]}

    assert [member.id for member in gateway(answer).add_learner("az-9", "https://10.0.0.9:2380")] == ["9"]
    assert len(tried) == 2


def test_remove(gateway: Callable[..., Membership]) -> None:
    membership = gateway(listing(entry(1, "az-1"), entry(10, "az-2")))
    assert membership.remove("a") is True
    assert membership.remove("b") is False
    calls = [call for _, call in membership.calls]  # type: ignore[attr-defined]
    assert calls == ["list", "remove", "alarm", "list", "alarm"]


def test_the_alarm_of_a_member_goes_with_it_and_no_other(gateway: Callable[..., Membership]) -> None:
    raised = [{"memberID": str(number), "alarm": "CORRUPT"} for number in (10, 11)]
    cleared = []

    def answer(address: str, path: str, body: dict[str, t.Any]) -> Answer:
        if not path.endswith("/alarm"):
            return listing(entry(1), entry(10), entry(11))(address, path, body)
        if body["action"] == "DEACTIVATE":
            cleared.append((body["memberID"], body["alarm"]))
        return 200, {"alarms": raised}

    assert gateway(answer).remove("a")
    assert cleared == [("10", "CORRUPT")]


def test_after_the_leader_was_removed_the_others_are_given_time_to_elect_one(
    gateway: Callable[..., Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(address: str, path: str, body: dict[str, t.Any]) -> Answer:
        if not path.endswith("/alarm"):
            return listing(entry(1), entry(10))(address, path, body)
        asked.append(address)
        if len(asked) <= 3:
            return 503, {"message": "etcdserver: request timed out, possibly due to previous leader failure"}
        return 200, {}

    assert gateway(answer).remove("a")
    assert len(asked) == 4
    asked.clear()
    monkeypatch.setattr(members, "SETTLING_SECONDS", 0)
    with pytest.raises(ClusterError, match="No etcd member answers with a quorum"):
        gateway(answer).remove("a")


def test_promoting_nobody(gateway: Callable[..., Membership]) -> None:
    with pytest.raises(ClusterError, match="There is no member 9"):
        gateway(listing()).promote("9")
