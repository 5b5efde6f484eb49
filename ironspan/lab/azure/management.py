# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The resource manager: who may ask, the account with real blobs behind it, `arm` for all the rest."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from ironspan.lab.azure import authorization, settings, tokens
from ironspan.lab.azure.arm.service import Arm
from ironspan.lab.azure.http import Request, Response
from ironspan.lab.azure.policy import Append, Container, Policy, PolicyError
from ironspan.lab.azure.upstream import Upstream
from ironspan.lab.azure.world import World

_AUDIENCES = ("https://management.azure.com", "https://management.core.windows.net")
_PATH = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)/providers/Microsoft\.Storage"
    r"/storageAccounts/(?P<account>[^/]+)(?P<rest>/.*)?\Z",
    re.IGNORECASE,
)
_CONTAINER = re.compile(
    r"/blobServices/default/containers/(?P<name>[a-z0-9-]+)(?P<rest>/.*)?\Z", re.IGNORECASE
)
_TYPE = "Microsoft.Storage/storageAccounts"


def answer(status: int, document: Any, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer as the resource manager gives it."""
    all_headers = {
        "content-type": "application/json; charset=utf-8",
        "x-ms-request-id": secrets.token_hex(16),
        **(headers or {}),
    }
    return Response(status, all_headers, b"" if document is None else json.dumps(document).encode())


def error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as the resource manager words it."""
    return answer(status, {"error": {"code": code, "message": message}}, headers)


def _failure(status: int, headers: dict[str, str]) -> Response:
    return error(status, "TooManyRequests" if status == 429 else "InternalServerError", "fault", headers)


class Management:
    """The resource manager's endpoint."""

    def __init__(self, world: World, upstream: Upstream, arm: Arm) -> None:
        self._world = world
        self._upstream = upstream
        self._arm = arm

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        return await self._world.served("management", request, self._serve, _failure)

    async def _serve(self, request: Request) -> Response:
        text = await request.all()
        caller = self._authorise(request)
        if isinstance(caller, Response):
            return caller
        if not request.query.get("api-version"):
            return error(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        roles = authorization.answer(request.path, request.query) if request.method == "GET" else None
        if roles is not None:
            return answer(200, self._arm.with_assignments(roles, request))
        found = _PATH.match(request.path)
        own = (settings.SUBSCRIPTION, settings.RESOURCE_GROUP.lower(), settings.ACCOUNT)
        if found is None or (found["subscription"], found["group"].lower(), found["account"]) != own:
            return self._arm.serve(request, text, caller.object_id)
        try:
            document = json.loads(text or b"{}")
            return await self._account(request, found["rest"] or "", document.get("properties", document))
        except PolicyError as refusal:
            return error(refusal.status, refusal.code, str(refusal))
        except (ValueError, TypeError, AttributeError) as wrong:
            return error(400, "InvalidRequestContent", f"The request content was invalid: {wrong}")

    def _authorise(self, request: Request) -> settings.Identity | Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        challenge = {"www-authenticate": f'Bearer authorization_uri="https://{settings.LOGIN_HOST}"'}
        if scheme != "Bearer":
            return error(401, "AuthenticationFailed", "The 'Authorization' header is missing.", challenge)
        try:
            claims = self._world.verify(token, _AUDIENCES)
        except tokens.Refused as reason:
            tenant = "Tenant" if str(reason).startswith("Issuer") else ""
            return error(401, f"InvalidAuthenticationToken{tenant}", str(reason), challenge)
        identity = settings.by_object(claims.get("oid"))
        if identity is None or "management" not in identity.actions:
            return error(
                403,
                "AuthorizationFailed",
                f"The client with object id '{claims.get('oid')}' does not have authorization "
                f"to perform action on {request.path}.",
            )
        return identity

    async def _account(self, request: Request, rest: str, properties: dict[str, Any]) -> Response:
        if rest == "" and request.method == "GET":
            return answer(200, self._account_document())
        if rest == "/blobServices/default" and request.method in ("GET", "PUT"):
            if request.method == "PUT":
                self._world.versioning = bool(properties.get("isVersioningEnabled", self._world.versioning))
                self._world.save()
            return answer(200, self._service_document())
        found = _CONTAINER.match(rest)
        if found is None:
            return error(404, "ResourceNotFound", f"The resource {request.path} was not found.")
        name, below = found["name"], (found["rest"] or "").lower()
        if below == "" and request.method in ("PUT", "PATCH"):
            created = await self._create(name)
            return answer(201 if created else 200, self._container_document(name))
        if not await self._exists(name):
            return error(404, "ContainerNotFound", "The specified container does not exist.")
        container = self._world.containers.setdefault(name, Container())
        response = self._container(request, name, container, below, properties)
        self._world.save()
        return response

    def _container(
        self, request: Request, name: str, container: Container, below: str, properties: dict[str, Any]
    ) -> Response:
        wanted = request.headers.get("if-match")
        days = int(properties.get("immutabilityPeriodSinceCreationInDays", 0))
        match (request.method, below):
            case ("GET", ""):
                return answer(200, self._container_document(name))
            case ("POST", "/setlegalhold" | "/clearlegalhold"):
                tags = [str(tag).lower() for tag in properties.get("tags", [])]
                kept = [tag for tag in container.holds if tag not in tags]
                container.holds = kept + tags if below == "/setlegalhold" else kept
                return answer(200, {"hasLegalHold": bool(container.holds), "tags": container.holds})
            case ("GET", "/immutabilitypolicies/default"):
                if container.policy is None:
                    raise PolicyError(
                        404, "ContainerImmutabilityPolicyNotFound", "The container has no policy."
                    )
                return _policy_answer(name, container.policy)
            case ("PUT", "/immutabilitypolicies/default"):
                return _policy_answer(name, container.put(days, _append(properties), wanted))
            case ("POST", "/immutabilitypolicies/default/lock"):
                return _policy_answer(name, container.lock(wanted))
            case ("POST", "/immutabilitypolicies/default/extend"):
                return _policy_answer(name, container.extend(days, wanted))
            case ("DELETE", "/immutabilitypolicies/default"):
                container.remove(wanted)
                return _policy_answer(name, Policy(0))
        return error(404, "ResourceNotFound", f"The resource {request.path} was not found.")

    def _account_document(self) -> dict[str, Any]:
        return {
            "id": settings.account_id(),
            "name": settings.ACCOUNT,
            "type": _TYPE,
            "kind": "StorageV2",
            "location": "lab",
            "sku": {"name": "Standard_RAGZRS", "tier": "Standard"},
            "properties": {
                "provisioningState": "Succeeded",
                "primaryEndpoints": {"blob": f"https://{settings.BLOB_HOST}/"},
                "allowSharedKeyAccess": False,
                "allowBlobPublicAccess": False,
                "publicNetworkAccess": "Disabled",
                "supportsHttpsTrafficOnly": True,
                "minimumTlsVersion": "TLS1_2",
                "networkAcls": {"bypass": "None", "defaultAction": "Deny"},
                "privateEndpointConnections": [
                    {
                        "name": "lab",
                        "properties": {
                            "provisioningState": "Succeeded",
                            "privateLinkServiceConnectionState": {"status": "Approved"},
                        },
                    }
                ],
            },
        }

    def _service_document(self) -> dict[str, Any]:
        return {
            "id": f"{settings.account_id()}/blobServices/default",
            "name": "default",
            "type": f"{_TYPE}/blobServices",
            "properties": {
                "isVersioningEnabled": self._world.versioning,
                "deleteRetentionPolicy": {"enabled": False},
                "containerDeleteRetentionPolicy": {"enabled": False},
            },
        }

    def _container_document(self, name: str) -> dict[str, Any]:
        container = self._world.container(name)
        properties: dict[str, Any] = {
            "publicAccess": "None",
            "leaseState": "Available",
            "hasLegalHold": bool(container.holds),
            "hasImmutabilityPolicy": container.policy is not None,
            "legalHold": {
                "hasLegalHold": bool(container.holds),
                "tags": [{"tag": tag} for tag in container.holds],
            },
        }
        if container.policy is not None:
            properties["immutabilityPolicy"] = {
                "etag": f'"{container.policy.etag}"',
                "properties": _policy_properties(container.policy),
                "updateHistory": [],
            }
        return {
            "id": f"{settings.account_id()}/blobServices/default/containers/{name}",
            "name": name,
            "type": f"{_TYPE}/blobServices/containers",
            "properties": properties,
        }

    async def _create(self, name: str) -> bool:
        response = await self._ask("PUT", name)
        if response.status not in (201, 409):
            raise PolicyError(400, "InvalidResourceName", f"container {name!r} cannot be made")
        return response.status == 201

    async def _exists(self, name: str) -> bool:
        return (await self._ask("HEAD", name)).status == 200

    async def _ask(self, method: str, name: str) -> Response:
        target = f"/{name}?restype=container"
        return await self._upstream.ask(method, target, settings.BLOB_HOST, self._world.own_token())


def _append(properties: dict[str, Any]) -> Append:
    one, everything = (
        bool(properties.get(name)) for name in ("allowProtectedAppendWrites", "allowProtectedAppendWritesAll")
    )
    if one and everything:
        raise PolicyError(
            400,
            "InvalidRequestPropertyValue",
            "allowProtectedAppendWrites and allowProtectedAppendWritesAll exclude each other.",
        )
    return "all" if everything else ("append" if one else "none")


def _policy_properties(policy: Policy) -> dict[str, Any]:
    return {
        "immutabilityPeriodSinceCreationInDays": policy.days,
        "state": "Locked" if policy.locked else "Unlocked",
        "allowProtectedAppendWrites": policy.append == "append",
        "allowProtectedAppendWritesAll": policy.append == "all",
    }


def _policy_answer(name: str, policy: Policy) -> Response:
    etag = f'"{policy.etag}"'
    document = {
        "id": f"{settings.account_id()}/blobServices/default/containers/{name}/immutabilityPolicies/default",
        "name": "default",
        "type": f"{_TYPE}/blobServices/containers/immutabilityPolicies",
        "etag": etag,
        "properties": _policy_properties(policy),
    }
    return answer(200, document, {"etag": etag})
