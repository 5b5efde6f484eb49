# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One watch stream to one member."""

from __future__ import annotations

from collections.abc import Iterator

from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.channel import Tls
from ironspan.etcd.errors import Compacted, EtcdError
from ironspan.etcd.stream import Stream

REQUIRE_LEADER = (("hasleader", "true"),)
"""Without it a member that is cut off from its cluster keeps the stream open and silent."""


class Watch:
    """A stream of a range's changes from one member, in pieces: etcd cuts large messages.

    One thread iterates. ``request_progress`` and ``cancel`` may be called by any other thread;
    ``cancel`` ends the iteration. Nothing is read ahead of the reader but what fits the stream's window, so
    a slow reader slows the member's stream and not the member.

    Args:
        endpoint: the member's URL.
        tls: needed for https.
        start_revision: the first revision to see; 0 for what comes from now on.
        key: first key of the range.
        range_end: its end.
        pause_s: see ``Stream``.

    Raises:
        EtcdError: the endpoint is no URL, or a TLS file is missing or cannot be read.
    """

    def __init__(
        self,
        endpoint: str,
        tls: Tls | None,
        start_revision: int,
        key: bytes,
        range_end: bytes,
        pause_s: float = 0.0,
    ) -> None:
        self.endpoint = endpoint
        create = rpc.WatchCreateRequest(
            key=key,
            range_end=range_end,
            start_revision=start_revision,
            progress_notify=True,
            fragment=True,
        )
        self._stream = Stream(endpoint, tls, "etcdserverpb.Watch/Watch", REQUIRE_LEADER, pause_s)
        self._request(rpc.WatchRequest(create_request=create))

    def __iter__(self) -> Iterator[rpc.WatchResponse]:
        """Yield the responses: first the one with ``created``, then events and progress.

        Raises:
            Compacted: the start revision is gone.
            Unreachable: the stream broke or was cancelled; another member may serve.
            EtcdError: etcd ended the watch for another reason.
        """
        try:
            while True:
                for message in self._stream.receive():
                    response = rpc.WatchResponse.FromString(message)
                    if error := self._end_in(response):
                        raise error
                    yield response
        finally:
            self._stream.close()

    def _end_in(self, response: rpc.WatchResponse) -> EtcdError | None:
        if revision := response.compact_revision:
            message = f"{self.endpoint}: the history before revision {revision} is gone."
            return Compacted(message, compact_revision=revision, endpoint=self.endpoint)
        if response.canceled:
            message = f"{self.endpoint}: the watch was ended: {response.cancel_reason}."
            return EtcdError(message, endpoint=self.endpoint)
        return None

    def _request(self, request: rpc.WatchRequest) -> None:
        self._stream.send(request.SerializeToString())

    def request_progress(self) -> None:
        """Ask the member for a response with its revision, once all before it was sent."""
        self._request(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))

    def cancel(self) -> None:
        """End the stream."""
        self._stream.cancel()
