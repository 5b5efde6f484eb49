# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where tokens come from: the metadata service of Azure machines, the agent of Arc machines, Entra ID.

Formats: "How to use managed identities on an Azure VM to acquire an access token", "Authenticate against
Azure resources with Azure Arc-enabled servers", "OAuth 2.0 client credentials flow" (Microsoft Learn).
"""

from __future__ import annotations

import json
import secrets
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from ironspan.lab.azure import settings, tokens
from ironspan.lab.azure.arm.metadata import Instances
from ironspan.lab.azure.config import ARC_FOLDER
from ironspan.lab.azure.http import Request, Response
from ironspan.lab.azure.world import World

TOKEN_PATH = "/metadata/identity/oauth2/token"
INSTANCE_PATH = "/metadata/instance"
#: Writes the challenge into a machine: (its address, path, content) -> whether that machine is known.
Place = Callable[[str, str, str], bool]


def answer(status: int, document: Any, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    return Response(
        status, {"content-type": "application/json", **(headers or {})}, json.dumps(document).encode()
    )


def _refused(status: int, code: str, message: str) -> Response:
    return answer(status, {"error": code, "error_description": message})


def failure(status: int, headers: dict[str, str]) -> Response:
    """Return the error answer of a fault."""
    return answer(status, {"error": "temporarily_unavailable", "error_description": "fault"}, headers)


class _Service:
    """What the three have in common: faults first, every request remembered."""

    name = ""

    def __init__(self, world: World) -> None:
        self.world = world

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        return await self.world.served(self.name, request, self.serve, failure)

    async def serve(self, request: Request) -> Response:
        """Do what the request asks for."""
        raise NotImplementedError

    def token(self, identity: settings.Principal, resource: str) -> Response:
        """Return the answer with a managed identity's token."""
        now = int(time.time())
        lifetime = int(self.world.token_lifetime_s)
        return answer(
            200,
            {
                "access_token": self.world.issue(identity, resource),
                "client_id": identity.client_id,
                "object_id": identity.object_id,
                "msi_res_id": identity.resource_id,
                "expires_in": str(lifetime),
                "expires_on": str(now + lifetime),
                "ext_expires_in": str(lifetime),
                "not_before": str(now - 300),
                "resource": resource,
                "token_type": "Bearer",
            },
        )

    def assigned(self, request: Request) -> list[settings.Assigned]:
        """Return the identities that an estate gave to the machine that asks."""
        return []

    def managed(self, request: Request) -> Response:
        """Answer a request for a managed identity's token, once its caller has shown who it is."""
        query = request.query
        if not query.get("api-version"):
            return _refused(400, "bad_request_102", "Required api-version parameter not specified")
        if not query.get("resource"):
            return _refused(400, "invalid_request", "Required query variable 'resource' is missing")
        resource_id = query.get("msi_res_id") or query.get("mi_res_id") or ""
        identity = settings.chosen(
            query.get("client_id", ""), query.get("object_id", ""), resource_id, self.assigned(request)
        )
        if identity is None:
            return _refused(400, "invalid_request", "Identity not found")
        return self.token(identity, query["resource"])


class Metadata(_Service):
    """The instance metadata service (IMDS)."""

    name = "metadata"

    def __init__(self, world: World, instances: Instances | None = None) -> None:
        super().__init__(world)
        self._instances = instances

    def assigned(self, request: Request) -> list[settings.Assigned]:
        """Return the identities of the virtual machine that asks."""
        return self._instances.identities(request.peer) if self._instances is not None else []

    async def serve(self, request: Request) -> Response:
        """Answer a request for a token, or a virtual machine's for what it is; all else is not found."""
        if request.path not in (TOKEN_PATH, INSTANCE_PATH):
            return answer(404, {"error": "Not found"})
        if request.headers.get("metadata", "").lower() != "true":
            return _refused(400, "bad_request_102", "Required metadata header not specified")
        if "x-forwarded-for" in request.headers:
            return _refused(400, "bad_request", "requests that were forwarded are refused")
        if request.path == TOKEN_PATH:
            return self.managed(request)
        found = self._instances.document(request.peer) if self._instances is not None else None
        return answer(200, found) if found is not None else answer(404, {"error": "Not found"})


