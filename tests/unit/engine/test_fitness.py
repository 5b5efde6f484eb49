# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Verdicts: a table of hosts that fit and hosts that do not, and real sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import fitness
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.fitness import (
    judge,
    parse_listeners,
    socket_owners,
    version_tuple,
)
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30
FACTS = {
    "kernel": "6.12.48-amd64",
    "cgroup_version": 2,
    "cpus": 4,
    "memory_bytes": 8 * GIB,
    "disk_free_bytes": 20 * GIB,
}
HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class Host:
    """Paths, and what the engine owns."""

    def __init__(self, root: Path, *owned: str) -> None:
        self.root = root
        self.mine = owned

    def path(self, path: str) -> str:
        return str(self.root).rstrip("/") + path

    def owned(self, path: str) -> bool:
        return path in self.mine


def line(port: int, inode: int, state: str = "0A", address: str = "00000000") -> str:
    queues = "00000000:00000000 00:00000000 00000000"
    return f"   0: {address}:{port:04X} 00000000:0000 {state} {queues} 0 0 {inode} 1 0\n"


def machine(root: Path, *owned: str) -> Host:
    """Let 6443 be served by kube-apiserver, 2379 by etcd (IPv6), 80 by a socket without a process."""
    (root / "proc/net").mkdir(parents=True)
    (root / "proc/net/tcp").write_text(HEADING + line(6443, 11) + line(80, 33) + line(9999, 44, state="01"))
    (root / "proc/net/tcp6").write_text(HEADING + line(2379, 22, address="0" * 32) + "short line\n")
    for process, name, inode in (("100", "kube-apiserver", 11), ("200", "etcd", 22)):
        (root / f"proc/{process}/fd").mkdir(parents=True)
        (root / f"proc/{process}/comm").write_text(name[:15] + "\n")
        (root / f"proc/{process}/fd/0").symlink_to("/dev/null")
        (root / f"proc/{process}/fd/7").symlink_to(f"socket:[{inode}]")
    (root / "etc/kubernetes").mkdir(parents=True)
    (root / "etc/dangling").symlink_to("nowhere")
    return Host(root, *owned)


@pytest.mark.parametrize(
    ("wanted", "ok"),
    [
        ({"min_kernel": "5.15"}, True),
        ({"min_kernel": "6.12"}, True),
        ({"min_kernel": "6.12.49"}, False),
        ({"min_kernel": "6.13"}, False),
        ({"min_kernel": "10.1"}, False),
        ({"cgroup_versions": [1, 2]}, True),
        ({"cgroup_versions": [1]}, False),
        ({"min_cpus": 4}, True),
        ({"min_cpus": 5}, False),
        ({"min_memory_bytes": 8 * GIB}, True),
        ({"min_memory_bytes": 8 * GIB + 1}, False),
        ({"min_disk_bytes": 20 * GIB}, True),
        ({"min_disk_bytes": 21 * GIB}, False),
        ({"ports_free": [{"port": 8443}]}, True),
        ({"ports_free": [{"port": 9999}]}, True),
        ({"ports_free": [{"port": 6443}]}, False),
        ({"ports_free": [{"port": 6443, "allowed_process": ["kube-apiserver"]}]}, True),
        ({"ports_free": [{"port": 2379, "allowed_process": ["kube-apiserver"]}]}, False),
        ({"ports_free": [{"port": 2379, "allowed_process": ["etcd", "x"]}]}, True),
        ({"ports_free": [{"port": 80, "allowed_process": ["nginx"]}]}, False),
        ({"foreign": [{"path": "/etc/containerd", "why": "x"}]}, True),
        ({"foreign": [{"path": "/etc/kubernetes", "why": "x"}]}, False),
        ({"foreign": [{"path": "/etc/dangling"}]}, False),
        ({"foreign": [{"path": "/etc/owned"}]}, True),
    ],
)
def test_verdicts(tmp_path: Path, wanted: dict[str, Any], ok: bool) -> None:
    host = machine(tmp_path, "/etc/owned")
    (tmp_path / "etc/owned").touch()
    verdicts = judge(wanted, FACTS, host)  # type: ignore[arg-type]
    assert [verdict["ok"] for verdict in verdicts] == [ok]
    assert set(verdicts[0]) == {"check", "ok", "found", "wanted", "remedy"}
    assert bool(verdicts[0]["remedy"]) is not ok
    assert verdicts[0]["check"]


