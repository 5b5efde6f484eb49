# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who this program is to Azure: an identity that the platform proves, never a key or a password."""

from __future__ import annotations

import os
import pathlib
import re
import typing as t
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from azure.core.credentials import AccessToken, AccessTokenInfo, TokenRequestOptions
from azure.core.exceptions import AzureError
from azure.identity import ManagedIdentityCredential, WorkloadIdentityCredential

from ironspan.program.errors import ProgramError, ServiceError

ARC_AGENT = "http://127.0.0.1:40342"
"""Where the Azure Connected Machine agent answers, by its documentation."""
_SECRETS = ("account_key", "accountkey", "client_secret", "connection_string", "password", "sas", "sas_token")
_IN_VALUES = ("accountkey=", "sharedaccesssignature=")


def refuse_secrets(settings: Mapping[str, t.Any]) -> None:
    """Refuse settings that hold a key, a connection string or a signed URL.

    Args:
        settings: of a store or of a Key Vault.

    Raises:
        ProgramError: naming the setting, never its value.
    """
    for name, value in _leaves(settings):
        signed = "sig" in dict(parse_qsl(urlsplit(value).query))
        known = any(text in value.lower() for text in _IN_VALUES)
        if signed or known or (value and name.lower() in _SECRETS):
            raise ProgramError(
                f"The setting {name} holds a key, a connection string or a signed URL, which are not used.",
                "Remove it (and rotate the key, as it was in a file) and set `credential` to "
                "managed_identity, arc or workload_identity; the account should have shared key access off.",
            )


def _leaves(settings: Mapping[str, t.Any]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        elif isinstance(value, str):
            yield name, value


class Identity:
    """A credential of the SDK whose failures are told apart from those of the service that wants the token.

    Args:
        proven: the SDK's credential.
        who: what it is, for messages.
        remedy: what to look at when there is no token.
    """

    def __init__(
        self, proven: ManagedIdentityCredential | WorkloadIdentityCredential, who: str, remedy: str
    ) -> None:
        self._proven, self._who, self._remedy = proven, who, remedy

    def get_token(self, *scopes: str, **options: t.Any) -> AccessToken:
        """Return a token. Raises ServiceError (retryable) when there is none."""
        try:
            return self._proven.get_token(*scopes, **options)
        except AzureError as error:
            raise self._refused(error) from None

    def get_token_info(self, *scopes: str, options: TokenRequestOptions | None = None) -> AccessTokenInfo:
        """Return a token and when to renew it. Raises ServiceError (retryable) when there is none."""
        try:
            return self._proven.get_token_info(*scopes, options=options)
        except AzureError as error:
            raise self._refused(error) from None

    def _refused(self, error: AzureError) -> ServiceError:
        # Of the SDK's text only Entra's code: the rest may quote what was sent.
        code = re.search(r"AADSTS\d+", str(error.message))
        return ServiceError(
            f"There is no token for the {self._who}{f' ({code[0]})' if code else ''}.",
            self._remedy,
            retryable=True,
        )


def credential(settings: Mapping[str, t.Any], ca: str = "") -> Identity:
    """Return the credential of an identity.

    Args:
        settings: ``kind`` (managed_identity on Azure machines, arc on premises, workload_identity in pods),
            ``client_id`` of a user-assigned identity, and for pods ``tenant_id`` and ``token_file``;
            ``authority`` is another issuer of tokens than Microsoft Entra's public cloud.
        ca: file with the authority of ``authority``'s certificate; "" for the system's.

    Raises:
        ProgramError: the settings do not fit this host.
    """
    kind = settings.get("kind", "")
    client_id = settings.get("client_id") or None
    if kind == "managed_identity":
        _insist_on_no_arc()
        return Identity(
            ManagedIdentityCredential(client_id=client_id, retry_total=2),
            "managed identity of this machine",
            "Check that it is assigned to the machine, its client id in the settings (needed when there are "
            "several), and that 169.254.169.254 can be reached.",
        )
    if kind == "arc":
        _point_to_arc()
        return Identity(
            ManagedIdentityCredential(client_id=client_id, retry_total=2),
            "identity of this Arc server",
            "Check that the agent runs (azcmagent show), that the program's user is root or in the group "
            "himds, and that the agent is new enough for a client id.",
        )
    if kind == "workload_identity":
        return Identity(
            _workload(settings, ca),
            "workload identity",
            "Check the federated credential (issuer, subject, audience), tenant and client id, the age of "
            "the projected token, and the way to login.microsoftonline.com.",
        )
    raise ProgramError(
        f"{kind!r} is no kind of credential.",
        "Write managed_identity, arc or workload_identity; keys are not used.",
    )


def _insist_on_no_arc() -> None:
    """The SDK would ask the Arc agent silently, whatever the settings say."""
    if os.environ.get("IDENTITY_ENDPOINT"):
        raise ProgramError(
            "The settings ask for the managed identity of an Azure machine; this server has the Arc agent.",
            "Set the credential's kind to arc.",
        )


def _point_to_arc() -> None:
    os.environ.setdefault("IMDS_ENDPOINT", ARC_AGENT)
    os.environ.setdefault("IDENTITY_ENDPOINT", f"{ARC_AGENT}/metadata/identity/oauth2/token")


def _workload(settings: Mapping[str, t.Any], ca: str) -> WorkloadIdentityCredential:
    missing = [name for name in ("tenant_id", "client_id", "token_file") if not settings.get(name)]
    if missing:
        raise ProgramError(
            f"Workload identity needs {', '.join(missing)}.",
            "Copy tenant and client id from the identity, and name the file of the projected token.",
        )
    file = pathlib.Path(settings["token_file"])
    if not os.access(file, os.R_OK):
        raise ProgramError(
            f"The projected token {file} is not there or cannot be read.",
            "The pod needs the label azure.workload.identity/use=true, or a projected service account token "
            "with the audience api://AzureADTokenExchange.",
        )
    authority = settings.get("authority")
    return WorkloadIdentityCredential(
        tenant_id=settings["tenant_id"],
        client_id=settings["client_id"],
        token_file_path=str(file),
        retry_total=2,
        connection_verify=ca or True,
        # Instance discovery asks the public cloud whether the authority is one of its own.
        **({"authority": authority, "disable_instance_discovery": True} if authority else {}),
    )
