# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nothing is sent to a BMC that is not trusted, nothing to another host, and every wait has an end."""

from __future__ import annotations

import logging
import time

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Endpoint, Trust
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    BmcError,
    Broken,
    Denied,
    Refused,
    Unreachable,
    Untrusted,
)

from ironspan.lab.bmc.faults import Fault, Kind
from ironspan.lab.bmc.front import Front
from tests.unit.redfish.conftest import FACTORY, SERIAL, bmc_of, endpoint


def test_a_server_says_who_it_is(front: Front) -> None:
    with bmc_of(front) as bmc:
        identity = bmc.identity()
    assert (identity.serial, identity.model, identity.power) == (SERIAL, "Lab Server 8", "Off")
    assert identity.bmc == front.state.firmware


@pytest.mark.parametrize("trust", [Trust(), Trust(pins=frozenset({"0" * 64}))], ids=["none", "another pin"])
def test_nothing_is_sent_to_a_certificate_that_is_not_trusted(front: Front, trust: Trust) -> None:
    with pytest.raises(Untrusted, match=front.sha256):
        Bmc(endpoint(front), trust, FACTORY)
    assert front.seen == []


def test_an_authority_vouches_for_an_address_and_no_other(front: Front) -> None:
    """The factory's certificate is its own authority, and has no address in it."""
    trust = Trust(authorities=front.certificate_file.read_text())
    with pytest.raises(Untrusted, match="not trusted"):
        Bmc(endpoint(front), trust, FACTORY)
    assert front.seen == []


def test_a_certificate_that_changes_after_the_first_look_gets_nothing(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "1" * 64
    monkeypatch.setattr(connection, "shown_certificate", lambda *_: (other, b""))
    with pytest.raises(BmcError):
        Bmc(endpoint(front), Trust(pins=frozenset({other})), FACTORY, 10).system()
    assert front.seen == []


def test_the_worlds_authorities_and_proxies_do_not_count(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(front.certificate_file))
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:1")
    with pytest.raises(Untrusted):
        Bmc(endpoint(front), Trust(), FACTORY)
    with bmc_of(front) as bmc:
        assert bmc.system()


FAULTS: dict[Kind, tuple[type[BmcError], str]] = {
    "401": (Denied, "does not take the account"),
    "403": (Refused, "role Administrator"),
    "500": (Broken, "HTTP 500"),
    "reset": (Unreachable, "no answer"),
    "garbage": (Broken, "not what Redfish says"),
    "huge": (Broken, "longer than"),
    "elsewhere": (BmcError, "192.0.2.7|redirects"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_what_went_wrong_is_said(front: Front, kind: Kind) -> None:
    error, text = FAULTS[kind]
    with bmc_of(front) as bmc:
        front.faults.add(Fault(kind, path="/Systems"))
        with pytest.raises(error, match=text) as raised:
            bmc.system()
    assert "gpu-1" in str(raised.value)
    assert FACTORY.password not in str(raised.value)


def test_a_slow_bmc_costs_no_more_than_was_given(front: Front) -> None:
    with bmc_of(front) as bmc:
        bmc.extend(3 - bmc.deadline.left)
        front.faults.add(Fault("slow", path="/Systems"))
        began = time.monotonic()
        with pytest.raises(Unreachable):
            bmc.system()
    assert time.monotonic() - began < 600, "it would answer after an hour"


def test_nobody_there(front: Front) -> None:
    with pytest.raises(Unreachable, match="no connection"):
        Bmc(Endpoint("gpu-9", "127.0.0.1", 1), Trust(), FACTORY, 5)


def test_an_answer_that_leads_to_another_host_is_not_followed(front: Front) -> None:
    with bmc_of(front) as bmc, pytest.raises(Untrusted, match="another host"):
        bmc.get("https://192.0.2.7/redfish/v1/Systems/1")
    with bmc_of(front) as bmc, pytest.raises(Untrusted):
        bmc.get("http://192.0.2.7/redfish/v1/Systems/1")


def test_a_password_is_in_no_log_and_no_error(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "short"
    with bmc_of(front) as bmc, pytest.raises(Refused) as raised:
        # This BMC repeats what it does not like.
        bmc.patch("/redfish/v1/AccountService/Accounts/2", {"Password": secret}, "change it", {secret})
    assert "property Password" in str(raised.value)
    assert secret not in str(raised.value)
    assert FACTORY.password not in caplog.text
    assert repr(Login("a", secret)).count(secret) == 0
