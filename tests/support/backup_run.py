# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Random runs of a cluster with its backups: written to, broken, restored, written to again.

What happens is made from a seed. How threads and members are timed is not in its hands, so a seed repeats the
steps and the faults, and most often the failure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import secrets
import signal
import subprocess
import time
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

from ironspan.backup import new_epoch
from ironspan.backup.catalogue import Catalogue, Snapshot, catalogue
from ironspan.backup.chain import Point, choose, moment_text
from ironspan.backup.errors import ChainError
from ironspan.backup.log_reader import read_log
from ironspan.backup.manifest import Manifest, Restored
from ironspan.backup.rebuild import rebuild as rebuild_module
from ironspan.backup.rebuild.check import Found, check
from ironspan.backup.rebuild.drill import Place, drill
from ironspan.backup.rebuild.programs import Programs
from ironspan.backup.rebuild.rebuild import Facts, Rebuild, Tools
from ironspan.backup.rebuild.replay import Replayed
from ironspan.backup.written import written
from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.client import EtcdClient, prefix_end
from ironspan.etcd.errors import EtcdError, Unreachable
from ironspan.program.errors import ProgramError, ServiceError
from tests.support import etcd_history as history
from tests.support.backup_agents import Clock, Host, Objects, Pace, quicken
from tests.support.backup_history import SELDOM, Seen, Timeline, judge, judge_log
from tests.support.backup_log import NAMES, PlainKeys
from tests.support.etcd_members import Members
from tests.support.faulty_store import STALE_S, Fault, FaultyStore

PODS, EVENTS = b"/registry/pods/", b"/registry/events/"
FLAGS = ("--heartbeat-interval=20", "--election-timeout=200")
WRITE_FAULTS: tuple[Fault, ...] = ("refused", "busy", "unknown", "slow")
READ_FAULTS: tuple[Fault, ...] = ("refused", "busy", "cut", "slow")
PATIENCE_SECONDS = 180.0
ATTEMPTS = 200
LANDING_S = 0.5
"""Between a look at the snapshots there are and the beginning of a log that goes on behind one."""
"""Of an operator whose store fails now and then."""


@dataclasses.dataclass
class Cluster:
    """One cluster from its beginning to its loss.

    ``said`` has what each acknowledged write wrote, ``sent`` when by the test's clock it was sent, and
    ``answered`` when its answer came, all by revision. ``hashes`` are etcd's own with the revision that it
    was compacted at.
    """

    members: Members
    client: EtcdClient
    timeline: Timeline
    hosts: list[Host]
    said: dict[int, list[tuple[bytes, bytes, int]]] = dataclasses.field(default_factory=dict)
    sent: dict[int, float] = dataclasses.field(default_factory=dict)
    answered: dict[int, float] = dataclasses.field(default_factory=dict)
    hashes: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    promises: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    compacted: int = 0

    @property
    def promised(self) -> int:
        """The last revision that an agent said is safe; 0 for none."""
        return max((revision for _, revision in self.promises), default=0)


