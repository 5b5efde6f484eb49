# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Grants requests for access that enough people approved, and takes grants away when their time is over.

Runs on every control plane, against the API server of its own host, and keeps nothing: a pass reads all
requests and all bindings made for them and does what is due. Several of these programs need no leader: who
writes "Granted" into a request first makes its binding, any of them if that one was stopped in between, and
what ended can be removed twice. `boundAt` says that a binding was made: taken away it stays away.

Usage: controller.py SETTINGS [--once]
"""

from __future__ import annotations

import datetime
import http.client
import os
import re
import signal
import sys
import threading
import typing as t
from urllib.parse import quote

from ansible_collections.ironspan.hybrid.plugins.module_utils._programs._api import Cluster, Refused
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs._settings import (
    Section,
    Unusable,
    settings_in,
)

Object = t.Dict[str, t.Any]
GROUP = "access.ironspan.io"
USER = "ironspan:access-controller"
LABEL = GROUP + "/request"
PREFIX = "ironspan-access-"
_KIND = {"apiVersion": GROUP + "/v1", "kind": "AccessRequest"}
_RBAC = "rbac.authorization.k8s.io"
_REQUESTS = f"/apis/{GROUP}/v1/accessrequests"
_BINDINGS = {"RoleBinding": "rolebindings", "ClusterRoleBinding": "clusterrolebindings"}
_UNBOUND_SECONDS = 60
"""A binding that was made just now may not be seen yet, and what hinders one for longer stays."""
_YEAR_SECONDS = 366 * 86400
_SERVER = re.compile(r"https://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_UTC = datetime.timezone.utc  # noqa: UP017


class Settings(t.NamedTuple):
    """What the site says.

    Args:
        server: https://HOST:PORT of the API server.
        ca, certificate, key: files.
        roles: approvals that a request for each role needs.
        wait_seconds: after which a request that nobody approved is over.
        keep_seconds: how long requests that are over can be read.
        pass_seconds: between two passes.
        alive: file that is touched after every whole pass; none when empty.
    """

    server: str
    ca: str
    certificate: str
    key: str
    roles: t.Mapping[str, int]
    wait_seconds: int = 86400
    keep_seconds: int = 30 * 86400
    pass_seconds: float = 10
    alive: str = ""


def settings_of(top: Section) -> Settings:
    """Return what the settings file says."""
    return Settings(
        server=top.text("server", _SERVER, "https://ADDRESS:PORT"),
        ca=top.path("ca"),
        certificate=top.path("certificate"),
        key=top.path("key"),
        roles=top.section("roles").numbers(1, 16),
        wait_seconds=top.number("wait_seconds", 86400, 1, _YEAR_SECONDS),
        keep_seconds=top.number("keep_seconds", 30 * 86400, 0, 10 * _YEAR_SECONDS),
        pass_seconds=top.number("pass_seconds", 10, 1, 3600),
        alive=top.path("alive", default=""),
    )


class Action(t.NamedTuple):
    """A request to the API that is due, why, and what follows when it succeeded, or when it was refused."""

    method: str
    path: str
    body: t.Optional[Object]
    why: str
    then: t.Optional[Action] = None
    otherwise: t.Optional[Action] = None


def binding_of(request: Object) -> Object:
    """Return the binding that a granted request stands for."""
    metadata, spec, status = request["metadata"], request["spec"], request["status"]
    namespace = spec.get("namespace", "")
    made: Object = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {
            "name": PREFIX + metadata["name"],
            "labels": {"app.kubernetes.io/managed-by": "ironspan", LABEL: metadata["name"]},
            "annotations": {
                f"{GROUP}/requested-by": spec["user"],
                f"{GROUP}/reason": spec["reason"],
                f"{GROUP}/approved-by": ", ".join(status.get("approvals", ())),
                f"{GROUP}/expires": status.get("expiresAt", ""),
                f"{GROUP}/request-uid": metadata["uid"],
            },
            # The garbage collector takes the binding away when somebody deletes the request.
            "ownerReferences": [{**_KIND, "name": metadata["name"], "uid": metadata["uid"]}],
        },
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": spec["role"]},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": spec["user"]}],
    }
    if namespace:
        made["metadata"]["namespace"] = namespace
    return made


def decide(
    requests: t.Sequence[Object], bindings: t.Sequence[Object], settings: Settings, now: datetime.datetime
) -> t.List[Action]:
    """Return what is due, removals first.

    Args:
        requests: all requests.
        bindings: all bindings with the label of requests; each has its ``kind``.
        settings: what the site says.
        now: the time, with time zone.
    """
    staying = [item for item in requests if not item["metadata"].get("deletionTimestamp")]
    live = {item["metadata"]["uid"]: item for item in staying}
    due, bound = [], set()
    for binding in bindings:
        uid = binding["metadata"].get("annotations", {}).get(f"{GROUP}/request-uid", "")
        reason = _unjustified(binding, live.get(uid), now)
        if reason:
            due.append(Action("DELETE", _path_of(binding), None, reason))
        else:
            bound.add(uid)
    for uid, request in live.items():
        action = _next_step(request, uid in bound, settings, now)
        if action:
            due.append(action)
    return due


def _unjustified(binding: Object, request: t.Optional[Object], now: datetime.datetime) -> str:
    """Return why a binding must go; empty when it may stay."""
    if request is None:
        return "its request is gone"
    status = request.get("status", {})
    if status.get("state") != "Granted":
        return f"its request is {status.get('state') or 'not granted'}"
    expected = binding_of(request)
    if any(binding.get(part) != expected[part] for part in ("kind", "roleRef", "subjects")):
        return "it is not what was approved"
    return "its time is over" if now >= _time(status.get("expiresAt")) else ""


def _next_step(
    request: Object, is_bound: bool, settings: Settings, now: datetime.datetime
) -> t.Optional[Action]:
    status, spec = request.get("status", {}), request["spec"]
    state, made = status.get("state", ""), _time(request["metadata"]["creationTimestamp"])
    if state == "Granted":
        if now >= _time(status.get("expiresAt")):
            return _ended(request, "Expired", "its time is over")
        return _keep_bound(request, is_bound, now)
    if state:
        if (now - max(made, _time(status.get("expiresAt")))).total_seconds() > settings.keep_seconds:
            return Action("DELETE", _path_of(request), None, "it has been over for long")
        return None
    if spec["role"] not in settings.roles:
        return _ended(request, "Refused", f"{spec['role']} is not among the roles that can be asked for")
    approvals = {name for name in status.get("approvals", ()) if name != spec["user"]}
    if len(approvals) >= settings.roles[spec["role"]]:
        return _grant(request, now)
    if (now - made).total_seconds() > settings.wait_seconds:
        return _ended(request, "Expired", "it was not approved in time")
    return None


def _grant(request: Object, now: datetime.datetime) -> Action:
    """Claim the request by writing its end into it, then bind; the API refuses the second who claims it."""
    expires = _text(now + datetime.timedelta(seconds=int(request["spec"]["seconds"])))
    claim = {"state": "Granted", "grantedAt": _text(now), "expiresAt": expires}
    bind = _bind({**request, "status": {**request["status"], **claim}}, now)
    return _written(request, claim, "enough people approved it", bind)


def _bind(request: Object, now: datetime.datetime, otherwise: t.Optional[Action] = None) -> Action:
    """Make the binding of a request that is granted, and write down that it was made."""
    spec, binding = request["spec"], binding_of(request)
    where, expires = spec.get("namespace") or "the whole cluster", request["status"]["expiresAt"]
    why = f"granted {spec['role']} to {spec['user']} in {where} until {expires}"
    noted = _written(request, {"boundAt": _text(now)}, "its binding is there")
    return Action("POST", _path_of(binding).rpartition("/")[0], binding, why, noted, otherwise)


def _keep_bound(request: Object, is_bound: bool, now: datetime.datetime) -> t.Optional[Action]:
    """Write down that the binding was made; make it if it never was, and end what somebody took away."""
    status, made = request["status"], request["status"].get("boundAt")
    if is_bound:
        return None if made else _written(request, {"boundAt": _text(now)}, "its binding is there")
    is_new = (now - _time(made or status.get("grantedAt"))).total_seconds() <= _UNBOUND_SECONDS
    if made:
        return None if is_new else _ended(request, "Revoked", "its binding was taken away")
    given_up = None if is_new else _ended(request, "Revoked", "its binding could not be made")
    return _bind(request, now, given_up)


def _ended(request: Object, state: str, why: str) -> Action:
    return _written(request, {"state": state, "message": why}, f"{state}: {why}")


def _written(request: Object, changes: Object, why: str, then: t.Optional[Action] = None) -> Action:
    """Change the status of a request as it was read."""
    body = {**request, **_KIND, "status": {**request.get("status", {}), **changes}}
    return Action("PUT", _path_of(request) + "/status", body, why, then)


def _path_of(item: Object) -> str:
    name, namespace = quote(item["metadata"]["name"]), item["metadata"].get("namespace")
    if item.get("kind") not in _BINDINGS:
        return f"{_REQUESTS}/{name}"
    space = f"namespaces/{quote(namespace)}/" if namespace else ""
    return f"/apis/{_RBAC}/v1/{space}{_BINDINGS[item['kind']]}/{name}"


def _time(text: t.Any) -> datetime.datetime:
    """Read a time of the API; what cannot be read has been over for ever."""
    try:
        read = datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return datetime.datetime.min.replace(tzinfo=_UTC)
    return read if read.tzinfo else read.replace(tzinfo=_UTC)


def _text(time: datetime.datetime) -> str:
    return time.astimezone(_UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def one_pass(cluster: Cluster, settings: Settings, now: datetime.datetime) -> int:
    """Do everything that is due.

    Returns:
        How much of it failed; it is tried again by the next pass.

    Raises:
        Refused, OSError: what there is could not be read.
    """
    # Bindings first: one made between the two readings is not seen, rather than seen without its request.
    bindings = [
        {**item, "kind": kind}
        for kind, resource in _BINDINGS.items()
        for item in cluster.every(f"/apis/{_RBAC}/v1/{resource}", labelSelector=LABEL)
    ]
    due = decide(cluster.every(_REQUESTS), bindings, settings, now)
    return sum(_done(cluster, action) for action in due)


def _done(cluster: Cluster, action: Action, version: str = "") -> int:
    """Do one thing and what follows, on the version of the request that this pass wrote; returns failures."""
    name, body = action.path.rpartition("/apis/")[2], action.body
    if version and body and action.method == "PUT":
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
    try:
        answer = cluster.ask(action.method, action.path, body)
    except Refused as error:
        # Somebody else was faster, with the same thing in mind.
        if error.status == 409 or (error.status == 404 and action.method != "POST"):
            return 0
        print(f"<3>{action.method} {name} failed: {error}", flush=True)
        return _done(cluster, action.otherwise) if action.otherwise else 1
    print(f"{action.method} {name}: {action.why}", flush=True)
    version = answer["metadata"]["resourceVersion"] if action.method == "PUT" else version
    return _done(cluster, action.then, version) if action.then else 0


def main(arguments: t.Sequence[str]) -> int:
    """Run passes until told to end; 2 when the settings cannot be used."""
    try:
        settings = settings_in(arguments[0], settings_of)
    except Unusable as error:
        for problem in error.problems:
            print(f"<3>{arguments[0]}: {problem}", flush=True)
        return 2
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while True:
        failures = 1
        try:
            # Read again each time: the certificate may have been renewed.
            cluster = Cluster(settings)
            failures = one_pass(cluster, settings, datetime.datetime.now(_UTC))
        except (Refused, OSError, http.client.HTTPException, ValueError) as error:
            print(f"<4>the API cannot be read: {error}", flush=True)
        if not failures and settings.alive:
            with open(settings.alive, "a", encoding="utf-8"):
                os.utime(settings.alive)
        if "--once" in arguments:
            return min(failures, 1)
        if ended.wait(settings.pass_seconds):
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
