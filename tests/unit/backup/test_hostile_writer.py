# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The writer's identity at the store, in the wrong hands: it is believed nothing and moves nothing."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.backup import recovery
from ironspan.backup.agent import epoch as epochs
from ironspan.backup.agent.copier import Copier
from ironspan.backup.agent.guard import kept_in
from ironspan.backup.agent.listing import as_text, contents
from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.agent.strangers import Strangers
from ironspan.backup.catalogue import catalogue
from ironspan.backup.chain import Chain, Point, choose, last_seen
from ironspan.backup.file_store import FileStore
from ironspan.backup.gc import collect, proven
from ironspan.backup.log_reader import read_log
from ironspan.backup.manifest import Restored, Verdict, dump
from ironspan.backup.names import Names
from ironspan.backup.new_epoch import begin
from ironspan.backup.proof import DRILL, WRITER
from ironspan.backup.records import Revision
from ironspan.backup.retention import plan
from ironspan.backup.segment import SegmentWriter
from ironspan.backup.settings import Retention, Spool, parse
from ironspan.backup.store import Store
from ironspan.backup.takeover import take_over
from ironspan.program.errors import ProgramError, ServiceError
from tests.support.backup_log import (
    CLUSTER,
    NAMES,
    START_MS,
    PlainKeys,
    add_epoch,
    add_log,
    add_snapshot,
    add_verdict,
    revision,
)
from tests.support.backup_proof import proof
from tests.support.hostile_writer import FAR_AHEAD, HUGE, HostileWriter
from tests.support.memory_store import MemoryStore
from tests.unit.backup.test_settings import UNSIGNING

KEYS = PlainKeys()
COUNTS = Retention(2, 1, 1, 1)
HOUR = 3600
LAST = 60
"""The last genuine revision."""


