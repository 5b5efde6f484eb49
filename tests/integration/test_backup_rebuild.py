# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Rebuilding a database from a snapshot and the log, with a real etcd as judge of what it has to be."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import random
import shutil
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ironspan.backup.main import main
from ironspan.backup.manifest import Manifest
from ironspan.backup.rebuild import rebuild as rebuild_module
from ironspan.backup.rebuild.drill import Place, drill, metrics_text
from ironspan.backup.rebuild.drills import Drills
from ironspan.backup.rebuild.programs import Programs
from ironspan.backup.rebuild.replay import Replayed, last_revision, replay, seal
from ironspan.backup.rebuild.scratch import Scratch
from ironspan.backup.rebuild.verify import verify
from ironspan.backup.records import Coalesced, Event, Record, Revision
from ironspan.backup.settings import load as load_settings
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient
from ironspan.program.errors import ProgramError
from tests.integration.loopback_cluster import find_programs
from tests.support import etcd_history as history
from tests.support.backup_proof import proof_settings
from tests.support.backup_site import BackupSite
from tests.support.etcd_members import running

LEASES = itertools.count(1000, 10)


@pytest.fixture(scope="module")
def programs(etcd_programs: dict[str, Path]) -> Programs:
    return Programs(etcd_programs["etcd"], etcd_programs["etcdutl"])


@pytest.fixture(scope="module")
def source(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdClient]:
    flags = ["--max-txn-ops=100000", "--max-request-bytes=50000000"]
    with (
        running(programs.etcd, tmp_path_factory.mktemp("source"), 1, flags) as members,
        EtcdClient(members.endpoints, timeout=60) as client,
    ):
        yield client


def revision_of(client: EtcdClient) -> int:
    return client.header().revision


def rebuilt(path: Path, records: Sequence[Record], until: int) -> Replayed:
    path.write_bytes(path.with_name("snapshot.db").read_bytes())
    done = replay(path, records, lambda revision, time_ms: revision > until)
    seal(path)
    assert last_revision(path) == done.revision
    return done


