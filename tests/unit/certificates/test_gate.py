# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whatever hosts and operator do, in whatever order: nobody ever meets a certificate that it distrusts."""

from __future__ import annotations

import dataclasses
import typing as t

import hypothesis
import hypothesis.strategies as st
import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.gate import (
    END,
    SERVED,
    Observed,
    refusals,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import (
    BACK,
    DROP,
    ISSUE,
    MOVES,
    SERVICE_ACCOUNT,
    TRUST,
    Generations,
    ended,
    moved,
)

from .model import ModelHost

HOSTS = (("etcd", "control_plane", "azure"), ("etcd", "haproxy"), ("control_plane",), ("nodes",), ("nodes",))
AUTHORITIES = ("etcd", "kubernetes", "front-proxy")
Judge = t.Callable[[str, str, Generations, dict[str, Observed | None]], list[str]]
ACTION = st.one_of(
    st.tuples(st.just("move"), st.sampled_from([*MOVES, END])),
    st.tuples(st.just("step"), st.integers(0, len(HOSTS) - 1)),
    st.tuples(st.just("steps"), st.integers(0, len(HOSTS) - 1)),
    st.tuples(st.just("reload"), st.integers(0, len(HOSTS) - 1)),
    st.tuples(st.just("follow"), st.integers(0, 2 ** len(HOSTS) - 1)),
)


class World:
    """The store and all hosts."""

    def __init__(self, authority: str, judge: Judge = refusals) -> None:
        self.authority, self.judge = authority, judge
        self.state, self.now = Generations(), 10.0
        self.hosts = [ModelHost(authority, groups) for groups in HOSTS]
        self.moves: list[str] = []

    def act(self, what: str, which: t.Any) -> None:
        """Do one thing; the invariant holds after each."""
        if what == "move":
            self.move(which)
        elif what == "step":
            self.step(self.hosts[which])
        elif what == "steps":
            while self.step(self.hosts[which]):
                pass
        elif what == "reload":
            self.hosts[which].reload()
        else:
            # A whole run that some hosts miss, being down.
            for number, host in enumerate(self.hosts):
                while not which >> number & 1 and self.step(host):
                    pass
                host.reload()
        self.check()

    def step(self, host: ModelHost) -> bool:
        self.now += 10
        done = host.step(self.state, self.now)
        self.check()
        return done

    def move(self, move: str) -> bool:
        seen: dict[str, Observed | None] = {str(n): host.observed() for n, host in enumerate(self.hosts)}
        if self.judge(self.authority, move, self.state, seen):
            return False
        try:
            state = ended(self.state) if move == END else moved(self.authority, self.state, move, "")
        except PkiError:
            return False
        if state != self.state:
            self.moves.append(move)
        self.state = state
        return True

    def check(self) -> None:
        shown = {number for host in self.hosts for number in host.in_use()}
        for host in self.hosts:
            for trusted in host.trusted():
                assert shown <= set(trusted), (host.groups, trusted, shown, self.moves)

    def follow(self) -> None:
        self.act("follow", 0)


HALFWAY = [("move", TRUST), ("follow", 0), ("move", ISSUE), ("step", 0), ("move", BACK)]
"""A host that had written which one comes first, and nothing more, when it went back."""


@pytest.mark.parametrize("authority", AUTHORITIES)
@hypothesis.settings(max_examples=60)
@hypothesis.example(actions=HALFWAY)
@hypothesis.given(actions=st.lists(ACTION, max_size=40))
def test_no_interleaving_leaves_a_moment_without_overlap(
    authority: str, actions: list[tuple[str, t.Any]]
) -> None:
    world = World(authority)
    for what, which in actions:
        world.act(what, which)
    # From wherever it stands it can be brought to an end.
    for _ in range(4):
        world.follow()
        for move in (ISSUE, DROP, END):
            world.move(move)
    world.follow()
    world.move(END)
    assert not world.state.stage


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_the_usual_way(authority: str) -> None:
    world = World(authority)
    for move in (TRUST, ISSUE, DROP, END):
        assert world.move(move)
        world.follow()
    assert world.state == Generations(2, (2,), changes=2)
    assert {number for host in world.hosts for number in host.in_use()} == {2}


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_the_way_back(authority: str) -> None:
    world = World(authority)
    for move in (TRUST, ISSUE, BACK, BACK, END):
        assert world.move(move), move
        world.follow()
    assert world.state == Generations(changes=3)


@pytest.mark.parametrize("authority", AUTHORITIES)
@pytest.mark.parametrize("move", [ISSUE, DROP])
def test_without_the_gate_somebody_meets_what_it_distrusts(authority: str, move: str) -> None:
    """The model can fail: what the gate forbids does break something."""
    world = World(authority, lambda *_: [])
    world.move(TRUST)
    if move == DROP:
        world.follow()
        world.move(ISSUE)
    world.move(move)
    with pytest.raises(AssertionError):
        for host in reversed(world.hosts):
            while world.step(host):
                pass


def followed(authority: str, moves: t.Sequence[str]) -> World:
    world = World(authority)
    for move in moves:
        assert world.move(move)
        world.follow()
    return world


def judged(world: World, move: str, **changed: t.Any) -> list[str]:
    """Return the refusals when the first host's answer is another."""
    seen: dict[str, Observed | None] = {str(n): host.observed() for n, host in enumerate(world.hosts)}
    first = seen["0"]
    assert first is not None
    seen["0"] = dataclasses.replace(first, **changed)
    return refusals(world.authority, move, world.state, seen)


def test_a_host_that_does_not_answer_forbids_all_but_the_first_stage() -> None:
    world = followed("kubernetes", [TRUST])
    seen: dict[str, Observed | None] = {"0": None}
    assert refusals("kubernetes", ISSUE, world.state, seen) == [
        "0: it did not answer, so nobody knows what it trusts"
    ]
    assert refusals("kubernetes", TRUST, Generations(), seen) == []


@pytest.mark.parametrize(
    ("authority", "moves", "move", "changed", "words"),
    [
        (
            "etcd",
            [TRUST],
            ISSUE,
            {"started": {"etcd": 11.0, "kube-apiserver": 1e9}},
            "etcd was started before",
        ),
        ("etcd", [TRUST], ISSUE, {"started": {"kube-apiserver": 1e9}}, "etcd does not run"),
        ("etcd", [TRUST], ISSUE, {"found": []}, "does not trust generation 1, 2 of etcd"),
        ("etcd", [TRUST, ISSUE], DROP, {"found": []}, "holds no certificate"),
    ],
)
def test_what_is_missing_is_named(
    authority: str, moves: list[str], move: str, changed: dict[str, t.Any], words: str
) -> None:
    world = followed(authority, moves)
    reasons = judged(world, move, **changed)
    assert any(words in reason for reason in reasons), reasons
    assert all(reason.startswith("0: ") for reason in reasons)


def test_a_server_that_still_shows_the_old_certificate_keeps_the_old_authority() -> None:
    world = followed("kubernetes", [TRUST, ISSUE])
    world.hosts[0].shown = 1
    assert judged(world, DROP) == [f"0: {SERVED['kubernetes']} is not signed by generation 2 of kubernetes"]


@pytest.mark.parametrize(
    ("public_keys", "started", "words"),
    [
        ("old", {"kube-apiserver": 99.0, "kube-controller-manager": 99.0}, "does not hold the keys"),
        (
            "both",
            {"kube-apiserver": 5.0, "kube-controller-manager": 99.0},
            "kube-apiserver was started before",
        ),
        ("both", {"kube-apiserver": 99.0}, "kube-controller-manager does not run"),
        ("both", {"kube-apiserver": 99.0, "kube-controller-manager": 99.0}, ""),
    ],
)
def test_keys_of_service_accounts(public_keys: str, started: dict[str, float], words: str) -> None:
    written = {"/etc/kubernetes/pki/sa.pub": 50.0, "/etc/kubernetes/pki/sa.key": 50.0}
    state = moved(SERVICE_ACCOUNT, Generations(), TRUST, "")
    hosts: dict[str, Observed | None] = {
        "az-1": Observed(("control_plane",), [], written, started, public_keys),
        "rack-1": Observed(("nodes",), [], {}, {}),
    }
    reasons = refusals(SERVICE_ACCOUNT, ISSUE, state, hosts, "both")
    assert any(words in reason for reason in reasons) if words else not reasons
