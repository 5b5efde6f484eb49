# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a program tells of itself, asked over loopback."""

from __future__ import annotations

import datetime
import ipaddress
import math
import re
import socket
import ssl
import threading
import time
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ironspan.program import listen as listening
from ironspan.program import settings
from ironspan.program.errors import LeaseLost, ProgramError, ServiceError
from ironspan.program.leader import Leadership
from ironspan.program.listen import Listen
from ironspan.program.loop import Repeating
from ironspan.program.metrics import Metrics
from ironspan.program.service import Step, repeating, serve, teller

LOOPBACK = Listen("127.0.0.1", 0)


def asked(url: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Return status and body of an answer, whatever proxy the machine names."""
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with direct.open(url, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def values(metrics: Metrics) -> dict[str, float]:
    """Return the values that there are, by name and labels."""
    with metrics.serving(LOOPBACK) as port:
        lines = asked(f"http://127.0.0.1:{port}/metrics")[1].splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}


def test_every_program_says_the_same_of_itself() -> None:
    metrics = Metrics("ironspan_x")
    assert metrics.failed(ServiceError("x")) == "service"
    assert metrics.failed(ZeroDivisionError("x")) == "other"
    shown = values(metrics)
    assert shown['ironspan_x_errors_total{kind="service"}'] == 1
    assert shown['ironspan_x_errors_total{kind="lease"}'] == 0
    assert abs(shown["ironspan_x_process_start_time_seconds"] - time.time()) < 86400
    assert shown["ironspan_x_ready"] == 1


@pytest.mark.parametrize(
    ("age", "code", "said"),
    [
        (math.inf, 503, "pass: never done with success, wanted every 60 s\n"),
        (0.0, 200, "ok\n"),
        (60.0, 200, "ok\n"),
        (61.0, 503, "pass: last done 61 s ago, wanted every 60 s\n"),
    ],
)
def test_ready_is_who_did_every_step_in_time(age: float, code: int, said: str) -> None:
    metrics = Metrics("ironspan_x")
    metrics.watch("pass", lambda: age, 60)
    metrics.watch("other", lambda: 0.0, 1)
    with metrics.serving(LOOPBACK) as port:
        assert asked(f"http://127.0.0.1:{port}/healthz") == (code, said)
    shown = values(metrics)
    assert shown["ironspan_x_ready"] == (code == 200)
    assert shown['ironspan_x_deadline_seconds{step="pass"}'] == 60
    last = shown['ironspan_x_last_success_timestamp_seconds{step="pass"}']
    assert last == 0 if math.isinf(age) else abs(time.time() - age - last) < 30
    metrics.forget("pass")
    metrics.forget("pass")
    assert not [name for name in values(metrics) if 'step="pass"' in name]
    assert values(metrics)["ironspan_x_ready"] == 1


def test_a_step_that_fails_is_counted_and_never_done() -> None:
    metrics = Metrics("ironspan_x")
    failed, works = threading.Event(), threading.Event()

    def step() -> None:
        if not works.is_set():
            failed.set()
            raise ServiceError("down")

    with repeating(metrics, Step("pass", step, 0.01, 60)) as (thread,):
        assert failed.wait(120)
        assert metrics.late() == ["pass: never done with success, wanted every 60 s"]
        works.set()
        thread.wake()
        while metrics.late():
            time.sleep(0.01)
    assert values(metrics)['ironspan_x_errors_total{kind="service"}'] >= 1
    assert metrics.late() == []


@pytest.mark.parametrize("raises", [False, True])
def test_since_when_a_step_was_not_done(raises: bool) -> None:
    now = 100.0
    done = threading.Event()

    def step() -> None:
        done.set()
        if raises:
            raise ServiceError("down")

    repeated = Repeating("x", step, 60, clock=lambda: now)
    assert repeated.since_success() == math.inf
    repeated.start()
    assert done.wait(120)
    repeated.stop()
    now = 130.0
    assert repeated.since_success() == (math.inf if raises else 30)


def test_what_does_not_speak_http_keeps_nobody_waiting() -> None:
    with (
        Metrics("ironspan_x").serving(LOOPBACK) as port,
        socket.create_connection(("127.0.0.1", port)) as silent,
        socket.create_connection(("127.0.0.1", port)) as rude,
    ):
        rude.sendall(b"\x16\x03\x01\0\0\r\n\r\n")
        assert asked(f"http://127.0.0.1:{port}/healthz")[0] == 200
        silent.close()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """Make a certificate of 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "metrics")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "x.crt").write_bytes(made.public_bytes(encoding))
    (tmp_path / "x.key").write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
    return str(tmp_path / "x.crt"), str(tmp_path / "x.key")


