# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Calls to etcd: the store's keys, leases, and the maintenance of members."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Iterator

import grpc

from ironspan.etcd import rpc_pb2 as rpc
from ironspan.etcd.calls import Calls
from ironspan.etcd.channel import translated
from ironspan.etcd.errors import Unreachable
from ironspan.etcd.watch import Watch

ALL = b"\0"
"""As key and as end of a range: every key."""


def prefix_end(prefix: bytes) -> bytes:
    """Return the end of the range of all keys that begin with a prefix."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else ALL


class EtcdClient(Calls):
    """A client of one cluster. Any thread may call it; ``close`` ends everything that it runs.

    Calls without ``endpoint`` ask the members in order until one answers. Only what changes nothing is
    asked of another member after the first may have done it: a write whose outcome is unknown raises
    ``Unreachable``. Arguments of the constructor: see ``Calls``.
    """

    # -- keys --------------------------------------------------------------------------------------

    def range(
        self,
        key: bytes,
        range_end: bytes = b"",
        *,
        revision: int = 0,
        limit: int = 0,
        keys_only: bool = False,
        count_only: bool = False,
        serializable: bool = False,
        endpoint: str | None = None,
        timeout: float | None = None,
    ) -> rpc.RangeResponse:
        """Read a key or a range of keys at one revision (0: now).

        Raises:
            Compacted: the revision is gone.
            EtcdError: etcd refuses or none answers.
        """
        request = rpc.RangeRequest(
            key=key,
            range_end=range_end,
            revision=revision,
            limit=limit,
            keys_only=keys_only,
            count_only=count_only,
            serializable=serializable,
        )
        return self._read("KV/Range", request, rpc.RangeResponse, endpoint, timeout)

    def header(self, *, endpoint: str | None = None, timeout: float | None = None) -> rpc.ResponseHeader:
        """Return the cluster's id and its revision, by a read that sees every acknowledged write.

        Raises:
            EtcdError: etcd refuses or none answers.
        """
        return self.range(ALL, limit=1, keys_only=True, endpoint=endpoint, timeout=timeout).header

    def pages(
        self,
        key: bytes = ALL,
        range_end: bytes = ALL,
        *,
        revision: int = 0,
        page: int = 500,
        keys_only: bool = False,
        endpoint: str | None = None,
    ) -> Iterator[rpc.RangeResponse]:
        """Read a range of any size at one revision, ``page`` keys at a time.

        Yields:
            The pages in the keys' order; ``header.revision`` of the first is the revision of all when
            none is asked for.
        """
        while True:
            answer = self.range(
                key, range_end, revision=revision, limit=page, keys_only=keys_only, endpoint=endpoint
            )
            yield answer
            if not answer.more:
                return
            revision = revision or answer.header.revision
            key = answer.kvs[-1].key + b"\0"

    def put(
        self, key: bytes, value: bytes, *, lease: int = 0, endpoint: str | None = None
    ) -> rpc.PutResponse:
        """Write one key."""
        request = rpc.PutRequest(key=key, value=value, lease=lease)
        return self._write("KV/Put", request, rpc.PutResponse, endpoint)

    def delete(
        self, key: bytes, range_end: bytes = b"", *, endpoint: str | None = None
    ) -> rpc.DeleteRangeResponse:
        """Delete a key or a range of keys, in one revision."""
        request = rpc.DeleteRangeRequest(key=key, range_end=range_end)
        return self._write("KV/DeleteRange", request, rpc.DeleteRangeResponse, endpoint)

    def txn(
        self, request: rpc.TxnRequest, *, endpoint: str | None = None, timeout: float | None = None
    ) -> rpc.TxnResponse:
        """Run one transaction; what it writes is one revision."""
        return self._write("KV/Txn", request, rpc.TxnResponse, endpoint, timeout)

    def compact(
        self, revision: int, *, physical: bool = False, timeout: float | None = None
    ) -> rpc.CompactionResponse:
        """Forget the history before a revision; ``physical`` waits until the space is free.

        Raises:
            Compacted: it is forgotten already.
        """
        request = rpc.CompactionRequest(revision=revision, physical=physical)
        return self._write("KV/Compact", request, rpc.CompactionResponse, None, timeout)

    # -- leases ------------------------------------------------------------------------------------

    def lease_grant(
        self, ttl_s: int, lease: int = 0, *, endpoint: str | None = None
    ) -> rpc.LeaseGrantResponse:
        """Make a lease, with an id of etcd's choice when ``lease`` is 0."""
        request = rpc.LeaseGrantRequest(TTL=ttl_s, ID=lease)
        return self._write("Lease/LeaseGrant", request, rpc.LeaseGrantResponse, endpoint)

    def lease_revoke(self, lease: int, *, endpoint: str | None = None) -> rpc.LeaseRevokeResponse:
        """End a lease; its keys are deleted in one revision."""
        request = rpc.LeaseRevokeRequest(ID=lease)
        return self._write("Lease/LeaseRevoke", request, rpc.LeaseRevokeResponse, endpoint)

    def lease_time_to_live(
        self, lease: int, *, keys: bool = False, timeout: float | None = None
    ) -> rpc.LeaseTimeToLiveResponse:
        """Ask for a lease's time; ``TTL`` is -1 when the lease is gone."""
        request = rpc.LeaseTimeToLiveRequest(ID=lease, keys=keys)
        return self._read("Lease/LeaseTimeToLive", request, rpc.LeaseTimeToLiveResponse, None, timeout)

    def lease_ids(self, timeout: float | None = None) -> tuple[int, set[int]]:
        """Return etcd's revision and the ids of all leases."""
        answer = self._read(
            "Lease/LeaseLeases", rpc.LeaseLeasesRequest(), rpc.LeaseLeasesResponse, None, timeout
        )
        return answer.header.revision, {lease.ID for lease in answer.leases}

    def leases(self, *, timeout: float | None = None) -> set[int]:
        """Return the ids of all leases."""
        return self.lease_ids(timeout)[1]

    def lease_times(self, leases: Iterable[int], timeout: float | None = None) -> dict[int, int]:
        """Ask for the granted seconds of many leases at once; -1 for one that is gone.

        Args:
            leases: their ids.
            timeout: seconds that each member has, one after the other until all are known.

        Returns:
            By lease; those that no member told are missing.
        """
        found: dict[int, int] = {}
        missing = set(leases)
        for endpoint in self.ordered():
            if not missing:
                break
            call: t.Any = self._channels.get(endpoint).unary_unary(
                "/etcdserverpb.Lease/LeaseTimeToLive",
                request_serializer=rpc.LeaseTimeToLiveRequest.SerializeToString,
                response_deserializer=rpc.LeaseTimeToLiveResponse.FromString,
            )
            asked = {
                lease: call.future(rpc.LeaseTimeToLiveRequest(ID=lease), timeout=timeout or self.timeout)
                for lease in missing
            }
            for lease, answer in asked.items():
                if problem := answer.exception():
                    self._noted(translated(problem, endpoint, "Lease/LeaseTimeToLive"))
                    continue
                found[lease] = -1 if answer.result().TTL < 0 else answer.result().grantedTTL
            missing -= found.keys()
        return found

    # -- members -----------------------------------------------------------------------------------

    def members(self, *, linearizable: bool = True, endpoint: str | None = None) -> list[rpc.Member]:
        """Return the members; without ``linearizable`` as the asked one knows them, quorum or not."""
        request = rpc.MemberListRequest(linearizable=linearizable)
        answer = self._read("Cluster/MemberList", request, rpc.MemberListResponse, endpoint)
        return list(answer.members)

    def status(self, endpoint: str, timeout: float | None = None) -> rpc.StatusResponse:
        """Return one member's version, sizes in bytes, leader, and raft positions."""
        return self._read("Maintenance/Status", rpc.StatusRequest(), rpc.StatusResponse, endpoint, timeout)

    def hash_kv(self, endpoint: str, revision: int = 0, timeout: float | None = None) -> rpc.HashKVResponse:
        """Return one member's hash of all keys up to a revision (0: its latest).

        Raises:
            Compacted: the revision is gone.
        """
        request = rpc.HashKVRequest(revision=revision)
        return self._read("Maintenance/HashKV", request, rpc.HashKVResponse, endpoint, timeout)

    def defragment(self, endpoint: str, timeout: float = 300) -> rpc.DefragmentResponse:
        """Rewrite one member's file without its free pages; the member serves nothing meanwhile."""
        return self._write(
            "Maintenance/Defragment", rpc.DefragmentRequest(), rpc.DefragmentResponse, endpoint, timeout
        )

    def move_leader(self, endpoint: str, target: int) -> rpc.MoveLeaderResponse:
        """Ask the leader, which must be at ``endpoint``, to hand over to the member with an id."""
        request = rpc.MoveLeaderRequest(targetID=target)
        return self._write("Maintenance/MoveLeader", request, rpc.MoveLeaderResponse, endpoint)

    def alarms(self, *, endpoint: str | None = None) -> list[rpc.AlarmMember]:
        """Return the alarms that are raised."""
        return list(self._read("Maintenance/Alarm", rpc.AlarmRequest(), rpc.AlarmResponse, endpoint).alarms)

    def set_alarm(self, member: int, alarm: rpc.AlarmType, *, active: bool) -> None:
        """Raise or clear one alarm of one member."""
        action = rpc.AlarmRequest.ACTIVATE if active else rpc.AlarmRequest.DEACTIVATE
        request = rpc.AlarmRequest(action=action, memberID=member, alarm=alarm)
        self._write("Maintenance/Alarm", request, rpc.AlarmResponse)

    def downgrade(
        self, action: rpc.DowngradeRequest.DowngradeAction, version: str = ""
    ) -> rpc.DowngradeResponse:
        """Validate, enable or cancel the downgrade to a version such as ``3.6.0``."""
        request = rpc.DowngradeRequest(action=action, version=version)
        return self._write("Maintenance/Downgrade", request, rpc.DowngradeResponse)

    # -- streams -----------------------------------------------------------------------------------

    def snapshot(self, endpoint: str, timeout: float = 3600) -> Iterator[bytes]:
        """Stream one member's database; works without quorum.

        Yields:
            Its bytes in order; the last 32 are the SHA-256 of all before.

        Raises:
            EtcdError: the stream broke; what came before is not a snapshot.
        """
        method: Callable[..., t.Any] = self._channels.get(endpoint).unary_stream(
            "/etcdserverpb.Maintenance/Snapshot",
            request_serializer=rpc.SnapshotRequest.SerializeToString,
            response_deserializer=rpc.SnapshotResponse.FromString,
        )
        stream = method(rpc.SnapshotRequest(), timeout=timeout)
        remaining = -1
        try:
            for part in stream:
                remaining = part.remaining_bytes
                if part.blob:
                    yield part.blob
        except grpc.RpcError as error:
            raise translated(error, endpoint, "Maintenance/Snapshot") from None
        finally:
            stream.cancel()
        if remaining != 0:
            raise Unreachable(f"{endpoint}: the snapshot ended early.", endpoint=endpoint)

    def watch(
        self,
        endpoint: str,
        start_revision: int = 0,
        key: bytes = ALL,
        range_end: bytes = ALL,
        *,
        pause_s: float = 0.0,
    ) -> Watch:
        """Watch a range at one member, on a connection of its own; see ``Watch``."""
        return Watch(endpoint, self._channels.tls, start_revision, key, range_end, pause_s)