@settings(
    max_examples=8, phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(before=history.histories, after=history.histories)
def test_every_key_comes_back_as_it_was(
    source: EtcdClient,
    programs: Programs,
    tmp_path: Path,
    before: list[history.Step],
    after: list[history.Step],
) -> None:
    grants: list[Record] = list(history.apply(source, before, next(LEASES)))
    history.save_snapshot(source, tmp_path / "snapshot.db")
    first = revision_of(source)
    grants += history.apply(source, after, next(LEASES))
    last = revision_of(source)
    path = tmp_path / "rebuilt.db"
    done = rebuilt(path, [*grants, *history.watched(source, first + 1, last)], last)
    assert (done.revision, done.revisions) == (last, last - first)
    with Scratch(tmp_path / "scratch", programs) as scratch:
        scratch.restore(path)
        client = scratch.start()
        endpoint = scratch.endpoint
        assert client.status(endpoint).header.revision == last
        assert history.contents(client, last) == history.contents(source, last)
        for revision in {first, (first + last) // 2, last}:
            assert (
                client.hash_kv(endpoint, revision).hash == source.hash_kv(source.endpoints[0], revision).hash
            )
        assert client.leases() >= source.leases()


@pytest.fixture
def site(source: EtcdClient, programs: Programs, tmp_path: Path) -> BackupSite:
    source.put(b"/registry/pods/first", b"of this test")
    return BackupSite(tmp_path / "site", source, programs)


def short_history(site: BackupSite, snapshots: int = 1) -> list[Manifest]:
    """Back up ten revisions behind each of some snapshots; returns the snapshots' manifests."""
    taken = []
    for number in range(snapshots):
        taken.append(site.snapshot())
        for key in range(10):
            site.client.put(b"/registry/pods/%d" % (key % 4), b"%d of %d" % (key, number))
        site.log(taken[-1].revision, history.watched(site.client, taken[-1].revision + 1, site.revision))
    return taken


def test_any_revision_of_a_history_can_be_rebuilt(site: BackupSite, tmp_path: Path) -> None:
    (first,) = short_history(site)
    endpoint = site.client.endpoints[0]
    for revision in range(first.revision, site.revision + 1, 2):
        facts = site.rebuild(f"revision:{revision}", tmp_path / f"{revision}").run()
        assert facts.revision == revision
        assert facts.objects == len(history.contents(site.client, revision))
        with Scratch(tmp_path / "scratch", site.tools.programs) as scratch:
            scratch.restore(Path(facts.database))
            theirs = scratch.start().hash_kv(scratch.endpoint, revision)
        assert theirs.hash == site.client.hash_kv(endpoint, revision).hash


def test_a_point_in_time_ends_before_the_first_later_write(site: BackupSite, tmp_path: Path) -> None:
    taken = site.snapshot()
    for number in range(5):
        site.client.put(b"/registry/pods/0", b"%d" % number)
    begin = taken.created + 60
    site.log(
        taken.revision, history.watched(site.client, taken.revision + 1, site.revision, begin_ms=begin * 1000)
    )
    moment = datetime.datetime.fromtimestamp(begin + 2.5, datetime.UTC).isoformat()
    assert site.rebuild(f"time:{moment}", tmp_path / "out").run().revision == taken.revision + 3


def lease_of_node(number: int) -> bytes:
    return b"/registry/leases/kube-node-lease/node-%d" % number


def coalesced(revisions: Sequence[Revision]) -> list[Record]:
    """Do to one flush what an agent does: of a key's writes only the last keeps its value."""
    last = {event.key: one.revision for one in revisions for event in one.events}
    return [
        one
        if last[one.events[0].key] == one.revision
        else Coalesced(one.revision, one.time_ms, one.events[0].key)
        for one in revisions
    ]


def test_coalesced_writes_keep_revisions_and_versions(site: BackupSite, tmp_path: Path) -> None:
    site.client.put(lease_of_node(1), b"before")
    taken = site.snapshot()
    for number in range(9):
        site.client.put(lease_of_node(number % 3), b"%d" % number)
    records = coalesced(history.watched(site.client, taken.revision + 1, site.revision))
    assert sum(isinstance(record, Coalesced) for record in records) == 6
    # The values of some come with the next append.
    site.log(taken.revision, records[:5], records[5:])
    theirs = history.contents(site.client, site.revision)
    for revision in range(taken.revision + 1, site.revision + 1, 2):
        facts = site.rebuild(f"revision:{revision}", tmp_path / f"{revision}").run()
        assert facts.revision == revision
        with Scratch(tmp_path / "scratch", site.tools.programs) as scratch:
            scratch.restore(Path(facts.database))
            client = scratch.start()
            ours = history.contents(client, revision)
            # Each exists since it did, with a value that it had then or soon after.
            expected = history.contents(site.client, revision)
            assert {key: row[1:] for key, row in ours.items()} == {
                key: row[1:] for key, row in expected.items()
            }
            assert all(ours[key][0] in (row[0], theirs[key][0]) for key, row in expected.items())
            # What etcd counts on from is right as well.
            client.put(lease_of_node(0), b"new")
            version = client.range(lease_of_node(0)).kvs[0].version
            assert version == expected.get(lease_of_node(0), (b"", 0, 0, 0, 0))[3] + 1
    assert ours == theirs


def test_a_lease_that_the_log_does_not_know_ends(site: BackupSite, tmp_path: Path) -> None:
    taken = site.snapshot()
    lease = site.client.lease_grant(5000).ID
    site.client.put(b"/registry/events/leased", b"v", lease=lease)
    site.log(taken.revision, history.watched(site.client, taken.revision + 1, site.revision))
    facts = site.rebuild("latest", tmp_path / "out").run()
    assert facts.replayed["unknown_leases"] == 1
    with Scratch(tmp_path / "scratch", site.tools.programs) as scratch:
        scratch.restore(Path(facts.database))
        left = scratch.start().lease_time_to_live(lease, keys=True)
    assert (left.grantedTTL, list(left.keys)) == (3600, [b"/registry/events/leased"])
    site.client.lease_revoke(lease)


STEPS = ["fetch", "replay", "seal", "check"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rebuild_killed_at_a_step_goes_on(
    site: BackupSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    short_history(site)
    original = getattr(rebuild_module, step)
    done: list[str] = []

    def killed(*arguments: t.Any) -> t.Any:
        if when == "after":
            original(*arguments)
        raise KeyboardInterrupt

    def counted(name: str) -> t.Callable[..., t.Any]:
        work = getattr(rebuild_module, name)

        def call(*arguments: t.Any) -> t.Any:
            done.append(name)
            return work(*arguments)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(rebuild_module, step, killed)
        with pytest.raises(KeyboardInterrupt):
            site.rebuild("latest", tmp_path / "out").run()
    for name in STEPS:
        monkeypatch.setattr(rebuild_module, name, counted(name))
    facts = site.rebuild("latest", tmp_path / "out").run()
    # Before the end of replay is noted its file cannot be told from a finished one, so it is fetched again.
    again = STEPS if (step, when) == ("replay", "after") else STEPS[STEPS.index(step) :]
    assert sorted(done) == sorted(again)
    assert facts.revision == site.revision
    assert site.rebuild("latest", tmp_path / "out").run() == facts
    assert sorted(done) == sorted(again)


@pytest.mark.long
def test_a_rebuild_killed_at_any_time_goes_on(site: BackupSite, tmp_path: Path) -> None:
    short_history(site)
    settings, out = settings_file(site, site.folder / "store"), tmp_path / "out"
    command = [
        *(sys.executable, "-m", "ironspan.backup.main", "rebuild", f"--output={out}"),
        *(f"--settings={settings}", f"--programs={site.tools.programs.etcd.parent}"),
    ]
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    whole = time.monotonic() - begun
    facts = (out / "facts.json").read_bytes()
    chance = random.Random(11)
    killed = 0
    for _ in range(15):
        shutil.rmtree(out, ignore_errors=True)
        for _ in range(2):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.2, 1) * whole)
            process.kill()
            killed += process.wait() == -9
        subprocess.run(command, check=True, capture_output=True)
        ours = json.loads((out / "facts.json").read_bytes())
        assert {**ours, "sha256": ""} == {**json.loads(facts), "sha256": ""}
        assert sorted(path.name for path in out.iterdir()) == [
            "facts.json",
            "restored.db",
            "scratch",
            "steps.json",
        ]
        assert list((out / "scratch").iterdir()) == []
    assert killed > 10


def test_drills_prove_snapshots_and_the_log_between_them(site: BackupSite) -> None:
    taken = short_history(site, snapshots=2)
    first, second = [one.id for one in site.found().snapshots]
    verdicts = [site.drill(first), site.drill()]
    assert [(v.snapshot, v.verified, v.findings) for v in verdicts] == [(first, True, ()), (second, True, ())]
    assert [verdict.revision for verdict in verdicts] == [taken[1].revision, site.revision]
    assert [one.verified for one in site.found().snapshots] == [True, True]
    assert "ironspan_etcd_backup_drill_verified 1" in metrics_text(verdicts[0])
    assert not list((site.folder / "drill").iterdir())


def test_a_snapshot_of_a_revision_that_was_just_compacted_is_proven_by_its_counts(site: BackupSite) -> None:
    for number in range(9):
        site.client.put(b"/registry/pods/%d" % (number % 3), b"%d" % number)
    site.client.compact(site.revision, physical=True)
    taken = site.snapshot()
    assert taken.revision == site.revision
    assert taken.compact_revision < taken.revision, "etcd tells what it remembers"
    assert site.drill().findings == ()


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("wrong", "finding"),
    [
        (lambda event: dataclasses.replace(event, value=b"other"), "the hash of revision"),
        (lambda event: dataclasses.replace(event, version=event.version + 1), "the hash of revision"),
        (lambda event: Event(False, event.key), "keys of /registry/secrets, not"),
    ],
    ids=["value", "version", "deletion"],
)
def test_a_log_that_does_not_lead_to_the_next_snapshot_is_found(
    site: BackupSite, wrong: t.Callable[[Event], Event], finding: str
) -> None:
    taken = site.snapshot()
    site.client.put(b"/registry/secrets/one", b"v")
    (record,) = history.watched(site.client, taken.revision + 1, site.revision)
    site.log(taken.revision, [dataclasses.replace(record, events=(wrong(record.events[0]),))])
    site.snapshot()
    verdict = site.drill(site.found().snapshots[0].id)
    assert not verdict.verified
    assert finding in verdict.findings[0]
    assert site.drill().verified


NEWEST, OLDEST = -1, 0


@pytest.mark.parametrize(
    ("damage", "drilled", "reason"),
    [
        (
            lambda site: flip(site.path(site.found().snapshots[0].data.name), -1),
            OLDEST,
            "not what was written",
        ),
        (lambda site: truncate(site.path(site.found().snapshots[0].data.name)), OLDEST, "its data has"),
        (lambda site: flip(site.path(site.found().segments[0].name), -400), OLDEST, "not what was written"),
        (lambda site: flip(site.path(site.found().segments[-1].name), -3), NEWEST, "not what was written"),
        (lambda site: site.path(site.found().segments[0].name).unlink(), OLDEST, "missing"),
        (lambda site: site.key.unlink(), NEWEST, "the key version '1'"),
    ],
    ids=[
        "flipped snapshot",
        "cut snapshot",
        "flipped log",
        "flipped end of log",
        "no log",
        "no key",
    ],
)
def test_a_drill_names_the_damage(
    site: BackupSite, damage: t.Callable[[BackupSite], None], drilled: int, reason: str
) -> None:
    short_history(site, snapshots=2)
    snapshot = site.found().snapshots[drilled].id
    damage(site)
    verdict = site.drill(snapshot)
    assert not verdict.verified
    assert reason in " ".join(verdict.findings)
    assert [one for one in site.found().snapshots if one.verified] == []


def test_a_flipped_byte_anywhere_is_found(site: BackupSite) -> None:
    short_history(site, snapshots=2)
    found = site.found()
    assert {one.problem for one in verify(site.store, site.keys, found, found.snapshots)} == {""}
    chance = random.Random(5)
    objects = [
        path for path in (site.folder / "store" / "test" / "e000001").rglob("*") if path.name[0] != "."
    ]
    for path in sorted(path for path in objects if path.is_file()):
        whole = path.read_bytes()
        for offset in {0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(12))}:
            flip(path, offset)
            found = site.found()
            problems = [one.problem for one in verify(site.store, site.keys, found, found.snapshots)]
            assert any(problems), (path, offset)
            path.write_bytes(whole)


