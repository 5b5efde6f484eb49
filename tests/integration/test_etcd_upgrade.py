# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Three real etcd members go to the next minor version and back, one by one, and lose nothing."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import live, skew
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import parse

from ironspan.artifacts import cache, index, lock
from tests.support.playbooks import BIN, ROOT

from .loopback_cluster import Control, find_programs, running

pytestmark = pytest.mark.lab
OLD, NEW = "3.6.14", "3.7.3"
NAMES = ("etcd-1", "etcd-2", "etcd-3")
KEY = base64.b64encode(b"kept").decode()


def programs(version: str, folder: Path) -> dict[str, Path]:
    """Return etcd's programs of one version, out of the mirror."""
    place = cache.Cache()
    entry = index.load(place.index_path).artifacts.get(f"etcd/{version}/{lock.native_arch()}")
    if entry is None:
        pytest.skip(f"the mirror has no etcd {version}: ironspan artifacts build --set upgrade")
    target = folder / version
    with tarfile.open(place.below_mirror(entry.path)) as archive:
        archive.extractall(target, filter="data")
    return {path.name: path for path in target.rglob("etcd*") if path.is_file()}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Control]:
    store = open_store(tmp_path / "pki", generate_key_file(tmp_path / "pki.key"))
    store.ensure_cas()
    with running(Control(find_programs(), store, tmp_path, members=3)) as started:
        for name in NAMES:
            started.start_etcd(name)
        started.wait(lambda: not etcd.problems(ask(started), OLD))
        yield started


def ask(control: Control) -> list[etcd.Member]:
    return etcd.ask_members(control.members, control.etcd_context())


def call(control: Control, path: str, body: object) -> dict[str, object]:
    connection = http.client.HTTPSConnection(
        control.members["etcd-3"], control.etcd_port, timeout=10, context=control.etcd_context()
    )
    try:
        return etcd._call(connection, "POST", path, body)
    finally:
        connection.close()


def agreed(control: Control) -> skew.Version | None:
    return live.etcd_cluster_version(list(control.members.values()), control.etcd_context())


def change(control: Control, name: str, program: Path) -> None:
    """Give one member a version and wait as the gate of upgrade.yml does."""
    control.stop(name)
    control.programs["etcd"] = program
    control.start_etcd(name)
    control.wait(lambda: not etcd.problems(ask(control)))


def problems(control: Control, wanted: str) -> list[str]:
    return skew.etcd_problems(live.etcd_versions(ask(control)), agreed(control), parse(wanted))


def settings(control: Control) -> dict[str, str]:
    """Return what etcdctl is told by /etc/etcd/etcdctl.env on a host."""
    member = control.folder / "etcd-1"
    return {
        "ETCDCTL_ENDPOINTS": f"https://{control.members['etcd-1']}:{control.etcd_port}",
        "ETCDCTL_CACERT": str(member / "ca.crt"),
        "ETCDCTL_CERT": str(member / "server.crt"),
        "ETCDCTL_KEY": str(member / "server.key"),
    }


def test_there_and_back_without_loss(three: Control, tmp_path: Path) -> None:
    old, found = programs(OLD, tmp_path)["etcd"], programs(NEW, tmp_path)
    new = found["etcd"]
    call(three, "/v3/kv/put", {"key": KEY, "value": KEY})
    assert problems(three, NEW) == []
    for name in NAMES[:2]:
        change(three, name, new)
    # In the middle the cluster keeps to the older version, so it can still go back.
    assert agreed(three) == parse("3.6.0")
    assert problems(three, OLD) == []
    change(three, "etcd-1", old)
    assert problems(three, NEW) == []
    for name in ("etcd-1", "etcd-3"):
        change(three, name, new)
    three.wait(lambda: agreed(three) == parse("3.7.0"))
    assert live.etcd_versions(ask(three)) == dict.fromkeys(NAMES, parse(NEW))
    # From here the older one does not start on the data, and the rule says what is missing.
    assert "etcdctl downgrade enable 3.6.0" in problems(three, OLD)[0]
    # docs/etcd-care.md, "Back to the former minor version".
    for verb in ("validate", "enable"):
        command = [str(found["etcdctl"]), "--command-timeout=60s", "downgrade", verb, "3.6.0"]
        subprocess.run(command, env=settings(three), check=True)
    three.wait(lambda: agreed(three) == parse("3.6.0"))
    assert problems(three, OLD) == []
    for name in NAMES:
        change(three, name, old)
    assert call(three, "/v3/kv/range", {"key": KEY})["count"] == "1"


def test_a_snapshot_is_verified_and_only_the_newest_stay(three: Control, tmp_path: Path) -> None:
    call(three, "/v3/kv/put", {"key": KEY, "value": KEY})
    folder = tmp_path / "snapshots"
    (tmp_path / "env").write_text("".join(f"{name}={value}\n" for name, value in settings(three).items()))
    folder.mkdir()
    for name in ("snapshot-20250101T000000Z.db", "snapshot-20250102T000000Z.db", ".snapshot-x.db.part"):
        (folder / name).write_text("old")
    found = programs(OLD, tmp_path)
    arguments = {"directory": str(folder), "environment_file": str(tmp_path / "env"), "keep": 2}
    target = [
        "localhost",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={BIN / 'python'}",
    ]
    module = ["-m", "ironspan.hybrid.etcd_snapshot", "-a", json.dumps(arguments)]
    done = subprocess.run(
        [str(BIN / "ansible"), *target, *module],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{found['etcdctl'].parent}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1"},
        text=True,
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = yaml.safe_load(done.stdout.partition("=>")[2])
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["snapshot-20250102T000000Z.db", Path(result["path"]).name]
    assert result["removed"] == ["snapshot-20250101T000000Z.db"]
    assert Path(result["path"]).stat().st_mode & 0o777 == 0o600
    assert (result["revision"], result["keys"]) == (2, 1)
    # What it holds can be read by etcd's own tool.
    status = subprocess.run(
        [found["etcdutl"], "snapshot", "status", result["path"], "-w", "json"],
        capture_output=True,
        check=True,
    )
    assert json.loads(status.stdout)["revision"] == 2
