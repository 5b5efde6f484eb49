# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names that pods reach through the forward proxy, and namespaces whose pods the allow-list is for."""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

SHARED = frozenset(
    (
        "amazonaws.com",
        "appspot.com",
        "azure-api.net",
        "azurecr.io",
        "azureedge.net",
        "azurefd.net",
        "azurewebsites.net",
        "backblazeb2.com",
        "blogspot.com",
        "cloudapp.azure.com",
        "cloudapp.net",
        "cloudfront.net",
        "database.windows.net",
        "blob.core.windows.net",
        "dfs.core.windows.net",
        "file.core.windows.net",
        "queue.core.windows.net",
        "table.core.windows.net",
        "web.core.windows.net",
        "digitaloceanspaces.com",
        "duckdns.org",
        "fastly.net",
        "firebaseapp.com",
        "github.io",
        "githubusercontent.com",
        "gitlab.io",
        "googleapis.com",
        "googleusercontent.com",
        "herokuapp.com",
        "netlify.app",
        "ngrok-free.app",
        "ngrok.app",
        "ngrok.io",
        "nip.io",
        "pages.dev",
        "r2.cloudflarestorage.com",
        "r2.dev",
        "run.app",
        "servicebus.windows.net",
        "sslip.io",
        "trafficmanager.net",
        "trycloudflare.com",
        "vault.azure.net",
        "vercel.app",
        "web.app",
        "workers.dev",
    )
)
"""Domains in which anybody can have a name (publicsuffix.org, "private domains", and Azure's services)."""
_BY_REGION = frozenset(("amazonaws.com", "cloudapp.azure.com", "googleapis.com", "run.app"))
"""Those of them in which anybody can have a name further down, below a region or a service."""
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(
    rf"(?=.{{4,253}}$)(\*\.|{_LABEL}\.)({_LABEL}\.)*[a-z][a-z0-9-]{{0,61}}[a-z0-9]", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, slots=True)
class Proxied:
    """A name that pods reach through the proxy.

    Args:
        name: a DNS name, or ``*.DOMAIN`` for all below a domain.
        ports: single ports and ranges, in order.
        until: Unix time in seconds from which on it no longer holds.
        owner: who answers for it.
        reason: what it is for.
    """

    name: str
    ports: tuple[str, ...]
    until: int
    owner: str
    reason: str

    @property
    def domain(self) -> str:
        """Return the name as squid compares it: with a dot in front it means all below, and itself."""
        return self.name.removeprefix("*").lower()


@dataclasses.dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace that has network policies.

    Args:
        name: its name.
        within: its pods reach each other.
        api: its pods reach the API servers.
    """

    name: str
    within: bool = False
    api: bool = False


def proxied_name(text: str) -> str:
    """Return a name that the proxy may let through, in lower case.

    Args:
        text: a DNS name, or one with ``*.`` in front.

    Raises:
        Rejected: it is none, or a wildcard that means more than one owner's names.
    """
    if not _NAME.fullmatch(text):
        raise Rejected(
            f"{text!r} is no DNS name, and the proxy knows nothing else",
            "write for example pypi.example.com, or *.mirrors.example.com",
        )
    name = text.lower()
    domain = name.removeprefix("*.")
    if domain == name:
        return name
    if "." not in domain:
        raise _too_wide(text, "it means a whole top-level domain")
    for each in sorted(SHARED):
        if (
            each == domain
            or each.endswith(f".{domain}")
            or (each in _BY_REGION and domain.endswith(f".{each}"))
        ):
            raise _too_wide(text, f"anybody can have a name in {each}")
    return name


def _too_wide(text: str, why: str) -> Rejected:
    return Rejected(f"{text!r} is too wide: {why}", "write every name that is needed")