def genuine(store: Store) -> list[str]:
    """Make snapshots, hours apart, of 10, 20 and so on, the log from 11 on, a verdict and a bundle."""
    add_epoch(store)
    taken = [add_snapshot(store, KEYS, at, unix=START_MS // 1000 + at * HOUR) for at in range(10, LAST, 10)]
    add_verdict(store, taken[1], True)
    for first in range(11, LAST, 10):
        add_log(store, KEYS, [[revision(n)] for n in range(first, first + 10)], after=first - 1)
    name = NAMES.recovery(1000)
    text = b'{"format": "ironspan-recovery", "stamp": "one"}'
    store.put(name, [recovery.signed(text, name, NAMES.proof)])
    return [item.name for item in store.list(NAMES.everything)]


def hostile(store: Store, seed: int = 0) -> HostileWriter:
    """Return somebody with the store's identity."""
    return HostileWriter(store, NAMES, CLUSTER, random.Random(seed))


def replayed(store: Store, chain: Chain) -> list[int]:
    segments = [(link.segment.name, link.digest) for link in chain.links]
    records = read_log(store, KEYS, segments, chain.snapshot.revision)
    return [record.revision for record in records if isinstance(record, Revision)]


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 25))
def test_nothing_that_is_not_signed_is_believed(seed: int, acts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = FileStore(pathlib.Path(folder))
        ours = genuine(store)
        before = plan(proven(store, catalogue(store, NAMES)), COUNTS)
        epoch = epochs.newest(store, NAMES)
        assert epoch is not None and epoch.epoch == 1
        attacker = hostile(store, seed)
        for _ in range(acts):
            attacker.act()

        # The guard: what has to be served is what members signed.
        assert epochs.newest(store, NAMES) == epoch
        assert kept_in(store, NAMES, epoch).revision == LAST

        # Retention and the collector: as if nothing had been there.
        found = catalogue(store, NAMES)
        after = plan(proven(store, found), COUNTS)
        assert after.kept == before.kept
        going = {name for removal in before.removals for name in removal.names}
        assert {name for removal in after.removals for name in removal.names if name in ours} == going
        assert set(collect(store, NAMES, COUNTS, only_show=True).deleted) & set(ours) == going

        # A restore: the newest genuine snapshot, and all of the genuine log.
        chain = choose(store, found, Point(), KEYS)
        assert (chain.snapshot.revision, chain.revision) == (50, LAST)
        assert replayed(store, chain) == list(range(51, LAST + 1))
        assert last_seen(store, found) == LAST
        for wanted in (10, 25, LAST):
            chosen = choose(store, found, Point("revision", wanted), KEYS)
            assert wanted in (chosen.snapshot.revision, *replayed(store, chosen))

        # People are told.
        shown = contents(store, NAMES)
        strange = {name for name, what in attacker.made.items() if what not in ("data", "empty", "bundle")}
        reported = set(shown["damaged"]) | set(shown["unknown"])
        assert strange <= reported, strange - reported
        assert not reported & set(ours)
        assert {one["revision"] for one in shown["snapshots"]} == {10, 20, 30, 40, 50}
        assert [one["revision"] for one in shown["snapshots"] if one["verified"]] == [20]
        assert not strange or "DAMAGED" in as_text([shown]) or "UNKNOWN" in as_text([shown])

        # The next writer takes over and goes on, whatever stands in its way.
        for _ in range(3):
            try:
                end = take_over(store, NAMES, 1, "az-2")
                writer = SegmentWriter.begin(store, KEYS, NAMES, 1, end)
                break
            except ProgramError:
                attacker.act()
        else:
            pytest.fail("nobody can take over")
        writer.append([revision(LAST + 1)])
        assert end.revision == LAST
        following = choose(store, catalogue(store, NAMES), Point(), KEYS)
        assert replayed(store, following) == list(range(51, LAST + 2))
        # And a restore gets its epoch.
        made = begin(store, NAMES, "beef", Restored("x", LAST, 5, 0), 9)
        assert epochs.newest(store, NAMES) == made


def test_a_revision_of_10_to_the_15_closes_no_member() -> None:
    store = MemoryStore()
    genuine(store)
    attacker = hostile(store)
    for _ in range(20):
        attacker.manifest(HUGE)
        attacker.segment()
    epoch = epochs.newest(store, NAMES)
    assert epoch is not None
    assert kept_in(store, NAMES, epoch).revision == LAST


def test_74_forged_manifests_push_no_genuine_copy_out() -> None:
    store = MemoryStore()
    ours = [
        add_snapshot(store, KEYS, 10 + hour, unix=START_MS // 1000 + hour * HOUR)
        for hour in range(72)
        if add_epoch_once(store)
    ]
    counts = Retention(24, 7, 4, 6)
    before = plan(proven(store, catalogue(store, NAMES)), counts)
    attacker = hostile(store)
    for hour in range(74):
        attacker.manifest(HUGE + hour, FAR_AHEAD + hour * 40 * 24 * HOUR)
    found = catalogue(store, NAMES)
    assert len(found.damaged) == 74
    assert [one.id for one in found.snapshots] == ours
    assert plan(proven(store, found), counts) == before


def add_epoch_once(store: Store) -> bool:
    if not list(store.list(NAMES.epochs)):
        add_epoch(store)
    return True


def test_with_keys_that_anybody_may_wrap_with_a_forged_snapshot_is_not_picked() -> None:
    """As with a vault: the public key wraps any data key, so what decrypts is not therefore ours."""
    store = MemoryStore()
    genuine(store)
    theirs = Names(NAMES.site, proof(site="theirs"))
    identifier = f"{HUGE:020d}-{FAR_AHEAD}"
    forger = HostileWriter(store, theirs, CLUSTER, random.Random(1))
    forger.manifest(HUGE, FAR_AHEAD)
    assert any(identifier in name for name in forger.made)
    assert choose(store, catalogue(store, NAMES), Point(), KEYS).snapshot.revision == 50


def test_a_bundle_of_somebody_else_stands_in_nobodys_way(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    genuine(store)
    attacker = hostile(store)
    attacker.bundle(FAR_AHEAD)
    for unix in (START_MS // 1000 - 1, START_MS // 1000 + 10 * HOUR - 1):
        attacker.bundle(unix)
    assert not any("recovery" in name for name in collect(store, NAMES, COUNTS, only_show=True).deleted)
    bundle = tmp_path / "bundle"
    bundle.write_text('{"format": "ironspan-recovery", "stamp": "two"}')
    assert recovery.keep(store, NAMES, bundle, 2000) == NAMES.recovery(2000)
    assert recovery.keep(store, NAMES, bundle, 3000) == ""


def test_a_name_that_was_taken_in_the_copy_is_told(tmp_path: pathlib.Path) -> None:
    store, copy = MemoryStore(), MemoryStore()
    ours = genuine(store)
    taken = next(name for name in ours if name.endswith("/manifest.json"))
    copy.put(taken, [b"junk"])
    copier = Copier(store, lambda: copy, NAMES)
    copier.logs()
    with pytest.raises(ServiceError, match=f"other objects under 1 names .* {taken}"):
        copier.objects()
    assert {item.name for item in copy.list(NAMES.everything)} == set(ours), "the others are copied"
    assert list(catalogue(copy, NAMES).damaged) == [taken]


def test_strangers_are_told_and_forgotten(tmp_path: pathlib.Path) -> None:
    written = dataclasses.replace(parse(UNSIGNING), spool=Spool(tmp_path / "spool", 0))
    metrics = Metrics()
    strangers = Strangers(written, "memory", metrics)
    note = tmp_path / "strangers.json"
    strangers.show({"lab/x": "it is not signed.", "lab/y": "it is not signed."})
    assert json.loads(note.read_text())["objects"] == 2
    assert metrics.registry.get_sample_value("ironspan_etcd_backup_unproven_objects") == 2
    strangers.show({})
    assert not note.exists()
    assert metrics.registry.get_sample_value("ironspan_etcd_backup_unproven_objects") == 0


def test_a_drill_host_signs_verdicts_and_nothing_else() -> None:
    drills = Names(NAMES.site, proof(DRILL))
    verdict = Verdict(1, "s", True, 5, 9, 1.5, "drill-1")
    assert dump(verdict, "n", drills.proof)
    store = MemoryStore()
    genuine(store)
    with pytest.raises(ProgramError, match="no key that signs for the part writer"):
        begin(store, drills, "beef", Restored("x", 1, 1, 0), 1)
    with pytest.raises(ProgramError, match="no key that signs"):
        SegmentWriter.begin(store, KEYS, drills, 1, take_over(store, NAMES, 1, "a")).append([revision(61)])


def test_a_verdict_that_the_writers_key_signed_is_none() -> None:
    """Keys of the parts are not each other's."""
    store = MemoryStore()
    genuine(store)
    own = proof()
    assert own.sign(WRITER, "verdict", "x", b"") != own.sign(DRILL, "verdict", "x", b"")
    assert not own.verifies(DRILL, "1", own.sign(WRITER, "verdict", "x", b""), "verdict", "x", b"")
    assert not own.verifies(WRITER, "1", own.sign(WRITER, "epoch", "x", b""), "manifest", "x", b"")
    assert not own.verifies(WRITER, "2", own.sign(WRITER, "epoch", "x", b""), "epoch", "x", b"")


def test_former_keys_verify_and_the_newest_signs() -> None:
    store = MemoryStore()
    genuine(store)
    rotated = Names(NAMES.site, proof(versions=("1", "2")))
    end = take_over(store, rotated, 1, "az-2")
    assert end.revision == LAST
    SegmentWriter.begin(store, KEYS, rotated, 1, end).append([revision(LAST + 1)])
    assert choose(store, catalogue(store, rotated), Point(), KEYS).revision == LAST + 1
    # Who was not told of the new key leaves out what it signed.
    assert choose(store, catalogue(store, NAMES), Point(), KEYS).revision == LAST