def test_over_tls(certificate: tuple[str, str]) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    with Metrics("ironspan_x").serving(Listen("127.0.0.1", 0, *certificate)) as port:
        # Who never finishes a handshake is served by a thread of their own.
        with socket.create_connection(("127.0.0.1", port)):
            assert asked(f"https://127.0.0.1:{port}/healthz", context) == (200, "ok\n")
        with pytest.raises((urllib.error.URLError, OSError)):
            asked(f"http://127.0.0.1:{port}/healthz")


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="Metrics cannot be served on 127"):
        Metrics("ironspan_x").serving(Listen("127.0.0.1", 0, str(tmp_path / "no.crt"), "/no")).__enter__()
    with (
        Metrics("ironspan_x").serving(LOOPBACK) as port,
        pytest.raises(ProgramError, match=f"port {port}: Address already in use"),
        Metrics("ironspan_x").serving(Listen("127.0.0.1", port)),
    ):
        pass


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        ({}, []),
        ({"address": "::", "port": 1, "certificate": "/a", "key": "/b"}, []),
        ({"address": "localhost"}, ["metrics.address is 'localhost'; write an IP address of this host"]),
        ({"port": 0}, ["metrics.port is 0; write a whole number from 1 to 65535"]),
        ({"certificate": "a"}, ["metrics.certificate is 'a'; write an absolute path"]),
        ({"key": "/b"}, ["metrics.certificate and key go together; write both or none"]),
        ({"prt": 1}, ["metrics.prt is not known; write port"]),
    ],
)
def test_settings(data: dict[str, t.Any], problems: list[str]) -> None:
    found: list[str] = []
    section = settings.Section.top({"metrics": data}, found).section("metrics")
    listening.listen(section, 2400)
    assert found == problems


class Leases:
    """A place that gives its lease, or refuses with an error."""

    def __init__(self) -> None:
        self.error: ServiceError | None = None

    def acquire(self, name: str, seconds: int, holder: str) -> Leases:
        """Give the lease."""
        if self.error:
            raise self.error
        return self

    id = "x"

    def renew(self) -> None:
        """Give it again."""
        self.acquire("", 0, "")

    def release(self) -> None:
        """Take it back."""


def test_a_lease_that_is_not_to_be_had_is_counted_each_time_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics, leases = Metrics("ironspan_x"), Leases()
    leadership = Leadership(leases, "x", "here")
    tell = teller(leadership, metrics)
    for leases.error in (LeaseLost("there"), ServiceError("down"), ServiceError("down"), None):
        leadership.step()
        tell()
    assert caplog.messages == ["down"]
    assert values(metrics)['ironspan_x_errors_total{kind="service"}'] == 2
    assert values(metrics)['ironspan_x_errors_total{kind="lease"}'] == 0


@pytest.mark.parametrize("leads", [True, False])
def test_one_of_several_acts_and_all_are_ready(
    leads: bool, monkeypatch: pytest.MonkeyPatch, handlers_of_signals: None
) -> None:
    metrics, leases, passes = Metrics("ironspan_x"), Leases(), []
    leases.error = None if leads else LeaseLost("there")
    leadership = Leadership(leases, "x", "here")
    leadership.step()
    seen: dict[str, float] = {}

    class Ended:
        def wait(self) -> None:
            while metrics.late():
                time.sleep(0.01)
            seen.update(values(metrics))

    monkeypatch.setattr("ironspan.program.service.process.ending", Ended)
    step = Step("pass", lambda: passes.append(1), 0.01, 60)
    assert serve(metrics, LOOPBACK, step, leadership=leadership) == 0
    assert bool(passes) == leads
    assert (seen["ironspan_x_leader"], seen["ironspan_x_ready"]) == (leads, 1)
    assert not leadership.held()


def test_every_name_is_behind_the_prefix() -> None:
    assert {re.match("ironspan_x_", name) is not None for name in values(Metrics("ironspan_x"))} == {True}
