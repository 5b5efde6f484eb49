# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The controller killed anywhere: the next run finishes, and nobody can tell that there were two.

The project's playbooks and module on hosts that are private roots, with an API that is a stand-in. Every seed
is a run that is killed (some are killed twice); a failure names its seed, and IRONSPAN_TEST_SEEDS=17,23 plays
those again and no others.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import random
import signal
import time
import traceback
import typing as t
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site, require_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for

from ironspan.lab.ports import free_port
from tests.support.fake_api import NODES, REQUESTS, SECRETS, FakeApi, Joins, api_of
from tests.support.playbooks import recap_of
from tests.support.simulated_site import (
    ADDRESSES,
    API_NAME,
    ROLES,
    SimulatedSite,
    Snapshot,
    kill_all,
    make_store,
)

SHORT, LONG = range(16), range(240)
AT_ONCE = 2


@dataclasses.dataclass(frozen=True)
class Uninterrupted:
    """What a run that nobody disturbs takes and leaves behind."""

    seconds: float
    boundaries: list[str]
    snapshot: Snapshot
    fingerprints: dict[str, str]
    labels: dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Kill:
    """Where one run is killed.

    Args:
        boundary: number of the boundary; 0: at a moment instead.
        moment: part of the time that a run takes.
        everything: the hosts' processes too, as when the power fails; otherwise what runs on the hosts goes
            on, and the next run comes upon it.
    """

    boundary: int
    moment: float
    everything: bool


def kills(seed: int, boundaries: Mapping[int, list[str]]) -> tuple[int, list[Kill]]:
    """Return the number of workers and the kills of a seed.

    The first seeds kill where a phase or a task begins, those after the short version's where a host begins
    or answers; the others leave it to chance. Some strike twice.

    Args:
        seed: the seed.
        boundaries: number of workers -> the boundaries of a run.
    """
    chance = random.Random(seed)
    chosen = dict(enumerate(phases(boundaries[1])))
    within = [number for number in range(1, len(boundaries[1]) + 1) if number not in chosen.values()]
    chosen |= dict(enumerate(within, len(SHORT)))
    workers = 1 if seed in chosen else chance.choice([1, 2])
    anywhere = chance.choice([0, 0, chance.randint(1, len(boundaries[workers]))])
    first = Kill(chosen.get(seed, anywhere), chance.uniform(0.05, 1), chance.random() < 0.5)
    if seed % 6:
        return workers, [first]
    return workers, [first, Kill(0, chance.uniform(0.05, 1), chance.random() < 0.5)]


def phases(boundaries: list[str]) -> list[int]:
    """Return the numbers of those boundaries where a phase or a task begins, and of the end.

    Of boundaries between which nobody is asked anything (a play and its first task) the last one: whatever is
    killed at one of them leaves the same world. The long version has all.
    """
    begins = [line.startswith(("play ", "task ")) or line == "end" for line in boundaries]
    return [
        number
        for number, begun in enumerate(begins, 1)
        if begun and (number == len(begins) or not begins[number])
    ]


class World:
    """What all seeds share: a PKI store, and the uninterrupted runs that they are compared with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: Store = make_store(folder)
        # All sites' APIs come to it one after the other: none that the kernel gives to somebody meanwhile.
        self.port = free_port()
        self.uninterrupted = {workers: self._uninterrupted(workers) for workers in (1, 2)}

    def site(self, name: str, number: int, workers: int) -> tuple[SimulatedSite, t.Any]:
        """Return a new site, and its API to be entered. All sites' APIs have the same port."""
        address = f"127.77.{number // 250}.{number % 250 + 1}"
        site = SimulatedSite(self.folder / name, self.folder, address, self.port, workers)
        joins = Joins(site.folder / "api", ADDRESSES)
        return site, api_of(self.store, API_NAME, joins, address, self.port)

    def _uninterrupted(self, workers: int) -> Uninterrupted:
        site, entered = self.site(f"reference-{workers}", 240 + workers, workers)
        seen = site.folder / "boundaries"
        with entered as api:
            began = time.monotonic()
            status, output = site.finish(IRONSPAN_TEST_BOUNDARIES=str(seen))
            seconds = time.monotonic() - began
            assert status == 0, output
            assert site.leftovers() == []
            return Uninterrupted(
                seconds, seen.read_text().splitlines(), site.snapshot(), settled(site), labels(site, api)
            )


def settled(site: SimulatedSite) -> dict[str, str]:
    """Insist that every host is as its document says; return the workers' fingerprints."""
    model = require_site(load_site([site.folder / "hosts.yml"], roles_folder=ROLES))
    renderer = renderer_for(model, ROLES, make=False)[0]
    fingerprints = {}
    for host in model.hosts.values():
        document = json.loads(renderer.document_text(host))
        result = run({"document": document, "mode": "assess", "root": str(site.root(host.name))})
        assert not result.get("failed"), (host.name, result["msg"])
        assert (result["changes"], result["pending"]) == ([], []), host.name
        # Keys and certificates of members differ from run to run, and their fingerprints with them.
        if host.in_group("nodes"):
            fingerprints[host.name] = result["fingerprint"]
    return fingerprints


