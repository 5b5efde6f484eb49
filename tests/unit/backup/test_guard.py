# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""When the agent takes what etcd serves for older than its backup, and what it does then."""

from __future__ import annotations

import json
import pathlib
import threading
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Gauge

from ironspan.backup import settings
from ironspan.backup.agent import guard
from ironspan.backup.agent.accept import accept
from ironspan.backup.agent.guard import (
    CLOSED,
    OLDER_SECONDS,
    RIGHT,
    WRONG,
    Guard,
    Kept,
    Served,
    judge,
    kept_in,
)
from ironspan.backup.errors import ChainError
from ironspan.backup.manifest import Epoch, dump
from ironspan.etcd.client import EtcdClient
from ironspan.etcd.errors import Unreachable
from ironspan.program.errors import ProgramError, ServiceError
from tests.support.backup_log import CLUSTER, NAMES, PlainKeys, add_epoch, add_log, add_snapshot, revision
from tests.support.backup_proof import proof_settings
from tests.support.memory_store import MemoryStore

KEPT = Kept(2, "aa", 100)
RIGHT_ONE, OLD, AHEAD = Served("aa", 1, 100), Served("aa", 2, 99), Served("aa", 3, 101)
OTHER = Served("bb", 4, 500)
YES, NO, UNSURE = True, None, False


@pytest.mark.parametrize(
    ("own", "others", "knew", "certain"),
    [
        (RIGHT_ONE, [], True, NO),
        (AHEAD, [RIGHT_ONE], False, NO),
        (AHEAD, [OLD, OLD], True, NO),
        # Nothing is known of a member that does not serve others: a restore has it to itself.
        (None, [OLD, OLD], True, NO),
        (None, [OTHER], True, NO),
        (OLD, [], False, YES),
        (OLD, [OLD, OLD], True, YES),
        # The members are of two minds: a person has to look.
        (OLD, [AHEAD], True, UNSURE),
        (OLD, [OLD, RIGHT_ONE], True, UNSURE),
        (OLD, [OLD, OTHER], True, UNSURE),
        # A new store beside backups of a former one, or another site that took the place in the store.
        (OTHER, [], False, UNSURE),
        (OTHER, [OTHER, OTHER], False, UNSURE),
        # Put back, or restored by hand, where the right data were.
        (OTHER, [OTHER], True, YES),
        # Two old members have come back and outvote nobody: the restored store is served beside them.
        (OTHER, [OTHER, AHEAD], False, YES),
    ],
)
def test_what_is_older_and_how_sure_that_is(
    own: Served | None, others: list[Served], knew: bool, certain: bool | None
) -> None:
    found = judge(KEPT, own, others, knew)
    assert (found.certain if found else None) is certain
    if found and own:
        assert own.cluster in found.text
        assert KEPT.cluster in found.text


served = st.builds(Served, st.sampled_from(["aa", "bb"]), st.integers(1, 5), st.integers(1, 200))


@given(served, st.lists(served, max_size=4), st.booleans())
def test_who_has_all_that_was_backed_up_is_never_closed(
    own: Served, others: list[Served], knew: bool
) -> None:
    found = judge(KEPT, own, others, knew)
    if own.cluster == KEPT.cluster and own.revision >= KEPT.revision:
        assert found is None
    elif found is not None and found.certain and own.cluster == KEPT.cluster:
        assert all(other.revision < KEPT.revision for other in others)


def test_what_the_backup_has() -> None:
    store = MemoryStore()
    epoch = add_epoch(store)
    assert kept_in(store, NAMES, epoch) == Kept(1, CLUSTER, 0)
    add_snapshot(store, PlainKeys(), 5)
    assert kept_in(store, NAMES, epoch).revision == 5
    add_log(store, PlainKeys(), [[revision(6), revision(7)]], after=5)
    assert kept_in(store, NAMES, epoch).revision == 7


class FakeEtcd:
    """Members by endpoint, and what each serves; one that is missing does not answer."""

    endpoints: t.ClassVar = ("https://1:1", "https://2:1")
    local = "https://127.0.0.1:1"

    def __init__(self) -> None:
        self.served: dict[str, Served] = {}

    def serve(self, cluster: str, revision: int, *, local_only: bool = False) -> None:
        """Let the member of this host serve; the other one is down."""
        answer = Served(cluster, 1, revision)
        self.served = {self.local: answer} | ({} if local_only else {self.endpoints[0]: answer})

    def header(self, *, endpoint: str, timeout: float) -> t.Any:
        if endpoint not in self.served:
            raise Unreachable("no answer", endpoint=endpoint)
        found = self.served[endpoint]

        class Header:
            cluster_id, member_id, revision = int(found.cluster, 16), found.member, found.revision

        return Header


