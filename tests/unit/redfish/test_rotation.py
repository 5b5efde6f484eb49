# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whenever a run is killed, the password that the BMC has is in the store, and the next run goes on."""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import accounts, entry, rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Trust
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.entry import Place, WrongServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    BmcError,
    Broken,
    Denied,
    Refused,
    Unproven,
    Unreachable,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import Factory
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import Kept, kept_of

from ironspan.lab.bmc.faults import Fault
from ironspan.lab.bmc.front import Front
from ironspan.lab.bmc.resources import Account
from tests.unit.redfish.conftest import FACTORY, SERIAL, no_pause, pinned, place


def kept(store: Store) -> Kept:
    return kept_of(store.bmcs.account(SERIAL))


def rotate(where: Place, store: Store) -> None:
    rotation.rotate(where, store.bmcs, pause=no_pause)


def password(front: Front) -> str:
    return front.state.accounts["2"].password


def test_from_the_factory_to_the_site_and_again(front: Front, store: Store) -> None:
    where = place(front)
    rotate(where, store)
    first = password(front)
    assert kept(store).login == Login(FACTORY.username, first)
    assert first != FACTORY.password
    assert kept(store).pending is None
    # Without the factory's account, and with a pin only: what the store has is enough.
    alone = place(front, factory=Factory(None, pinned(front)))
    rotate(alone, store)
    assert kept(store).login == Login(FACTORY.username, password(front))
    assert password(front) != first


def test_a_password_is_as_the_bmc_wants_it_and_never_in_clear_on_disk(
    front: Front, store: Store, tmp_path: Path
) -> None:
    front.state.least, front.state.most = 12, 16
    rotate(place(front), store)
    assert len(password(front)) == 16
    for path in (tmp_path / "pki").rglob("*"):
        assert not path.is_file() or password(front).encode() not in path.read_bytes()


class Killed(BaseException):
    """The run is over at once; nothing cleans up behind it that a dead process would not."""