def labels(site: SimulatedSite, api: FakeApi) -> dict[str, t.Any]:
    """Return the nodes' labels; insist on all workers being members with an approved serving certificate."""
    assert api.names(NODES) == site.workers
    for name in site.workers:
        requests = [request for request in api.names(REQUESTS) if request.startswith(f"serving-{name}-")]
        last = api.objects[f"{REQUESTS}/{max(requests)}"]
        conditions = [condition["type"] for condition in last["status"].get("conditions", ())]
        assert conditions == ["Approved"], f"the last serving certificate of {name}"
    return {name: api.objects[f"{NODES}/{name}"]["metadata"].get("labels", {}) for name in site.workers}


def killed(site: SimulatedSite, kill: Kill, seconds: float) -> bool:
    """Start a run and kill it; tell whether it was still running."""
    name = uuid.uuid4().hex
    process = site.start(run=name, IRONSPAN_TEST_STOP_AT=str(kill.boundary))
    if kill.boundary:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        alive = os.WIFSTOPPED(status)
    else:
        time.sleep(kill.moment * seconds)
        alive = process.poll() is None
    if alive:
        process.send_signal(signal.SIGKILL)
        process.wait()
        if kill.everything:
            kill_all(name)
    return alive


def play(world: World, seed: int) -> bool:
    """Play one seed; tell whether a run was killed."""
    workers, strikes = kills(seed, {count: one.boundaries for count, one in world.uninterrupted.items()})
    expected = world.uninterrupted[workers]
    site, entered = world.site(f"seed-{seed}", seed, workers)
    with entered as api, contextlib.closing(site):
        struck = [killed(site, kill, expected.seconds) for kill in strikes]
        # The processes of a dead controller may still be at work on the hosts: the next run deals with that.
        status, output = site.finish()
        assert status == 0, output[-6000:]
        site.wait_for_hosts()
        assert labels(site, api) == expected.labels
        assert site.leftovers() == []
        assert site.snapshot() == expected.snapshot
        assert settled(site) == expected.fingerprints
        assert api.names(SECRETS) == [], "no credentials are in the cluster, whenever a run is killed"
        kept = {path.name: path.read_bytes() for path in (site.folder / "pki").rglob("*") if path.is_file()}
        first = {path.name: path.read_bytes() for path in (world.folder / "pki").rglob("*") if path.is_file()}
        assert kept == first, "nothing of the store is lost or made again"
        if seed % 5 == 0:
            status, output = site.finish()
            assert status == 0, output
            changed = {name: row["changed"] for name, row in recap_of(output).items()}
            assert set(changed.values()) == {0}, output
    return any(struck)


def play_all(world: World, seeds: t.Iterable[int]) -> None:
    """Play seeds, some at the same time; name all that fail."""
    chosen = os.environ.get("IRONSPAN_TEST_SEEDS", "")
    numbers = [int(part) for part in chosen.split(",")] if chosen else list(seeds)
    failures: dict[int, str] = {}
    struck = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        games = {seed: pool.submit(functools.partial(play, world, seed)) for seed in numbers}
        for seed, game in games.items():
            try:
                struck += game.result()
            except Exception as error:
                failures[seed] = "".join(traceback.format_exception(error))
    for seed, text in failures.items():
        print(f"== seed {seed}\n{text}")
    assert not failures, f"IRONSPAN_TEST_SEEDS={','.join(map(str, failures))} plays these again"
    assert struck >= 0.8 * len(numbers), "most runs were still running when they were to be killed"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The store and the uninterrupted runs."""
    yield World(tmp_path_factory.mktemp("killed"))


def test_every_phase_has_a_seed(world: World) -> None:
    """Otherwise the short version does not kill at every boundary of the phases."""
    boundaries = world.uninterrupted[1].boundaries
    assert sum(line.startswith("play ") for line in boundaries) >= 8, boundaries
    # Before whatever is asked first, a run is killed. One host may answer before another is asked the same.
    firsts, asked = set(), ""
    for number, line in enumerate(boundaries):
        if line.startswith("start ") and line.split(" ", 2)[2] != asked:
            firsts.add(number)
            asked = line.split(" ", 2)[2]
        elif line.startswith("task "):
            asked = ""
    assert firsts <= set(phases(boundaries)), boundaries
    assert 12 <= len(phases(boundaries)) <= len(SHORT)
    assert len(boundaries) <= len(LONG)


def test_the_next_run_finishes_wherever_the_controller_was_killed(world: World) -> None:
    play_all(world, SHORT)


@pytest.mark.long
def test_more_of_the_same(world: World) -> None:
    play_all(world, LONG)
