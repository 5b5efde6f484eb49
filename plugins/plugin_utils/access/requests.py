# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What people do with requests for access, each with their own credential: ask, approve, read, end.

Who may do what is decided by the API server (roles/access/objects.yml.j2); nothing here is trusted.
"""

from __future__ import annotations

import datetime
import json
import re
import secrets
import typing as t
import urllib.parse

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError

PATH = "/apis/access.ironspan.io/v1/accessrequests"
_UNITS = {"m": 60, "h": 3600, "d": 86400}
_ATTEMPTS = 5


class Asked(t.NamedTuple):
    """What somebody asks for.

    Args:
        role: name of a ClusterRole.
        reason: what it is needed for.
        seconds: for how long.
        namespace: where; in the whole cluster when empty.
    """

    role: str
    reason: str
    seconds: int
    namespace: str = ""


class Row(t.NamedTuple):
    """A request as it is listed."""

    name: str
    user: str
    role: str
    where: str
    state: str
    approved_by: tuple[str, ...]
    minutes: int
    expires: str
    reason: str


def seconds_of(text: str) -> int:
    """Read a duration such as 30m, 8h or 2d.

    Raises:
        ValueError: it is something else.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,4})([mhd])", text)
    if not match:
        raise ValueError(f"{text!r} is no duration: write for example 30m, 8h or 2d")
    return int(match[1]) * _UNITS[match[2]]


def whoami(api: Api) -> str:
    """Return the name that the API server knows the sender by."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = json.loads(api.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body))
    return str(answer["status"]["userInfo"]["username"])


def ask(api: Api, asked: Asked) -> Object:
    """Make a request in the sender's own name.

    Returns:
        The request as it was made.

    Raises:
        ClusterError: it is refused, with the reason of the policy.
    """
    where = {"namespace": asked.namespace} if asked.namespace else {}
    spec = {
        "user": whoami(api),
        "role": asked.role,
        "reason": asked.reason,
        "seconds": asked.seconds,
        **where,
    }
    # The name is chosen here, so that a request that was lost on the way and is sent again is made once.
    name = f"{datetime.datetime.now(datetime.UTC):%Y%m%d}-{secrets.token_hex(4)}"
    body = {
        "apiVersion": "access.ironspan.io/v1",
        "kind": "AccessRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
    try:
        return dict(json.loads(api.request("POST", PATH, body)))
    except ApiError as error:
        # It may be the answer that was lost: then the client has sent it again, and it is there.
        there = api.find(_path(name)) if error.status == 409 else None
        if there is None or {key: there["spec"].get(key) for key in spec} != spec:
            raise
        return there


def approve(api: Api, seen: Object) -> Object:
    """Add the sender's name to those who approved.

    Args:
        api: the cluster, as the sender.
        seen: the request as the sender has seen it; another one of its name is not approved.

    Raises:
        ClusterError: the request is gone or over, or the API server refuses: one's own, or approved already.
    """
    me, name = whoami(api), str(seen["metadata"]["name"])
    for attempt in range(_ATTEMPTS):
        request = found(api, name)
        if request["metadata"]["uid"] != seen["metadata"]["uid"]:
            raise ClusterError(f"The request {name} is another one by now.", "Look at it again.")
        status = request.get("status", {})
        state = status.get("state")
        if state:
            raise ClusterError(f"The request {name} is {state} already.", "Ask for another one to be made.")
        if attempt and me in status.get("approvals", ()):
            # What another one was faster than was our own, sent again as its answer was lost.
            return request
        request["status"] = {**status, "approvals": [*status.get("approvals", ()), me]}
        try:
            return api.put(f"{_path(name)}/status", request)
        except ApiError as error:
            if error.status != 409:
                raise
    raise ClusterError(f"The request {name} changes all the time.", "Run the command again.")


def revoke(api: Api, name: str) -> None:
    """Delete a request; what was granted for it goes with it.

    Raises:
        ClusterError: there is no such request, or the sender may not end it.
    """
    found(api, name)
    api.delete(_path(name))


def listed(api: Api) -> list[Row]:
    """Return all requests, the newest first."""
    items = api.get(PATH)["items"]
    items.sort(key=lambda item: str(item["metadata"]["creationTimestamp"]), reverse=True)
    return [row_of(item) for item in items]


def row_of(item: Object) -> Row:
    """Return a request as it is listed."""
    spec, status = item["spec"], item.get("status", {})
    return Row(
        item["metadata"]["name"],
        spec["user"],
        spec["role"],
        spec.get("namespace", "the whole cluster"),
        status.get("state", "Waiting"),
        tuple(status.get("approvals", ())),
        spec["seconds"] // 60,
        status.get("expiresAt", ""),
        spec["reason"],
    )


def _path(name: str) -> str:
    return f"{PATH}/{urllib.parse.quote(name, safe='')}"


def found(api: Api, name: str) -> Object:
    """Return a request, or raise ClusterError when there is none of that name."""
    item = api.find(_path(name))
    if item is None:
        raise ClusterError(f"There is no request {name}.", "Look at: ironspan access list.")
    return item
