# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whole runs on a simulated site: two at once, and an API that is away, breaks off or lies meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_api import NODES, SECRETS, FakeApi, Fault, Joins, api_of
from tests.support.faults import insist
from tests.support.playbooks import recap_of
from tests.support.simulated_site import (
    ADDRESSES,
    API_NAME,
    SimulatedSite,
    controllers_of,
    kill_all,
    make_store,
    parent_of,
    wait_for,
)

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


HANGING = """#!/bin/sh
echo $$ >"$IRONSPAN_ROOT/run/hanging"
exec sleep 600
"""


def is_asleep(process: int) -> bool:
    """Tell whether a process of ``HANGING`` sleeps already; while it becomes that, it has no command line."""
    return "sleep" in Path(f"/proc/{process}/cmdline").read_text()


@contextlib.contextmanager
def hung(site: SimulatedSite, *program: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """Start a run whose worker waits for a join that does not end; yield it, its name, the join's process."""
    (site.root("w1") / "usr/local/ironspan-test-bin/kubeadm").write_text(HANGING)
    mark, name = site.root("w1") / "run/hanging", uuid.uuid4().hex
    running = site.start(run=name, program=program)
    wait_for(lambda: mark.exists() and mark.read_text().endswith("\n"), "the join begins", 600)
    join = int(mark.read_text())
    wait_for(lambda: is_asleep(join), "the join hangs")
    try:
        yield running, name, join
    finally:
        kill_all(name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(join, signal.SIGKILL)
        running.wait()


def test_workers_end_with_a_killed_run(world: World) -> None:
    """Nobody waits for the run that was killed, as in a container whose first process reaps nobody."""
    with hung(world[0], "ansible-playbook") as (running, name, join):
        assert len(controllers_of(name)) > 1
        running.send_signal(signal.SIGKILL)
        wait_for(lambda: not controllers_of(name), "workers of a killed run go on")
        assert is_asleep(join), "what a host does goes on"


def test_the_run_ends_with_a_killed_command(world: World) -> None:
    with hung(world[0], "ironspan", "apply") as (running, name, _):
        assert len(controllers_of(name)) > 2
        running.send_signal(signal.SIGKILL)
        wait_for(lambda: not controllers_of(name), "ansible-playbook goes on without its command")


def test_a_run_whose_end_was_never_seen_does_not_say_that_it_finished(world: World) -> None:
    site, _ = world
    with hung(site, "ironspan", "apply") as (running, name, _):
        (playbook,) = [one for one in controllers_of(name) if parent_of(one) == running.pid]
        os.kill(playbook, signal.SIGKILL)
        assert running.wait(180) == 3
        wait_for(lambda: not controllers_of(name), "workers of a killed run go on")
    output = (site.folder / "log").read_text()
    assert "hosts finished" not in output
    insist("run-cut-off", output)
    assert f"-> ironspan apply -i {site.folder}/hosts.yml {site.folder}/site.yml " in output


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
    """Say that a request is approved, and do not approve it."""
    return Fault(forget=True) if method == "PUT" and path.endswith("/approval") else None


def test_an_approval_that_is_not_true_is_not_believed(world: World) -> None:
    site, api = world
    patient = site.folder / "site.yml"
    approve = "ironspan.hybrid.approve_kubelet_certificates:\n"
    assert approve in patient.read_text()
    patient.write_text(re.sub(rf"( *){approve}", r"\g<0>\1  timeout: 3\n", patient.read_text()))
    api.fault = lies
    status, output = site.finish()
    assert status == 2, output
    insist("api-lies", output)

    api.fault = lambda method, path: None
    status, output = site.finish()
    assert status == 0, output
    assert (api.names(NODES), api.names(SECRETS), site.leftovers()) == (["w1"], [], [])


def test_a_join_that_the_api_spoils_is_finished_later(world: World) -> None:
    site, api = world
    api.fault = unauthorized
    status, output = site.finish()
    assert status == 2, output
    insist("api-clock", output)
    key = site.root("w1") / "run/ironspan/join.key"
    assert site.leftovers() == [str(key)], "a key for which nobody has signed anything"
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
