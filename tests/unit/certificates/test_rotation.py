# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is asked for, what the cluster has to say to it, and what a stage is announced as."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.gate import END, Observed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import (
    OPERATIONS,
    ca_rotate,
    certs_renew,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import (
    BACK,
    DROP,
    ISSUE,
    SERVICE_ACCOUNT,
    TRUST,
    Generations,
    moved,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

OLD, NEW = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END", "-----BEGIN CERTIFICATE-----\nBBBB\n-----END"


@dataclasses.dataclass
class FakeHost:
    groups: tuple[str, ...]
    variables: dict[str, t.Any] = dataclasses.field(
        default_factory=lambda: {"site_certificate_renew_days": 30}
    )


HOSTS: t.Any = {
    "az-1": FakeHost(("etcd",)),
    "az-2": FakeHost(("haproxy",)),
    "rack-1": FakeHost(("nodes",)),
    "rack-2": FakeHost(("nodes",)),
}


class Api:
    """Answers lists by path."""

    def __init__(self, **items: list[t.Any]) -> None:
        self.items = items

    def get(self, path: str, **_: str) -> t.Any:
        return {"items": self.items[path.rpartition("/")[2]]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "ironspan_authority is needed; write -e ironspan_authority="),
        ({"ironspan_authority": "etdc"}, "ironspan_authority: 'etdc' is none of its values; write etcd;"),
        ({"ironspan_authority": "etcd", "ironspan_authority_stage": "later"}, "write one of next, trust"),
        ({"ironspan_authority": "etcd", "ironspan_leave_behind": "rack-9"}, "rack-9"),
        ({"ironspan_authority": "etcd", "ironspan_leave_behind": "rack-1,az-2"}, "names az-2; only workers"),
        ({"ironspan_authority": "etcd", "ironspan_leave_behind": ["az-1"]}, "names az-1; only workers"),
        ({"ironspan_authority": "etcd", "ironspan_token_minutes": "soon"}, "no whole number"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(arguments: dict[str, t.Any], words: str) -> None:
    with pytest.raises(OperationError, match=words):
        rotation.wish_of(arguments, HOSTS)


@pytest.mark.parametrize("left", ["rack-1, rack-2", ["rack-1", "rack-2"]])
def test_a_wish(left: t.Any) -> None:
    wish = rotation.wish_of(
        {"ironspan_authority": "etcd", "ironspan_authority_stage": TRUST, "ironspan_leave_behind": left},
        HOSTS,
    )
    assert wish == rotation.Wish("etcd", TRUST, ("rack-1", "rack-2"), rotation.TOKEN_MINUTES)


def judged(
    name: str,
    move: str,
    state: Generations,
    api: Api,
    left: tuple[str, ...] = (),
    hosts: dict[str, Observed | None] | None = None,
    now: float = 0.0,
) -> list[str]:
    wish = rotation.Wish(name, move, left, rotation.TOKEN_MINUTES)
    return rotation.reasons_against(
        wish, move, state, hosts or {}, "keys", lambda: t.cast("t.Any", api), OLD + "\n" + NEW, now
    )


@pytest.mark.parametrize(("held", "count"), [(f"{OLD}\n{NEW}\n", 0), (OLD, 1), ("", 1)])
def test_pods_must_be_given_the_new_authority_first(held: str, count: int) -> None:
    item = {"metadata": {"namespace": "jobs", "name": "kube-root-ca.crt"}, "data": {"ca.crt": held}}
    state = moved("kubernetes", Generations(), TRUST, "")
    reasons = judged("kubernetes", ISSUE, state, Api(configmaps=[item]))
    assert len(reasons) == count
    assert all("namespace jobs" in reason for reason in reasons)


def keys_followed(started: float) -> dict[str, Observed | None]:
    programs = {"kube-apiserver": started, "kube-controller-manager": started}
    return {"az-1": Observed(("control_plane",), [], {}, programs, "keys")}


@pytest.mark.parametrize(
    ("minutes", "secrets", "words"),
    [
        (60, [], "for another 10 minutes"),
        (71, [], ""),
        (
            71,
            [{"metadata": {"namespace": "ci", "name": "robot"}}],
            "secret ci/robot holds a token without an end",
        ),
    ],
)
def test_the_old_key_stays_until_no_token_of_it_is_left(
    minutes: int, secrets: list[t.Any], words: str
) -> None:
    state = moved(SERVICE_ACCOUNT, moved(SERVICE_ACCOUNT, Generations(), TRUST, ""), ISSUE, "")
    reasons = judged(
        SERVICE_ACCOUNT,
        DROP,
        state,
        Api(secrets=secrets),
        hosts=keys_followed(1000.0),
        now=1000.0 + minutes * 60,
    )
    assert any(words in reason for reason in reasons) if words else not reasons


def test_who_is_left_behind_is_not_asked() -> None:
    state = moved("etcd", Generations(), TRUST, "")
    member = Observed(("etcd", "azure"), [], {}, {})
    reasons = judged("etcd", ISSUE, state, Api(), ("rack-2",), {"rack-2": None, "az-1": member})
    assert reasons
    assert all(reason.startswith("az-1: ") for reason in reasons)


def test_a_worker_that_does_not_answer_can_be_left_behind() -> None:
    state = moved("kubernetes", Generations(), TRUST, "")
    assert judged("kubernetes", ISSUE, state, Api(configmaps=[]), ("rack-2",), {"rack-2": None}) == []


def test_many_reasons_are_counted() -> None:
    text = rotation.listed([str(number) for number in range(25)])
    assert text.startswith("0; 1; ")
    assert text.endswith("; and 15 more")


class FakeSession:
    """A session of a site with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(folder / "pki", generate_key_file(folder / "key"))
        self.store.ensure_cas()
        self.site = t.cast("t.Any", FakeSite())


class FakeSite:
    hosts = HOSTS

    def group(self, name: str) -> list[str]:
        return ["az-1"] if name in ("etcd", "control_plane") else []


def context(session: FakeSession, **arguments: t.Any) -> Context:
    return Context(t.cast("t.Any", session), arguments)


def test_steps_of_the_stages(tmp_path: Path) -> None:
    session = FakeSession(tmp_path)

    def step(stage: str) -> t.Any:
        return ca_rotate.steps(context(session, ironspan_authority="etcd", ironspan_authority_stage=stage))[0]

    with pytest.raises(OperationError, match="etcd is not being changed"):
        step("next")
    with pytest.raises(OperationError, match="The stage after it is trust"):
        step(DROP)
    trust = step(TRUST)
    assert trust.action == "authority-trust"
    assert trust.arithmetic == "generation 1 signs, 1 trusted; after: 1 signs, 1 and 2 trusted"
    assert "restart" in trust.disruption
    session.store.move("etcd", TRUST)
    assert step("next").arithmetic.endswith("stage issue only if all hosts have followed trust")
    assert step(ISSUE).disruption == ""
    assert step(BACK).arithmetic.endswith("after: 1 signs, 1 trusted")
    session.store.move("etcd", ISSUE)
    assert step(DROP).what == "let 4 hosts trust the old authority etcd no more"


def test_the_step_of_a_renewal_says_the_days(tmp_path: Path) -> None:
    step = certs_renew.steps(context(FakeSession(tmp_path)))[0]
    assert step.what == "renew certificates that end within 30 days"


def test_both_are_operations() -> None:
    assert {"ca_rotate", "certs_renew"} <= set(OPERATIONS)


def workload(generation: int = 2, **status: int) -> t.Any:
    return {"metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": status}


DAEMONS = {"observedGeneration": 2, "desiredNumberScheduled": 3}


@pytest.mark.parametrize(
    ("item", "done"),
    [
        (workload(**DAEMONS, updatedNumberScheduled=3, numberAvailable=3), True),
        (workload(**DAEMONS, updatedNumberScheduled=2, numberAvailable=3), False),
        (workload(**DAEMONS, updatedNumberScheduled=3, numberAvailable=2), False),
        (workload(3, **DAEMONS, updatedNumberScheduled=3, numberAvailable=3), False),
        (workload(observedGeneration=2, updatedReplicas=2, availableReplicas=2, replicas=2), True),
        (workload(observedGeneration=2, updatedReplicas=2, availableReplicas=2, replicas=3), False),
        (workload(observedGeneration=2, updatedReplicas=1, availableReplicas=2, replicas=2), False),
        (workload(), False),
    ],
)
def test_when_a_restart_is_done(item: t.Any, done: bool) -> None:
    assert rollouts.is_done(item) is done


def test_the_end_comes_after_the_last_stage() -> None:
    assert [rotation.next_move(Generations(stage=stage)) for stage in ("", TRUST, ISSUE, DROP)] == [
        TRUST,
        ISSUE,
        DROP,
        END,
    ]
