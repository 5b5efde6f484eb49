# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Another password for a BMC, and a certificate of the site's authority. Safe to kill at every step.

The password is in the store, as pending, before the BMC hears it, and is the account's own only when it was
seen to work. A run that is killed leaves one or two accounts in the store, and one of them works: the next
run tries both, and goes on with the same password. The certificate goes the same way: both it and the former
one are taken until the new one was seen.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import ssl
import time
import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import accounts, certificate, connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import is_address
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.entry import (
    Place,
    Visit,
    enter,
    insist_on_serial,
    trust_of,
    visit,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    BmcError,
    Denied,
    Refused,
    Unproven,
    Unreachable,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import Keeper, Kept, kept_of
from cryptography import x509

TRIES = 3
"""How often a new password is tried: some BMCs need some seconds with it, and lock out who tries often."""
_PAUSE_S = 3.0


class Authority(Keeper, t.Protocol):
    """What signs certificates of BMCs: ``Store.bmcs`` (plugin_utils/pki/bmcs.py)."""

    def ensure_authority(self) -> bool:
        """Make the authority where there is none."""

    def sign(self, csr_pem: str, *, dns: t.Sequence[str] = (), ips: t.Sequence[str] = ()) -> str:
        """Sign a request for a name or an address."""


def rotate(
    place: Place,
    keeper: Keeper,
    *,
    opened: Visit = visit,
    made: Callable[[accounts.Policy], str] = accounts.new_password,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Give a BMC's account another password, or end what a killed run began.

    Args:
        place: the BMC.
        keeper: where accounts are kept.
        opened: opens a BMC.
        made: makes a password.
        pause: waits so many seconds, for tests.

    Raises:
        WrongServer: another server answers; nothing was changed.
        BmcError: it did not come about. Whatever password the BMC has, the store has it too.
    """
    insist_on_serial(place)
    with keeper.locked(place.serial):
        entered = enter(place, keeper, opened)
        with entered.bmc as bmc:
            kept = kept_of(keeper.account(place.serial))
            if entered.by == "pending" and kept.pending:
                _settle(place, keeper, kept, kept.pending)
                return
            if kept.pending and kept.pending.username == bmc.login.username:
                # The same again: it may be on its way into the BMC still.
                pending = kept.pending
            else:
                pending = Login(bmc.login.username, made(accounts.policy_of(bmc)))
            keeper.keep_account(
                place.serial, dataclasses.replace(kept, pending=pending).as_bytes(), settled=False
            )
            heard = _set(bmc, pending)
        _insist_on_pending(place, keeper, pending, heard, opened, pause)


def _set(bmc: Bmc, pending: Login) -> BmcError | None:
    """Ask the BMC to take a password; what it says is no proof, either way."""
    try:
        accounts.set_password(bmc, pending.password)
    except BmcError as error:
        return error
    return None


def _insist_on_pending(
    place: Place,
    keeper: Keeper,
    pending: Login,
    heard: BmcError | None,
    opened: Visit,
    pause: Callable[[float], None],
) -> None:
    kept = kept_of(keeper.account(place.serial))
    trust = trust_of(kept, keeper, place.factory)
    for number in range(1 if heard else TRIES):
        if number:
            pause(_PAUSE_S)
        try:
            with opened(place.endpoint, trust, pending) as bmc:
                bmc.system()
        except Denied:
            continue
        except Unreachable as error:
            raise heard or error from None
        _settle(place, keeper, kept, pending)
        return
    if isinstance(heard, Refused):
        # It said no and does not take it: the next run makes another one.
        keeper.keep_account(place.serial, dataclasses.replace(kept, pending=None).as_bytes(), settled=False)
    if heard:
        raise heard
    raise Unproven(
        f"{place.title}: the BMC took the password and does not let in with it",
        "run it again in some minutes: both passwords are kept, and both are tried",
    )


def _settle(place: Place, keeper: Keeper, kept: Kept, login: Login) -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    settled = dataclasses.replace(kept, login=login, pending=None, since=now)
    keeper.keep_account(place.serial, settled.as_bytes(), settled=True)


def certify(
    place: Place,
    keeper: Authority,
    *,
    opened: Visit = visit,
    within_s: float = certificate.RESTARTS_S,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Have a BMC show a certificate of the site's authority.

    Args:
        place: the BMC.
        keeper: where accounts are kept, and what signs.
        opened: opens a BMC.
        within_s: how long its web server may take to come back.
        pause: waits so many seconds, for tests.

    Raises:
        WrongServer: another server answers; nothing was changed.
        BmcError: it did not come about. What the BMC showed before and may show now is both taken.
    """
    insist_on_serial(place)
    keeper.ensure_authority()
    with keeper.locked(place.serial):
        entered = enter(place, keeper, opened)
        with entered.bmc as bmc:
            before = _shown(bmc, place)
            signed = keeper.sign(certificate.requested(bmc), **_names(place))
            sha256 = hashlib.sha256(ssl.PEM_cert_to_DER_cert(signed)).hexdigest()
            kept = kept_of(keeper.account(place.serial))
            both = dataclasses.replace(kept, pins=(before, sha256))
            keeper.keep_account(place.serial, both.as_bytes(), settled=False)
            heard = _installed(bmc, signed)
        trust = trust_of(both, keeper, place.factory)
        try:
            certificate.insist_on_shown(place.endpoint, trust, sha256, within_s, pause)
        except Unproven as error:
            raise heard or error from None
        ends = x509.load_pem_x509_certificate(signed.encode()).not_valid_after_utc
        done = dataclasses.replace(both, pins=(sha256,), ends=ends.isoformat(timespec="seconds"))
        keeper.keep_account(place.serial, done.as_bytes(), settled=True)


def _installed(bmc: Bmc, signed: str) -> BmcError | None:
    """Hand over the certificate; a web server that restarts may not answer, so what it shows decides."""
    try:
        certificate.install(bmc, signed)
    except BmcError as error:
        return error
    return None


def _shown(bmc: Bmc, place: Place) -> str:
    return connection.shown_certificate(place.endpoint, bmc.deadline.insist(bmc.name))[0]


def _names(place: Place) -> dict[str, tuple[str, ...]]:
    address = place.endpoint.address
    return {"ips": (address,)} if is_address(address) else {"dns": (address,)}