class Killer:
    """Kills at the n-th step.

    Args:
        at: number of the step, from 0.
    """

    def __init__(self, at: int) -> None:
        self._left = at

    def step(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1

    def around(self, do: Callable[..., t.Any]) -> Callable[..., t.Any]:
        """Return what can be killed before and after."""

        def done(*args: t.Any, **more: t.Any) -> t.Any:
            self.step()
            found = do(*args, **more)
            self.step()
            return found

        return done


def outcome(killer: Killer, where: Place, store: Store, patched: pytest.MonkeyPatch) -> bool:
    """Run until it is killed; True when it was not."""
    with patched.context() as patch:
        patch.setattr(store.bmcs, "keep_account", killer.around(store.bmcs.keep_account))
        patch.setattr(store.bmcs, "ensure_authority", killer.around(store.bmcs.ensure_authority))
        patch.setattr(Bmc, "patch", killer.around(Bmc.patch))
        patch.setattr(Bmc, "post", killer.around(Bmc.post))
        patch.setattr(Bmc, "system", killer.around(Bmc.system))
        try:
            rotate(where, store)
            rotation.certify(where, store.bmcs, within_s=5, pause=no_pause)
        except Killed:
            return False
    return True


@pytest.mark.parametrize("begun", ["factory", "site"])
def test_killed_at_every_step(
    front: Front, store: Store, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    where = place(front)
    if begun == "site":
        rotate(where, store)
        rotation.certify(where, store.bmcs, within_s=5, pause=no_pause)
    for number in itertools.count():
        if begun == "factory":
            front.state.accounts["2"].password = FACTORY.password
            _forget(store)
        over = outcome(Killer(number), where, store, monkeypatch)
        known = {FACTORY, kept(store).login, kept(store).pending}
        assert Login(FACTORY.username, password(front)) in known, f"killed at step {number}"
        shown = front.sha256
        assert shown in {*kept(store).pins, *where.factory.trust.pins}, f"killed at step {number}"
        # The next run ends it, and what is in the store opens the BMC.
        rotate(where, store)
        assert kept(store).login == Login(FACTORY.username, password(front))
        assert kept(store).pending is None
        if over:
            break
    assert number > 12


def _forget(store: Store) -> None:
    for path in store.path.glob("secrets*/bmc-account-*"):
        path.unlink()


@pytest.mark.parametrize("kind", ["reset", "reset-after", "500", "500-after", "slow"])
def test_whatever_is_answered_to_a_new_password_what_works_is_kept(
    front: Front, store: Store, kind: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "slow":
        monkeypatch.setattr(entry, "SECONDS", 3.0)
    front.faults.add(Fault(kind, method="PATCH", path="Accounts", times=1, seconds=600))
    try:
        rotate(place(front), store)
    except (Broken, Unreachable):
        assert Login(FACTORY.username, password(front)) in {FACTORY, kept(store).pending}
        rotate(place(front), store)
    assert kept(store).login == Login(FACTORY.username, password(front))
    assert password(front) != FACTORY.password


def test_a_password_that_is_taken_and_not_set_is_found_out_and_used_again(front: Front, store: Store) -> None:
    front.faults.add(Fault("deaf", method="PATCH", path="Accounts", times=1))
    with pytest.raises(Unproven, match="both passwords are kept"):
        rotate(place(front), store)
    pending = kept(store).pending
    assert pending
    rotate(place(front), store)
    assert kept(store).login == pending
    assert password(front) == pending.password


def test_a_password_that_is_refused_is_not_kept(front: Front, store: Store) -> None:
    rotate(place(front), store)
    before = kept(store)
    with pytest.raises(Refused) as raised:
        rotation.rotate(place(front), store.bmcs, made=lambda policy: "x" * 40, pause=no_pause)
    assert "x" * 40 not in str(raised.value)
    assert kept(store) == before


def test_another_server_in_the_place_is_left_alone(front: Front, store: Store) -> None:
    front.faults.serial = "SN0666"
    with pytest.raises(WrongServer, match=r"gpu-1 \(rack-1 U1\): the server SN0666 .* SN0001 is expected"):
        rotate(place(front), store)
    assert {method for method, _ in front.seen} == {"GET"}
    assert password(front) == FACTORY.password
    assert store.bmcs.account(SERIAL) is None


def test_no_serial_number_no_change(front: Front, store: Store) -> None:
    with pytest.raises(BmcError, match="column serial"):
        rotate(place(front, serial=""), store)
    assert front.seen == []


def test_each_account_is_tried_once(front: Front, store: Store) -> None:
    """BMCs lock out who tries often."""
    rotate(place(front), store)
    front.state.lockout, front.state.failed = 3, 0
    front.state.accounts["2"].password = "somebody changed it by hand"
    with pytest.raises(Denied, match="the site's, the factory's"):
        rotate(place(front), store)
    assert front.state.failed == 2


def test_a_bmc_that_was_exchanged_starts_from_its_factory_account(front: Front, store: Store) -> None:
    rotate(place(front), store)
    front.state.accounts["2"] = Account("admin", "of the new board")
    new = Factory(Login("admin", "of the new board"), pinned(front), own=True)
    rotate(place(front, factory=new), store)
    assert kept(store).login == Login("admin", password(front))


def test_a_password_that_has_to_be_changed_first(front: Front, store: Store) -> None:
    front.state.accounts["2"].must_change = True
    unknown = Factory(FACTORY, pinned(front), own=False)
    with pytest.raises(BmcError, match="sha256 for SN0001"):
        rotate(place(front, factory=unknown), store)
    assert password(front) == FACTORY.password
    rotate(place(front), store)
    assert kept(store).login == Login(FACTORY.username, password(front))


def test_a_certificate_of_the_sites_authority(front: Front, store: Store) -> None:
    where = place(front)
    rotate(where, store)
    factory_pin = front.sha256
    rotation.certify(where, store.bmcs, within_s=5, pause=no_pause)
    assert front.sha256 != factory_pin
    assert kept(store).pins == (front.sha256,)
    assert kept(store).ends
    login = kept(store).login
    assert login
    # The authority alone is enough, for this address.
    with Bmc(where.endpoint, Trust(store.bmcs.authority_pem()), login, 20) as bmc:
        assert bmc.identity().serial == SERIAL


@pytest.mark.parametrize("kind", ["reset-after", "500", "deaf"])
def test_a_certificate_that_is_not_shown_is_no_success(front: Front, store: Store, kind: t.Any) -> None:
    rotate(place(front), store)
    front.faults.add(Fault(kind, method="POST", path="ReplaceCertificate", times=1))
    if kind == "reset-after":  # it has it all the same
        rotation.certify(place(front), store.bmcs, within_s=5, pause=no_pause)
        assert kept(store).pins == (front.sha256,)
        return
    before = front.sha256
    with pytest.raises((Broken, Unproven)):
        rotation.certify(place(front), store.bmcs, within_s=0, pause=no_pause)
    assert before in kept(store).pins
    rotation.certify(place(front), store.bmcs, within_s=5, pause=no_pause)
    assert kept(store).pins == (front.sha256,)


@pytest.mark.parametrize("policy", [accounts.Policy(), accounts.Policy(8, 8), accounts.Policy(30, 40)])
def test_passwords(policy: accounts.Policy) -> None:
    found = {accounts.new_password(policy) for _ in range(200)}
    assert len(found) == 200
    for one in found:
        assert policy.least <= len(one) <= policy.most
        assert one[0].isalnum()
        assert one[-1].isalnum()
