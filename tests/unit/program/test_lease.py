# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Leadership by a Lease of the cluster: taken, kept, lost, taken over, by clocks that do not agree."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api

from ironspan.kubernetes.lease import ClusterLeases
from ironspan.program.errors import Forbidden, LeaseLost, NotThere, ServiceError
from ironspan.program.leader import MARGIN_SECONDS, SECONDS, Leadership
from tests.support.clock import Clock
from tests.support.fake_api import FakeApi, Fault

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ironspan-test"


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


def candidate(server: FakeApi, name: str, clock: Clock) -> Leadership:
    api = Api(f"http://127.0.0.1:{server.port}", ssl.create_default_context())
    return Leadership(ClusterLeases(api, "kube-system", clock), "ironspan-test", name, clock)


def holder(server: FakeApi) -> str:
    return str(server.objects[PATH]["spec"]["holderIdentity"]).partition("_")[0]


def test_one_holds_it_and_renews_it_and_another_waits(server: FakeApi) -> None:
    clock = Clock()
    one, other = candidate(server, "one", clock), candidate(server, "other", clock)
    assert one.step()
    for _ in range(10):
        clock.now += 3
        assert one.step()
        assert not other.step()
        assert one.held()
        assert not other.held()
    assert isinstance(other.problem, LeaseLost)
    assert "one_" in other.problem.message
    spec = server.objects[PATH]["spec"]
    assert spec["leaseTransitions"] == 1
    assert spec["leaseDurationSeconds"] == SECONDS
    assert spec["renewTime"] > spec["acquireTime"]


def test_a_killed_holder_is_followed_after_its_seconds_and_not_before(server: FakeApi) -> None:
    clock = Clock()
    one, other = candidate(server, "one", clock), candidate(server, "other", clock)
    assert one.step()
    assert not other.step()
    clock.now += SECONDS - 0.1
    assert not one.held()
    assert not other.step()
    clock.now += 0.2
    assert other.step()
    assert holder(server) == "other"
    assert server.objects[PATH]["spec"]["leaseTransitions"] == 2
    assert not one.step()
    assert isinstance(one.problem, LeaseLost)


@pytest.mark.parametrize("skew", [-1e6, -60.0, 60.0, 1e6])
def test_clocks_of_other_hosts_do_not_count(server: FakeApi, skew: float) -> None:
    mine, theirs = Clock(2e6), Clock(2e6 + skew)
    one, other = candidate(server, "one", mine), candidate(server, "other", theirs)
    assert one.step()
    # Times of the far past or future in the object: only that it changes says that its holder lives.
    for renewed in ("1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"):
        server.objects[PATH]["spec"]["renewTime"] = renewed
        assert not other.step()
        theirs.now += SECONDS - 1
        assert not other.step()
    theirs.now += 2
    assert other.step()


def test_a_holder_that_starts_again_waits_for_its_former_self(server: FakeApi) -> None:
    clock = Clock()
    assert candidate(server, "one", clock).step()
    again = candidate(server, "one", clock)
    assert not again.step()
    clock.now += SECONDS
    assert again.step()


def test_what_is_given_up_is_taken_at_once(server: FakeApi) -> None:
    clock = Clock()
    one, other = candidate(server, "one", clock), candidate(server, "other", clock)
    assert one.step()
    assert not other.step()
    one.release(60)
    assert not one.held()
    assert holder(server) == ""
    assert other.step()
    assert not one.step()


def test_a_renewal_whose_answer_was_lost_counts(server: FakeApi) -> None:
    clock = Clock()
    one = candidate(server, "one", clock)
    assert one.step()
    server.fault = lambda method, path: Fault(cut=0) if method == "PUT" else None
    clock.now += 3
    assert one.step(), "it holds it for the time that it knows of"
    assert isinstance(one.problem, ServiceError)
    server.fault = lambda method, path: None
    clock.now += 3
    assert one.step()
    assert one.problem is None
    assert one.remaining() == SECONDS - MARGIN_SECONDS


def test_a_lease_that_was_taken_with_a_lost_answer_is_ours(server: FakeApi) -> None:
    clock = Clock()
    one = candidate(server, "one", clock)
    server.fault = lambda method, path: Fault(cut=0) if method == "POST" else None
    assert not one.step()
    server.fault = lambda method, path: None
    assert one.step()


