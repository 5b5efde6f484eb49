# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Two nodes that test each other, over real TCP and TLS, with GPUs and an NCCL that are none."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ironspan.gpud.preflight import kept, meet, pair, streams
from ironspan.lab.ports import free_port
from tests.support import cuda, nccl, nvml


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all three libraries, built once."""
    folder = tmp_path_factory.mktemp("libraries")
    nvml.built(folder)
    cuda.built(folder)
    nccl.built(folder)
    return folder


class Authority:
    """A cluster's authority, as far as nodes are concerned."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        self.path = self._written("ca", self.name, self.key, None)

    def node(self, name: str, serves: bool, group: str = "system:nodes") -> Path:
        """Return a file with a certificate and its key."""
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
                x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
            ]
        )
        usage = ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH
        key = ec.generate_private_key(ec.SECP256R1())
        return self._written(f"{name}-{serves}", subject, key, usage)

    def _written(self, file: str, subject: x509.Name, key: t.Any, usage: t.Any) -> Path:
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=usage is None, path_length=None), critical=True)
        )
        if usage is not None:
            made = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        path = self.folder / f"{file}.pem"
        path.write_bytes(
            made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return path


class Node:
    """One of the two."""

    def __init__(self, folder: Path, name: str, libraries: Path, authority: Authority) -> None:
        self.folder, self.name = folder / name, name
        self.folder.mkdir()
        self.cards = nvml.State(self.folder / "cards", "h200", gpus=2)
        self.faults = cuda.State(self.folder / "faults")
        self.faults.set({"memory_mib": 8})
        self.deadline = 300
        self.nccl = self.folder / "nccl"
        self.nccl.write_text("")
        self.mark = secrets.token_hex(8)
        client = str(authority.node(name, serves=False))
        self.kubeconfig = self.folder / "kubelet.conf"
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"cluster": {"certificate-authority": str(authority.path)}}],
                    "users": [{"user": {"client-certificate": client, "client-key": client}}],
                }
            )
        )
        self.settings: dict[str, t.Any] = {
            "state": str(self.folder / "state"),
            "library": str(libraries),
            "kubeconfig": str(self.kubeconfig),
            "serving": str(authority.node(name, serves=True)),
        }

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def begin(self, peer: str, port: int, listens: bool, id: str = "1") -> subprocess.Popen[str]:
        """Begin what the agent begins."""
        file = self.folder / "gpud.json"
        file.write_text(json.dumps(self.settings))
        told = ["--id", id, "--with", peer, "--address", "127.0.0.1", "--port", str(port)]
        command = [
            sys.executable,
            "-c",
            SHORT,
            str(self.deadline),
            "pair",
            "--json",
            "--settings",
            str(file),
            *told,
        ]
        environment = {
            **os.environ,
            nvml.VARIABLE: str(self.cards.path),
            cuda.VARIABLE: str(self.faults.path),
            nccl.VARIABLE: str(self.nccl),
            nccl.MARK: self.mark,
        }
        return subprocess.Popen(
            [*command, *(["--listen"] if listens else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )


SHORT = """
import sys
from dataclasses import replace
from ironspan.gpud import main
from ironspan.gpud.preflight import pair
deadline = float(sys.argv.pop(1))
found = {name: replace(test, seconds=0.1, deadline=300) for name, test in pair.pair_tests().items()}
found["A09"] = replace(found["A09"], deadline=deadline)
pair.pair_tests, pair.WAIT_S = lambda: found, 300.0
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def nodes(tmp_path: Path, libraries: Path, authority: Authority) -> tuple[Node, Node]:
    return Node(tmp_path, "rack-1", libraries, authority), Node(tmp_path, "rack-2", libraries, authority)


@pytest.fixture
def port() -> int:
    return free_port()


def met(nodes: tuple[Node, Node], port: int) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Let both nodes meet; return what each says."""
    one, other = nodes
    begun = [one.begin(other.name, port, listens=True), other.begin(one.name, port, listens=False)]
    said = [process.communicate(timeout=600) for process in begun]
    assert all(out for out, _ in said), said
    return json.loads(said[0][0]), json.loads(said[1][0])


def by_test(found: dict[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    return {each["test"]: each for each in found["results"]}


def test_two_that_are_well_pass_and_both_have_the_evidence(nodes: tuple[Node, Node], port: int) -> None:
    for node, found in zip(nodes, met(nodes, port), strict=True):
        assert (found["passed"], found["why"]) == (True, ""), json.dumps(found)
        results = by_test(found)
        assert (results["A09"]["way"], results["A09"]["detail"]) == ("NCCL", "4 GPUs")
        assert (results["A09"]["measured"], results["A09"]["wanted"]) == (120, 90)
        assert results["A10"]["measured"] > 0 and results["A10"]["unit"] == "Gbit/s"
        assert pair.results(node.state) == [found]
        assert not list(Path("/dev/shm").glob(f"ironspan-nccl-{node.mark}-*"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("speed 80", "less than 90 % of 100"),
        ("wrong 3", "wrong sums on 0"),
        ("error.ncclCommInitRank 3", "ncclCommInitRank: [3]"),
        ("hang.ncclAllReduce 1", "no answer within 3 s"),
        ("ends.ncclAllReduce 1", "its process ended and said nothing"),
    ],
)
def test_an_nccl_that_is_broken_on_one_fails_there(
    nodes: tuple[Node, Node], port: int, fault: str, says: str
) -> None:
    nodes[1].nccl.write_text(f"{fault}\n")
    for node in nodes:
        # The other one may wait for ever for one that is broken.
        node.deadline = 300 if fault.startswith(("speed", "wrong")) else 3
    one, other = met(nodes, port)
    assert other["passed"] is False
    assert says in by_test(other)["A09"]["detail"], other
    # The path was well, and stays in the evidence.
    assert by_test(one)["A10"]["passed"] is by_test(other)["A10"]["passed"] is True
    assert one["passed"] is not None or one["why"]


@pytest.mark.long
def test_a_slow_path_fails_on_both(nodes: tuple[Node, Node], port: int) -> None:
    for node in nodes:
        node.settings["preflight"] = {"references": {"A10 lo": "1000000 faster than anything"}}
    for found in met(nodes, port):
        assert found["passed"] is False
        assert "less than 90 % of" in by_test(found)["A10"]["detail"]


@pytest.mark.long
def test_without_nccl_the_result_says_so_and_the_path_counts(
    nodes: tuple[Node, Node], port: int, libraries: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (bare / name).symlink_to(libraries / name)
    nodes[0].settings["library"] = str(bare)
    one, other = met(nodes, port)
    assert (by_test(one)["A09"]["passed"], by_test(one)["A09"]["detail"]) == (
        None,
        "libnccl.so.2 is not there",
    )
    assert by_test(other)["A09"]["detail"] == "rack-1: libnccl.so.2 is not there"
    assert one["passed"] is other["passed"] is True


# -- who is let in --


def meeting(
    node: Node, authority: Authority, peer: str, port: int, listens: bool, **more: t.Any
) -> meet.Meeting:
    own = str(authority.node(node.name, serves=listens))
    told = {"wait_s": 300.0, "seconds": 0.1, "certificate": own, "key": own, **more}
    return meet.Meeting(
        "1", peer, "127.0.0.1", port, listens, authority=str(authority.path), nccl=True, **told
    )


@pytest.mark.parametrize("lies", ["name", "group", "authority"])
def test_a_third_is_hung_up_on_and_the_right_one_is_waited_for(
    nodes: tuple[Node, Node], port: int, authority: Authority, tmp_path: Path, lies: str
) -> None:
    (tmp_path / "other").mkdir()
    by = Authority(tmp_path / "other") if lies == "authority" else authority
    third = by.node(
        "rack-3" if lies == "name" else "rack-2", False, "other" if lies == "group" else "system:nodes"
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(third)
    with streams.listening("127.0.0.1", port) as server, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(meet.accepted, meeting(nodes[0], authority, "rack-2", port, True), server)
        # TLS 1.3 tells of a certificate that was refused with the first answer.
        with socket.create_connection(("127.0.0.1", port), 120) as plain, contextlib.suppress(OSError):
            line = context.wrap_socket(plain)
            assert line.recv(1) == b""
        assert not waits.done()
        right = meet.called(meeting(nodes[1], authority, "rack-1", port, False))
        right.say(hello=1)
        assert waits.result(300).hear() == {"hello": 1}


def test_who_calls_insists_on_the_right_one_too(
    nodes: tuple[Node, Node], port: int, authority: Authority
) -> None:
    with streams.listening("127.0.0.1", port) as server, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(meet.accepted, meeting(nodes[0], authority, "rack-2", port, True), server)
        with pytest.raises(meet.PeerError, match="another node's certificate"):
            meet.called(meeting(nodes[1], authority, "rack-7", port, False))
        # It was the right one that called.
        assert waits.result(300)


@pytest.mark.long
def test_two_that_were_asked_for_different_things_do_nothing(nodes: tuple[Node, Node], port: int) -> None:
    one, other = nodes
    begun = [one.begin(other.name, port, True, id="1"), other.begin(one.name, port, False, id="2")]
    for process in begun:
        found = json.loads(process.communicate(timeout=600)[0])
        assert (found["passed"], found["results"]) == (None, [])


def test_streams_without_the_token_are_closed(port: int) -> None:
    place, token = ("127.0.0.1", port), streams.MARK + b"t" * 31
    with streams.listening(*place) as server, socket.create_connection(place) as stranger:
        stranger.sendall(b"\0" * 32)
        mine = streams.opened(place, token)
        found = streams.accepted(server, token)
        assert stranger.recv(1) == b""
    assert len(found) == streams.STREAMS
    for connection in (*mine, *found):
        connection.close()


def test_each_block_is_looked_at() -> None:
    pairs = [socket.socketpair() for _ in range(2)]

    def send() -> None:
        for number, (sender, _) in enumerate(pairs):
            block = bytearray(streams.pattern(b"seed"))
            sender.sendall(block)
            block[77_777] ^= number
            sender.sendall(block)
            sender.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    found = streams.received([receiver for _, receiver in pairs], b"seed")
    thread.join()
    assert (found.wrong, found.gbits > 0) == (1, True)
    for sender, receiver in pairs:
        sender.close()
        receiver.close()


# -- what ends it --


@pytest.mark.long
def test_it_yields_at_once_and_says_nothing_about_either(nodes: tuple[Node, Node], port: int) -> None:
    nodes[0].nccl.write_text("hang.ncclAllReduce 1\n")
    one, other = nodes
    first, second = one.begin("rack-2", port, True), other.begin("rack-1", port, False)
    assert first.stderr is not None
    while "A09" not in first.stderr.readline():
        assert first.poll() is None
    with subprocess.Popen(["sleep", "600"]) as work:
        one.cards.set({"0.processes": f"{work.pid}:100"})
        found = json.loads(first.communicate(timeout=300)[0])
        work.kill()
    assert (found["passed"], found["why"]) == (None, f"ended: processes use a GPU: {work.pid}")
    second.send_signal(signal.SIGTERM)
    found = json.loads(second.communicate(timeout=300)[0])
    # It waited in NCCL, or had not come so far.
    assert found["passed"] is None
    assert found["why"] in ("ended: it was told to end", "the other node ended it")
    assert not kept.runs(one.state)


def test_another_that_does_not_come_is_no_fault(
    nodes: tuple[Node, Node], port: int, authority: Authority
) -> None:
    with pytest.raises(meet.PeerError, match="rack-2 does not answer at"):
        meet.called(meeting(nodes[0], authority, "rack-2", port, False, wait_s=0.1))
    silent = pytest.raises(meet.PeerError, match="did not call within")
    with streams.listening("127.0.0.1", port) as server, silent:
        meet.accepted(meeting(nodes[0], authority, "rack-2", port, True, wait_s=0.1), server)


def test_a_node_that_has_no_certificate_says_so(nodes: tuple[Node, Node], port: int) -> None:
    nodes[0].settings["serving"] = "/nonexistent.pem"
    found = json.loads(nodes[0].begin("rack-2", port, True).communicate(timeout=600)[0])
    assert found["passed"] is None
    assert "certificates cannot be used" in found["why"]


def test_only_the_last_results_are_kept(tmp_path: Path) -> None:
    assert pair.results(tmp_path) == []
    for text in ("{", "3", "[3]"):
        pair.path(tmp_path).write_text(text)
        assert pair.results(tmp_path) == []
    pair.path(tmp_path).write_text(json.dumps([{"id": str(n)} for n in range(20)]))
    assert [each["id"] for each in pair.results(tmp_path)] == [str(n) for n in range(12, 20)]


@pytest.mark.parametrize(
    "change",
    [{"with": "../x"}, {"address": "rack-2"}, {"port": 0}, {"port": "a"}, {"listens": 1}, {"with": None}],
)
def test_a_request_that_is_none_is_refused(change: dict[str, t.Any]) -> None:
    well = {"with": "rack-2", "address": "10.0.0.2", "port": 2393, "listens": True}
    assert pair.read("1", well) == pair.Pairing("1", "rack-2", "10.0.0.2", 2393, True)
    assert pair.read("1", {**well, **change}) is None
