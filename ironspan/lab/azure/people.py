# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tokens of people for an application, as Entra ID issues them (version 2.0), and tokens that are not.

Claims: "Access token claims reference" and "Configure group claims and app roles in tokens" (Microsoft
Learn). A fault makes a token that an application must refuse; `FAULTS` says why.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ironspan.lab.azure import settings
from ironspan.lab.azure.tokens import Signer, compact, encode, public_key
from ironspan.lab.azure.world import World

#: The application that stands for a cluster: its client ID is the audience of tokens for it.
APPLICATION = settings.identifier("cluster-application")
#: More groups than this are left out of a token, which says so instead.
MOST_GROUPS = 200
FAULTS: Mapping[str, str] = {
    "wrong_tenant": "its tid is another tenant's",
    "no_tenant": "it has no tid",
    "no_object_id": "it has no oid",
    "wrong_audience": "it is for another application",
    "wrong_issuer": "its iss is another tenant's, the signature is right",
    "expired": "its time is over",
    "not_yet": "its time has not begun",
    "unknown_key": "a key signed it that the issuer never published",
    "altered": "its claims were changed after it was signed",
    "no_algorithm": "its algorithm is none and it has no signature",
    "shared_secret": "it is signed with HS256, the issuer's public key being the secret",
}


@dataclass(frozen=True)
class Person:
    """Somebody in the lab's tenant, with app roles of the cluster's application and groups.

    Args:
        name: Decides their object ID, which is the same in every lab.
        roles: Values of app roles.
        groups: Object IDs of groups.
    """

    name: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def object_id(self) -> str:
        """Their object ID (`oid` in their tokens)."""
        return settings.identifier(f"person-{self.name}")


def issuer(host: str = settings.LOGIN_HOST) -> str:
    """Return the issuer of the lab's tenant, whose endpoints are on `host`."""
    return f"https://{host}/{settings.TENANT}/v2.0"


def claims_of(person: Person, issued_by: str, lifetime_s: int = 3600) -> dict[str, Any]:
    """Return the claims of a person's token for the cluster."""
    now = int(time.time())
    claims: dict[str, Any] = {
        "aud": APPLICATION, "iss": issued_by, "iat": now, "nbf": now, "exp": now + lifetime_s,
        "azp": settings.identifier("kubelogin"), "name": person.name, "oid": person.object_id,
        "preferred_username": f"{person.name}@lab.internal", "scp": "user",
        "sub": settings.identifier(f"subject-{person.name}"), "tid": settings.TENANT, "ver": "2.0",
        "uti": secrets.token_urlsafe(16),
    }  # fmt: skip
    if person.roles:
        claims["roles"] = list(person.roles)
    if len(person.groups) > MOST_GROUPS:
        claims["_claim_names"] = {"groups": "src1"}
        endpoint = f"https://graph.microsoft.com/v1.0/users/{person.object_id}/getMemberObjects"
        claims["_claim_sources"] = {"src1": {"endpoint": endpoint}}
    elif person.groups:
        claims["groups"] = list(person.groups)
    return claims


def token(world: World, person: Person, issued_by: str, fault: str = "") -> str:
    """Return a token of a person for the cluster.

    Args:
        world: Signs it.
        person: Whose it is.
        issued_by: The issuer that it names.
        fault: One of `FAULTS`, or nothing.

    Raises:
        ValueError: There is no such fault.
    """
    claims = claims_of(person, issued_by)
    if fault in ("", "altered"):
        signed = world.signer.sign(claims)
        if not fault:
            return signed
        head, _, signature = signed.split(".")
        return f"{head}.{compact({}, {**claims, 'roles': ['other']}).split('.')[1]}.{signature}"
    changes: dict[str, dict[str, Any]] = {
        "wrong_tenant": {"tid": settings.identifier("other-tenant")},
        "no_tenant": {"tid": None},
        "no_object_id": {"oid": None},
        "wrong_audience": {"aud": settings.identifier("other-application")},
        "wrong_issuer": {"iss": issued_by.replace(settings.TENANT, settings.identifier("other-tenant"))},
        "expired": {"iat": claims["iat"] - 7200, "nbf": claims["nbf"] - 7200, "exp": claims["exp"] - 7200},
        "not_yet": {"nbf": claims["nbf"] + 7200, "exp": claims["exp"] + 7200},
    }
    if fault in changes:
        changed = {**claims, **changes[fault]}
        return world.signer.sign({name: value for name, value in changed.items() if value is not None})
    if fault == "unknown_key":
        return Signer(rsa.generate_private_key(public_exponent=65537, key_size=2048)).sign(claims)
    if fault == "no_algorithm":
        return compact({"alg": "none", "typ": "JWT"}, claims) + "."
    if fault == "shared_secret":
        text = compact({"alg": "HS256", "kid": world.signer.kid, "typ": "JWT"}, claims)
        secret = public_key(world.signer.jwk()).public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return f"{text}.{encode(hmac.digest(secret, text.encode(), hashlib.sha256))}"
    raise ValueError(f"fault {fault!r}: write one of {', '.join(FAULTS)}")