class Waits(threading.Event):
    """Lets time pass at once, and something happen meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.meanwhile: t.Callable[[], object] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        self.meanwhile()
        return False


class Site:
    """The guard of one host, between a fake etcd and a store in memory."""

    def __init__(self, folder: pathlib.Path, action: str = "stop") -> None:
        self.settings = settings.parse(
            {
                "site": "lab",
                "host": "az-1",
                "etcd": {
                    "endpoints": list(FakeEtcd.endpoints), "local": FakeEtcd.local,
                    **{name: f"/{name}" for name in ("ca", "certificate", "key", "data_dir")},
                },
                "stores": [{"kind": "file", "path": "/none"}],
                "keys": {"kind": "file", "folder": "/none"},
                "proof": proof_settings(folder / "signing"),
                "spool": {"path": str(folder / "spool")},
                "guard": action,
            }
        )  # fmt: skip
        self.etcd, self.store, self.waits = FakeEtcd(), MemoryStore(), Waits()
        self.gauge = Gauge("guard", "", registry=None)
        self.file = guard.closing_file(self.settings)
        self.start()

    def start(self) -> None:
        """Start the agent again."""
        client = t.cast("EtcdClient", self.etcd)
        self.guard = Guard(
            self.settings, client, self.store, NAMES, self.gauge, self.waits, lambda: self.waits.now
        )

    def step(self) -> float:
        """Let it compare, and return what the metric says then."""
        self.guard.step()
        return next(sample.value for metric in self.gauge.collect() for sample in metric.samples)

    def epoch(self, number: int, cluster: str) -> None:
        name = NAMES.epoch(number)
        self.store.put(name, [dump(Epoch(number, cluster, 5), name, NAMES.proof)])


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    made = Site(tmp_path)
    add_epoch(made.store)
    add_log(made.store, PlainKeys(), [[revision(6), revision(7)]], after=5)
    return made


def test_a_database_that_is_older_is_closed_and_the_file_says_why(site: Site) -> None:
    site.etcd.serve(CLUSTER, 6)
    assert site.step() == CLOSED
    assert site.waits.now >= OLDER_SECONDS
    said = json.loads(site.file.read_text())
    assert (said["cluster"], said["revision"], said["epoch"]) == (CLUSTER, 6, 1)
    assert said["backup"] == {"epoch": 1, "cluster": CLUSTER, "revision": 7}
    assert "older than its backup" in said["found"]
    assert "etcd_restore" in said["ways_out"][0]
    assert "backup accept" in said["ways_out"][1]
    site.etcd.served = {}
    assert site.step() == CLOSED, "the metric says so as long as the file is there"


def test_where_only_an_alarm_is_wanted_nothing_is_closed(tmp_path: pathlib.Path, site: Site) -> None:
    other = Site(tmp_path / "other", "alarm")
    other.store, other.waits = site.store, site.waits
    other.start()
    other.etcd.serve(CLUSTER, 6)
    assert other.step() == WRONG
    assert not other.file.exists()
    other.etcd.serve(CLUSTER, 7)
    assert other.step() == RIGHT


def test_what_was_seen_counts_too(site: Site) -> None:
    """The log may be behind when data are put back; this agent has read what is gone."""
    site.etcd.serve(CLUSTER, 50)
    assert site.step() == RIGHT
    site.etcd.served = {}
    site.step()
    site.etcd.serve(CLUSTER, 40)
    assert site.step() == CLOSED


def test_the_backup_is_looked_at_again_after_etcd_was_down(site: Site) -> None:
    site.etcd.serve(CLUSTER, 7)
    assert site.step() == RIGHT
    add_log(site.store, PlainKeys(), [[revision(8), revision(9)]], after=7)
    site.etcd.served = {}
    assert site.step() == RIGHT
    site.etcd.serve(CLUSTER, 8)
    assert site.step() == CLOSED


def test_a_difference_that_goes_away_is_none(site: Site) -> None:
    site.etcd.serve(CLUSTER, 6)
    site.waits.meanwhile = lambda: site.etcd.serve(CLUSTER, 8)
    assert site.step() == RIGHT
    assert not site.file.exists()


def test_a_restore_that_is_under_way_is_left_alone(site: Site) -> None:
    site.etcd.serve(CLUSTER, 9)
    site.step()
    # It serves its new cluster to its own host only, until the backup has the epoch of it.
    site.etcd.serve("bb", 10**9, local_only=True)
    assert site.step() == RIGHT
    site.epoch(2, "bb")
    site.etcd.serve("bb", 10**9)
    assert site.step() == RIGHT
    assert not site.file.exists()


def test_an_epoch_that_is_seen_late_closes_nothing(site: Site) -> None:
    """A folder on NFS shows another host's file up to a minute late."""
    site.etcd.serve(CLUSTER, 9)
    site.step()
    site.etcd.serve("bb", 10**9)
    late = site.waits.now + 70

    def meanwhile() -> None:
        if site.waits.now > late and NAMES.epoch(2) not in site.store.things:
            site.epoch(2, "bb")

    site.waits.meanwhile = meanwhile
    assert site.step() == RIGHT
    assert site.waits.now > late
    assert not site.file.exists()


