# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the site keeps of one BMC, sealed in the PKI store: its account, and the certificate that it shows."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError

_FORMAT = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """What is kept.

    Args:
        login: the account that was last seen to work; None when none was yet.
        pending: the one that the BMC may have instead, since a run began to change it.
        since: when ``login`` was first seen to work, in ISO 8601; "" when it was not.
        pins: SHA-256 of certificates that the BMC shows, or may show since a run began to change it.
        ends: when the certificate ends that the site has signed, in ISO 8601; "" when it has none.
    """

    login: Login | None = None
    pending: Login | None = None
    since: str = ""
    pins: tuple[str, ...] = ()
    ends: str = ""

    def as_bytes(self) -> bytes:
        """Return it for the store."""
        return json.dumps({"format": _FORMAT, **dataclasses.asdict(self)}).encode()


def kept_of(content: bytes | None) -> Kept:
    """Return what the store has; nothing when it has nothing.

    Raises:
        BmcError: it is of another version, or damaged.
    """
    if content is None:
        return Kept()
    try:
        found = json.loads(content)
        if found.pop("format") != _FORMAT:
            raise BmcError("an account of a BMC was kept by another version", "use the version that wrote it")
        logins = {key: Login(**found[key]) if found[key] else None for key in ("login", "pending")}
        return Kept(**{**found, **logins, "pins": tuple(found["pins"])})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BmcError("an account of a BMC is damaged", "restore the PKI store from a backup") from None


class Keeper(t.Protocol):
    """Where accounts are kept: ``Store.bmcs`` (plugin_utils/pki/bmcs.py)."""

    def account(self, serial: str) -> bytes | None:
        """Return what is kept, None for nothing."""

    def keep_account(self, serial: str, content: bytes, *, settled: bool) -> None:
        """Keep it; on the disk when it returns."""

    def locked(self, serial: str) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of one BMC."""

    def authority_pem(self) -> str:
        """Return the site's authority for BMCs, "" for none."""
