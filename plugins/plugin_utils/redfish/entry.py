# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The way into a BMC: which account it takes, and whether it is the server that is expected in this place."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import SECONDS, Bmc, Identity, Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Endpoint, Trust
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    BmcError,
    Denied,
    PasswordToChange,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import UNKNOWN, Factory
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import Keeper, Kept, kept_of

By = t.Literal["pending", "site", "factory"]
"""Which account the BMC takes: one that a run began to set, the site's, or the factory's."""
Visit = Callable[[Endpoint, Trust, Login], Bmc]


class WrongServer(BmcError):
    """Another server answers than the one that is expected there. Nothing was changed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A BMC as the site expects it.

    Args:
        endpoint: where it is.
        serial: serial number of its server, in capitals.
        slot: where it is mounted, for people.
        factory: what it came with.
    """

    endpoint: Endpoint
    serial: str
    slot: str = ""
    factory: Factory = UNKNOWN

    @property
    def title(self) -> str:
        """Name and slot."""
        return f"{self.endpoint.name} ({self.slot})" if self.slot else self.endpoint.name


@dataclasses.dataclass(frozen=True, slots=True)
class Entered:
    """A BMC that took an account.

    Args:
        bmc: it.
        by: which account.
        identity: who it is; None for one that says nothing before its password is changed.
    """

    bmc: Bmc
    by: By
    identity: Identity | None


def visit(endpoint: Endpoint, trust: Trust, login: Login) -> Bmc:
    """Return a BMC with the usual time for everything."""
    return Bmc(endpoint, trust, login, SECONDS)


def trust_of(kept: Kept, keeper: Keeper, factory: Factory) -> Trust:
    """Return which certificates of a BMC are taken: pinned ones, and those of the site's authority."""
    authorities = keeper.authority_pem() + factory.trust.authorities
    return Trust(authorities, factory.trust.pins | set(kept.pins))


def insist_on_serial(place: Place) -> None:
    """Refuse a place of which nobody can tell whether the right server answers.

    Raises:
        BmcError: no serial number is declared for it.
    """
    if not place.serial:
        raise BmcError(
            f"{place.title}: no serial number is declared, so nobody can tell which server answers",
            "write it into the column serial",
        )


def enter(place: Place, keeper: Keeper, opened: Visit = visit) -> Entered:
    """Find the account that a BMC takes, and make sure that it is the server that is expected.

    Each account is tried once: BMCs lock out who tries often.

    Raises:
        WrongServer: it is another one.
        Denied: it takes none of them.
        BmcError: it cannot be asked, or nothing is known to ask it with.
    """
    insist_on_serial(place)
    kept = kept_of(keeper.account(place.serial))
    trust = trust_of(kept, keeper, place.factory)
    tried: list[str] = []
    for by, login in _logins(kept, place.factory):
        bmc = opened(place.endpoint, trust, login)
        try:
            return Entered(bmc, by, _insist_on_server(place, bmc, by))
        except Denied:
            bmc.close()
            tried.append(
                {"pending": "the one that a run began to set", "site": "the site's"}.get(by, "the factory's")
            )
        except BaseException:
            bmc.close()
            raise
    if not tried:
        raise BmcError(
            f"{place.title}: no account of its BMC is known",
            f"write {place.serial} into the file of factory accounts (docs/bmc.md)",
        )
    raise Denied(
        f"{place.title}: the BMC takes none of the accounts that are known: {', '.join(tried)}",
        "if the BMC was exchanged or reset, write its factory account into the file; else reset it "
        "(docs/bmc.md, A password is lost)",
    )


def _insist_on_server(place: Place, bmc: Bmc, by: By) -> Identity | None:
    """Return who answers.

    Raises:
        WrongServer: another server.
    """
    try:
        identity = bmc.identity()
    except PasswordToChange:
        if by == "factory" and place.factory.own and place.factory.trust.pins:
            return None  # its certificate, written down for this serial number, says who it is
        raise BmcError(
            f"{place.title}: the BMC says nothing before its password is changed, so nobody can tell which "
            "server it is",
            f"write its certificate's sha256 for {place.serial} into the file of factory accounts",
        ) from None
    if identity.serial != place.serial:
        raise WrongServer(
            f"{place.title}: the server {identity.serial or 'without a serial number'} "
            f"({identity.model or 'of an unknown model'}) answers, and {place.serial} is expected there. "
            "Nothing was changed",
            "exchange the servers, or correct address and serial number in the file of expected servers",
        )
    return identity


def _logins(kept: Kept, factory: Factory) -> Iterator[tuple[By, Login]]:
    seen: set[Login] = set()
    for by, login in (("pending", kept.pending), ("site", kept.login), ("factory", factory.login)):
        if login and login not in seen:
            seen.add(login)
            yield t.cast("By", by), login