def test_a_new_store_beside_former_backups_is_an_alarm(site: Site) -> None:
    site.etcd.serve("bb", 5)
    assert site.step() == WRONG
    assert not site.file.exists()


def test_data_of_a_former_epoch_are_closed_where_the_newer_ones_were(site: Site) -> None:
    site.epoch(2, "bb")
    site.etcd.serve("bb", 10**9)
    assert site.step() == RIGHT
    site.start()  # what was served is remembered by the host, not by the process
    site.etcd.serve(CLUSTER, 10**9)
    assert site.step() == CLOSED


def test_while_the_backup_cannot_be_read_nothing_is_done(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.etcd.serve(CLUSTER, 6)

    def away(*_: object) -> t.Any:
        raise ServiceError("away")

    monkeypatch.setattr(site.store, "list", away)
    with pytest.raises(ServiceError):
        site.guard.step()
    assert not site.file.exists()


def test_a_store_that_fails_while_a_difference_is_looked_at_is_read_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would be compared any more until etcd is down once."""
    site.etcd.serve(CLUSTER, 9)
    assert site.step() == RIGHT
    site.etcd.serve(CLUSTER, 6)

    def away(*_: object) -> t.Any:
        raise ServiceError("away")

    with monkeypatch.context() as patched:
        patched.setattr(guard, "kept_in", away)
        for _ in range(2):
            with pytest.raises(ServiceError):
                site.guard.step()
    assert site.step() == CLOSED
    assert json.loads(site.file.read_text())["backup"]["revision"] == 9, "what was served before counts still"


def test_a_right_database_costs_the_store_nothing(site: Site) -> None:
    site.etcd.serve(CLUSTER, 9)
    site.step()
    before = sum(site.store.requests.values())
    for number in range(9):
        site.etcd.serve(CLUSTER, 9 + number)
        assert site.step() == RIGHT
    assert sum(site.store.requests.values()) == before


def test_consent_begins_one_epoch_for_all_members(site: Site) -> None:
    old = Served(CLUSTER, 1, 6)
    assert accept(site.store, NAMES, old, 1, 50) == 2
    assert accept(site.store, NAMES, Served(CLUSTER, 2, 5), 1, 60) == 2, "of the second member"
    site.etcd.serve(CLUSTER, 6)
    assert site.step() == RIGHT
    with pytest.raises(ProgramError, match="restored"):
        accept(site.store, NAMES, Served("cc", 2, 5), 1, 70)


def test_a_file_that_says_nothing_is_named(site: Site) -> None:
    site.file.parent.mkdir(exist_ok=True)
    site.file.write_text("{}")
    with pytest.raises(ProgramError, match="is not what the agent wrote"):
        guard.refused(site.file)


def test_an_epoch_that_was_there_and_is_not_found_any_more_closes_nothing(site: Site) -> None:
    """The one before it says more than is served since somebody consented to less."""
    site.epoch(2, CLUSTER)
    site.etcd.serve(CLUSTER, 3)
    assert site.step() == RIGHT
    site.store.things[NAMES.epoch(2)].data[20] ^= 1
    site.start()
    with pytest.raises(ChainError, match="Epoch 2 of the backup was there and signed"):
        site.step()
    assert not site.file.exists()
