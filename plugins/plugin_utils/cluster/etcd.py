# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks every etcd member how it is, over its own client port, and says whether they are one healthy cluster.

etcd answers the same calls as JSON over HTTPS (its gRPC gateway), so no etcdctl is needed. A member that
answers /health alone may be in another cluster or hold other data; so cluster id, leader, alarms and the hash
of all keys are compared too.
"""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import ssl
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence

PORT = 2379
_PARALLEL = 8
_HEALTH = "/health?exclude=NOSPACE&exclude=CORRUPT"
"""Alarms are asked for apart: with one raised all members would say that they are not healthy, and none could
be replaced."""
_TIMEOUT_SECONDS = 10
ELECTION_SECONDS = 20.0
"""How long members may be without a leader after theirs went: some election timeouts."""


class Member(t.NamedTuple):
    """What one member says of itself. ``error`` is set when it could not be asked, the rest is empty then."""

    name: str
    address: str
    error: str = ""
    healthy: bool = False
    cluster: str = ""
    member: str = ""
    leader: str = ""
    version: str = ""
    revision: int = 0
    database_bytes: int = 0
    alarms: tuple[str, ...] = ()
    learner: bool = False
    listed: tuple[str, ...] = ()
    hash: str = ""
    learners: tuple[str, ...] = ()
    used_bytes: int = 0
    quota_bytes: int = 0


def ask_members(addresses: Mapping[str, str], context: ssl.SSLContext, port: int = PORT) -> list[Member]:
    """Ask all members at once.

    Args:
        addresses: member name -> IP address (which must be in its certificate).
        context: trusts the etcd authority and shows a client certificate.
        port: of all members.

    Returns:
        One answer a member; never raises for a member that does not answer.
    """
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        members = list(pool.map(lambda name: _ask(name, addresses[name], context, port), addresses))
        # Hashes can be compared at one revision only: the lowest, which all have reached.
        reached = [member.revision for member in members if not member.error]
        revision = min(reached, default=0)
        return list(pool.map(lambda member: _with_hash(member, revision, context, port), members))


def ask_settled(addresses: Mapping[str, str], context: ssl.SSLContext, port: int = PORT) -> list[Member]:
    """Ask all members, and again while they elect a leader: a minute later nobody would find anything wrong.

    Members without a quorum elect for ever, and are waited for ``ELECTION_SECONDS``. Arguments and answers
    are those of ``ask_members``.
    """
    return settled(lambda: ask_members(addresses, context, port), lambda members: not electing(members))


def settled(ask: Callable[[], list[Member]], is_settled: Callable[[Sequence[Member]], bool]) -> list[Member]:
    """Ask until the answers are settled, or for as long as an election may take; return the last ones."""
    end = time.monotonic() + ELECTION_SECONDS
    while not is_settled(members := ask()) and time.monotonic() < end:
        time.sleep(0.5)
    return members


def electing(members: Sequence[Member]) -> bool:
    """Tell whether those of a cluster that answer have no leader, or have heard of different ones."""
    answered = [member for member in members if not member.error]
    leaders = {(member.cluster, member.leader) for member in answered}
    return len(leaders) > len({member.cluster for member in answered}) or any(
        leader in ("", "0") for _, leader in leaders
    )


def problems(members: Sequence[Member], version: str = "") -> list[str]:
    """Say what is wrong.

    Args:
        members: all answers.
        version: the version all must have, "" for any.

    Returns:
        One sentence a problem, empty when all is well.
    """
    return list(_problems(members, version))


def _problems(members: Sequence[Member], version: str) -> Iterator[str]:
    answered = [member for member in members if not member.error]
    for member in members:
        if member.error:
            yield f"{member.name} at {member.address} does not answer: {member.error}"
    for member in answered:
        if not member.healthy:
            yield f"{member.name} says it is not healthy"
        for alarm in member.alarms:
            yield f"{member.name} reports the alarm {alarm}"
        if member.learner:
            yield f"{member.name} is a learner"
        if version and member.version != version:
            yield f"{member.name} runs version {member.version}, wanted {version}"
    yield from _differences(answered, len(members))


def _differences(answered: Sequence[Member], count: int) -> Iterator[str]:
    for what, values in (
        ("cluster ids", {member.cluster for member in answered}),
        ("leaders", {member.leader for member in answered}),
        ("contents (hash of all keys at one revision)", _contents(answered)),
    ):
        if len(values) > 1:
            yield f"the members have different {what}: {', '.join(sorted(values))}"
    if any(member.leader in ("", "0") for member in answered):
        yield "there is no leader"
    for member in answered:
        if len(member.listed) != count:
            yield f"{member.name} knows {len(member.listed)} members, the inventory {count}"


def _contents(answered: Sequence[Member]) -> set[str]:
    """Return the hashes of the same revisions that differ.

    Of a revision that was just compacted a member remembers a hash over what was before; one that has started
    since then does not, which says nothing of its data.
    """
    found: dict[str, set[str]] = {}
    for member in answered:
        if member.hash:
            found.setdefault(member.hash.partition("@")[2], set()).add(member.hash)
    return set().union(*(hashes for hashes in found.values() if len(hashes) > 1))


def _ask(name: str, address: str, context: ssl.SSLContext, port: int) -> Member:
    try:
        connection = http.client.HTTPSConnection(address, port, timeout=_TIMEOUT_SECONDS, context=context)
        try:
            health = _call(connection, "GET", _HEALTH)
            status = _call(connection, "POST", "/v3/maintenance/status", {})
            alarms = _call(connection, "POST", "/v3/maintenance/alarm", {"action": "GET"})
            listed = _call(connection, "POST", "/v3/cluster/member/list", {"linearizable": False})
        finally:
            connection.close()
        header = status["header"]
        return Member(
            name,
            address,
            healthy=str(health.get("health")).lower() == "true",
            cluster=hexadecimal(header["cluster_id"]),
            member=hexadecimal(header["member_id"]),
            leader=hexadecimal(status.get("leader", "0")),
            version=str(status["version"]),
            revision=int(header["revision"]),
            database_bytes=int(status.get("dbSize", 0)),
            used_bytes=int(status.get("dbSizeInUse", 0)),
            quota_bytes=int(status.get("dbSizeQuota", 0)),
            alarms=tuple(str(alarm.get("alarm", "?")) for alarm in alarms.get("alarms", ())),
            learner=bool(status.get("isLearner", False)),
            listed=tuple(sorted(hexadecimal(entry["ID"]) for entry in listed.get("members", ()))),
            learners=tuple(
                sorted(hexadecimal(m["ID"]) for m in listed.get("members", ()) if m.get("isLearner"))
            ),
        )
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        return Member(name, address, error=sentence_of(error))


def _with_hash(member: Member, revision: int, context: ssl.SSLContext, port: int) -> Member:
    if member.error or not revision:
        return member
    try:
        connection = http.client.HTTPSConnection(
            member.address, port, timeout=_TIMEOUT_SECONDS, context=context
        )
        try:
            answer = _call(connection, "POST", "/v3/maintenance/hashkv", {"revision": str(revision)})
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError):
        # Compacted away in the meantime, say: no hash is no evidence either way.
        return member
    compacted = answer.get("compact_revision", "0")
    return member._replace(hash=f"{answer.get('hash', '')}@{revision}/{compacted}")


def _call(
    connection: http.client.HTTPSConnection, method: str, path: str, body: object | None = None
) -> dict[str, t.Any]:
    connection.request(
        method,
        path,
        body=None if body is None else json.dumps(body),
        headers={"Content-Type": "application/json"},
    )
    answer = connection.getresponse()
    content = answer.read()
    # It answers 503 with the same JSON when it is not healthy.
    if answer.status != 200 and path != _HEALTH:
        raise ValueError(f"HTTP {answer.status} for {path}")
    return t.cast("dict[str, t.Any]", json.loads(content))


def hexadecimal(number: str | int) -> str:
    """Return an id as etcdctl writes it; the gateway writes decimal digits."""
    return f"{int(number):x}"


def sentence_of(error: Exception) -> str:
    """Return why a member could not be asked, without a full stop."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return f"no answer within {_TIMEOUT_SECONDS} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