@pytest.mark.parametrize("fault", [Fault(status=503), Fault(close=True), Fault(body=b"<html>")])
def test_without_an_answer_it_is_held_no_longer_than_others_wait(server: FakeApi, fault: Fault) -> None:
    clock = Clock()
    one = candidate(server, "one", clock)
    assert one.step()
    server.fault = lambda method, path: fault
    clock.now += SECONDS - MARGIN_SECONDS - 0.1
    assert one.step()
    clock.now += 0.2
    assert not one.step()
    assert isinstance(one.problem, ServiceError)


def test_who_may_not_is_told_what_to_bind(server: FakeApi) -> None:
    server.fault = lambda method, path: Fault(status=403)
    one = candidate(server, "one", Clock())
    assert not one.step()
    assert isinstance(one.problem, Forbidden)
    assert "get, create and update leases" in one.problem.remedy


def test_a_lease_that_somebody_deleted_is_lost_and_not_taken_while_its_holder_acts(server: FakeApi) -> None:
    clock = Clock()
    one, other = candidate(server, "one", clock), candidate(server, "other", clock)
    assert one.step()
    assert not other.step()
    del server.objects[PATH]
    assert not other.step(), "the holder believes in it still"
    assert not one.step()
    assert isinstance(one.problem, LeaseLost)
    clock.now += SECONDS
    assert other.step()


def test_a_label_of_somebody_is_no_loss_and_no_renewal(server: FakeApi) -> None:
    clock = Clock()
    one, other = candidate(server, "one", clock), candidate(server, "other", clock)
    assert one.step()
    assert not other.step()
    metadata = server.objects[PATH]["metadata"]
    metadata.update(labels={"seen": "yes"}, resourceVersion="77")
    clock.now += SECONDS / 2
    assert not other.step()
    assert one.step()
    assert server.objects[PATH]["metadata"]["labels"] == {"seen": "yes"}
    assert not other.step()
    server.objects[PATH]["metadata"]["resourceVersion"] = "99"
    clock.now += SECONDS
    assert other.step()


def test_a_late_write_of_a_former_holder_is_refused(server: FakeApi) -> None:
    clock = Clock()
    api = Api(f"http://127.0.0.1:{server.port}", ssl.create_default_context())
    former = ClusterLeases(api, "kube-system", clock).acquire("ironspan-test", SECONDS, "former")
    other = candidate(server, "other", clock)
    assert not other.step()
    clock.now += SECONDS
    assert other.step()
    with pytest.raises(LeaseLost):
        former.renew()
    former.release()
    assert holder(server) == "other"


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": "x", "leaseDurationSeconds": "soon"}])
def test_what_another_program_wrote_there_is_no_obstacle_for_ever(
    server: FakeApi, spec: dict[str, object] | None
) -> None:
    server.objects[PATH] = {"metadata": {"name": "ironspan-test", "resourceVersion": "1"}, "spec": spec}
    clock = Clock()
    one = candidate(server, "one", clock)
    one.step()
    clock.now += SECONDS
    assert one.step()


def test_a_missing_namespace_is_said(server: FakeApi) -> None:
    server.fault = lambda method, path: Fault(status=404) if method == "POST" else None
    one = candidate(server, "one", Clock())
    assert not one.step()
    assert isinstance(one.problem, NotThere)
    assert "namespace" in one.problem.remedy


@pytest.mark.parametrize("seed", range(3))
def test_never_two_at_once_whatever_fails(server: FakeApi, seed: int) -> None:
    chance = random.Random(seed)
    clocks = [Clock(chance.uniform(0, 1e6)) for _ in range(3)]
    # Each runs a little faster or slower than the time, as clocks of hosts do.
    rates = [chance.uniform(0.99, 1.01) for _ in clocks]
    all_of_them = [candidate(server, f"host-{number}", clock) for number, clock in enumerate(clocks)]
    faults = [None] * 4 + [Fault(cut=0), Fault(close=True), Fault(status=500), Fault(status=429)]
    server.fault = lambda method, path: chance.choice(faults)
    led = set()
    for _ in range(50):
        passed = chance.choice([0.1, 1, 3, 6])
        for clock, rate in zip(clocks, rates, strict=True):
            clock.now += passed * rate
        for one in all_of_them:
            match chance.randrange(12):
                case 0:
                    one.release()
                case number if number < 7:
                    one.step()
            holding = [number for number, each in enumerate(all_of_them) if each.held()]
            assert len(holding) <= 1
            led.update(holding)
    assert len(led) > 1, "nobody ever took over"
