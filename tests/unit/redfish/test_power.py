# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Power is believed only when everything that can be read says the same."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    BmcError,
    Refused,
    Unproven,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.power import (
    Reading,
    Wanted,
    bring_power,
)

from ironspan.lab.bmc.faults import Fault
from ironspan.lab.bmc.front import Front
from ironspan.lab.bmc.servers import Answer, InMemory
from tests.unit.redfish.conftest import bmc_of, no_pause, state


def bring(front: Front, wanted: Wanted, within_s: float = 120) -> t.Any:
    with bmc_of(front) as bmc:
        return bring_power(bmc, wanted, within_s=within_s, graceful_s=within_s, pause=no_pause)


def resets(front: Front) -> list[str]:
    assert isinstance(front.server, InMemory)
    return front.server.resets


def test_power_goes_where_it_is_wanted_and_no_request_is_made_twice(front: Front) -> None:
    assert bring(front, "off").changed is False
    assert bring(front, "on").changed is True
    assert bring(front, "on").changed is False
    assert bring(front, "graceful").changed is True
    assert bring(front, "graceful").changed is False
    assert bring(front, "cycle").changed is True
    assert bring(front, "cycle").changed is True
    assert resets(front) == ["On", "GracefulShutdown", "On", "ForceOff", "On"]


def test_a_server_that_takes_its_time_is_waited_for(tmp_path: Path) -> None:
    with Front(tmp_path, state(), InMemory(delay_s=0.3)).running() as front:
        report = bring(front, "on")
    assert report.after.proves("On")
    assert report.before.proves("Off")


def test_a_bmc_that_does_nothing_is_found_out(front: Front) -> None:
    front.faults.power = "deaf"
    with pytest.raises(Unproven, match=r"took the request.* still not on"):
        bring(front, "on", 0)


def test_a_bmc_that_claims_to_be_off_is_found_out_by_chassis_and_watts(front: Front) -> None:
    bring(front, "on")
    front.faults.power = "claims-off"
    with pytest.raises(Unproven, match="that is not so: system Off, chassis On, 1800 W"):
        bring(front, "off", 0)


def test_off_is_not_proven_while_it_draws_as_if_it_ran(front: Front) -> None:
    front.state.watts_off = 900
    with pytest.raises(Unproven, match="900 W"):
        bring(front, "off", 0)


def test_an_operating_system_that_does_not_shut_down_is_not_cut(front: Front) -> None:
    bring(front, "on")
    front.faults.add(Fault("deaf", method="POST", path="Reset"))
    with pytest.raises(Unproven, match="did not shut down"):
        bring(front, "graceful", 0)
    assert resets(front) == ["On"]


@pytest.mark.parametrize("kind", ["reset-after", "500-after"])
def test_what_was_done_counts_and_not_what_was_answered(front: Front, kind: t.Any) -> None:
    front.faults.add(Fault(kind, method="POST", path="Reset", times=1))
    assert bring(front, "on").changed is True
    assert resets(front) == ["On"]


def test_a_bmc_that_fails_and_does_nothing_is_named(front: Front) -> None:
    front.faults.add(Fault("500", method="POST", path="Reset"))
    with pytest.raises(Refused, match=r"HTTP 500.*the server is not on"):
        bring(front, "on", 0)


def test_what_a_bmc_cannot_do_is_said(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(method: str, path: str, body: t.Any) -> Answer:
        answer = InMemory().ask(method, path, body)
        if answer.body and "Actions" in answer.body:
            answer.body["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = ["Nmi"]
        return answer

    monkeypatch.setattr(front.server, "ask", ask)
    with pytest.raises(BmcError, match="cannot do On; it can do Nmi"):
        bring(front, "on", 0)


@pytest.mark.parametrize(
    ("reading", "on", "off"),
    [
        (Reading("On"), True, False),
        (Reading("Off"), False, True),
        (Reading("Off", ("Off",), 120.0), False, True),
        (Reading("Off", ("On",), 120.0), False, False),
        (Reading("Off", ("Off",), 250.0), False, False),
        (Reading("On", ("On",), 0.0), True, False),
        (Reading("PoweringOff"), False, False),
        (Reading(""), False, False),
    ],
)
def test_what_proves_what(reading: Reading, on: bool, off: bool) -> None:
    assert (reading.proves("On"), reading.proves("Off")) == (on, off)
