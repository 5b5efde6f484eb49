# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One watch stream to one member."""

from __future__ import annotations

import queue
import typing as t
from collections.abc import Iterator

import grpc

from ironspan.backup.etcd import rpc_pb2 as rpc
from ironspan.backup.etcd.channel import translated
from ironspan.backup.etcd.errors import Compacted, EtcdError, Unreachable

REQUIRE_LEADER = (("hasleader", "true"),)
"""Without it a member that is cut off from its cluster keeps the stream open and silent."""


class Watch:
    """A stream of a range's changes from one member, in pieces: etcd cuts large messages.

    One thread iterates. ``request_progress`` and ``cancel`` may be called by any other thread;
    ``cancel`` ends the iteration. Nothing is read ahead of the reader but what fits gRPC's window, so a
    slow reader slows the member's stream and not the member.

    Args:
        channel: to the member.
        endpoint: the member's URL, for messages.
        start_revision: the first revision to see; 0 for what comes from now on.
        key: first key of the range.
        range_end: its end.
    """

    def __init__(
        self, channel: grpc.Channel, endpoint: str, start_revision: int, key: bytes, range_end: bytes
    ) -> None:
        self.endpoint = endpoint
        self._requests: queue.SimpleQueue[rpc.WatchRequest | None] = queue.SimpleQueue()
        create = rpc.WatchCreateRequest(
            key=key,
            range_end=range_end,
            start_revision=start_revision,
            progress_notify=True,
            fragment=True,
        )
        self._requests.put(rpc.WatchRequest(create_request=create))
        method: t.Any = channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=rpc.WatchRequest.SerializeToString,
            response_deserializer=rpc.WatchResponse.FromString,
        )
        self._stream = method(iter(self._requests.get, None), metadata=REQUIRE_LEADER)

    def __iter__(self) -> Iterator[rpc.WatchResponse]:
        """Yield the responses: first the one with ``created``, then events and progress.

        Raises:
            Compacted: the start revision is gone.
            Unreachable: the stream broke or was cancelled; another member may serve.
            EtcdError: etcd ended the watch for another reason.
        """
        try:
            for response in self._stream:
                if response.compact_revision:
                    raise Compacted(
                        f"{self.endpoint}: the history before revision {response.compact_revision} is gone.",
                        compact_revision=response.compact_revision,
                        endpoint=self.endpoint,
                    )
                if response.canceled:
                    raise EtcdError(
                        f"{self.endpoint}: the watch was ended: {response.cancel_reason}.",
                        endpoint=self.endpoint,
                    )
                yield response
        except grpc.RpcError as error:
            raise translated(error, self.endpoint, "Watch/Watch") from None
        finally:
            self.cancel()
        raise Unreachable(f"{self.endpoint}: the watch ended.", endpoint=self.endpoint)

    def request_progress(self) -> None:
        """Ask the member for a response with its revision, once all before it was sent."""
        self._requests.put(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))

    def cancel(self) -> None:
        """End the stream."""
        self._requests.put(None)
        self._stream.cancel()
