# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The storage accounts that an estate declares: who may use which container, and where Azurite keeps it.

Azurite has one account. A container of another one lies there under a name that nobody can guess or name,
and is another one once it was deleted and made again.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm.rights import BLOBS, may
from ironspan.lab.azure.arm.rules.services import ACCOUNT
from ironspan.lab.azure.arm.state import Resource, State
from ironspan.lab.azure.http import Request
from ironspan.lab.azure.operations import Operation, split
from ironspan.lab.azure.policy import Append, Container, Policy

_PATH_STYLE = re.compile(r"/[^/]+(?P<rest>/.*)?\Z")


class Refusal(Exception):
    """A declared account refuses a request: an HTTP status, Azure's error code, a message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Kept:
    """A container of a declared account.

    Attributes:
        account: Its account's name.
        name: Its own.
        inner: The container in Azurite.
        policy: What keeps its blobs.
        versioning: Whether former versions of blobs are kept.
    """

    account: str
    name: str
    inner: str
    policy: Container
    versioning: bool


def insist_on_private(state: State, request: Request, account: str) -> Resource:
    """Return the account that a request is for, when the request came by a way that is open.

    Raises:
        Refusal: There is none, or its public side is closed and the request did not come by an endpoint.
    """
    found = next((one for one in state.of_type(ACCOUNT) if one.document["name"] == account), None)
    if found is None:
        raise Refusal(404, "ResourceNotFound", f"The specified account {account!r} does not exist.")
    closed = str(found.properties.get("publicNetworkAccess", "Enabled")).lower() != "enabled"
    if closed and found.key not in request.private:
        raise Refusal(
            403, "AuthorizationFailure", "This request is not authorized to perform this operation."
        )
    return found


def kept(state: State, account: Resource, operation: Operation, object_id: str) -> Kept:
    """Return the container that an operation is for.

    Args:
        state: Everything.
        account: Its account.
        operation: What is asked for.
        object_id: `oid` of the token.

    Raises:
        Refusal: There is no such container, or no role allows it.
    """
    if not operation.container:
        raise Refusal(400, "UnsupportedHttpVerb", "The lab lists no containers of a declared account.")
    service = f"{account.id}/blobServices/default"
    # Who may do nothing is not told what there is, so rights come first.
    place = f"{service}/containers/{operation.container}"
    if not may(state, object_id, place, _action(operation.action)):
        raise Refusal(
            403,
            "AuthorizationPermissionMismatch",
            "This request is not authorized to perform this operation using this permission.",
        )
    container = state.find(place)
    if operation.action in ("containers/write", "containers/delete"):
        raise Refusal(400, "UnsupportedHttpVerb", "Containers are made by the resource manager here.")
    if container is None:
        raise Refusal(404, "ContainerNotFound", "The specified container does not exist.")
    about = state.find(service)
    return Kept(
        str(account.document["name"]),
        operation.container,
        _inner(container),
        _policy(state, container),
        bool(about is not None and about.properties.get("isVersioningEnabled")),
    )


def _action(short: str) -> str:
    """Return an action of the store as role definitions write it."""
    whole = f"{BLOBS}/{short.removeprefix('containers/')}"
    return f"{whole}/action" if short == "blobs/add" else whole


def _inner(container: Resource) -> str:
    known = f"{container.key} {container.created}"
    return f"estate-{hashlib.sha256(known.encode()).hexdigest()[:40]}"


def _policy(state: State, container: Resource) -> Container:
    found = state.find(f"{container.id}/immutabilityPolicies/default")
    if found is None:
        return Container()
    about = found.properties
    append: Append = "none"
    if about.get("allowProtectedAppendWritesAll"):
        append = "all"
    elif about.get("allowProtectedAppendWrites"):
        append = "append"
    days = int(about.get("immutabilityPeriodSinceCreationInDays") or 1)
    return Container(Policy(days, append, about.get("state") == "Locked"))


def moved(request: Request, operation: Operation, there: Kept, token: str) -> Operation:
    """Point a request at the container in Azurite, and return what it does there.

    Args:
        request: It is changed.
        operation: What it asks for.
        there: Where.
        token: The proxy's own: Azurite knows no identity of the estate.
    """
    raw, mark, query = request.target.partition("?")
    host = request.headers.get("host", "")
    if split(host, "/x")[0] == "x":  # the account is the first part of the path
        found = _PATH_STYLE.match(raw)
        raw = (found and found["rest"]) or "/"
    blob = raw.lstrip("/").partition("/")[2]
    request.target = f"/{there.inner}{'/' if blob else ''}{blob}{mark}{query}"
    request.headers = {
        **request.headers,
        "host": settings.BLOB_HOST,
        "authorization": f"Bearer {token}",
    }
    return replace(operation, account=settings.ACCOUNT, container=there.inner)
