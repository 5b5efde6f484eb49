# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whole runs on a simulated site: two at once, and an API that is away, breaks off or lies meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_api import NODES, SECRETS, FakeApi, Fault, Joins, api_of
from tests.support.faults import insist
from tests.support.playbooks import recap_of
from tests.support.simulated_site import ADDRESSES, API_NAME, SimulatedSite, make_store

ASSESSED = 5
"""The boundary at which the first play on hosts begins: the site is locked by then."""


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    make_store(folder)
    return folder


@pytest.fixture
def world(pki: Path, tmp_path: Path) -> Iterator[tuple[SimulatedSite, FakeApi]]:
    """A bare site with one worker, and its API."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store

    with api_of(open_store(pki / "pki", pki / "key"), API_NAME) as api:
        site = SimulatedSite(tmp_path / "site", pki, "127.0.0.1", api.port, workers=1)
        api.joins = Joins(site.folder / "api", ADDRESSES)
        with contextlib.closing(site):
            yield site, api


World = tuple[SimulatedSite, FakeApi]


def test_a_second_run_is_refused_until_the_first_one_is_dead(world: World) -> None:
    site, api = world
    first = site.start(IRONSPAN_TEST_STOP_AT=str(ASSESSED))
    _, status = os.waitpid(first.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    before = site.snapshot()

    refused, output = site.finish()
    assert refused == 2
    insist("second-run", output)
    assert f"process {first.pid} on " in output
    assert set(recap_of(output)) == {"localhost"}, "no host was contacted"
    assert (site.snapshot(), api.asked) == (before, [])

    first.send_signal(signal.SIGKILL)
    first.wait()
    status, output = site.finish()
    assert status == 0, output
    assert api.names(NODES) == ["w1"]


def unauthorized(method: str, path: str) -> Fault:
    return Fault(status=401, body=b'{"reason": "Unauthorized", "message": "Unauthorized"}')


class EveryOther:
    """Breaks every other request: before it is done, or in the middle of its answer."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, method: str, path: str) -> Fault | None:
        self.count += 1
        return {1: Fault(close=True), 3: Fault(cut=3), 5: Fault(status=503)}.get(self.count % 6)


def lies(method: str, path: str) -> Fault | None:
    """Say that the token is made, and do not make it."""
    return Fault(forget=True) if method == "PATCH" and path.startswith(f"{SECRETS}/bootstrap") else None


@pytest.mark.parametrize(
    ("name", "fault"),
    [("api-clock", unauthorized), ("api-lies", lies)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_join_that_the_api_spoils_is_finished_later(world: World, name: str, fault: t.Any) -> None:
    site, api = world
    api.fault = fault
    status, output = site.finish()
    assert status == 2, output
    insist(name, output)
    assert site.leftovers() == []
    assert not (site.root("w1") / "etc/kubernetes/kubelet.conf").exists(), "it is no half member"
    assert (site.root("w1") / "etc/app/app.conf").exists(), "what needs no API is done"

    api.fault = lambda method, path: None
    status, output = site.finish()
    assert status == 0, output
    assert (api.names(NODES), api.names(SECRETS), site.leftovers()) == (["w1"], [], [])


def test_an_api_that_breaks_off_every_other_time_is_good_enough(world: World) -> None:
    site, api = world
    fault = EveryOther()
    api.fault = fault
    status, output = site.finish()
    assert status == 0, output
    assert fault.count > 15
    assert (api.names(NODES), api.names(SECRETS), site.leftovers()) == (["w1"], [], [])
