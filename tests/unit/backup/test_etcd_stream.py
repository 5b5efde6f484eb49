# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A gRPC stream gives whole messages in order however they are cut, and says why it ended."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import itertools
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import hypothesis
import hypothesis.strategies as st
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ironspan.etcd import connection as connection_module
from ironspan.etcd import stream as stream_module
from ironspan.etcd.channel import Tls
from ironspan.etcd.errors import Compacted, EtcdError, Unreachable
from ironspan.etcd.stream import Stream

METHOD = "a.Service/Method"
STATUS = [(":status", "200"), ("content-type", "application/grpc")]
HOUR_S = 3600.0
Script = Callable[["Peer"], object]


def framed(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


class Peer:
    """The other side of one stream, driven by a script in a thread of its own."""

    def __init__(
        self, script: Script, context: ssl.SSLContext | None = None, path: Path | None = None
    ) -> None:
        if path:
            self._listener = socket.create_server(str(path), family=socket.AF_UNIX)
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(120)
        self._script, self._context = script, context
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.headers: dict[bytes, bytes] = {}
        self.received = b""
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        scheme = "https" if context else "http"
        name = self._listener.getsockname()
        self.endpoint = f"unix://{path}" if path else f"{scheme}://127.0.0.1:{name[1]}"

    def close(self) -> None:
        self._thread.join(120)
        self._listener.close()
        if self.failure:
            raise self.failure

    def _run(self) -> None:
        try:
            self.socket, _ = self._listener.accept()
            self.socket.settimeout(120)
            with self.socket:
                if self._context:
                    self.socket = self._context.wrap_socket(self.socket, server_side=True)
                with self.socket:
                    self._script(self)
        except BaseException as error:
            self.failure = error

    def begin(self, *headers: tuple[str, str], end_stream: bool = False) -> None:
        """Answer with the headers, once the call has come."""
        self.http.initiate_connection()
        self.until(lambda: bool(self.headers))
        self.http.send_headers(1, headers or STATUS, end_stream=end_stream)
        self.flush()

    def until(self, condition: Callable[[], bool]) -> None:
        """Take what comes until the condition holds."""
        while not condition():
            self.flush()
            data = self.socket.recv(65536)
            assert data, "the stream was ended"
            for event in self.http.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.headers = {bytes(name): bytes(value) for name, value in event.headers or ()}
                elif isinstance(event, h2.events.DataReceived):
                    self.received += event.data or b""

    def flush(self) -> None:
        self.socket.sendall(self.http.data_to_send())

    def say(self, data: bytes, piece: int = 16384) -> None:
        """Send data as soon as the other side has room for it, in frames of its own."""
        while data:
            self.until(lambda: self.http.local_flow_control_window(1) > 0)
            size = min(piece, self.http.local_flow_control_window(1), len(data))
            self.http.send_data(1, data[:size])
            self.flush()
            data = data[size:]

    def end(self, **trailers: str) -> None:
        self.http.send_headers(
            1, [(name.replace("_", "-"), value) for name, value in trailers.items()], end_stream=True
        )
        self.flush()

    def end_silently(self) -> None:
        self.http.end_stream(1)
        self.flush()

    def reset(self) -> None:
        self.http.reset_stream(1, 8)
        self.flush()

    def go_away(self) -> None:
        self.http.close_connection()
        self.flush()

    def hang_up(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def answer_raw(self, answer: bytes) -> None:
        self.socket.recv(65536)
        self.socket.sendall(answer)
        self.wait_for_the_end()

    def wait_for_the_end(self) -> None:
        with contextlib.suppress(OSError):
            while self.socket.recv(65536):
                pass


def answered(*then: Script) -> Script:
    """Return a script that takes the call and answers it with headers, then does the rest."""

    def script(peer: Peer) -> None:
        peer.begin()
        for step in then:
            step(peer)
        peer.wait_for_the_end()

    return script


@contextlib.contextmanager
def stream_to(
    script: Script, pause_s: float = 0.0, tls: Tls | None = None, path: Path | None = None
) -> Iterator[tuple[Stream, Peer]]:
    peer = Peer(script, server_context(tls) if tls else None, path)
    stream = Stream(peer.endpoint, tls, METHOD, [("hasleader", "true")], pause_s)
    try:
        yield stream, peer
    finally:
        stream.close()
        peer.close()


def all_of(stream: Stream, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += stream.receive()
    return found


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    messages=st.lists(st.binary(max_size=300), min_size=1, max_size=8), piece=st.integers(1, 400)
)
def test_messages_come_whole_and_in_order_however_they_are_cut(messages: list[bytes], piece: int) -> None:
    with stream_to(answered(lambda peer: peer.say(b"".join(map(framed, messages)), piece))) as (stream, _):
        assert all_of(stream, len(messages)) == messages


def test_the_call_is_as_grpc_says() -> None:
    with stream_to(answered(lambda peer: peer.say(framed(b"yes")))) as (stream, peer):
        assert stream.receive() == [b"yes"]
        wanted = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": b"/a.Service/Method",
            b":authority": peer.endpoint.removeprefix("http://").encode(),
            b"te": b"trailers",
            b"content-type": b"application/grpc",
            b"hasleader": b"true",
        }
        assert peer.headers == wanted


def test_what_is_sent_before_and_while_it_waits_arrives() -> None:
    first, second = framed(b"first"), framed(b"second")

    def script(peer: Peer) -> None:
        peer.begin()
        peer.until(lambda: peer.received == first)
        threading.Timer(0.05, stream.send, [b"second"]).start()
        peer.until(lambda: peer.received == first + second)
        peer.say(framed(b"both"))
        peer.wait_for_the_end()

    with stream_to(script) as (stream, _):
        stream.send(b"first")
        assert stream.receive() == [b"both"]


def test_more_than_the_window_is_let_through() -> None:
    messages = [bytes([number]) * (stream_module.WINDOW // 2) for number in range(5)]

    with stream_to(answered(lambda peer: peer.say(b"".join(map(framed, messages))))) as (stream, _):
        assert all_of(stream, len(messages)) == messages


def test_what_comes_in_a_pause_is_read_at_once() -> None:
    messages = [bytes([number]) for number in range(100)]

    def script(peer: Peer) -> None:
        peer.begin()
        for message in messages:
            peer.say(framed(message))
        peer.wait_for_the_end()

    with stream_to(script, pause_s=0.5) as (stream, _):
        readings: list[list[bytes]] = []
        while sum(map(len, readings)) < len(messages):
            readings.append(stream.receive())
    assert list(itertools.chain(*readings)) == messages
    assert len(readings) < len(messages) / 4


def ended_by(*headers: tuple[str, str]) -> Script:
    """Return a script that answers the call with headers that are the end of it."""

    def script(peer: Peer) -> None:
        peer.begin(*headers, end_stream=True)
        peer.wait_for_the_end()

    return script


ENDINGS: dict[str, tuple[Script, type[EtcdError], str]] = {
    "no leader": (
        ended_by(*STATUS, ("grpc-status", "14"), ("grpc-message", "etcdserver: no leader")),
        Unreachable,
        "etcdserver: no leader",
    ),
    "trailers": (
        answered(lambda peer: peer.end(grpc_status="7", grpc_message="permission%20denied")),
        EtcdError,
        "permission denied",
    ),
    "compacted": (
        answered(lambda peer: peer.end(grpc_status="11", grpc_message="revision has been compacted")),
        Compacted,
        "has been compacted",
    ),
    "unknown status": (answered(lambda peer: peer.end(grpc_status="many")), EtcdError, "it was ended"),
    "status 0": (answered(lambda peer: peer.end(grpc_status="0")), Unreachable, "it was ended"),
    "no status": (answered(Peer.end_silently), Unreachable, "without a reason"),
    "HTTP's status": (ended_by((":status", "502")), Unreachable, "HTTP status 502"),
    "reset": (answered(Peer.reset), Unreachable, "it was reset"),
    "going away": (answered(Peer.go_away), Unreachable, "ends its connections"),
    "closed": (answered(Peer.hang_up), Unreachable, "the connection was closed"),
    "closed at once": (lambda peer: None, Unreachable, ""),
    "no HTTP/2": (lambda peer: peer.answer_raw(bytes(9)), Unreachable, "that is no HTTP/2"),
    "too large": (
        answered(lambda peer: peer.say(struct.pack(">BI", 0, (64 << 20) + 1))),
        Unreachable,
        "a message of 67108865 bytes",
    ),
    "compressed": (
        answered(lambda peer: peer.say(struct.pack(">BI", 1, 3) + b"abc")),
        Unreachable,
        "compressed: True",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_says_why_it_ended(ending: str) -> None:
    script, kind, what = ENDINGS[ending]
    with stream_to(script) as (stream, peer), pytest.raises(EtcdError) as caught:
        while True:
            stream.receive()
    assert type(caught.value) is kind
    assert what in str(caught.value)
    assert peer.endpoint in str(caught.value)


def test_messages_before_the_end_are_given_first() -> None:
    def script(peer: Peer) -> None:
        peer.begin()
        peer.http.send_data(1, framed(b"last words"))
        peer.end(grpc_status="14", grpc_message="stopping")
        peer.wait_for_the_end()

    with stream_to(script) as (stream, _):
        assert stream.receive() == [b"last words"]
        with pytest.raises(Unreachable, match="stopping"):
            stream.receive()


@pytest.mark.parametrize("pause_s", [0.0, HOUR_S], ids=["waiting", "pausing"])
def test_cancel_ends_it(pause_s: float) -> None:
    def script(peer: Peer) -> None:
        peer.begin()
        peer.say(framed(b"first"))
        threading.Timer(0.05, stream.cancel).start()
        with contextlib.suppress(OSError):
            peer.say(framed(b"second")[:5] * bool(pause_s))
            peer.wait_for_the_end()

    with stream_to(script, pause_s) as (stream, _), pytest.raises(Unreachable, match="it was cancelled"):
        while True:
            stream.receive()


def test_cancel_ends_it_before_it_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stream = Stream(f"http://127.0.0.1:{silent.getsockname()[1]}", None, METHOD)
        stream.cancel()
        with pytest.raises(Unreachable, match="it was cancelled"):
            stream.receive()
        stream.close()
        stream.cancel()  # What a watchdog calls that is late.


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    stream = Stream(f"http://127.0.0.1:{port}", None, METHOD)
    with pytest.raises(Unreachable, match=f"http://127.0.0.1:{port}.*Connection refused"):
        stream.receive()
    stream.close()


@pytest.mark.parametrize(
    "endpoint",
    [
        "unix://",
        "ftp://127.0.0.1:21",
        "http://127.0.0.1",
        "127.0.0.1:2379",
        "http://[::1",
        "http://a:client",
        "",
    ],
)
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(EtcdError, match="Write https://ADDRESS:PORT"):
        Stream(endpoint, None, METHOD)


def test_a_socket_of_the_machine_serves_too(tmp_path: Path) -> None:
    script = answered(lambda peer: peer.say(framed(b"yes")))
    with stream_to(script, path=tmp_path / "etcd.sock") as (stream, peer):
        assert stream.receive() == [b"yes"]
        assert peer.headers[b":authority"] == b"localhost"


# -- TLS -------------------------------------------------------------------------------------------


def certified(folder: Path) -> Tls:
    """Make a certificate that stands for authority, member and client."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "member")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir()
    tls = Tls(folder / "ca.crt", folder / "client.crt", folder / "client.key")
    for path in (tls.ca, tls.certificate):
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    tls.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return tls


def server_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    context.load_verify_locations(tls.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    return context


@pytest.mark.parametrize("pause_s", [0.0, 0.001], ids=["at once", "at its pace"])
def test_tls_both_know_each_other(tmp_path: Path, pause_s: float) -> None:
    tls = certified(tmp_path / "tls")
    messages = [bytes([number]) * 300_000 for number in range(9)]

    def script(peer: Peer) -> None:
        assert isinstance(peer.socket, ssl.SSLSocket)
        assert peer.socket.selected_alpn_protocol() == "h2"
        assert peer.socket.getpeercert()
        peer.begin()
        peer.say(b"".join(map(framed, messages)))
        peer.wait_for_the_end()

    with stream_to(script, pause_s, tls) as (stream, _):
        assert all_of(stream, len(messages)) == messages


def test_tls_a_member_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, theirs = certified(tmp_path / "ours"), certified(tmp_path / "theirs")
    peer = Peer(lambda _: None, server_context(theirs))
    stream = Stream(peer.endpoint, ours, METHOD)
    with pytest.raises(Unreachable, match=r"TLS: CERTIFICATE_VERIFY_FAILED"):
        stream.receive()
    stream.close()
    with pytest.raises(ssl.SSLError):
        peer.close()


def test_tls_a_member_that_does_not_shake_hands_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CONNECT_S", 0.05)
    peer = Peer(Peer.wait_for_the_end)
    endpoint = peer.endpoint.replace("http:", "https:")
    stream = Stream(endpoint, certified(tmp_path / "tls"), METHOD)
    with pytest.raises(Unreachable, match="no answer in time"):
        stream.receive()
    stream.close()
    peer.close()


def test_tls_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(EtcdError, match="needs TLS files"):
        Stream("https://127.0.0.1:2379", None, METHOD)
    tls = certified(tmp_path / "tls")
    tls.certificate.write_text("no PEM")
    with pytest.raises(EtcdError, match=r"client\.crt.*must name readable PEM files"):
        Stream("https://127.0.0.1:2379", tls, METHOD)
    tls.certificate.unlink()
    tls.certificate.mkdir()
    with pytest.raises(EtcdError, match=r"cannot read .*client\.crt: Is a directory"):
        Stream("https://127.0.0.1:2379", tls, METHOD)
    tls.certificate.rmdir()
    with pytest.raises(EtcdError, match=r"cannot read .*client\.crt.*must name readable PEM files"):
        Stream("https://127.0.0.1:2379", tls, METHOD)