def test_what_cannot_succeed_is_refused_before_anything_is_fetched(
    site: BackupSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = site.snapshot()
    out = tmp_path / "out"
    with pytest.raises(ProgramError, match=r"revision:5 is before the first snapshot: revision"):
        site.rebuild("revision:5", out)
    with pytest.raises(ProgramError, match=rf"backed up to revision {taken.revision}, not to 999999"):
        site.rebuild("revision:999999", out)
    job = site.rebuild("latest", out)
    with pytest.raises(ProgramError, match=r"version 9\.1, and etcd here is only 3\.6.*Install etcd 9\.1"):
        site.tools.programs.check_opens("3.6.14", "9.1.0")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
        with pytest.raises(ProgramError, match=r"needs \d+ MiB below .*out, and 1 MiB are free"):
            job.refuse()
    assert not list(out.iterdir())


def test_a_drill_without_a_key_or_a_snapshot_says_so(site: BackupSite) -> None:
    with pytest.raises(ProgramError, match="There is no snapshot yet"):
        site.drill()
    site.snapshot()
    with pytest.raises(ProgramError, match="There is no snapshot nonsense"):
        site.drill("nonsense")


KILLED = """
import os, pathlib, sys
from ironspan.backup.rebuild.programs import Programs
from ironspan.backup.rebuild.scratch import Scratch
folder, database, *programs = map(pathlib.Path, sys.argv[1:])
with Scratch(folder, Programs(*programs)) as scratch:
    scratch.limited = list  # as where setpriv is missing
    scratch.restore(database)
    scratch.start()
    os.kill(os.getpid(), 9)
"""
STARTER = """
import os, subprocess, sys, time
print(subprocess.Popen(sys.argv[1:]).pid, flush=True)
time.sleep(0.5)
os.kill(os.getpid(), 9)
"""


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, timeout=300)


