# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The blob service that clients see: Azurite behind what it lacks.

In this order: faults, the token's signature and the role of its owner, retention policies and versions.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import email.utils
import re
import secrets
import time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ironspan.lab.azure import declared, faults, listing, settings, tokens
from ironspan.lab.azure.arm.state import State
from ironspan.lab.azure.http import Broken, Request, Response
from ironspan.lab.azure.operations import Operation, understand
from ironspan.lab.azure.policy import Blob, Container
from ironspan.lab.azure.upstream import VERSION, Upstream
from ironspan.lab.azure.versions import Version, Versions, read
from ironspan.lab.azure.world import World

_AUDIENCES = ("https://storage.azure.com", f"https://{settings.BLOB_HOST}")
_CHALLENGE = (
    f"Bearer authorization_uri=https://{settings.LOGIN_HOST}/{settings.TENANT}/oauth2/authorize "
    "resource_id=https://storage.azure.com"
)
#: What makes the content that is there a former one.
_REPLACING = ("", "blocklist", "metadata")
_MESSAGES = {
    429: ("TooManyRequests", "The request rate is too high."),
    500: ("InternalError", "The server encountered an internal error. Please retry the request."),
    503: ("ServerBusy", "The server is currently unable to receive requests. Please retry your request."),
}


def error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as the blob service words it."""
    text = (
        f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code>'
        f"<Message>{escape(message)}</Message></Error>"
    )
    return Response(
        status,
        {
            "content-type": "application/xml",
            "x-ms-error-code": code,
            "x-ms-request-id": secrets.token_hex(16),
            "x-ms-version": VERSION,
            **(headers or {}),
        },
        text.encode(),
    )


def failure(status: int, headers: dict[str, str]) -> Response:
    """Return the error answer of a fault."""
    code, message = _MESSAGES.get(status, ("OperationFailed", "The operation failed."))
    return error(status, code, message, headers)


class Store:
    """The proxy in front of Azurite."""

    def __init__(self, world: World, upstream: Upstream, state: State | None = None) -> None:
        self.world = world
        self._upstream = upstream
        #: Of the resource manager, with the accounts that are declared beside the lab's own.
        self._state = state
        self._made: set[str] = set()
        self.versions = Versions(world.folder / "versions")
        self._locks: collections.defaultdict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        operation = understand(request.method, request.headers.get("host", ""), request.target)
        path, comp = (operation.path, operation.comp) if operation else (request.path, "")
        fault = self.world.faults.choose("store", request.method, path, comp)
        identity = "-"

        async def serve(asked: Request) -> Response:
            nonlocal identity
            if operation is None:
                return error(400, "UnsupportedHttpVerb", "The lab's store has no such operation.")
            try:
                identity, place = self._authorise(asked, operation)
            except declared.Refusal as refused:
                headers = {"www-authenticate": _CHALLENGE} if refused.status == 401 else None
                return error(refused.status, refused.code, str(refused), headers)
            if fault and fault.kind == "lying" and asked.method in ("PUT", "DELETE"):
                await asked.drain()
                return _pretended(asked, operation)
            if place is None:
                own = self.world.container(operation.container)
                response = await self._serve(asked, operation, own, self.world.versioning)
            else:
                response = await self._in_declared(asked, operation, place)
            if fault and fault.kind == "stale_list" and operation.lists_blobs:
                response = await listing.without(response, operation.container, fault.hidden)
            return response

        status = 0
        try:
            if fault is None:
                response = await serve(request)
            else:
                response = await faults.apply(fault, request, serve, failure)
            status = response.status
            if request.method == "HEAD":
                response.announced, response.body = True, b""
            return response
        finally:
            self.world.note("store", request.method, path, comp, status, identity)

    def _authorise(self, request: Request, operation: Operation) -> tuple[str, declared.Kept | None]:
        """Return who asks, and a declared account's container, None for the lab's own. Raises Refusal."""
        account = None
        if operation.account != settings.ACCOUNT and self._state is not None:
            account = declared.insist_on_private(self._state, request, operation.account)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme in ("SharedKey", "SharedKeyLite") or "sig" in request.query:
            raise declared.Refusal(
                403,
                "KeyBasedAuthenticationNotPermitted",
                "Key based authentication is not permitted on this storage account.",
            )
        if scheme != "Bearer":
            text = "Server failed to authenticate the request. Please refer to the information in the "
            raise declared.Refusal(401, "NoAuthenticationInformation", text + "www-authenticate header.")
        own = f"https://{operation.account}.blob.core.windows.net"
        try:
            claims = self.world.verify(token, (*_AUDIENCES, own))
        except tokens.Refused as reason:
            raise declared.Refusal(401, "InvalidAuthenticationInfo", str(reason)) from None
        who = str(claims.get("oid"))
        if account is not None and self._state is not None:
            return who, declared.kept(self._state, account, operation, who)
        identity = settings.by_object(who)
        if identity is None or operation.action not in identity.actions:
            raise declared.Refusal(
                403,
                "AuthorizationPermissionMismatch",
                "This request is not authorized to perform this operation using this permission.",
            )
        return identity.name, None

    async def _in_declared(self, request: Request, operation: Operation, there: declared.Kept) -> Response:
        """Serve a container of a declared account, which lies in Azurite under another name."""
        if there.inner not in self._made:
            target = f"/{there.inner}?restype=container"
            await self._upstream.ask("PUT", target, settings.BLOB_HOST, self.world.own_token())
            self._made.add(there.inner)
        listed = operation.lists_blobs
        operation = declared.moved(request, operation, there, self.world.own_token())
        response = await self._serve(request, operation, there.policy, there.versioning)
        return await listing.of(response, there.account, there.name) if listed else response

    async def _serve(
        self, request: Request, operation: Operation, container: Container, versioning: bool
    ) -> Response:
        if operation.blob and request.query.get("versionid"):
            former = self.versions.find(operation.path, request.query["versionid"])
            if former is not None:
                return self._former(request, operation, former, container)
            request.target = re.sub(r"&?versionid=[^&]*", "", request.target)  # of what is there now
        changing = operation.effect in ("put", "block", "append", "change", "delete")
        async with contextlib.AsyncExitStack() as stack:
            if changing and operation.blob and not (container.mutable and not versioning):
                await stack.enter_async_context(self._locks[operation.path])
                refused = await self._guard(request, operation, container)
                if refused is not None:
                    return refused
            elif operation.effect == "delete" and not operation.blob and not container.mutable:
                message = "The container has a retention policy or a legal hold."
                return error(409, "ContainerImmutableDueToPolicy", message)
            keeping = changing and versioning and operation.blob and operation.comp in _REPLACING
            copied = await self._copy(request, operation) if keeping else None
            response = await self._upstream.send(request)
            if keeping:
                self._keep(operation, response, copied)
        if operation.lists_blobs and "versions" in request.query.get("include", ""):
            prefix = request.query.get("prefix", "")
            response = await self.versions.listed(response, operation.container, prefix)
        if operation.effect == "put" and response.status == 201:
            self.world.faults.written(operation.path)
        if operation.container and not operation.blob and not operation.comp and request.method != "PUT":
            response.headers["x-ms-has-immutability-policy"] = str(container.policy is not None).lower()
            response.headers["x-ms-has-legal-hold"] = str(bool(container.holds)).lower()
        return response

    async def _guard(self, request: Request, operation: Operation, container: Container) -> Response | None:
        if request.headers.get("if-none-match") == "*" and operation.effect == "put":
            return None  # it never replaces: Azurite answers BlobAlreadyExists
        there = await self._look(request)
        code = container.refusal(operation.effect, there, self.world.now())
        if code is None:
            return None
        why = "a legal hold" if "Hold" in code else "a policy"
        return error(409, code, f"This operation is not permitted as the blob is immutable due to {why}.")

    async def _copy(self, request: Request, operation: Operation) -> tuple[Path, dict[str, str]] | None:
        """Copy a blob that is about to be replaced; None when there is none."""
        target, host = request.target.partition("?")[0], request.headers.get("host", "")
        response = await self._upstream.ask("GET", target, host, self.world.own_token())
        if response.status == 404:
            await listing.read(response)
            return None
        return await self.versions.copy(operation.path, response), response.headers

    def _keep(
        self, operation: Operation, response: Response, copied: tuple[Path, dict[str, str]] | None
    ) -> None:
        done = response.status in (200, 201, 202)
        if copied is not None and done:
            self.versions.keep(operation.path, *copied)
        elif copied is not None:
            copied[0].unlink()
        if done and operation.effect != "delete":
            response.headers["x-ms-version-id"] = self.versions.written(operation.path)

    def _former(
        self, request: Request, operation: Operation, former: Version, container: Container
    ) -> Response:
        """Answer a request for a former version: it can be read, and deleted unless a policy keeps it."""
        if request.method in ("GET", "HEAD"):
            wanted = request.headers.get("x-ms-range") or request.headers.get("range", "")
            return read(former, wanted, request.method == "HEAD")
        if operation.effect != "delete":
            return error(400, "InvalidQueryParameterValue", "A former version cannot be changed.")
        created = _seconds(former.headers.get("x-ms-creation-time", former.headers["last-modified"]))
        there = Blob(created, _seconds(former.headers["last-modified"]), False)
        code = container.refusal("delete", there, self.world.now())
        if code is not None:
            return error(409, code, "This operation is not permitted as the version is immutable.")
        self.versions.remove(former)
        return Response(202, {"x-ms-version": VERSION})

    async def _look(self, request: Request) -> Blob | None:
        """Ask Azurite what it knows of the request's blob."""
        target, host = request.target.partition("?")[0], request.headers.get("host", "")
        response = await self._upstream.ask("HEAD", target, host, self.world.own_token())
        if response.status == 404:
            return None
        if response.status != 200:
            raise Broken(f"Azurite answers HEAD with {response.status}")
        modified = _seconds(response.headers["last-modified"])
        created = _seconds(response.headers.get("x-ms-creation-time", response.headers["last-modified"]))
        return Blob(created, modified, response.headers.get("x-ms-blob-type") == "AppendBlob")


def _seconds(date: str) -> float:
    return email.utils.parsedate_to_datetime(date).timestamp()


def _pretended(request: Request, operation: Operation) -> Response:
    """Success that never happened."""
    headers: dict[str, Any] = {
        "etag": f'"0x{secrets.token_hex(8).upper()}"',
        "last-modified": email.utils.formatdate(time.time(), usegmt=True),
        "x-ms-request-id": secrets.token_hex(16),
        "x-ms-version": VERSION,
    }
    if operation.comp == "appendblock":
        headers["x-ms-blob-append-offset"] = request.headers.get("x-ms-blob-condition-appendpos", "0")
        headers["x-ms-blob-committed-block-count"] = "1"
    if operation.comp == "lease":
        headers["x-ms-lease-id"] = request.headers.get("x-ms-proposed-lease-id", secrets.token_hex(16))
    return Response(202 if request.method == "DELETE" else 201, headers)
