# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keys in Azure Key Vault: the private half never leaves it.

Wrapping needs the public half only. It is kept in a file of the host, so backups go on while the vault cannot
be reached, also over a restart; only reading a backup needs the vault.
"""

from __future__ import annotations

import json
import logging
import pathlib
import time
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from azure.core.exceptions import AzureError, HttpResponseError
from azure.keyvault.keys import JsonWebKey, KeyClient
from azure.keyvault.keys.crypto import CryptographyClient, KeyWrapAlgorithm

from ironspan.azure.failures import Place, explain
from ironspan.azure.identity import credential, refuse_secrets
from ironspan.azure.private_endpoint import Endpoint, refuse_public, transport
from ironspan.azure.transfer import DELAYS, ours, repeat
from ironspan.program.errors import KeyMissing, ProgramError, ServiceError
from ironspan.program.state import write_json

LOG = logging.getLogger(__name__)
ALGORITHM = KeyWrapAlgorithm.rsa_oaep_256
FRESH_S = 3600.0
"""Seconds after which the vault is asked for a newer version: a rotation counts within the hour."""
CACHE = pathlib.Path("/var/lib/ironspan/etcd-backup/wrapping-key.json")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half of one version of a key; ``n`` and ``e`` in hexadecimal."""

    id: str
    version: str
    n: str
    e: str


class VaultKeys:
    """Wraps data keys with RSA-OAEP-256 and a key of a vault.

    Args:
        keys: a client of the vault, whose retry policy does nothing.
        name: of the key, RSA.
        cryptography: makes a client for the private half of one version of the key.
        cache: file for the public half.
        clock: seconds, for the age of what is known.
        delays: seconds between attempts at one request.
        asks: look for a newer version by itself; without it what is known counts until ``refresh``.
    """

    def __init__(
        self,
        keys: KeyClient,
        name: str,
        cryptography: Callable[[str], CryptographyClient],
        cache: pathlib.Path = CACHE,
        clock: Callable[[], float] = time.monotonic,
        delays: tuple[float, ...] = DELAYS,
        *,
        asks: bool = True,
    ) -> None:
        self._keys, self._name, self._cryptography = keys, name, cryptography
        self._cache, self._clock, self._delays = cache, clock, delays
        self._asks = asks
        self._known: PublicKey | None = None if asks else self._kept()
        self._asked = 0.0

    @property
    def current(self) -> str:
        """The version that ``wrap`` uses."""
        return self._public().version

    def wrap(self, data_key: bytes) -> tuple[str, bytes]:
        """Return the version of the key used, and the wrapped data key."""
        public = self._public()
        key = JsonWebKey(
            kid=public.id,
            kty="RSA",
            key_ops=["wrapKey"],
            n=bytes.fromhex(public.n),
            e=bytes.fromhex(public.e),
        )
        wrapped = CryptographyClient.from_jwk(key).wrap_key(ALGORITHM, data_key)
        return public.version, wrapped.encrypted_key

    def unwrap(self, version: str, wrapped: bytes) -> bytes:
        """Return the data key. Raises KeyMissing when the version is not there or does not open it."""
        client = self._cryptography(version)
        return bytes(self._ask(lambda: client.unwrap_key(ALGORITHM, wrapped).key, version))

    def _public(self) -> PublicKey:
        """Return the newest version as the vault says, or as it said last while it cannot be reached."""
        if self._known and (not self._asks or self._clock() - self._asked < FRESH_S):
            return self._known
        try:
            return self.refresh()
        except ServiceError as error:
            # Asked again in the next call: an answer counts as soon as there is one.
            self._known = self._known or self._kept()
            if self._known is None or not error.retryable:
                raise
            return self._known

    def refresh(self) -> PublicKey:
        """Ask the vault for the newest version, remember and return it.

        Raises:
            ProgramError: it does not say, or there is none that can be used.
        """
        found = self._newest()
        if found != self._known:
            try:
                self._keep(found)
            except OSError as error:
                # It is for outages only: a full disk must not stop the backups.
                LOG.warning("%s cannot be written: %s", self._cache, error.strerror)
        self._known, self._asked = found, self._clock()
        return found

    def _newest(self) -> PublicKey:
        key = self._ask(lambda: self._keys.get_key(self._name), "")
        version = str(key.properties.version)
        if key.properties.enabled is False:
            raise KeyMissing(f"{self._where(version)} is disabled.", self._enable(version))
        public: t.Any = key.key
        if not str(getattr(public.kty, "value", public.kty)).startswith("RSA"):
            raise ProgramError(
                f"{self._where(version)} is no RSA key.", "Make an RSA key of 3072 bits or more."
            )
        return PublicKey(str(key.id), version, public.n.hex(), public.e.hex())

    def _kept(self) -> PublicKey | None:
        try:
            kept = PublicKey(**json.loads(self._cache.read_text(encoding="ascii")))
        except (OSError, ValueError, TypeError):
            return None
        return kept if kept.id.startswith(self._id("")) else None

    def _keep(self, found: PublicKey) -> None:
        self._cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._cache, asdict(found))

    def _ask[Made](self, request: Callable[[], Made], version: str) -> Made:
        return repeat(
            request,
            lambda error: self._explain(error, version) if isinstance(error, AzureError) else ours(error),
            delays=self._delays,
        )

    def _where(self, version: str) -> str:
        return f"The key {self._name}{f', version {version},' if version else ''} in {self._keys.vault_url}"

    def _id(self, version: str) -> str:
        return f"{self._keys.vault_url.rstrip('/')}/keys/{self._name}/{version}"

    def _enable(self, version: str) -> str:
        return (
            "What was encrypted with it can only be read when it is enabled: az keyvault key set-attributes "
            f"--id {self._id(version)} --enabled true"
        )

    def _explain(self, error: AzureError, version: str) -> ProgramError:
        status = error.status_code if isinstance(error, HttpResponseError) else None
        reasons = _reasons(error)
        if status == 404:
            return KeyMissing(
                f"{self._where(version)} is not there.",
                "If it was deleted, it can be brought back until it is purged: az keyvault key recover "
                f"--vault-name {Endpoint.of(self._keys.vault_url).label} --name {self._name}",
            )
        if status == 403 and ("KeyDisabled" in reasons or "disabled key" in str(error.message)):
            return KeyMissing(f"{self._where(version)} is disabled.", self._enable(version))
        if status == 403 and reasons & {"ForbiddenByFirewall", "ForbiddenByConnection"}:
            return ProgramError(
                f"{self._where(version)}: the vault refuses this network.",
                "Reach it through its private endpoint.",
            )
        if status == 403:
            return ProgramError(
                f"{self._where(version)}: this identity may not use it.",
                'Assign it "Key Vault Crypto Service Encryption User" on the key: get, wrap and unwrap.',
            )
        if status == 400:
            return KeyMissing(
                f"{self._where(version)} does not open what it is said to have wrapped.",
                "The vault may be another one than when the backup was made; check vault_url and key.",
            )
        endpoint = Endpoint.of(self._keys.vault_url)
        return explain(error, Place(endpoint.host, f"keys/{self._name}"), "read")


