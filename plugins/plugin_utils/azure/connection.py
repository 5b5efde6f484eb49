# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who the controller is to Azure, and where its resource manager is. SDKs load late: few have them."""

from __future__ import annotations

import dataclasses
import importlib
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

URL = "https://management.azure.com"


@dataclasses.dataclass(frozen=True, slots=True)
class Connection:
    """What a client of Azure's resource manager is made with.

    Args:
        identity: of ``credential``.
        url: of the resource manager.
        audience: what its tokens are for; another one than the public cloud's in sovereign clouds.
        ca: file with the authority of its certificate; "" for the system's.
    """

    identity: t.Any
    url: str = URL
    audience: str = URL
    ca: str = ""

    def client(self, module: str, name: str, subscription: str, **options: t.Any) -> t.Any:
        """Return a client of an SDK.

        Args:
            module: such as ``azure.mgmt.storage``.
            name: of the class.
            subscription: its id.
            options: of the client, beside those that all have.

        Raises:
            RemoteError: the SDK is missing.
        """
        return getattr(sdk(module), name)(
            self.identity,
            subscription,
            base_url=self.url,
            credential_scopes=[f"{self.audience}/.default"],
            connection_verify=self.ca or True,
            **{"retry_total": 4, "connection_timeout": 10, "read_timeout": 60, **options},
        )


def connection(settings: Mapping[str, t.Any]) -> Connection:
    """Return how the resource manager is spoken to.

    Args:
        settings: a variable such as ``azure_management``: those of ``credential``, and ``url``, ``audience``
            and ``ca``.

    Raises:
        RemoteError: as for ``credential``.
    """
    ca = settings.get("ca") or ""
    return Connection(
        credential(settings, ca), settings.get("url") or URL, settings.get("audience") or URL, ca
    )


def credential(settings: Mapping[str, t.Any], ca: str = "") -> t.Any:
    """Return the identity of the controller.

    Args:
        settings: ``kind``: azure_cli (who ran ``az login``), managed_identity or workload_identity; further
            ``client_id``, ``tenant_id``, ``token_file``, ``authority``.
        ca: file with the authority of ``authority``'s certificate.

    Raises:
        RemoteError: the SDK is missing, or there is no such kind.
    """
    identity = sdk("azure.identity")
    kind = settings.get("kind", "azure_cli")
    if kind == "azure_cli":
        return identity.AzureCliCredential(tenant_id=settings.get("tenant_id") or "")
    if kind == "managed_identity":
        return identity.ManagedIdentityCredential(client_id=settings.get("client_id") or None)
    if kind == "workload_identity":
        authority = settings.get("authority")
        other = {"authority": authority, "disable_instance_discovery": True} if authority else {}
        return identity.WorkloadIdentityCredential(
            tenant_id=settings.get("tenant_id"),
            client_id=settings.get("client_id"),
            token_file_path=settings.get("token_file"),
            connection_verify=ca or True,
            **other,
        )
    raise RemoteError(
        f"{kind!r} is no identity of a controller", "write azure_cli, managed_identity or workload_identity"
    )


def sdk(name: str) -> t.Any:
    """Return a module of Azure's SDK. Raises RemoteError when it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise RemoteError(
            f"the Python of this controller has no {name}",
            "install it where ansible-playbook runs: pip install 'ironspan[azure]'",
        ) from None