class Run:
    """One random run.

    Args:
        seed: of the run.
        programs: etcd and etcdutl.
        folder: for everything.
        patch: makes the agents quick, and looks into what is restored.
        members: of etcd.
    """

    def __init__(
        self, seed: int, programs: Programs, folder: Path, patch: pytest.MonkeyPatch, members: int = 1
    ) -> None:
        self.choice, self.luck = random.Random(seed), random.Random(seed + 1)
        self.programs, self.folder, self.count = programs, folder, members
        self.clock = Clock(1_800_000_000.0)
        self.objects = Objects()
        self.reader = FaultyStore(self.objects, self._meet_reader)
        self.reader.clock = self.objects.now
        pick = self.choice.choice
        self.faults = pick([0.0, 0.05, 0.3])
        self.outage = False
        self.careful = pick([True, True, True, False])
        """Whether nothing happens that may cost revisions: lies of the store, compaction of what it lacks."""
        self.jumps = pick([False, False, True])
        self.two_hosts = pick([False, False, True])
        self.pace = Pace(pick([0.1, 0.5, 1000]), pick([64 << 20, 64 << 20, 40_000]))
        self.steps: list[str] = []
        self.clusters: list[Cluster] = []
        self.left: Cluster | None = None
        """A former cluster that goes on: nobody could reach it to end it."""
        self.restores = self.value = 0
        self.judged: list[str] = []
        self.restored_from: list[int] = []
        quicken(patch, self.clock)
        patch.setattr(rebuild_module, "check", self._look)

    # -- the store's weather -----------------------------------------------------------------------

    def _meet(self, host: Host, what: str, name: str) -> Fault | None:
        if self.outage:
            return self.luck.choice(["refused", "busy"])
        if self.luck.random() >= self.faults:
            return None
        if what in ("put", "append", "create_append", "acquire", "renew"):
            if what == "append" and not self.careful and self.luck.random() < 0.1:
                host.lied = host.pipeline
                return "lie"
            # A lease that was given without an answer is nobody's for 15 s, which is longer than a run.
            return self.luck.choice(("refused", "busy", "slow") if what == "acquire" else WRITE_FAULTS)
        # Every session reads the whole log's end: with more there would be no sessions.
        return self.luck.choice(READ_FAULTS) if self.luck.random() < 0.2 else None

    def _meet_reader(self, what: str, name: str) -> Fault | None:
        if self.luck.random() >= self.faults / 3:
            return None
        return "stale" if what == "list" and self.luck.random() < 0.5 else self.luck.choice(READ_FAULTS)

    # -- clusters ----------------------------------------------------------------------------------

    @property
    def now(self) -> Cluster:
        """The cluster that serves."""
        return self.clusters[-1]

    def _members(self) -> Members:
        folder = self.folder / f"cluster-{len(self.clusters)}"
        return Members(self.programs.etcd, folder, self.count, FLAGS)

    def _begin(self, members: Members, timeline: Timeline | None = None) -> None:
        for name in members.names:
            if name not in members.processes:
                members.start(name)
        for name in members.names:
            members.wait(name)
        client = EtcdClient(members.endpoints, timeout=10)
        number = len(self.clusters)
        hosts = [
            Host(f"h{number}-{which}", self.folder, client, self.objects, self.clock, self._meet, self.pace)
            for which in range(2 if self.two_hosts else 1)
        ]
        revision = client.header().revision
        timeline = timeline or Timeline(1, history.contents(client, 0), revision)
        self.clusters.append(Cluster(members, client, timeline, hosts))

    def close(self) -> None:
        """End everything."""
        for cluster in self.clusters:
            self._end(cluster)

    def _end(self, cluster: Cluster) -> None:
        try:
            for host in cluster.hosts:
                host.kill()
        finally:
            for name in list(cluster.members.processes):
                cluster.members.stop(name, kill=True)
            cluster.client.close()
        defects = [host.defects for host in cluster.hosts if host.defects]
        assert not defects, defects

    # -- workload ----------------------------------------------------------------------------------

    def write(self) -> None:
        for _ in range(self.choice.randrange(1, 15)):
            self._write(self.now)

    def _write(self, cluster: Cluster) -> None:
        pick = self.choice.choice
        key = pick([PODS, PODS, EVENTS]) + b"%d" % self.choice.randrange(12)
        lease = pick([0, 0, *sorted(cluster.timeline.granted.keys() - cluster.timeline.revoked)])
        kind = self.choice.randrange(12)
        puts, deletes, known = [(key, self._value(), lease)], [], True
        if kind == 0:
            puts, deletes, known = [], [(key, b"")], False
        elif kind == 1:
            puts, deletes, known = [], [(PODS, prefix_end(PODS))], False
        elif kind == 2:
            deletes, known = [(EVENTS + b"a", prefix_end(EVENTS))], False
        elif kind == 3:
            puts = [(PODS + b"t%d" % number, self._value(), lease) for number in range(pick([1, 3, 9]))]
        elif kind in (4, 5, 6):
            puts = [(SELDOM + b"n%d" % self.choice.randrange(3), self._value(), 0)]
        operations = [_delete(*one) for one in deletes] + [_put(*one) for one in puts]
        self._send(cluster, rpc.TxnRequest(success=operations), puts if known else None)

    def _send(
        self, cluster: Cluster, request: rpc.TxnRequest, said: list[tuple[bytes, bytes, int]] | None = None
    ) -> None:
        sent = self.clock()
        try:
            revision = cluster.client.txn(request).header.revision
        except Unreachable:
            return
        cluster.answered[revision] = time.monotonic()
        cluster.sent.setdefault(revision, sent)
        if said:
            cluster.said[revision] = said

    def _value(self) -> bytes:
        self.value += 1
        size = self.choice.choice([0, 100, 100, 100, 5000])
        return b"%d." % self.value + self.choice.randbytes(size)

    def big(self) -> None:
        """Write a value of the size that etcd's limit allows, and many keys that are then deleted at once."""
        value = self._value() + self.choice.randbytes(self.choice.choice([300_000, 1_400_000]))
        self._send(self.now, rpc.TxnRequest(success=[_put(PODS + b"big", value, 0)]))
        for begin in range(0, 400, 100):
            many = [_put(EVENTS + b"many%d" % number, b"v", 0) for number in range(begin, begin + 100)]
            self._send(self.now, rpc.TxnRequest(success=many))
        self._send(self.now, rpc.TxnRequest(success=[_delete(EVENTS, prefix_end(EVENTS))]))

    def grant(self) -> None:
        timeline, seconds = self.now.timeline, 5000 + self.choice.randrange(1000)
        with contextlib.suppress(Unreachable):
            timeline.granted[self.now.client.lease_grant(seconds).ID] = seconds

    def revoke(self) -> None:
        timeline = self.now.timeline
        if alive := sorted(timeline.granted.keys() - timeline.revoked):
            lease = self.choice.choice(alive)
            timeline.revoked.add(lease)
            with contextlib.suppress(EtcdError):
                self.now.client.lease_revoke(lease)

    def compact(self) -> None:
        """Forget what nobody needs any more; without care also what the log still needs."""
        cluster = self.now
        if self.careful:
            pipelines = [host.pipeline for host in cluster.hosts]
            known = [one.position.durable_revision for one in pipelines if one]
            if not self.two_hosts:
                known += [one.outbox.spooled_revision for one in pipelines if one]
            revision = max(known, default=0)
        else:
            revision = cluster.client.header().revision
        self.observe(cluster)
        if revision > cluster.timeline.start:
            with contextlib.suppress(EtcdError):
                cluster.client.compact(revision)
                cluster.compacted = max(cluster.compacted, revision)

    # -- faults ------------------------------------------------------------------------------------

    def store_fails(self) -> None:
        self.outage = True

    def store_is_back(self) -> None:
        # Leases that could not be given up meanwhile run out in 15 s, which is longer than a run.
        self.outage = False
        self.objects.expire()

    def start(self) -> None:
        for host in self.now.hosts:
            if not host.runs:
                host.start()

    def kill_agent(self) -> None:
        self.choice.choice(self.now.hosts).kill()
        self.objects.expire()

    def end_agent(self) -> None:
        self.choice.choice(self.now.hosts).end()

    def freeze_agent(self) -> None:
        """Let one sleep through its lease, so that another one writes when it wakes up."""
        self.choice.choice(self.now.hosts).freeze()
        self.objects.expire()

    def thaw(self) -> None:
        for host in self.now.hosts:
            host.thaw()

    def kill_member(self) -> None:
        members = self.now.members
        name = self.choice.choice(members.names)
        members.stop(name, kill=True)
        if self.count > 1:
            self.write()
        members.start(name)
        self._reach(name)

    def freeze_member(self) -> None:
        members = self.now.members
        name = self.choice.choice(members.names)
        members.signal(name, signal.SIGSTOP)
        time.sleep(self.choice.choice([0.05, 0.05, 0.8]))
        members.signal(name, signal.SIGCONT)
        self._reach(name)

    def _reach(self, name: str) -> None:
        """Wait until a member serves, and this client has found out."""
        members = self.now.members
        members.wait(name)

        def answers() -> bool:
            with contextlib.suppress(EtcdError):
                return bool(self.now.client.header(endpoint=members.endpoint(name)).revision)
            return False

        self._wait(answers, name)

    def clock_jumps(self) -> None:
        if self.jumps:
            self.clock.move(self.choice.choice([-3600, -20, 3600]))

    def pause(self) -> None:
        time.sleep(self.choice.random() * 0.06)

    # -- what is known -----------------------------------------------------------------------------

    def observe(self, cluster: Cluster) -> None:
        """Take etcd's word for what it did, and see that it is what it answered."""
        timeline, client = cluster.timeline, cluster.client
        last = client.header().revision
        fresh = history.watched(client, timeline.last + 1, last)
        timeline.revisions += fresh
        # Those that were granted though no answer came.
        for lease in client.leases() - timeline.granted.keys():
            timeline.granted[lease] = client.lease_time_to_live(lease).grantedTTL
        for record in fresh:
            said = cluster.said.get(record.revision)
            events = [(one.key, one.value, one.lease) for one in record.events]
            assert said in (None, events), f"etcd's watch: {record.revision}"
        if timeline.last > timeline.start and timeline.last not in cluster.hashes:
            found = client.hash_kv(client.endpoints[0], timeline.last)
            cluster.hashes[timeline.last] = found.hash, found.compact_revision

    def note(self) -> None:
        """Take the agents' word for what is safe."""
        for cluster in filter(None, (self.now, self.left)):
            for host in cluster.hosts:
                at, moment, pipeline = time.monotonic(), self.clock(), host.pipeline
                age = host.age()
                if self.jumps and age > at - host.begun:
                    # How long ago the log was written that it goes on from is what a clock said.
                    continue
                safe = [revision for revision, then in cluster.answered.items() if then <= at - age]
                if safe and host.pipeline is pipeline and host.lied is not pipeline:
                    cluster.promises.append((moment, max(safe)))

    # -- restores ----------------------------------------------------------------------------------

    def _look(
        self, client: EtcdClient, endpoint: str, manifest: Manifest, replayed: Replayed, *more: t.Any
    ) -> Found:
        """Check a rebuild, and look at everything that was restored."""
        found = check(client, endpoint, manifest, replayed, *more)
        cluster = self.clusters[manifest.epoch - 1]
        leases = {}
        for lease in client.leases():
            answer = client.lease_time_to_live(lease, keys=True)
            leases[lease] = answer.grantedTTL, frozenset(answer.keys)
        revision, exact = replayed.revision, not replayed.fillers
        seen = Seen(revision, history.contents(client, revision), leases, exact)
        self.judged += judge(cluster.timeline, seen)
        if exact and revision in cluster.hashes:
            self.judged += _hash(client, endpoint, revision, *cluster.hashes[revision])
        return found

    def rebuild(self, point: Point) -> Facts:
        """Rebuild a point as an operator does whose store fails now and then, and judge what comes out."""
        self.restores += 1
        folder = self.folder / f"rebuild-{self.restores}"
        tools = Tools(self.programs, progress=lambda text: None)
        self.judged = []
        for _ in range(ATTEMPTS):
            try:
                found = catalogue(self.reader, NAMES)
                chain = choose(self.reader, found, point, PlainKeys())
                job = Rebuild(self.reader, PlainKeys(), found, chain, folder, tools)
                job.refuse()
                facts = job.run()
            except ServiceError as error:
                assert error.retryable, error
                continue
            assert not self.judged, f"{point}: {'; '.join(self.judged[:9])}"
            return facts
        raise AssertionError("the store never worked for long enough")

    def restored(self, point: Point) -> Facts:
        """Rebuild a point, or the nearest one that is said to be there, and hold agents to their word."""
        cluster = self.now
        promised = cluster.promised
        try:
            facts = self.rebuild(point)
        except ChainError as error:
            assert error.gap and not self.careful, error
            assert any(one.compacted >= error.gap[0] for one in self.clusters), error
            if point.kind == "latest":
                assert promised < error.gap[0], f"{promised} was promised: {error}"
            return self.rebuild(Point("revision", error.gap[0] - 1))
        except ProgramError as error:
            if point.kind != "latest":
                self._judge_refusal(point, error)
                return self.restored(Point())
            assert "has no snapshot" in str(error), error
            assert promised <= cluster.timeline.start, f"{promised} was promised: {error}"
            return self.rebuild(Point("revision", self.restored_from[-1]))
        timeline = self.clusters[facts.epoch - 1].timeline
        if point.kind == "latest":
            if facts.epoch == timeline.epoch == cluster.timeline.epoch:
                assert facts.revision >= promised, f"{facts.revision} is restored, {promised} was promised"
            else:
                assert promised <= cluster.timeline.start, f"{promised} was promised, {facts} is restored"
        if point.kind == "revision":
            assert facts.revision == point.value
        if point.kind == "time" and not self.jumps:
            self._judge_time(self.clusters[facts.epoch - 1], facts.revision, point.value / 1000)
        return facts

    def _judge_refusal(self, point: Point, error: ProgramError) -> None:
        """See that a point that is refused is one that no snapshot leads to."""
        if point.kind == "time":
            assert "before the first snapshot" in str(error) or "has no snapshot" in str(error), error
            return
        number = max(one.timeline.epoch for one in self.clusters if one.timeline.start <= point.value)
        taken, _ = catalogue(self.objects, NAMES).of(number)
        assert not taken or point.value < taken[0].revision, error

    def _judge_time(self, cluster: Cluster, revision: int, moment: float) -> None:
        """See that a point in time has what was safe by then, and nothing that was written later."""
        safe = max((one for at, one in cluster.promises if at <= moment), default=0)
        later = min((one for one, at in cluster.sent.items() if at > moment), default=revision + 1)
        assert safe <= revision < later, f"{moment}: {revision} is restored, not {safe} to {later - 1}"

    def _point(self) -> Point:
        kind = self.choice.choice(["latest", "latest", "revision", "time"])
        cluster = self.choice.choice([self.now, self.now, *self.clusters])
        if kind == "revision" and cluster.promised > cluster.timeline.start:
            return Point("revision", self.choice.randint(cluster.timeline.start + 1, cluster.promised))
        if kind == "time" and cluster.sent:
            moments = sorted(cluster.sent.values())
            moment = self.choice.uniform(moments[0], moments[-1] + 20)
            return Point.parse(f"time:{moment_text(round(moment * 1000))}")
        return Point()

    def disaster(self) -> None:
        """Lose the cluster, or lose sight of it, and go on with another one that is restored."""
        self._leave_behind()
        old = self.now
        self.observe(old)
        self.note()
        split = self.choice.random() < 0.3
        for host in old.hosts:
            if not split or self.choice.random() < 0.5:
                host.kill()
        self.objects.expire()
        if split:
            self.left = old
        else:
            self._end(old)
        self.steps.append(f"disaster(split={split})")
        self.outage = False
        # A list that is older than the disaster would be one of before the last promise.
        time.sleep(STALE_S)
        point = self._point()
        self.steps.append(str(point))
        facts = self.restored(point)
        self._place(facts)

    def _place(self, facts: Facts) -> None:
        """Make a cluster of what was rebuilt, as a restore does, and begin its epoch."""
        old, source = self.now, self.clusters[facts.epoch - 1].timeline
        members = self._members()
        token = f"restored-{secrets.token_hex(8)}"
        initial = ",".join(f"{name}={members._url(name, 2380)}" for name in members.names)
        for name in members.names:
            subprocess.run(
                [
                    *(str(self.programs.etcdutl), "snapshot", "restore", facts.database),
                    *(f"--name={name}", f"--initial-cluster={initial}", f"--initial-cluster-token={token}"),
                    f"--initial-advertise-peer-urls={members._url(name, 2380)}",
                    f"--data-dir={members.folder / name}",
                    *(f"--bump-revision={facts.bump}", "--mark-compacted"),
                ],
                check=True,
                capture_output=True,
            )
        self.restored_from.append(facts.revision)
        self._begin(members)
        timeline = self.now.timeline
        timeline.epoch = len(self.clusters)
        client = self.now.client
        alive = client.leases()
        if not facts.replayed["fillers"]:
            assert timeline.base == source.at(facts.revision), "what was restored is not what was rebuilt"
        timeline.granted |= source.granted
        timeline.granted |= {lease: client.lease_time_to_live(lease).grantedTTL for lease in alive}
        timeline.revoked |= source.granted.keys() - alive
        ever = max(max(one.answered, default=0) for one in self.clusters)
        assert timeline.start > ever, f"{timeline.start} is not beyond {ever}, which clients saw"
        cluster_id = f"{self.now.client.header().cluster_id:x}"
        restored = Restored(facts.snapshot, facts.revision, facts.bump, 0)
        for _ in range(ATTEMPTS):
            with contextlib.suppress(ServiceError):
                epoch = new_epoch.begin(self.reader, NAMES, cluster_id, restored, self.clock())
                assert epoch.epoch == timeline.epoch, f"epoch {epoch.epoch}, not {timeline.epoch}"
                break
        assert old.timeline.epoch + 1 == timeline.epoch

    def _leave_behind(self) -> None:
        """Let the cluster that was lost sight of, and its agents, write on for a while, and end them."""
        old, self.left = self.left, None
        if old is None:
            return
        for _ in range(5):
            self._write(old)
        self.store_is_back()
        for host in old.hosts:
            host.thaw()
        self._wait(
            lambda: all(host.refused for host in old.hosts if host.runs and host.pipeline), "old agents end"
        )
        self.observe(old)
        self._end(old)

    # -- one run -----------------------------------------------------------------------------------

    def drill(self) -> None:
        """Prove what there is, as agents do after every snapshot."""
        if not self.careful or not catalogue(self.objects, NAMES).snapshots:
            return
        self.observe(self.now)
        self.restores += 1
        place = Place("drill", self.folder / "drill", Tools(self.programs, progress=lambda text: None))
        self.judged = []
        verdict = drill(self.objects, PlainKeys(), NAMES, "", place)
        assert verdict.verified, verdict.findings
        assert not self.judged, "; ".join(self.judged[:9])

    def live(self, count: int) -> None:
        """Do some steps."""
        often: list[Callable[[], None]] = [self.write] * 8 + [self.start] * 4
        fixes = [self.thaw, self.store_is_back] * 2
        seldom = [self.grant, self.revoke, self.compact, self.pause, self.store_fails] * 2
        rare = [self.kill_agent, self.end_agent, self.freeze_agent, self.kill_member, self.freeze_member]
        rarest = [self.clock_jumps, self.drill, self.big]
        steps = often + fixes + seldom + rare + rarest
        self.start()
        for _ in range(count):
            step = self.choice.choice(steps)
            self.steps.append(step.__name__)
            self.clock.move(self.choice.uniform(1, 20))
            step()
            self.note()

    def settle(self) -> None:
        """Fix everything, and wait until the agents say that all is safe."""
        self._leave_behind()
        self.faults = 0.0
        self.store_is_back()
        self.thaw()
        self.start()
        self._send(self.now, rpc.TxnRequest(success=[_put(b"/registry/last", self._value(), 0)]))
        last = max(self.now.answered)

        def safe() -> bool:
            self.note()
            taken, _ = catalogue(self.objects, NAMES).of(len(self.clusters))
            return self.now.promised >= last and bool(taken)

        self._wait(safe, "the log")

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            hosts = [host for cluster in self.clusters for host in cluster.hosts]
            assert time.monotonic() < end, f"{what}: {[str(host.problems[-3:]) for host in hosts]}"
            time.sleep(0.01)

    def go(self) -> None:
        """Do everything."""
        self._begin(self._members())
        self.start()
        # Before the first snapshot there is nothing to restore, and nothing is promised.
        self._wait(lambda: catalogue(self.objects, NAMES).snapshots, "the first snapshot")
        for _ in range(self.choice.choice([0, 1, 1, 2])):
            self.live(15)
            self.disaster()
        self.live(15)
        self.settle()
        self.observe(self.now)
        facts = self.restored(Point())
        assert (facts.epoch, facts.revision) == (len(self.clusters), self.now.timeline.last)
        self._judge_log()
        gaps = sum(host.gaps for cluster in self.clusters for host in cluster.hosts)
        assert not (self.careful and gaps), f"{gaps} gaps"
        self.close()

    def _judge_log(self) -> None:
        """See that the whole log of this epoch is what etcd did, where it has no gap."""
        if any(host.gaps for host in self.now.hosts):
            return
        found = catalogue(self.objects, NAMES)
        oldest = self._led_from(found)
        narrowed = dataclasses.replace(found, snapshots=(oldest,))
        chain = choose(self.objects, narrowed, Point(), PlainKeys())
        links = [(link.segment.name, link.digest) for link in chain.links]
        records = list(read_log(self.objects, PlainKeys(), links, oldest.revision))
        assert not (wrong := judge_log(self.now.timeline, records, oldest.revision)), wrong
        assert chain.revision == self.now.timeline.last, f"{chain.revision}, not {self.now.timeline.last}"

    def _led_from(self, found: Catalogue) -> Snapshot:
        """Return the first snapshot that the log can be asked to go on behind.

        One that a former writer began may land when the next has looked, and has begun the log without it.
        """
        snapshots, segments = found.of(len(self.clusters))
        begun = next(iter(written(self.objects, segments, NAMES.proof)), (segments[-1],))[0]
        created = self.objects.things[begun.name].created

        def there(snapshot: Snapshot) -> bool:
            manifest = NAMES.snapshot_manifest(snapshot.epoch, snapshot.id)
            return bool(self.objects.things[manifest].created < created - LANDING_S)

        return next(one for one in snapshots if one.revision >= begun.first_revision - 1 or there(one))


def _put(key: bytes, value: bytes, lease: int) -> rpc.RequestOp:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def _delete(key: bytes, end: bytes) -> rpc.RequestOp:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key, range_end=end))


def _hash(client: EtcdClient, endpoint: str, revision: int, wanted: int, compacted: int) -> list[str]:
    """Return whether a restored etcd says another hash than the one that was lost."""
    answer = client.hash_kv(endpoint, revision)
    if answer.compact_revision < compacted:
        client.compact(compacted, physical=True)
        answer = client.hash_kv(endpoint, revision)
    if answer.compact_revision != compacted or answer.hash == wanted:
        return []
    return [f"the hash of revision {revision} is {answer.hash}, not {wanted}"]
