# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A control plane's programs are stopped and started by their manifests, in order."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import static_pods
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore.machine import Machine, RestoreError

MANIFESTS = Path("etc/kubernetes/manifests")


class Server(http.server.ThreadingHTTPServer):
    """Stands in for the API server: ready after some questions; notes what was there when it was asked."""

    root: Path
    refusals = 2
    seen: list[set[str]]


class Answer(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append({path.stem for path in (self.server.root / MANIFESTS).iterdir()})
        ready = len(self.server.seen) > self.server.refusals and self.path == "/readyz"
        self.send_response(200 if ready else 500)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    pair = tmp_path / "pair.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", "/CN=api", "-out", pair, "-keyout", tmp_path / "key.pem",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    made = Server(("127.0.0.1", 0), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair, tmp_path / "key.pem")
    made.socket = context.wrap_socket(made.socket, server_side=True)
    made.root, made.seen = tmp_path / "root", []
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def machine(server: Server) -> Machine:
    (server.root / MANIFESTS).mkdir(parents=True)
    (server.root / "proc").mkdir()
    for name in static_pods.PODS:
        text = f"- --secure-port={server.server_port}\n" if name == static_pods.API_SERVER else ""
        (server.root / MANIFESTS / f"{name}.yaml").write_text(text)
    (server.root / MANIFESTS / "other.yaml").touch()
    systemctl = server.root / "usr/local/bin/systemctl"
    systemctl.parent.mkdir(parents=True)
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {server.root}/asked\n')
    systemctl.chmod(0o755)
    return Machine(str(server.root))


def run_all(server: Server) -> None:
    """Let all programs run, as far as this host's processes tell."""
    for number, name in enumerate(static_pods.PODS, 4194304):
        process = server.root / f"proc/{number}"
        process.mkdir()
        (process / "cmdline").write_bytes(f"/usr/local/bin/{name}\0--x\0".encode())


def present(server: Server) -> set[str]:
    return {path.stem for path in (server.root / MANIFESTS).iterdir()}


def test_controllers_start_when_the_api_server_is_ready(server: Server, machine: Machine) -> None:
    assert static_pods.present(machine) == list(static_pods.PODS)
    assert static_pods.take_away(machine)
    assert not static_pods.take_away(machine)
    static_pods.wait_until_ended(machine, time.monotonic())
    assert present(server) == {"other"}
    run_all(server)
    # They still count as this host's.
    assert static_pods.present(machine) == list(static_pods.PODS)
    assert static_pods.start(machine)
    assert server.seen == [{"other", "kube-apiserver"}] * 3
    assert present(server) == {"other", *static_pods.PODS}
    assert not static_pods.start(machine)
    assert not (server.root / "etc/kubernetes/ironspan-restore").exists()
    # Once when the programs are taken away, and once when the controllers come back.
    assert (server.root / "asked").read_text().splitlines() == ["restart kubelet.service"] * 2


def test_a_kubelet_that_waits_before_it_starts_what_ended_too_often_is_restarted(
    server: Server, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_pods, "START_SECONDS", 0.2)
    static_pods.take_away(machine)
    (server.root / "asked").unlink()
    static_pods.bring_back(machine, static_pods.API_SERVER)
    assert not (server.root / "asked").exists()
    assert static_pods.start(machine)
    assert (server.root / "asked").read_text().splitlines() == ["restart kubelet.service"] * 2


def test_an_api_server_that_does_not_come_up(
    server: Server, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.refusals = 1000
    monkeypatch.setattr(static_pods, "READY_SECONDS", 0.3)
    static_pods.take_away(machine)
    run_all(server)
    with pytest.raises(RestoreError, match=r"not ready after 0 s .*500"):
        static_pods.start(machine)
    # The next run finds what is left to do.
    server.refusals = 0
    assert static_pods.start(machine)
    assert present(server) == {"other", *static_pods.PODS}


HERE = "https://127.0.0.1"


def test_the_first_api_server_is_waited_for(server: Server, machine: Machine) -> None:
    static_pods.wait_for_first(machine, HERE)
    assert server.seen == [], "nothing is to be started here"
    static_pods.take_away(machine)
    static_pods.wait_for_first(machine, HERE)
    assert server.seen == [{"other"}] * (server.refusals + 1)


def test_an_api_server_that_does_not_come_up_keeps_the_others_only_for_a_while(
    server: Server, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.refusals = 1000
    monkeypatch.setattr(static_pods, "FIRST_SECONDS", 0.3)
    static_pods.take_away(machine)
    static_pods.wait_for_first(machine, HERE)
    assert 0 < len(server.seen) < 1000


def test_a_program_that_does_not_end(
    server: Server, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all(server)
    monkeypatch.setattr(static_pods, "STOP_SECONDS", 0.2)
    with pytest.raises(RestoreError, match=r"do not end .processes .4194304, 4194305"):
        static_pods.wait_until_ended(machine, time.monotonic())
