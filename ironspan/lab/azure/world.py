# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the emulated services share: keys, policies, faults, the clock of policies, the last requests."""

from __future__ import annotations

import collections
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from ironspan.lab import files
from ironspan.lab.azure import settings
from ironspan.lab.azure.faults import Faults, apply
from ironspan.lab.azure.http import Request, Response
from ironspan.lab.azure.policy import Container
from ironspan.lab.azure.tokens import Refused, Signer, verify

#: Entra ID's tokens for managed identities live a day; an hour is its least.
TOKEN_LIFETIME_S = 3600
#: How many requests are remembered.
_REQUESTS = 2000


class World:
    """One emulated Azure, kept in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.signer = Signer.at(self._key_file)
        #: Public keys from before the last rotation, while they are still published.
        self.retired: list[dict[str, str]] = []
        self.faults = Faults()
        self.requests: collections.deque[dict[str, Any]] = collections.deque(maxlen=_REQUESTS)
        self.containers: dict[str, Container] = {}
        self.versioning = False
        self.clock_offset_s = 0.0
        self.token_lifetime_s: float = TOKEN_LIFETIME_S
        #: Claims that a service account's token must have to be exchanged, and the keys that sign those.
        self.federations: list[dict[str, Any]] = []
        self._own_token = ("", 0.0)
        self._load()

    @property
    def _key_file(self) -> Path:
        return self.folder / "keys" / "login.pem"

    def keys(self) -> list[dict[str, str]]:
        """The keys that are published."""
        return [self.signer.jwk(), *self.retired]

    def rotate(self, withdraw: bool = False) -> None:
        """Sign with a new key from now on.

        Args:
            withdraw: Publish the new key only, as after a theft; otherwise the one before stays published.
        """
        retired = [] if withdraw else [self.signer.jwk()]
        self._key_file.unlink()
        self.signer, self.retired = Signer.at(self._key_file), retired
        self._own_token = ("", 0.0)
        self.save()

    @property
    def _file(self) -> Path:
        return self.folder / "world.json"

    def _load(self) -> None:
        try:
            document = json.loads(self._file.read_text())
        except FileNotFoundError:
            return
        self.containers = {
            name: Container.from_dict(one) for name, one in document.get("containers", {}).items()
        }
        self.versioning = document.get("versioning", False)
        self.clock_offset_s = document.get("clock_offset_s", 0.0)
        self.federations = document.get("federations", [])
        self.retired = document.get("retired", [])

    def save(self) -> None:
        """Keep what outlives the process: policies, the clock, federated credentials, keys; faults do not."""
        document = {
            "containers": {name: one.as_dict() for name, one in self.containers.items()},
            "versioning": self.versioning,
            "clock_offset_s": self.clock_offset_s,
            "federations": self.federations,
            "retired": self.retired,
        }
        files.write_atomic(self._file, json.dumps(document, indent=1) + "\n", 0o600)

    def container(self, name: str) -> Container:
        """The policies of a container; one without any when nobody has set some."""
        return self.containers.get(name) or Container()

    def now(self) -> float:
        """The time as policies see it (Unix seconds)."""
        return time.time() + self.clock_offset_s

    def issue(
        self, identity: settings.Principal, audience: str, lifetime_s: float | None = None, tenant: str = ""
    ) -> str:
        """Return a token for an identity, as Entra ID issues it for `audience`; `tenant` is another one."""
        now, tenant = int(time.time()), tenant or settings.TENANT
        return self.signer.sign(
            {
                "aud": audience,
                "iss": f"https://sts.windows.net/{tenant}/",
                "iat": now,
                "nbf": now - 300,
                "exp": now + int(self.token_lifetime_s if lifetime_s is None else lifetime_s),
                "appid": identity.client_id,
                "idtyp": "app",
                "oid": identity.object_id,
                "sub": identity.object_id,
                "tid": tenant,
                "ver": "1.0",
                "xms_mirid": identity.resource_id,
            }
        )

    def own_token(self) -> str:
        """A token with which the proxy itself asks Azurite."""
        token, expires = self._own_token
        if time.time() > expires - 60:
            token = self.issue(settings.IDENTITIES["operator"], "https://storage.azure.com", TOKEN_LIFETIME_S)
            self._own_token = (token, time.time() + TOKEN_LIFETIME_S)
        return token

    def verify(self, token: str, audiences: Sequence[str]) -> dict[str, Any]:
        """Return the claims of a token that this Azure issued for one of `audiences`.

        Raises:
            Refused: Wrong signature, times, issuer, tenant or audience.
        """
        claims = verify(token, self.keys(), time.time())
        if claims.get("iss") != f"https://sts.windows.net/{settings.TENANT}/":
            raise Refused("Issuer validation failed. The token's issuer is another one.")
        if str(claims.get("aud")).rstrip("/") not in audiences:
            raise Refused("Audience validation failed. Audience did not match.")
        return claims

    async def served(
        self,
        service: str,
        request: Request,
        serve: Callable[[Request], Awaitable[Response]],
        refuse: Callable[[int, dict[str, str]], Response],
        faults_of: str = "",
    ) -> Response:
        """Serve a request, let a fault act on it that waits for one like it, and remember it.

        Args:
            service: whose request it is.
            request: the request.
            serve: does what it asks for.
            refuse: makes the service's own kind of error answer from a status and further headers.
            faults_of: the service whose faults it has; empty for its own.
        """
        fault = self.faults.choose(faults_of or service, request.method, request.path, "")
        status = 0
        try:
            response = await (apply(fault, request, serve, refuse) if fault else serve(request))
            status = response.status
            return response
        finally:
            self.note(service, request.method, request.path, "", status, "-")

    def note(self, service: str, method: str, path: str, comp: str, status: int, identity: str) -> None:
        """Remember a request; status 0 is one that got no answer."""
        self.requests.append(
            {
                "time": time.time(), "service": service, "method": method, "path": path, "comp": comp,
                "status": status, "identity": identity,
            }
        )  # fmt: skip
