# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a host says of itself: parsers, probes over loopback, and all of it on a private root."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import os
import socket
import struct
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.action.host_health import skew
from ansible_collections.ironspan.hybrid.plugins.module_utils import _health
from ansible_collections.ironspan.hybrid.plugins.module_utils._health import (
    certificates,
    egress,
    local,
    network,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.host_process import wire

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(ends: datetime.datetime, name: str = "a") -> x509.Certificate:
    """Make a certificate."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(KEY.public_key())
    )
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(datetime.datetime(1960, 1, 1)).not_valid_after(ends)
    return builder.sign(KEY, hashes.SHA256())


@settings(max_examples=60)
@given(
    st.datetimes(datetime.datetime(1970, 1, 2), datetime.datetime(9999, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0)
    ),
    # A name has room for 64 bytes (RFC 5280, ub-common-name), and these take up to two each.
    st.text(st.characters(min_codepoint=32, max_codepoint=300), min_size=1, max_size=32),
)
def test_the_end_of_a_certificate_is_read_as_cryptography_reads_it(
    ends: datetime.datetime, name: str
) -> None:
    made = certificate(ends, name)
    der = made.public_bytes(serialization.Encoding.DER)
    assert certificates.not_after(der) == int(made.not_valid_after_utc.timestamp())
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    assert certificates.in_text(f"junk\n{pem}{pem}") == [der, der]
    data = base64.b64encode(pem.encode()).decode()
    assert certificates.in_text(f"users:\n- user:\n    client-certificate-data: {data}\n") == [der]


@given(st.binary(max_size=300))
def test_anything_else_is_no_certificate(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(certificates.not_after(data), int)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    certificates.in_text(text)
    certificates.in_text(f"-----BEGIN CERTIFICATE-----{text}-----END CERTIFICATE-----")
    certificates.in_text(f"    client-certificate-data: {text}")
    local.parse_units(text)


def test_units_that_exist() -> None:
    text = (
        "Id=kubelet.service\nLoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nNRestarts=2\n"
        "\nId=etcd.service\nLoadState=not-found\nActiveState=inactive\nSubState=dead\n"
    )
    assert local.parse_units(text) == {
        "kubelet.service": {"active": "active", "sub": "running", "result": "success", "restarts": "2"}
    }


def test_services_are_those_that_the_controller_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def output(argv: list[str]) -> str:
        asked.append(argv)
        return "Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\nNRestarts=0\n"

    monkeypatch.setattr(local, "output", output)
    assert list(local.units(["a.service", "-b.service"])) == ["a.service"]
    assert asked[0][-3:] == ["--", "a.service", "-b.service"]
    # systemctl without a name would speak of systemd itself.
    assert local.units([]) == {} and len(asked) == 1
    assert list(local.collect("/", ["a.service"])["units"]) == ["a.service"]


@given(st.binary(max_size=64), st.integers(0, 65535), st.integers(1, 5))
def test_echoes_are_whole_and_recognised(padding: bytes, identifier: int, sequence: int) -> None:
    request = network.echo(identifier, sequence, network.HEADERS_BYTES + len(padding))
    assert len(request) == 8 + len(padding)
    assert network.checksum(request) == 0, "RFC 1071: the sum over a whole message is zero"
    reply = bytes([0x45]) + b"\0" * 19 + struct.pack("!BBHHH", 0, 0, 0, identifier, sequence) + padding
    assert network.is_reply(reply, identifier, sequence)
    assert not network.is_reply(reply, identifier, sequence + 1)
    assert not network.is_reply(reply[:20], identifier, sequence)
    assert not network.is_reply(reply[:20] + request, identifier, sequence), "the request itself is none"


@given(st.integers(576, 9216), st.integers(0, 9300))
def test_the_largest_packet_is_found_within_eight_bytes(wanted: int, real: int) -> None:
    asked: list[int] = []

    def fits(size: int) -> bool:
        asked.append(size)
        return size <= real

    found = network.largest(fits, wanted)
    if real >= wanted:
        assert found == wanted and len(asked) == 1
    elif real < network.SMALLEST_MTU or wanted == network.SMALLEST_MTU:
        assert found == 0
    else:
        assert real - 8 <= found <= real
    assert len(asked) <= 13


def test_a_peer_that_cannot_be_sent_to_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str, size: int) -> bool:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(network, "passes", refuse)
    found = network.path_mtu({"name": "az-1", "address": "10.0.0.1"}, 1400)
    assert found == {"peer": "az-1", "wanted": 1400, "error": "Operation not permitted"}


@pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets need root")
def test_loopback_takes_packets_up_to_its_own_size() -> None:
    assert network.passes("127.0.0.1", 1400)
    assert network.path_mtu({"name": "x", "address": "127.0.0.1"}, 9000)["largest"] == 9000


def serve_dns(answer: t.Callable[[bytes], bytes], queries: int) -> tuple[str, t.Callable[[], None]]:
    """Answer so many queries on a loopback address of its own."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    address = "127.0.53.53"
    try:
        link.bind((address, 53))
    except OSError:
        link.close()
        pytest.skip("port 53 cannot be taken here")
    link.settimeout(120)

    def serve() -> None:
        with link:
            for _ in range(queries):
                query, sender = link.recvfrom(4096)
                link.sendto(answer(query), sender)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return address, thread.join


@pytest.mark.parametrize(
    ("flags", "answers", "expected"), [(0x8180, 1, "ms"), (0x8183, 0, "error"), (0x8180, 0, "error")]
)
def test_names_are_asked_for(
    flags: int, answers: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "DNS_SECONDS", 60)
    seen: list[bytes] = []

    def reply(query: bytes) -> bytes:
        seen.append(query)
        return query[:2] + struct.pack("!HHHHH", flags, 1, answers, 0, 0) + query[12:]

    # An answer without an address is not believed before the second one.
    queries = {"ms": 1, "error": 2}[expected]
    address, join = serve_dns(reply, queries)
    found = network.resolve(address, "kubernetes.default.svc.cluster.local")
    join()
    assert list(found) == [expected]
    assert len(seen) == queries
    assert b"\x0akubernetes\x07default\x03svc\x07cluster\x05local\0\0\x01\0\x01" in seen[0]


def test_connections_are_timed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert 0 <= network.connect_time("127.0.0.1", server.getsockname()[1])["ms"] < 60_000
        port = server.getsockname()[1]
    assert network.connect_time("127.0.0.1", port) == {"error": "Connection refused"}


def test_everything_of_a_private_root(tmp_path: Path) -> None:
    pki = tmp_path / "etc/kubernetes/pki"
    pki.mkdir(parents=True)
    ends = datetime.datetime(2031, 1, 2, 3, 4, 5)
    (pki / "apiserver.crt").write_bytes(certificate(ends).public_bytes(serialization.Encoding.PEM))
    (pki / "torn.crt").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    journal = tmp_path / "var/lib/ironspan/journal"
    journal.mkdir(parents=True)
    records = [
        {"step": "begin", "serial": 1, "plan": "abc", "digest": "d" * 64},
        {
            "step": "tried",
            "settled": [],
            "owned": {},
            "gone": [],
            "trial": {"id": "x", "until": 1_800_000_000},
        },
    ]
    (journal / "open.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + '{"st')
    (tmp_path / "run").mkdir()
    (tmp_path / "run/reboot-required").touch()
    (tmp_path / "run/ironspan/reboot").mkdir(parents=True)
    request = {"resource": "base/reboot", "reason": "new arguments", "since": 1}
    (tmp_path / "run/ironspan/reboot/base-reboot").write_text(json.dumps(request))
    told = {"slot": "a", "good": "a", "trial": "", "left": 0, "bad": {"a": "", "b": "ssh: x"}, "problems": {}}
    (tmp_path / "run/ironspan/slots.json").write_text(json.dumps(told))
    document = {
        "schema": 1,
        "resources": [{"kind": "file", "id": "base/a", "path": "/etc/a", "content": "x"}],
    }
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    found = _health.look({"root": str(tmp_path), "document": document, "probes": {}})
    assert json.loads(json.dumps(found)) == found
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, "nothing is changed"
    assert found["certificates"][0] == {
        "path": "/etc/kubernetes/pki/apiserver.crt",
        "not_after": int(ends.replace(tzinfo=datetime.UTC).timestamp()),
    }
    assert found["certificates"][1]["error"]
    transaction = {name: found["transaction"][name] for name in ("steps", "plan", "trial_until")}
    assert transaction == {"steps": 3, "plan": "abc", "trial_until": 1_800_000_000}
    assert found["slots"] == {"slot": "a", "good": "a", "trial": "", "bad": {"b": "ssh: x"}}
    assert found["reboot_wanted"] is True
    assert found["reboots"] == ["new arguments"]
    assert [disk["path"] for disk in found["disks"]] == ["/"]
    resources = [change["resource"] for change in found["drift"]["changes"]]
    assert "base/a" in resources and found["drift"]["count"] == len(resources)
    wrong = _health.drift({"schema": 1, "resources": [{"kind": "nonsense", "id": "a"}]}, str(tmp_path))
    assert "nonsense" in wrong["error"]
    (journal / "open.jsonl").write_text('{"step":"begin"}\n{"step":"commit"}\n')
    broken = _health.look({"root": str(tmp_path), "document": document, "probes": {}})
    assert "KeyError" in broken["drift"]["error"] and broken["disks"]


@pytest.mark.parametrize(
    ("host_time", "started", "ended", "least", "most"),
    [
        (105.0, 100.0, 110.5, 2.0, 6.0),  # the module ran for 0.5 s: somewhere in the first ten seconds
        (3705.0, 100.0, 110.5, 3594.0, 3606.0),
        (100.0, 100.0, 100.2, -0.5, 0.5),  # shorter than the module says it took: clocks are coarse
    ],
)
def test_a_clock_is_known_as_well_as_the_connection_allows(
    host_time: float, started: float, ended: float, least: float, most: float
) -> None:
    found = skew({"time_unix": host_time, "seconds": 0.5}, started, ended)
    assert least <= found["skew_s"] + found["skew_uncertain_s"]
    assert found["skew_s"] - found["skew_uncertain_s"] <= most
    assert found["skew_uncertain_s"] >= 0


def test_what_is_sent_to_a_host_is_within_the_budget() -> None:
    question = payload.question("host_health", {"root": "/", "probes": {}}, keep=False)
    assert 5_000 < len(wire(question)) <= 20_000


@pytest.mark.parametrize(
    ("text", "packets"),
    [
        (
            '{"nftables": [{"metainfo": {}}, {"counter": {"name": "host", "packets": 3, "bytes": 9}},'
            ' {"counter": {"name": "allow_1", "packets": 0, "bytes": 0}}]}',
            {"host": 3, "allow_1": 0},
        ),
        ("", {}),
        ("[]", {}),
        ("null", {}),
        ('{"nftables": [{"counter": {}}]}', {}),
    ],
)
def test_counters_of_the_table_that_holds_pods_back(text: str, packets: dict[str, int]) -> None:
    assert egress.parse_counters(text) == packets


@given(st.text(max_size=30) | st.recursive(st.none() | st.integers(), st.lists, max_leaves=5).map(json.dumps))
def test_counters_that_are_none(text: str) -> None:
    assert egress.parse_counters(text) == {}