def is_running(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # also where it ends between the opening and the reading
        return False


def test_what_a_killed_run_left_is_ended_by_the_next(site: BackupSite, tmp_path: Path) -> None:
    folder, database, programs = tmp_path / "scratch", tmp_path / "snapshot.db", site.tools.programs
    history.save_snapshot(site.client, database)
    done = run_python(KILLED, folder, database, programs.etcd, programs.etcdutl)
    assert done.returncode == -9, done.stderr
    left = json.loads((folder / "process.json").read_text())["pid"]
    assert is_running(left)
    with Scratch(folder, programs):
        assert list(folder.iterdir()) == []
        assert not is_running(left)
        with pytest.raises(ProgramError, match="Another run works in"), Scratch(folder, programs):
            pass


def test_the_scratch_etcd_ends_with_who_started_it(site: BackupSite, tmp_path: Path) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    done = run_python(STARTER, *Scratch(tmp_path, site.tools.programs).limited(["sleep", "100"]))
    end = time.monotonic() + 120
    while is_running(int(done.stdout)):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_revision_of_57_000_deletes(site: BackupSite, tmp_path: Path) -> None:
    keys = [b"/registry/events/default/%06d" % number for number in range(57_000)]
    for batch in itertools.batched(keys, 10_000):
        operations = [rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=b"v")) for key in batch]
        site.client.txn(rpc.TxnRequest(success=operations), timeout=60)
    taken = site.snapshot()
    site.client.delete(b"/registry/events/", b"/registry/events0")
    last = site.revision
    assert last == taken.revision + 1
    site.log(taken.revision, history.watched(site.client, last, last))
    job = site.rebuild("latest", tmp_path / "out")
    facts = job.run(site.snapshot())
    assert facts.replayed["events"] == 57_000
    assert facts.objects == len(history.contents(site.client, last))