def test_nothing_asked_nothing_said(tmp_path: Path) -> None:
    assert judge({}, FACTS, Host(tmp_path)) == []  # type: ignore[arg-type]


def test_every_question_gets_its_answer(tmp_path: Path) -> None:
    wanted = {
        "min_kernel": "5.15",
        "min_cpus": 8,
        "cgroup_versions": [2],
        "ports_free": [{"port": 80}, {"port": 6443, "allowed_process": ["etcd"]}],
        "foreign": [{"path": "/etc/kubernetes", "why": "Another cluster's files"}],
    }
    verdicts = {verdict["check"]: verdict for verdict in judge(wanted, FACTS, machine(tmp_path))}  # type: ignore[arg-type]
    assert set(verdicts) == {
        "kernel",
        "cpus",
        "cgroup version",
        "port 80",
        "port 6443",
        "foreign /etc/kubernetes",
    }
    assert verdicts["port 6443"]["found"] == "used by kube-apiserver"
    assert verdicts["port 6443"]["wanted"] == "free, or used by etcd"
    assert "unknown process" in verdicts["port 80"]["found"]
    assert "Another cluster's files" in verdicts["foreign /etc/kubernetes"]["remedy"]


@pytest.mark.parametrize(("gone_after", "ok"), [(1, True), (2, True), (3, False)])
def test_a_program_that_ended_meanwhile_holds_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone_after: int, ok: bool
) -> None:
    host, looks = machine(tmp_path), [0]
    (tmp_path / "proc/net/tcp6").write_text(HEADING)

    def nobody(_host: object, _inodes: object) -> dict[str, str]:
        looks[0] += 1
        if looks[0] == gone_after:
            (tmp_path / "proc/net/tcp").write_text(HEADING)
        return {}

    monkeypatch.setattr(fitness, "socket_owners", nobody)
    (verdict,) = judge({"ports_free": [{"port": 6443}]}, FACTS, host)  # type: ignore[arg-type]
    assert verdict["ok"] is ok
    assert looks == [min(gone_after, fitness.LOOKS)]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_real_socket_is_found_with_its_process(family: int) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        host = Host(Path("/"))
        table = Path("/proc/net/tcp" if family == socket.AF_INET else "/proc/net/tcp6").read_text()
        inodes = parse_listeners(table)[port]
        assert inodes == {str(os.fstat(listener.fileno()).st_ino)}
        own_name = Path("/proc/self/comm").read_text().strip()
        assert socket_owners(host, inodes) == {next(iter(inodes)): own_name}  # type: ignore[arg-type]
        for allowed, ok in ((own_name, True), ("something-else", False)):
            wanted = {"ports_free": [{"port": port, "allowed_process": [allowed]}]}
            assert judge(wanted, FACTS, host)[0]["ok"] is ok  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("6.12.48-amd64", (6, 12, 48)), ("5.15", (5, 15)), ("6.8.0-41-generic", (6, 8, 0)), ("", ()), ("x", ())],
)
def test_version_tuple(text: str, expected: tuple[int, ...]) -> None:
    assert version_tuple(text) == expected


@given(
    st.dictionaries(
        st.integers(0, 65535), st.sets(st.integers(1, 1 << 32), min_size=1, max_size=3), max_size=8
    )
)
def test_listeners_are_read_as_written(ports: dict[int, set[int]]) -> None:
    text = HEADING + "".join(line(port, inode) for port, inodes in ports.items() for inode in inodes)
    assert parse_listeners(text) == {port: set(map(str, inodes)) for port, inodes in ports.items()}


@given(st.text())
def test_listeners_never_fail(text: str) -> None:
    assert isinstance(parse_listeners(HEADING + text), dict)
