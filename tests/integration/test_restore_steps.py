# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host's part of a restore with real etcd, killed anywhere and run again."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import (
    backup_program,
    steps,
    store,
    survey,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError

from ironspan.lab.ports import free_port, is_free
from tests.support.etcd_members import find_etcd
from tests.support.restored_host import DATA, RestoredHost

pytestmark = pytest.mark.lab
ARGUMENTS = {
    "point": "latest",
    "source": "auto",
    "keep_cluster": "",
    "pods": False,
    "data": True,
    "force": False,
    "rebuild": False,
    "after": "",
}
FEW_KILLS = (11, 23)
"""Places where a kill strikes in the short version; the long one has them all."""
MANY_KILLS = [n for n in range(1, 45) if n not in FEW_KILLS]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> RestoredHost:
    """Return a member that was killed, with a backup beside it that lacks its last writes."""
    folder = tmp_path_factory.mktemp("host")
    pair = folder / "server.crt", folder / "server.key"
    extensions = ("subjectAltName=IP:127.0.0.1,IP:127.0.0.2", "extendedKeyUsage=serverAuth,clientAuth")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "1", "-subj", "/CN=az-1", "-out", pair[0], "-keyout", pair[1],
            *(word for extension in extensions for word in ("-addext", extension)),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    host = RestoredHost(folder / "root", (free_on_both(), free_on_both()))
    host.make(find_etcd(folder / "bin"), pair)
    host.systemctl("start")
    for number in range(10):
        host.etcdctl("put", f"/registry/k{number}", "early")
    host.etcdctl("put", "/registry/masterleases/10.0.0.9", "gone")
    rebuilt = host.root / f"{DATA}.restore/rebuilt"
    rebuilt.mkdir(parents=True)
    host.etcdctl("snapshot", "save", str(rebuilt / "restored.db"))
    header = host.status()
    facts = {
        "revision": header["revision"],
        "last_seen_revision": header["revision"] + 7,
        "bump": 0,
        "cluster_id": f"{header['cluster_id']:x}",
        "epoch": 1,
        "snapshot": "newest",
    }
    (rebuilt / "facts.json").write_text(json.dumps(facts))
    host.etcdctl("put", "/registry/late", "late")
    host.systemctl("stop")
    program = host.root / backup_program.PROGRAM[1:]
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@" >> "${0%/opt/*}/epochs"\necho "{}"\n')
    program.chmod(0o755)
    closed = host.root / steps.CLOSED[1:]
    closed.parent.mkdir(parents=True)
    closed.write_text("{}")
    return host


@pytest.fixture
def host(lost: RestoredHost, tmp_path: Path) -> Iterator[RestoredHost]:
    copy = lost.copy(tmp_path / "root")
    yield copy
    copy.systemctl("stop")


def served(host: RestoredHost, key: str, seconds: int = 60) -> str:
    return host.etcdctl("get", "--print-value-only", key, host="127.0.0.2", seconds=seconds).strip()


def free_on_both() -> int:
    """Return a port that is free at the member's address, and at that which the host itself asks."""
    while not is_free("127.0.0.1", port := free_port("127.0.0.2")):
        pass
    return port


def asides(host: RestoredHost) -> list[Path]:
    return sorted((host.root / DATA).parent.glob("uid.before-*"))


def whole(host: RestoredHost, survivor: bool = True) -> None:
    """Insist that everything is restored, and that nothing of the restore is left but the old data."""
    assert served(host, "/registry/late") == ("late" if survivor else "")
    assert served(host, "/registry/k9") == "early"
    assert served(host, "/registry/masterleases/10.0.0.9") == ""
    assert host.status()["revision"] > 1_000_000_000
    old = asides(host)
    assert [(path / "member/wal").is_dir() for path in old] == [True]
    assert not (host.root / f"{DATA}.restore").exists()
    assert not (host.root / steps.CLOSED[1:]).exists()
    assert not (host.root / "etc/systemd/system/etcd.service.d").exists()
    assert not (host.root / "etc/etcd/etcd-restore.yaml").exists()
    # Killed between, it is begun again, which the program knows.
    epochs = set((host.root / "epochs").read_text().splitlines())
    cluster = f"{host.status()['cluster_id']:x}"
    assert [f"--cluster-id={cluster} --snapshot=newest" in epoch for epoch in epochs] == [True]
    # The engine knows whose data these are, so site.yml has nothing against them.
    notes = json.loads((host.root / "var/lib/ironspan/state.json").read_text())["notes"]
    assert notes["etcd_member:/etc/etcd/etcd.yaml"]["cluster"] == f"{host.status()['cluster_id']:x}"


def test_data_that_are_newer_than_the_backup_are_restored(host: RestoredHost, lost: RestoredHost) -> None:
    before = survey.data_of(Machine(str(host.root)), f"/{DATA}")
    assert before is not None
    assert before["commit"] > 10
    done = host.restore()
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)["results"]
    assert (answer[0]["source"], answer[0]["bump"]) == ("survivor", 1_000_000_006)
    whole(host)
    assert f"{host.status()['cluster_id']:x}" != before["cluster"]


@pytest.mark.parametrize(
    "options", [{"source": "backup"}, pytest.param({"point": "revision:5"}, marks=pytest.mark.long)]
)
def test_the_backup_is_restored_where_it_is_asked_for(host: RestoredHost, options: dict[str, str]) -> None:
    done = host.restore(options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["source"] == "backup"
    whole(host, survivor=False)


def test_until_it_is_released_only_this_host_reaches_it(host: RestoredHost) -> None:
    machine = Machine(str(host.root))
    steps.restored(machine, ARGUMENTS)
    assert host.etcdctl("get", "/registry/k1")
    with pytest.raises(subprocess.CalledProcessError):
        served(host, "/registry/k1", 2)
    # Not after a reboot either.
    host.systemctl("restart")
    with pytest.raises(subprocess.CalledProcessError):
        served(host, "/registry/k1", 2)
    steps.served(machine, ARGUMENTS)
    assert served(host, "/registry/k1") == "early"


@pytest.mark.parametrize(
    "place", [*FEW_KILLS, *(pytest.param(n, marks=pytest.mark.long) for n in MANY_KILLS)]
)
def test_killed_anywhere_it_goes_on(host: RestoredHost, place: int) -> None:
    killed = host.restore(kill_at=place)
    if killed.returncode == 0:
        assert json.loads(killed.stdout)["places"] < place
    else:
        assert killed.returncode == -9, killed.stderr
    assert place not in FEW_KILLS or killed.returncode == -9
    record = host.root / "var/lib/ironspan/etcd-restore.json"
    finished = record.exists() and json.loads(record.read_text())["finished"]
    done = host.restore()
    assert done.returncode == 0, done.stderr
    # Killed after its end, the next run is another restore.
    if not finished:
        whole(host)


def test_the_database_is_damaged(host: RestoredHost) -> None:
    """The member's own data do not start; the backup does."""
    (host.root / DATA / "member/snap/db").write_bytes(b"\0" * 8192)
    failed = host.restore()
    assert "cannot be used" in failed.stderr
    assert "ironspan_source=backup" in failed.stderr
    assert len(asides(host)) == 1
    done = host.restore({"source": "backup"})
    assert done.returncode == 0, done.stderr
    whole(host, survivor=False)


def test_other_arguments_begin_anew_with_the_data_that_were_set_aside(
    host: RestoredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup was chosen by mistake, and nobody was served from it yet; all within one second."""
    machine = Machine(str(host.root))
    moment = time.gmtime()
    monkeypatch.setattr(time, "gmtime", lambda: moment)
    mistaken = {**ARGUMENTS, "source": "backup"}
    assert steps.restored(machine, mistaken)["source"] == "backup"
    chosen = {**ARGUMENTS, "source": "survivor"}
    assert steps.restored(machine, chosen)["source"] == "survivor"
    steps.served(machine, chosen)
    assert served(host, "/registry/late") == "late"
    # The old data, and those that were made by mistake.
    assert len(asides(host)) == 2


def test_what_is_refused_before_anything_is_stopped(
    host: RestoredHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(str(host.root))
    facts = host.root / f"{DATA}.restore/rebuilt/facts.json"
    assert steps.admitted(machine, ARGUMENTS) == {"changed": False}
    monkeypatch.setattr(store, "_MARGIN", 1 << 60)
    with pytest.raises(RestoreError, match="MiB free, and the restore needs"):
        steps.admitted(machine, ARGUMENTS)
    monkeypatch.undo()
    facts.write_text(facts.read_text().replace('"cluster_id": "', '"cluster_id": "1'))
    with pytest.raises(RestoreError, match=r"their revisions cannot be compared\. Say which to take"):
        steps.admitted(machine, ARGUMENTS)
    for consent in ({"force": True}, {"source": "backup"}, {"point": "revision:5"}):
        assert steps.admitted(machine, {**ARGUMENTS, **consent})
    assert asides(host) == []