@pytest.mark.long
def test_an_api_server_reads_what_was_restored(site: BackupSite, tmp_path: Path) -> None:
    program = find_programs()["kube-apiserver"]
    site.client.delete(b"/registry/", b"/registry0")
    good = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%d","namespace":"default","uid":"u"}}'
    for number in range(3):
        site.client.put(b"/registry/configmaps/default/%d" % number, good % number)
    site.snapshot()
    place = Place("drill-1", site.folder / "drill", site.tools, program)
    verdict = drill(site.store, site.keys, site.names, "", place)
    assert (verdict.verified, verdict.findings) == (True, ())
    site.client.put(b"/registry/configmaps/default/broken", b"no object")
    site.snapshot()
    verdict = drill(site.store, site.keys, site.names, "", place)
    assert not verdict.verified
    assert "the API server cannot read /api/v1/configmaps: 500" in verdict.findings[0]


def settings_file(site: BackupSite, *stores: Path) -> Path:
    """Write the settings of the program for a host with these stores."""
    (endpoint,) = site.client.endpoints
    etcd = {"endpoints": [endpoint], "local": endpoint, "ca": "", "certificate": "", "key": ""}
    data = {
        "site": "test",
        "host": "drill-1",
        "etcd": {**etcd, "data_dir": "/nowhere"},
        "stores": [{"kind": "file", "path": str(path), "prefix": ""} for path in stores],
        "keys": {"kind": "file", "folder": str(site.folder / "keys")},
        "proof": proof_settings(site.folder / "signing"),
        "spool": {"path": str(site.folder / "spool")},
    }
    path = site.folder / "settings.json"
    path.write_text(json.dumps(data))
    return path


def test_the_commands_answer_and_use_the_copy_when_a_store_is_damaged(
    site: BackupSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short_history(site)
    copy = tmp_path / "copy"
    shutil.copytree(site.folder / "store", copy)
    snapshot = site.found().snapshots[0]
    flip(site.path(snapshot.data.name), 1000)
    settings = settings_file(site, site.folder / "store", copy)
    programs = f"--programs={site.tools.programs.etcd.parent}"

    def command(*arguments: str) -> tuple[int, t.Any]:
        code = main([*arguments, f"--settings={settings}", "--json"])
        return code, json.loads(capsys.readouterr().out)

    code, answer = command("verify")
    assert (code, answer[0]["revision"]) == (1, snapshot.revision)
    assert "are not what was written" in answer[0]["problem"]
    assert command("verify", "--store=2")[0] == 0
    code, answer = command("drill", programs, f"--metrics={tmp_path}/drill.prom")
    assert (code, answer["verified"], answer["host"]) == (1, False, "drill-1")
    assert "ironspan_etcd_backup_drill_verified 0\n" in (tmp_path / "drill.prom").read_text()
    code, answer = command("rebuild", f"--output={tmp_path}/out", programs)
    assert (code, answer["revision"], answer["snapshot"]) == (0, site.revision, snapshot.id)
    assert answer == json.loads((tmp_path / "out" / "facts.json").read_text())
    assert answer["revision"] + answer["bump"] > answer["last_seen_revision"] + 10**9 - 1
    code, answer = command("rebuild", "--store=1", f"--output={tmp_path}/other", programs)
    assert (code, answer["error"]["kind"]) == (2, "ChainError")
    assert command("rebuild", "--point=revision:1", f"--output={tmp_path}/other", programs)[0] == 2
    assert command("drill", "--store=3", programs)[0] == 2


def test_a_due_drill_is_done_by_the_program_itself(site: BackupSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.snapshot()
    path = settings_file(site, site.folder / "store")
    settings = load_settings(path)
    one = Drills(settings, path, site.store, lambda: False)
    program = site.folder / "python"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} "$@" --programs={site.tools.programs.etcd.parent}\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    one.step()
    assert [snapshot.verified for snapshot in site.found().snapshots] == [True]