def _reasons(error: AzureError) -> set[str]:
    """Return the codes of an error and of those inside it."""
    found: set[str] = set()
    inner: t.Any = getattr(error, "error", None)
    while inner is not None:
        code = inner.get("code") if isinstance(inner, Mapping) else getattr(inner, "code", None)
        found.add(str(code))
        inner = inner.get("innererror") if isinstance(inner, Mapping) else getattr(inner, "innererror", None)
    return found


def open_key_vault(settings: Mapping[str, t.Any]) -> VaultKeys:
    """Open the keys of a vault.

    Args:
        settings: ``vault_url``, ``key``, ``credential`` (see ``identity.credential``), ``ca``, ``private``,
            ``cache``, the file for the public half of the key, and ``asks`` (see ``VaultKeys``).

    Raises:
        ProgramError: the settings hold a key, or do not fit this host.
        ServiceError: the vault's name has a public address.
    """
    refuse_secrets(settings)
    url, ca, private = settings["vault_url"], settings.get("ca", ""), settings.get("private", True)
    if private:
        refuse_public(Endpoint.of(url))
    identity = credential(settings["credential"], ca)
    options: dict[str, t.Any] = {
        "transport": transport(private=private, ca=ca),
        "retry_total": 0,
        # A vault with a certificate of one's own is none of Azure's, whose names the SDK insists on.
        "verify_challenge_resource": not ca,
    }
    name = settings["key"]

    def cryptography(version: str) -> CryptographyClient:
        return CryptographyClient(f"{url.rstrip('/')}/keys/{name}/{version}", identity, **options)

    return VaultKeys(
        KeyClient(url, identity, **options),
        name,
        cryptography,
        pathlib.Path(settings.get("cache") or CACHE),
        asks=settings.get("asks", True),
    )