class Arc(_Service):
    """The agent of an Arc machine (HIMDS): who can read a file on the machine is let in."""

    name = "arc"

    def __init__(self, world: World, place: Place, folder: str = ARC_FOLDER) -> None:
        super().__init__(world)
        self._place = place
        self._folder = folder
        #: Secret of a challenge -> the address of the machine that it was written into.
        self._secrets: dict[str, str] = {}

    async def serve(self, request: Request) -> Response:
        """Answer a request for a token with a challenge, or with the token."""
        if request.path != TOKEN_PATH:
            return answer(404, {"error": "Not found"})
        if request.headers.get("metadata", "").lower() != "true":
            return _refused(400, "bad_request_102", "Required metadata header not specified")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme != "Basic":
            return self._challenge(request)
        # A challenge is good for one request.
        if self._secrets.pop(given, None) != request.peer:
            return _refused(401, "unauthorized_client", "The challenge was not met.")
        return self.managed(request)

    def _challenge(self, request: Request) -> Response:
        path = f"{self._folder}/{secrets.token_hex(8)}.key"
        secret = secrets.token_urlsafe(32)
        if not self._place(request.peer, path, secret):
            return _refused(403, "unauthorized_client", f"no Arc machine has the address {request.peer}")
        self._secrets[secret] = request.peer
        return answer(401, {"error": "unauthorized_client"}, {"www-authenticate": f"Basic realm={path}"})


class Login(_Service):
    """Entra ID: exchanges a service account's token for an identity's."""

    name = "login"

    async def serve(self, request: Request) -> Response:
        """Answer OpenID discovery, keys, instance discovery and token requests."""
        # Whoever asks by an address is told addresses: the controller knows none of the lab's names.
        base = f"https://{request.headers.get('host', settings.LOGIN_HOST)}/{settings.TENANT}"
        tenant, _, rest = request.path.lstrip("/").partition("/")
        if request.path == "/common/discovery/instance":
            return self._instances(base)
        if tenant not in (settings.TENANT, "common", "organizations"):
            return _refused(400, "invalid_request", f"AADSTS90002: Tenant '{tenant}' not found.")
        match (request.method, rest):
            case ("GET", "v2.0/.well-known/openid-configuration" | ".well-known/openid-configuration"):
                return self._configuration(base)
            case ("GET", "discovery/v2.0/keys" | "discovery/keys"):
                return answer(200, {"keys": self.world.keys()})
            case ("POST", "oauth2/v2.0/token"):
                form = urllib.parse.parse_qs((await request.all()).decode())
                return self._exchange({name: values[0] for name, values in form.items()})
        return answer(404, {"error": "Not found"})

    def _configuration(self, base: str) -> Response:
        return answer(
            200,
            {
                "issuer": f"{base}/v2.0",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                "token_endpoint": f"{base}/oauth2/v2.0/token",
                "jwks_uri": f"{base}/discovery/v2.0/keys",
                "response_types_supported": ["code", "id_token", "token"],
                "subject_types_supported": ["pairwise"],
                "id_token_signing_alg_values_supported": ["RS256"],
            },
        )

    def _instances(self, base: str) -> Response:
        host = settings.LOGIN_HOST
        return answer(
            200,
            {
                "tenant_discovery_endpoint": f"{base}/v2.0/.well-known/openid-configuration",
                "api-version": "1.1",
                "metadata": [{"preferred_network": host, "preferred_cache": host, "aliases": [host]}],
            },
        )

    def _exchange(self, form: dict[str, str]) -> Response:
        if form.get("grant_type") != "client_credentials":
            return _refused(400, "unsupported_grant_type", "AADSTS70003: only client_credentials is here.")
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        if form.get("client_assertion_type") != kind or "client_assertion" not in form:
            return _refused(401, "invalid_client", "AADSTS7000216: 'client_assertion' is required.")
        identity = settings.chosen(form.get("client_id") or "missing")
        if identity is None:
            return _refused(400, "unauthorized_client", "AADSTS700016: Application not found.")
        reason = self._doubt(identity, form["client_assertion"])
        if reason:
            return _refused(401, "invalid_client", reason)
        audience, scope, _ = form.get("scope", "").split(" ")[0].rpartition("/.default")
        if not scope:
            return _refused(400, "invalid_scope", "AADSTS1002012: the scope must end with /.default.")
        lifetime = int(self.world.token_lifetime_s)
        token = self.world.issue(identity, audience)
        return answer(
            200,
            {
                "access_token": token,
                "expires_in": lifetime,
                "ext_expires_in": lifetime,
                "token_type": "Bearer",
            },
        )

    def _doubt(self, identity: settings.Principal, assertion: str) -> str:
        """Say why a service account's token is not accepted for this identity; nothing when it is."""
        reason = "AADSTS70021: No matching federated identity record found for presented assertion."
        for federation in self.world.federations:
            try:
                claims = tokens.verify(assertion, federation["keys"], time.time())
            except tokens.Refused as refused:
                reason = f"AADSTS700027: {refused}"
                continue
            audience = claims.get("aud")
            if (
                federation["client_id"] == identity.client_id
                and claims.get("iss") == federation["issuer"]
                and claims.get("sub") == federation["subject"]
                and "api://AzureADTokenExchange" in (audience if isinstance(audience, list) else [audience])
            ):
                return ""
            reason = "AADSTS70021: No matching federated identity record found for presented assertion."
        return reason
