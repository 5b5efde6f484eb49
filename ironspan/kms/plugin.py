# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What an API server asks of its plugin: wrap a seed, open one, and say whether that works.

Wrapping needs the public half of the vault's key only, which this host keeps. Opening needs the vault, or a
seed that this host has seen before, or one that another host has sealed for it (handover.py). The vault is
asked once a minute whether its key still opens anything:

* it does: all is well;
* it does not answer, or not to this host: seeds that are known are opened for ``outage_s`` longer;
* it says that the key is disabled or gone: nothing is opened any more, and all seeds are forgotten at once.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
import typing as t
from collections.abc import Callable

from ironspan.kms.seeds import Seeds
from ironspan.program.errors import KeyMissing, ProgramError

LOG = logging.getLogger(__name__)
OK = "ok"
"""What Kubernetes takes for a healthy plugin."""
PROBE_S = 60.0
_NOT_ASKED = "the vault was not asked yet"


class Keys(t.Protocol):
    """A key in a vault; see ironspan/azure/keyvault.py."""

    @property
    def current(self) -> str:
        """The newest version."""

    def refresh(self) -> object:
        """Ask the vault for the newest version now."""

    def wrap(self, data_key: bytes) -> tuple[str, bytes]:
        """Return the version used, and the wrapped key."""

    def unwrap(self, version: str, wrapped: bytes) -> bytes:
        """Return the key."""


class Wrapped(t.NamedTuple):
    """A wrapped seed, the id of the key that opens it, and the seed sealed for other hosts (handover.py)."""

    ciphertext: bytes
    key_id: str
    sealed: bytes = b""


class Plugin:
    """Wraps and opens seeds.

    Args:
        keys: the key in the vault.
        place: vault and name of the key; a key id is this and the version.
        seeds: what this host knows.
        outage_s: seconds without the vault after which known seeds are not opened any more.
        now: Unix time, for tests.
        failed: told each error of a question to the vault.
    """

    def __init__(
        self,
        keys: Keys,
        place: str,
        seeds: Seeds,
        outage_s: float,
        now: Callable[[], float] = time.time,
        failed: Callable[[ProgramError], object] = lambda error: None,
    ) -> None:
        self._keys, self._place, self._seeds = keys, place, seeds
        self._outage_s, self._failed, self._now = outage_s, failed, now
        self._trouble = _NOT_ASKED
        self._revoked = ""
        self._check: tuple[str, bytes, bytes] | None = None
        self._lock = threading.Lock()
        # Not held while the vault is asked: who revokes forgets all seeds that were remembered before.
        self._remembering = threading.Lock()

    def probe(self) -> None:
        """Ask the vault whether the newest version of its key opens what it has wrapped."""
        with self._lock:
            try:
                self._open_something()
            except KeyMissing as error:
                self._failed(error)
                if not self._revoked:
                    LOG.error("the key is not to be used: %s", error)
                with self._remembering:
                    self._revoked = self._trouble = str(error)
                    self._seeds.forget()
            except ProgramError as error:
                self._failed(error)
                if self._trouble in ("", _NOT_ASKED):
                    LOG.warning("the vault does not open anything: %s", error)
                self._trouble = str(error)
            else:
                if self._trouble:
                    LOG.info("the vault opens what its key has wrapped")
                self._trouble = self._revoked = ""
                self._seeds.confirm(self._now())

    def since_opened(self) -> float:
        """Return for how many seconds the vault has opened nothing; infinite for ever, or when revoked."""
        confirmed = 0.0 if self._revoked else self._seeds.confirmed
        return self._now() - confirmed if confirmed else math.inf

    def status(self) -> tuple[str, str]:
        """Return ``ok`` or what is wrong, and the id of the key that wraps now.

        Raises:
            ProgramError: the vault was never reached, so there is no key.
        """
        healthz = self._revoked or (OK if not self._trouble or self._in_time() else self._trouble)
        return healthz, self._key_id(self._keys.current)

    def encrypt(self, seed: bytes) -> Wrapped:
        """Wrap a seed.

        Raises:
            ProgramError: the key is not to be used, or the vault was never reached.
        """
        self._insist()
        version, ciphertext = self._keys.wrap(seed)
        sealed = self._seeds.seal(ciphertext, seed, version)
        self._remember(ciphertext, seed)
        return Wrapped(ciphertext, self._key_id(version), sealed)

    def decrypt(self, wrapped: Wrapped) -> bytes:
        """Open a seed.

        Raises:
            ProgramError: the key is not to be used or is another vault's, or the vault cannot be reached and
                the seed is not known.
        """
        self._insist()
        place, _, version = wrapped.key_id.rpartition("/")
        if place != self._place:
            raise ProgramError(
                f"It was encrypted with {wrapped.key_id!r}; this plugin has the key {self._place}.",
                "Set control_plane_key_vault to the vault that it was encrypted with (docs/encryption.md).",
            )
        known = self._known(wrapped, version) if not self._trouble or self._in_time() else None
        if known is not None:
            return known
        seed = self._keys.unwrap(version, wrapped.ciphertext)
        self._remember(wrapped.ciphertext, seed, version)
        return seed

    def _remember(self, wrapped: bytes, seed: bytes, read: str = "") -> None:
        """Remember a seed, unless its key was revoked since the vault was asked: then it stays forgotten."""
        with self._remembering:
            self._insist()
            self._seeds.put(wrapped, seed, read)

    def _known(self, wrapped: Wrapped, version: str) -> bytes | None:
        """Return the seed without asking the vault, None when this host knows nothing that opens it."""
        seed = self._seeds.get(wrapped.ciphertext, version)
        if seed is None:
            seed = self._seeds.open(wrapped.ciphertext, wrapped.sealed)
            if seed is not None:
                self._remember(wrapped.ciphertext, seed, version)
        return seed

    def _open_something(self) -> None:
        self._keys.refresh()
        version = self._keys.current
        if self._check is None or self._check[0] != version:
            plain = secrets.token_bytes(32)
            self._check = (*self._keys.wrap(plain), plain)
        used, wrapped, plain = self._check
        if self._keys.unwrap(used, wrapped) != plain:
            raise KeyMissing(f"{self._place}/{used} does not open what it has wrapped.")

    def _in_time(self) -> bool:
        return 0 <= self._now() - self._seeds.confirmed < self._outage_s

    def _insist(self) -> None:
        if self._revoked:
            raise KeyMissing(self._revoked)

    def _key_id(self, version: str) -> str:
        return f"{self._place}/{version}"
