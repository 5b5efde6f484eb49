# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changes of etcd's membership. Whether one is safe says ``quorum.py``, whose names are here too.

A new member is added as a learner, which has no vote, and is promoted when it has caught up with the leader:
until then its failure costs nothing. The calls are those of etcdctl, as JSON over HTTPS (``etcd.py``).
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import (
    PORT,
    hexadecimal,
    sentence_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.quorum import (
    Quorum,
    QuorumError,
    arithmetic,
    insist,
    quorum,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

__all__ = [
    "Listed",
    "Membership",
    "Quorum",
    "QuorumError",
    "arithmetic",
    "initial_cluster",
    "insist",
    "quorum",
]

PAGE = 200
"""Keys in one answer: values have up to a megabyte each, and a few hundred bytes as a rule."""
TIMEOUT_SECONDS = 10
"""For one call. etcd itself gives a change of membership 5 s and an election time (ReqTimeout)."""
SETTLING_SECONDS = 15.0
"""How long a call is tried again: etcd refuses changes until all members have been connected for 5 s
(HealthInterval), and one that came a moment ago, or whose link was cut for a moment, has not. Between two
calls a leader may go, too."""
PROMOTION_PAUSE_SECONDS = 1.0
PROMOTION_SECONDS = 600.0
"""How long a learner may take to catch up by default: 8 GiB, the largest store, at 15 MB/s."""
_NO_LEARNER = "can only promote a learner member"  # not in sync yet, or promoted, and the answer was lost
_NO_QUORUM = ("request timed out", "no leader", "context deadline exceeded", "leader changed", "for learner")
"""What one member answers that another may not: a learner refuses nearly every call."""
_UNHEALTHY = ("unhealthy cluster", "not enough started members")


class Listed(t.NamedTuple):
    """One member as the cluster lists it. Its client URLs are empty until it has started once."""

    id: str
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    learner: bool

    @property
    def started(self) -> bool:
        """Whether it has ever taken part."""
        return bool(self.client_urls)


def initial_cluster(listed: Sequence[Listed], name: str, peer_url: str) -> str:
    """Return etcd's ``initial-cluster`` for a member that joins what is listed.

    Args:
        listed: all members, the new one among them.
        name: the new member's name, which the list does not have before it has started.
        peer_url: the new member's peer URL.
    """
    parts = []
    for member in listed:
        own = peer_url in member.peer_urls
        # Any name will do for a member that has never started; two of them must not share one.
        parts += [f"{name if own else member.name or member.id}={url}" for url in member.peer_urls]
    return ",".join(sorted(parts))


class Membership:
    """Calls that list and change the members of one cluster.

    Args:
        addresses: name -> IP address of the members that may answer, asked in this order.
        context: trusts the etcd authority and shows a client certificate.
        port: client port of all.
    """

    def __init__(self, addresses: Mapping[str, str], context: ssl.SSLContext, port: int = PORT) -> None:
        self._addresses = dict(addresses)
        self._context = context
        self._port = port

    def listed(self, *, wait: bool = True) -> list[Listed]:
        """Return all members as a quorum knows them.

        Args:
            wait: wait for an election: a quorum has answered a moment ago, and its leader may have gone.

        Raises:
            ClusterError: nobody answers, or there is no quorum.
        """
        call, body = "/v3/cluster/member/list", {"linearizable": True}
        answer = self._patiently(call, body, _Leaderless) if wait else self._call(call, body)
        return [_listed(entry) for entry in answer.get("members", ())]

    def add_learner(self, name: str, peer_url: str) -> list[Listed]:
        """Add a learner unless a member that has never started waits at this URL already.

        Args:
            name: its name, for messages.
            peer_url: its peer URL.

        Returns:
            All members, the new one among them.

        Raises:
            ClusterError: the name or the URL belongs to a member that has started, or etcd refuses.
        """
        listed = self.listed()
        for member in listed:
            if peer_url not in member.peer_urls and member.name != name:
                continue
            if member.started or peer_url not in member.peer_urls:
                raise ClusterError(
                    f"{name} cannot join etcd at {peer_url}: a member {member.name or 'without a name'} "
                    f"with the id {member.id} is listed there ({', '.join(member.peer_urls)}).",
                    "Replace it with playbooks/member_replace.yml, which removes the old entry first.",
                )
            return listed
        waiting = [member for member in listed if member.learner]
        if waiting:
            # etcd takes one learner at a time (--max-learners).
            raise ClusterError(
                f"{name} cannot join etcd: {waiting[0].name or waiting[0].id} is a learner still.",
                "Let it be promoted (run its member_add.yml again) or remove it first.",
            )
        body = {"peerURLs": [peer_url], "isLearner": True}
        return self._change("add", body, lambda now: any(peer_url in member.peer_urls for member in now))

    def promote(
        self,
        identifier: str,
        seconds: float = PROMOTION_SECONDS,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Promote a learner as soon as it is in sync; nothing for one that votes already.

        Args:
            identifier: its id, hexadecimal.
            seconds: how long it may take to catch up.
            progress: told, at most every 10 s, that it is still behind.

        Raises:
            ClusterError: it is not listed, or not in sync in time.
        """
        end = time.monotonic() + seconds
        told = time.monotonic()
        while True:
            member = next((entry for entry in self.listed() if entry.id == identifier), None)
            if member is None:
                raise ClusterError(f"There is no member {identifier} to be promoted.", "Run it again.")
            if not member.learner:
                return
            try:
                self._call("/v3/cluster/member/promote", {"ID": str(int(identifier, 16))})
            except _Leaderless:
                # Done, maybe: as soon as there is a leader again, the list says so.
                if time.monotonic() > end:
                    raise
                time.sleep(PROMOTION_PAUSE_SECONDS)
            except _Refused as error:
                if _NO_LEARNER not in error.reason:
                    raise
                if time.monotonic() > end:
                    raise ClusterError(
                        f"{member.name or identifier} has not caught up with the leader in {seconds:.0f} s.",
                        "It has no vote, so nothing is at risk. Look at its log (journalctl -u etcd), "
                        "its disk and the network, and run this again.",
                    ) from None
                if time.monotonic() - told > 10:
                    told = time.monotonic()
                    progress(f"{member.name or identifier} is catching up with the leader")
                time.sleep(PROMOTION_PAUSE_SECONDS)

    def remove(self, identifier: str) -> bool:
        """Remove a member, and the alarms it had. The caller has done the arithmetic.

        Args:
            identifier: its id, hexadecimal.

        Returns:
            Whether it was there.

        Raises:
            ClusterError: etcd refuses.
        """
        listed = any(member.id == identifier for member in self.listed())
        number = str(int(identifier, 16))
        if listed:
            self._change("remove", {"ID": number}, lambda now: all(member.id != identifier for member in now))
        # etcd keeps the alarm of a member that is gone: after CORRUPT nobody could write any more.
        # The one that left may have been the leader: the others elect one before they answer.
        alarms = self._patiently("/v3/maintenance/alarm", {"action": "GET"}, _Leaderless)
        for alarm in alarms.get("alarms", ()):
            if alarm.get("memberID") == number:
                self._call("/v3/maintenance/alarm", {**alarm, "action": "DEACTIVATE"})
        return listed

    def has_key_below(self, prefix: str) -> bool:
        """Tell whether etcd has any key that begins with ``prefix``."""
        return bool(self._range(prefix.encode(), prefix, 1, keys_only=True))

    def pairs_below(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield all keys that begin with ``prefix`` and their values, read in pages, in the order of keys."""
        start = prefix.encode()
        while found := self._range(start, prefix, PAGE):
            for pair in found:
                yield base64.b64decode(pair["key"]).decode(), base64.b64decode(pair.get("value", ""))
            start = base64.b64decode(found[-1]["key"]) + b"\0"

    def _range(
        self, start: bytes, prefix: str, limit: int, *, keys_only: bool = False
    ) -> list[dict[str, t.Any]]:
        end = prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1])
        body = {
            "key": base64.b64encode(start).decode(),
            "range_end": base64.b64encode(end).decode(),
            "limit": str(limit),
            "keys_only": keys_only,
        }
        return list(self._call("/v3/kv/range", body).get("kvs", ()))

    def _change(self, action: str, body: object, is_done: Callable[[Sequence[Listed]], bool]) -> list[Listed]:
        """Change the membership, as soon as etcd finds that its members are settled; return all members then.

        ``is_done`` tells by them whether a change that failed was done: maybe who was asked first did it and
        went away, and the next one refused what was there already.
        """
        try:
            answer = self._patiently(f"/v3/cluster/member/{action}", body, _Unsettled)
        except ClusterError:
            listed = self.listed()
            if not is_done(listed):
                raise
            return listed
        return [_listed(entry) for entry in answer.get("members", ())]

    def _patiently(self, path: str, body: object, passing: type[ClusterError]) -> dict[str, t.Any]:
        """Call again for a while, as long as it fails for a reason that passes."""
        end = time.monotonic() + SETTLING_SECONDS
        while True:
            try:
                return self._call(path, body)
            except passing:
                if time.monotonic() > end:
                    raise
                time.sleep(PROMOTION_PAUSE_SECONDS)

    def _call(self, path: str, body: object) -> dict[str, t.Any]:
        """Ask the members in turn; an answer, also a refusal, is final."""
        reasons = []
        for name, address in self._addresses.items():
            connection = http.client.HTTPSConnection(
                address, self._port, timeout=TIMEOUT_SECONDS, context=self._context
            )
            try:
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
                if answer.status == 200:
                    return t.cast("dict[str, t.Any]", json.loads(content))
                reason = _reason(content) or f"HTTP {answer.status}"
                if not any(sign in reason for sign in _NO_QUORUM):
                    refused = _Unsettled if _UNHEALTHY[0] in reason else _Refused
                    raise refused(path.rpartition("/")[2], reason)
                reasons.append(f"{name}: {reason}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                reasons.append(f"{name}: {sentence_of(error)}")
            finally:
                connection.close()
        raise _Leaderless(
            f"No etcd member answers with a quorum ({'; '.join(reasons) or 'none is known'}).",
            "Look at etcd on these hosts: systemctl status etcd, journalctl -u etcd.",
        )


class _Refused(ClusterError):
    """etcd said no."""

    def __init__(self, action: str, reason: str) -> None:
        remedy = "Make sure that all members are healthy (playbooks/verify.yml), and run this again."
        if not any(sign in reason for sign in _UNHEALTHY):
            remedy = "Run this again; when it says the same, look at etcd's log (journalctl -u etcd)."
        super().__init__(f"etcd refuses to {action} the member: {reason}.", remedy)
        self.reason = reason


def _listed(entry: Mapping[str, t.Any]) -> Listed:
    return Listed(
        hexadecimal(entry["ID"]),
        str(entry.get("name", "")),
        tuple(entry.get("peerURLs", ())),
        tuple(entry.get("clientURLs", ())),
        bool(entry.get("isLearner", False)),
    )


def _reason(content: bytes) -> str:
    try:
        answer = json.loads(content)
        return str(answer.get("message") or answer.get("error") or "")
    except (ValueError, AttributeError):
        return ""


class _Unsettled(_Refused):
    """etcd said not now: its members have not been connected for long enough."""


class _Leaderless(ClusterError):
    """No member answered that has a leader."""
