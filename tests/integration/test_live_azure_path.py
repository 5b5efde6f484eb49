# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""The whole way of the live test, from its environment to its cleaning up, in the emulated Azure."""

from __future__ import annotations

import re

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

from ironspan.lab.azure import settings
from tests.support import live_azure
from tests.support.lab_arm import LabArm, arm  # noqa: F401
from tests.support.lab_azure import azure, running_azure  # noqa: F401

EVERY_S = 0.05


@pytest.fixture(autouse=True)
def _as_signed_in(arm: LabArm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that docs/azure-live.md asks for; the emulated Azure knows no `az login`."""
    monkeypatch.setenv(live_azure.SUBSCRIPTION, settings.SUBSCRIPTION)
    monkeypatch.setenv(live_azure.EMAIL, "somebody@example.com")
    monkeypatch.setattr(live_azure, "connected", lambda: arm.azure.management())


def test_it_goes_the_whole_way_and_leaves_nothing(arm: LabArm) -> None:
    with live_azure.made(EVERY_S).standing() as live:
        assert re.fullmatch(r"ironspan-live-[0-9a-f]{6}", live.stack)
        assert arm.show()["budgets"] == [live.stack]
        live.goes_the_whole_way()
        assert {one["name"] for one in live.data["azure_machines"]} == {"etcd", "control-plane"}
    assert arm.show()["resources"] == arm.show()["budgets"] == []
    # Runs that are cut off are cleaned up after by the same call, again and again.
    live.delete()


@pytest.mark.long
def test_what_a_run_that_was_cut_off_has_left_is_listed_and_deleted(
    arm: LabArm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live_azure.main([]) == 0
    live = live_azure.made(EVERY_S)
    live.limit()
    assert live.run().problems == []
    capsys.readouterr()
    assert live_azure.main([]) == 1
    assert capsys.readouterr().out == f"{live.stack}\n"
    assert arm.show()["resources"]
    assert live_azure.main(["--delete"]) == 0
    assert arm.show()["resources"] == arm.show()["budgets"] == []


def test_another_subscription_than_there_is_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(live_azure.SUBSCRIPTION, "00000000-0000-4000-8000-000000000000")
    with pytest.raises(RemoteError, match="00000000-0000-4000-8000-000000000000"):
        live_azure.made()
