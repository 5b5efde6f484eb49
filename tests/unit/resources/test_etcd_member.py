# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""etcd's configuration on a host: with data, without, with those of somebody else."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _block_device
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.etcd_member import (
    INPUT,
    KIND,
    NOTE,
    identity,
    split,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Pending, ResourceError
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import insist
from tests.unit.conftest import Sandbox
from tests.unit.resources.fake_host import FakeHost, converge, filled

PATH = "/etc/etcd/etcd.yaml"
DATA = "/var/lib/etcd/uid"
OWN = "az-2=https://10.0.0.2:2380"
ALL = f"az-1=https://10.0.0.1:2380,{OWN}"
CONTENT = "name: az-2\nquota-backend-bytes: 1\n"
OWNER = {"owner": str(os.getuid()), "group": str(os.getgid())}
SPEC = filled(
    KIND, id="etcd/config", path=PATH, data_dir=DATA, member="az-2", peer_url="https://10.0.0.2:2380", **OWNER
) | {"content": CONTENT}
SETTLES = {**SPEC, "id": "etcd/started", "settles": PATH, "content": ""}
for spec, name in ((SPEC, "settles"), (SETTLES, "path")):
    spec.pop(name, None)


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def frame(kind: int, data: bytes = b"") -> bytes:
    """Return a record as etcd writes it (server/storage/wal/encoder.go), padded to eight bytes."""
    record = b"\x08" + varint(kind) + b"\x10" + varint(0xDEADBEEF)
    if data:
        record += b"\x1a" + varint(len(data)) + data
    padding = -len(record) % 8
    head = len(record) | ((0x80 | padding) << 56 if padding else 0)
    return head.to_bytes(8, "little") + record + b"\0" * padding


def log(member: int, cluster: int) -> bytes:
    return frame(4) + frame(1, b"\x08" + varint(member) + b"\x10" + varint(cluster)) + frame(2, b"entry")


def give_data(host: FakeHost, member: int = 0xABC, cluster: int = 0xDEF) -> None:
    path = Path(host.path(f"{DATA}/member/wal/0000000000000000-0000000000000000.wal"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log(member, cluster))


def host_with(root: Path, state: str = "", cluster: str = ALL) -> FakeHost:
    given = {INPUT: json.dumps({"state": state, "cluster": cluster})} if state else {}
    host = FakeHost(root, secrets=given)
    Path(host.path("/etc/etcd")).mkdir(parents=True)
    return host


def text(cluster: str, state: str) -> str:
    return f"{CONTENT}initial-cluster: {cluster}\ninitial-cluster-state: {state}\n"


SETTLED = text(OWN, "existing")


@given(st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_whose_a_log_is(member: int, cluster: int) -> None:
    assert identity(log(member, cluster)) == {"member": f"{member:x}", "cluster": f"{cluster:x}"}


@given(st.binary(max_size=200))
def test_what_is_no_log_is_nobodys(data: bytes) -> None:
    assert set(identity(data)) in (set(), {"member", "cluster"})


@given(st.binary(max_size=60), st.integers(0, 200))
def test_a_damaged_log_does_not_break_the_comparison(tail: bytes, cut: int) -> None:
    assert set(identity(log(1, 2)[:cut] + tail)) in (set(), {"member", "cluster"})


def test_without_data_the_controller_must_say_how_to_start(tmp_path: Path) -> None:
    with pytest.raises(Pending) as pending:
        KIND.compare(SPEC, host_with(tmp_path))
    assert pending.value.needs == "membership:etcd"


@pytest.mark.parametrize("state", ["new", "existing"])
def test_without_data_it_starts_as_told(tmp_path: Path, state: str) -> None:
    host = host_with(tmp_path, state)
    change = converge(KIND, SPEC, host)
    assert change is not None
    assert change.action == "create"
    assert host.text(PATH) == text(ALL, state)


def test_the_disk_of_a_member_that_has_started_is_empty(tmp_path: Path) -> None:
    host = host_with(tmp_path)
    host.put(PATH, SETTLED)
    with pytest.raises(Pending):
        KIND.compare(SPEC, host)


MOUNTED = "40 1 8:32 / /var/lib/etcd rw - ext4 /dev/sdc rw\n"


def test_before_its_disk_is_mounted_nobody_knows_its_data(tmp_path: Path) -> None:
    """A machine that was made anew, with the disk of before: nobody may say that it has no data."""
    host, spec = host_with(tmp_path, "new"), {**SPEC, "mount": "/var/lib/etcd"}
    with pytest.raises(Pending) as pending:
        KIND.compare(spec, host)
    assert pending.value.needs == "mount:/var/lib/etcd"
    host.put("/proc/self/mountinfo", MOUNTED)
    give_data(host)
    converge(KIND, spec, host)
    assert host.text(PATH) == SETTLED


@pytest.mark.parametrize("blank", [True, False])
def test_a_blank_disk_has_no_data_mounted_or_not(tmp_path: Path, blank: bool) -> None:
    host, spec = host_with(tmp_path), {**SPEC, "mount": "/var/lib/etcd"}
    if blank:
        host.cached(_block_device.BLANK + "/var/lib/etcd", lambda: True)
    else:
        host.put("/proc/self/mountinfo", MOUNTED)
    with pytest.raises(Pending) as pending:
        KIND.compare(spec, host)
    assert pending.value.needs == "membership:etcd"


def test_who_lost_its_data_begins_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the deallocation of all machines with local disks, when no control plane could be asked."""
    host = host_with(tmp_path, "new")
    monkeypatch.setattr(host, "write", lambda *_, **__: None)
    host.put(PATH, SETTLED)
    host.remember(NOTE + PATH, {"member": "a1", "cluster": "c1"})
    with pytest.raises(ResourceError, match="was member a1 of cluster c1, and has lost its data") as caught:
        KIND.compare(SPEC, host)
    assert "restore etcd from a backup" in caught.value.remedy
    insist("etcd-disk-blank", caught.value.message)
    # After a reset it has no configuration either, and may.
    Path(host.path(PATH)).unlink()
    assert KIND.compare(SPEC, host) is not None


@pytest.mark.parametrize("lines", [text(ALL, "new"), text(ALL, "existing"), SETTLED])
def test_with_data_the_lines_of_the_first_start_stay(tmp_path: Path, lines: str) -> None:
    host = host_with(tmp_path)
    give_data(host)
    host.put(PATH, lines)
    assert KIND.compare(SPEC, host) is None
    change = converge(KIND, {**SPEC, "content": "name: az-2\nquota-backend-bytes: 2\n"}, host)
    assert change is not None
    assert host.text(PATH) == lines.replace("bytes: 1", "bytes: 2")


def test_with_data_it_never_begins_a_store_whatever_it_is_told(tmp_path: Path) -> None:
    host = host_with(tmp_path, "new")
    give_data(host)
    converge(KIND, SPEC, host)
    assert host.text(PATH) == SETTLED


@pytest.mark.parametrize(
    ("state", "cluster"),
    [("new", "az-1=https://10.0.0.1:2380"), ("forced", ALL), ("existing", "az-2=https://10.0.0.9:2380")],
)
def test_a_membership_of_somebody_else_is_refused(tmp_path: Path, state: str, cluster: str) -> None:
    with pytest.raises(ResourceError, match=f"does not have {OWN}"):
        KIND.compare(SPEC, host_with(tmp_path, state, cluster))


def test_the_first_start_is_closed_when_it_is_over(tmp_path: Path) -> None:
    host = host_with(tmp_path, "new")
    converge(KIND, SPEC, host)
    assert KIND.compare(SETTLES, host) is None
    give_data(host)
    change = converge(KIND, SETTLES, host)
    assert change is not None
    assert change.reason == "the member has started"
    assert host.text(PATH) == SETTLED
    assert KIND.compare(SPEC, host) is None


def test_data_of_another_member_are_refused(tmp_path: Path) -> None:
    host = host_with(tmp_path, "existing")
    converge(KIND, SPEC, host)
    give_data(host, member=0xABC)
    converge(KIND, SETTLES, host)
    give_data(host, member=0x123)
    message = f"{DATA} holds the data of member 123 of cluster def; this host is member abc of cluster def"
    for spec in (SPEC, SETTLES):
        with pytest.raises(ResourceError, match=message) as refused:
            KIND.compare(spec, host)
        assert "member_replace.yml" in refused.value.remedy


def test_a_member_made_anew_has_another_identity(tmp_path: Path) -> None:
    host = host_with(tmp_path, "existing")
    give_data(host, member=0xABC)
    host.put(PATH, SETTLED)
    converge(KIND, SETTLES, host)
    Path(host.path(f"{DATA}/member/wal/0000000000000000-0000000000000000.wal")).unlink()
    converge(KIND, SPEC, host)
    give_data(host, member=0x123)
    converge(KIND, SETTLES, host)
    assert KIND.compare(SPEC, host) is None


def test_owner_and_mode(tmp_path: Path) -> None:
    host = host_with(tmp_path)
    give_data(host)
    host.put(PATH, SETTLED, 0o600)
    change = converge(KIND, SPEC, host)
    assert change is not None
    assert (change.before, change.after) == ({"mode": "0600"}, {"mode": "0644"})


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ({"settles": PATH}, "needs either path or settles"),
        ({"content": "initial-cluster: x\n"}, "content has initial-cluster lines"),
        ({"mode": "rw"}, "mode must be"),
    ],
)
def test_mistakes(values: dict[str, t.Any], mistake: str) -> None:
    assert any(mistake in found for found in KIND.check({**SPEC, **values}))
    assert KIND.check(SPEC) == []
    assert KIND.check(SETTLES) == []


@given(st.lists(st.sampled_from(["name: x", "initial-cluster: a=b", "initial-cluster-state: new", ""])))
def test_parting_loses_nothing(lines: list[str]) -> None:
    whole = "".join(f"{line}\n" for line in lines)
    rest, initial = split(whole)
    assert sorted(whole.splitlines()) == sorted([*rest.splitlines(), *initial])


def document(sandbox: Sandbox, content: str = CONTENT) -> list[dict[str, t.Any]]:
    common = {"data_dir": DATA, "member": "az-2", "peer_url": "https://10.0.0.2:2380", **OWNER}
    sandbox.put("etc/systemd/system/etcd.service", "[Service]\n")
    sandbox.put("etc/etcd/.keep", "")
    return [
        {"kind": "etcd_member", "id": "config", "path": PATH, "content": content, **common},
        {"kind": "systemd_unit", "id": "service", "name": "etcd.service", "restart_on": ["l/config"]},
        {
            "kind": "etcd_member",
            "id": "started",
            "settles": PATH,
            "requires": ["l/service"],
            "data_dir": DATA,
            "member": "az-2",
            "peer_url": "https://10.0.0.2:2380",
            **OWNER,
        },
    ]


def test_in_one_transaction_the_service_starts_once_and_never_because_of_the_membership(
    sandbox: Sandbox,
) -> None:
    resources = document(sandbox)
    waiting = sandbox.run(*resources)
    assert {entry["needs"] for entry in waiting["pending"]} == {"membership:etcd"}
    assert sandbox.calls() == []
    # The stand-in for systemctl starts nothing; what etcd would have written is there before.
    secrets = {INPUT: json.dumps({"state": "new", "cluster": ALL})}
    assert "config" in sandbox.changed(*resources, secrets=secrets)
    sandbox.put(f"{DATA}/member/wal/0-0.wal", log(0xABC, 0xDEF))
    sandbox.calls()
    assert sandbox.changed(*resources) == ["started"]
    assert sandbox.calls() == []
    assert sandbox.read(PATH) == SETTLED
    assert sandbox.changed(*resources) == []
    changed = sandbox.changed(*document(sandbox, CONTENT + "heartbeat-interval: 100\n"))
    assert changed == ["config", "service"]
    assert sandbox.calls() == ["restart etcd.service"]
