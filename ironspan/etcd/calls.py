# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How a client of a cluster asks: one member, or one after the other."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Sequence

import grpc
from google.protobuf.message import Message

from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.channel import Channels, Tls, translated
from ironspan.etcd.errors import EtcdError, Unreachable

TIMEOUT = 5.0
AVOID_S = 10.0
"""How long a member that did not answer is asked last."""

Answer = t.TypeVar("Answer", bound=Message)


class Calls:
    """Connections to the members of one cluster, and the ways to ask them. Any thread may call it.

    Args:
        endpoints: URLs of members, the preferred one first.
        tls: needed for https endpoints.
        timeout: seconds that a call may take at one member.
    """

    def __init__(self, endpoints: Sequence[str], tls: Tls | None = None, timeout: float = TIMEOUT) -> None:
        if not endpoints:
            raise EtcdError("no etcd endpoint is given.", "Name at least one.")
        self.endpoints = tuple(endpoints)
        self.timeout = timeout
        self._channels = Channels(tls)
        self._silent: dict[str, float] = {}

    def close(self) -> None:
        """End every connection."""
        self._channels.close()

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- one call ----------------------------------------------------------------------------------

    def _ask(
        self, method: str, request: Message, answer: type[Answer], endpoint: str, timeout: float | None
    ) -> Answer:
        call: t.Any = self._channels.get(endpoint).unary_unary(
            f"/etcdserverpb.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return t.cast("Answer", call(request, timeout=timeout or self.timeout))
        except grpc.RpcError as error:
            raise self._noted(translated(error, endpoint, method)) from None

    def _noted(self, error: EtcdError) -> EtcdError:
        if isinstance(error, Unreachable):
            self._silent[error.endpoint] = time.monotonic()
        return error

    def ordered(self) -> list[str]:
        """Return the endpoints, those that did not answer a short time ago behind the others."""
        since = time.monotonic() - AVOID_S
        return sorted(self.endpoints, key=lambda endpoint: self._silent.get(endpoint, since) > since)

    def _read(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        endpoint: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        endpoints = [endpoint] if endpoint else self.ordered()
        for candidate in endpoints[:-1]:
            try:
                return self._ask(method, request, answer, candidate, timeout)
            except Unreachable:
                continue
        return self._ask(method, request, answer, endpoints[-1], timeout)

    def _write(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        endpoint: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Ask the first member that can be connected to, once."""
        chosen = endpoint or self.first_reachable()
        return self._ask(method, request, answer, chosen, timeout)

    def first_reachable(self) -> str:
        """Return the first endpoint that answers at all.

        Raises:
            Unreachable: none does.
        """
        if len(self.endpoints) == 1:
            return self.endpoints[0]
        problem: Unreachable | None = None
        for endpoint in self.ordered():
            try:
                self._ask("Maintenance/Status", rpc.StatusRequest(), rpc.StatusResponse, endpoint, None)
            except Unreachable as error:
                problem = problem or error
            else:
                return endpoint
        raise problem or Unreachable("no etcd endpoint answers.")
