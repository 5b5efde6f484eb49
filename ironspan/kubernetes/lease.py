# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Leases of a cluster (coordination.k8s.io/v1), for the leadership of programs; client-go keeps them alike.

Clocks of different hosts are never compared. Whoever waits for a lease watches the object: it has run out
when nothing in it has changed for its seconds, by the clock of who waits. The times in it are for people.

A Lease that is not there says nothing about who holds it: somebody may have deleted it while its holder acts.
Whoever finds none makes one that nobody holds, and only an object that was watched for the lease's seconds
is taken; the first program of a site waits for these, once. There is no wait where a holder was seen to give
it up.
"""

from __future__ import annotations

import datetime
import json
import secrets
import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ApiError,
    ClusterError,
    UnreachableError,
)

from ironspan.program.errors import Forbidden, LeaseLost, NotThere, Refused, ServiceError
from ironspan.program.leader import elapsed

_KIND = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
_ANSWER_SECONDS = 4.0
"""For one answer: a renewal that hangs must leave time for the next one."""
_BUSY = (429, 500, 502, 503, 504)


class _Seen(t.NamedTuple):
    """What was seen of a Lease.

    Args:
        uid: of the object: one that was deleted and made again is another one.
        spec: what it said.
        since: when it was seen to say so first, by the clock of who looks.
        was_held: this very object was seen to have a holder before.
    """

    uid: str
    spec: Object
    since: float
    was_held: bool


class ClusterLeases:
    """The leases of a namespace.

    Args:
        api: the cluster; its identity may get, create and update leases there.
        namespace: which one; it is there.
        clock: seconds, never set back.
    """

    def __init__(self, api: Api, namespace: str, clock: Callable[[], float] = elapsed) -> None:
        self._api, self._namespace, self._clock = api, namespace, clock
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        # Another process of the same name, such as this one's former self, is somebody else.
        self._process = secrets.token_hex(4)
        self._seen: dict[str, _Seen] = {}

    def acquire(self, name: str, seconds: int, holder: str) -> ClusterLease:
        """Take a lease, which is made if it is missing.

        Args:
            name: of the Lease.
            seconds: after these without ``renew`` another may take it.
            holder: who asks, such as the host's name; for messages.

        Raises:
            LeaseLost: another holds it or may hold it, or was faster.
            ServiceError: the API server refuses, or does not answer; then it may be ours all the same.
        """
        me = f"{holder}_{self._process}"
        there = self.find(name) or self.write(name, None, {"leaseDurationSeconds": seconds})
        seen = self._observed(name, there)
        spec, other = seen.spec, _holder(seen.spec)
        free_at = seen.since + (_seconds(spec, seconds) if other else seconds)
        given_up = seen.was_held and not other
        if other != me and not given_up and self._clock() < free_at:
            what = f"the lease {self._namespace}/{name}"
            raise LeaseLost(
                f"{other} has {what}."
                if other
                else f"Who had {what} before is not known; it is taken when nobody has it for {seconds} s."
            )
        changes = int(spec.get("leaseTransitions") or 0) + (other != me)
        now = _now()
        wanted = {
            "holderIdentity": me,
            "leaseDurationSeconds": seconds,
            "acquireTime": spec.get("acquireTime", now) if other == me else now,
            "renewTime": now,
            "leaseTransitions": changes,
        }
        return ClusterLease(self, self.write(name, there, wanted))

    def find(self, name: str) -> Object | None:
        """Return a Lease, None when there is none. Raises ServiceError."""
        try:
            return self._ask("GET", f"{self._folder}/{name}")
        except NotThere:
            return None

    def write(self, name: str, there: Object | None, spec: Object) -> Object:
        """Write a Lease on the version that was read, and return it as it is now.

        Args:
            name: of the Lease.
            there: as it was read; None to make it.
            spec: what it shall say.

        Raises:
            LeaseLost: it is another one by now.
            ServiceError: refused, or no answer; whether it was written is not known then.
        """
        if there is None:
            how = "POST", self._folder, {**_KIND, "metadata": {"name": name}, "spec": spec}
        else:
            # Of the metadata the version too: a write that arrives late finds another one, and is refused.
            how = "PUT", f"{self._folder}/{name}", {**_KIND, "metadata": there["metadata"], "spec": spec}
        written = self._ask(*how)
        self._observed(name, written)
        return written

    def _observed(self, name: str, there: Object) -> _Seen:
        """Return what is seen of a Lease, and since when."""
        uid, spec = str(there["metadata"].get("uid")), there.get("spec") or {}
        before = self._seen.get(name)
        if before is None or before.uid != uid:
            before = self._seen[name] = _Seen(uid, spec, self._clock(), False)
        elif before.spec != spec:
            was_held = before.was_held or bool(_holder(before.spec))
            before = self._seen[name] = _Seen(uid, spec, self._clock(), was_held)
        return before

    def _ask(self, method: str, path: str, body: Object | None = None) -> Object:
        try:
            answer = self._api.request(method, path, body, timeout=_ANSWER_SECONDS, patience=0)
            return t.cast("Object", json.loads(answer))
        except ApiError as error:
            raise _explained(error, method) from error
        except UnreachableError as error:
            raise ServiceError(error.message, error.remedy, retryable=True) from error
        except ClusterError as error:
            raise Refused(error.message, error.remedy) from error
        except ValueError as error:
            raise ServiceError(
                f"{method} {path} was answered with something that is no JSON.", retryable=True
            ) from error


class ClusterLease:
    """A lease that is held.

    Args:
        leases: where it is.
        written: the Lease as it was taken.
    """

    def __init__(self, leases: ClusterLeases, written: Object) -> None:
        self._leases, self._written = leases, written
        # The object's uid too: one that was made again counts from the beginning.
        self.id = "/".join(
            (
                str(self._spec["holderIdentity"]),
                str(written["metadata"].get("uid")),
                str(self._spec["leaseTransitions"]),
            )
        )

    @property
    def _spec(self) -> Object:
        spec: Object = self._written["spec"]
        return spec

    def renew(self) -> None:
        """Hold it for its seconds again. Raises LeaseLost when another took it, or somebody deleted it."""
        self._write({"renewTime": _now()})

    def release(self) -> None:
        """Give it up; a lease that is lost already is no error."""
        try:
            self._write({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()})
        except LeaseLost:
            return

    def _write(self, changes: Object) -> None:
        name = str(self._written["metadata"]["name"])
        try:
            self._written = self._leases.write(name, self._written, {**self._spec, **changes})
        except NotThere:
            raise LeaseLost(f"The lease {name} was deleted.") from None
        except LeaseLost:
            # Its version may be that of a renewal whose answer was lost, or of somebody's label.
            there = self._leases.find(name)
            spec = (there or {}).get("spec") or {}
            mine = ("holderIdentity", "leaseTransitions")
            if there is None or any(spec.get(part) != self._spec[part] for part in mine):
                raise
            self._written = self._leases.write(name, there, {**self._spec, **changes})


def _explained(error: ApiError, method: str) -> ServiceError:
    if error.status == 409:
        return LeaseLost(f"Somebody else was faster: {error.message}")
    if error.status == 404:
        return NotThere(error.message, "Its namespace has to be there." if method == "POST" else "")
    if error.status in (401, 403):
        return Forbidden(error.message, error.remedy or "Bind a role that may get, create and update leases.")
    if error.status in _BUSY:
        return ServiceError(error.message, error.remedy, retryable=True)
    return Refused(error.message, error.remedy)


def _holder(spec: Object) -> str:
    return str(spec.get("holderIdentity") or "")


def _seconds(spec: Object, otherwise: int) -> int:
    """Return for how long a Lease is given, whatever another program wrote there."""
    given = spec.get("leaseDurationSeconds")
    return given if isinstance(given, int) and given > 0 else otherwise


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
