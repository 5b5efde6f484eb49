# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Connections to etcd members: TLS, keepalive, and gRPC's errors in the backup's own words."""

from __future__ import annotations

import dataclasses
import ssl
import threading
from pathlib import Path

import grpc

from ironspan.etcd.errors import Compacted, EtcdError, Unreachable

MESSAGE_MAX = 64 << 20
"""Bytes: larger than etcd's largest request (1.5 MiB unless raised) and than a page of a range."""
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    ("grpc.max_send_message_length", MESSAGE_MAX),
    # A member is reached directly, never through a proxy that the environment names.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    # etcd refuses pings more often than every 5 s (--grpc-keepalive-min-time).
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Two clients of one process do not share connections: a test that cuts one cuts only that one.
    ("grpc.use_local_subchannel_pool", 1),
)
_REMEDY = "The settings below etcd (ca, certificate, key) must name readable PEM files."
_ELSEWHERE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Tls:
    """Files that make a client known to etcd: authorities, certificate and key, in PEM."""

    ca: Path
    certificate: Path
    key: Path

    def stamp(self) -> tuple[int, ...]:
        """Return what changes when a file is replaced.

        Raises:
            EtcdError: a file cannot be read.
        """
        try:
            stats = [path.stat() for path in (self.ca, self.certificate, self.key)]
        except OSError as error:
            raise _unreadable(error) from error
        return tuple(value for stat in stats for value in (stat.st_mtime_ns, stat.st_ino))

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files.

        Raises:
            EtcdError: a file cannot be read.
        """
        ca, certificate, key = self._contents()
        return grpc.ssl_channel_credentials(ca, key, certificate)

    def context(self) -> ssl.SSLContext:
        """Read the files, for a connection that is not grpcio's.

        Raises:
            EtcdError: a file cannot be read, or is no PEM.
        """
        self._contents()  # ssl does not say which one it cannot read.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["h2"])
        try:
            context.load_verify_locations(self.ca)
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            raise EtcdError(f"{self.ca}, {self.certificate} or {self.key}: {error}.", _REMEDY) from error
        return context

    def _contents(self) -> list[bytes]:
        try:
            return [path.read_bytes() for path in (self.ca, self.certificate, self.key)]
        except OSError as error:
            raise _unreadable(error) from error


def parted(endpoint: str, tls: Tls | None) -> tuple[str, str]:
    """Return the scheme of a member's URL and what it leads to.

    Args:
        endpoint: ``https://ADDRESS:PORT``, ``http://ADDRESS:PORT``, or ``unix:///PATH`` of its socket.
        tls: needed for https.

    Raises:
        EtcdError: it is no such URL, or the TLS files are missing.
    """
    scheme, _, target = endpoint.rstrip("/").partition("://")
    if scheme not in ("https", "http", "unix") or not target:
        raise no_endpoint(endpoint)
    if scheme == "https" and tls is None:
        raise EtcdError(f"{endpoint} needs TLS files.", "Give ca, certificate and key.")
    return scheme, target


def no_endpoint(endpoint: str) -> EtcdError:
    """Return the error that says so."""
    return EtcdError(f"{endpoint!r} is no etcd endpoint.", "Write https://ADDRESS:PORT.")


def _unreadable(error: OSError) -> EtcdError:
    return EtcdError(f"cannot read {error.filename}: {error.strerror}.", _REMEDY)


class Channels:
    """One gRPC channel an endpoint, made when first used. Any thread may call it.

    A channel whose TLS files were replaced since it was made is replaced too; calls that run on the old
    one go on.
    """

    def __init__(self, tls: Tls | None) -> None:
        self.tls = tls
        self._made: dict[str, tuple[tuple[int, ...], grpc.Channel]] = {}
        self._lock = threading.Lock()

    def get(self, endpoint: str) -> grpc.Channel:
        """Return the channel to an endpoint.

        Args:
            endpoint: ``https://ADDRESS:PORT``; for a scratch etcd ``http://`` on loopback, or
                ``unix:///PATH`` of its socket.

        Raises:
            EtcdError: the endpoint is no such URL, or a TLS file cannot be read.
        """
        scheme, target = parted(endpoint, self.tls)
        stamp = self.tls.stamp() if self.tls and scheme == "https" else ()
        with self._lock:
            known = self._made.get(endpoint)
            if known and known[0] == stamp:
                return known[1]
            if self.tls and scheme == "https":
                made = grpc.secure_channel(target, self.tls.credentials(), options=OPTIONS)
            else:
                address = f"unix:{target}" if scheme == "unix" else target
                made = grpc.insecure_channel(address, options=OPTIONS)
            self._made[endpoint] = (stamp, made)
            return made

    def close(self) -> None:
        """End every connection, with what runs on it."""
        with self._lock:
            for _, channel in self._made.values():
                channel.close()
            self._made.clear()


def translated(error: grpc.RpcError, endpoint: str, what: str) -> EtcdError:
    """Return gRPC's error as the backup's.

    Args:
        error: what gRPC raised; it is a ``grpc.Call`` too.
        endpoint: the member that was asked.
        what: the call, for the message.
    """
    code = error.code() if isinstance(error, grpc.Call) else None
    details = (error.details() if isinstance(error, grpc.Call) else None) or str(error)
    return problem(code, details, endpoint, what)


def problem(code: grpc.StatusCode | None, details: str, endpoint: str, what: str) -> EtcdError:
    """Return the end of a call as an error of the backup's.

    Args:
        code: gRPC's status code, where there is one.
        details: what the member or gRPC said.
        endpoint: the member that was asked.
        what: the call, for the message.
    """
    message = f"{endpoint}: {what}: {details}."
    if "has been compacted" in details:
        return Compacted(message, endpoint=endpoint)
    kind = Unreachable if code in _ELSEWHERE else EtcdError
    return kind(message, code=code.name if code else "", endpoint=endpoint)
