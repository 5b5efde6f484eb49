# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ironic gets the account that the site keeps of a BMC, again after each rotation; plans never have it."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.ironic_login import SINCE, BmcLogins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import Kept
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)

NODE = {"driver": "redfish", "driver_info": {"redfish_address": "https://192.0.2.1"}, "extra": {"row": "7"}}
SECRET = "not-in-a-plan"
EXPECTED = {
    "name": "gpu-1", "bmc_address": "192.0.2.1", "rack": "a", "position": 1, "serial": "SN1", "nics": [],
    "disks": [], "firmware": [],
}  # fmt: skip


class Kepts:
    """Accounts by serial number."""

    def __init__(self, **kept: Kept) -> None:
        self.kept = kept

    def account(self, serial: str) -> bytes | None:
        found = self.kept.get(serial)
        return found.as_bytes() if found else None


class Ironic:
    """An Ironic with one node, which shows what it was asked for."""

    def __init__(self) -> None:
        self.entry: dict[str, t.Any] = {"uuid": "1", "driver": "redfish", "driver_info": {}, "extra": {}}
        self.changes: list[Mapping[str, t.Any]] = []
        self.enrolled: Mapping[str, t.Any] = {}

    def entries(self, *fields: str) -> dict[str, tuple[Mapping[str, t.Any], Node]]:
        return {"gpu-1": (self.entry, Node("available", done=frozenset({"inspect"})))}

    def change(self, uuid: str, values: Mapping[str, t.Any], *, secret: bool = False) -> None:
        self.changes.append(values)

    def enrol(self, name: str, body: Mapping[str, t.Any], macs: t.Any) -> str:
        self.enrolled = body
        return "1"


def kept(since: str) -> Kept:
    return Kept(login=Login("root", SECRET), since=since)


def wanted(logins: BmcLogins) -> dict[str, t.Any]:
    return {
        "goal": "available", "inspect": False, "node": logins.node(NODE, "SN1"), "macs": [], "image": {},
        "host": {}, "expected": EXPECTED,
    }  # fmt: skip


def kind_of(api: Ironic, logins: BmcLogins, known: KnownHosts) -> BareMetalServer:
    return BareMetalServer(lambda: t.cast("t.Any", api), Account("x", ()), known, logins=logins)


def test_a_server_is_enrolled_with_the_account_that_is_kept_and_the_plan_does_not_have_it() -> None:
    api, logins = Ironic(), BmcLogins(Kepts(SN1=kept("2026-01-01T00:00:00+00:00")))
    asked = wanted(logins)
    assert SECRET not in json.dumps(asked)
    assert asked["node"]["extra"] == {"row": "7", SINCE: "2026-01-01T00:00:00+00:00"}
    kind = kind_of(api, logins, KnownHosts(""))
    kind.find({"gpu-1": asked})
    step = next(step for step in kind.steps("gpu-1", asked, None) if step.verb == "enrol")
    kind.do("gpu-1", step, asked, None, lambda _: None)
    assert api.enrolled["driver_info"] == {
        "redfish_address": "https://192.0.2.1", "redfish_username": "root", "redfish_password": SECRET,
    }  # fmt: skip


def test_after_a_rotation_ironic_gets_the_new_one_and_only_then() -> None:
    api, logins = Ironic(), BmcLogins(Kepts(SN1=kept("2026-02-01T00:00:00+00:00")))
    asked = wanted(logins)
    api.entry |= {
        "driver_info": {"redfish_address": "https://192.0.2.1", "redfish_password": "******"},
        "extra": {"row": "7", SINCE: "2026-01-01T00:00:00+00:00"},
    }
    kind = kind_of(api, logins, KnownHosts(""))
    found = kind.find({"gpu-1": asked})["gpu-1"].state
    (step,) = kind.steps("gpu-1", asked, found)
    assert SECRET not in step.what and step.verb == "change"
    kind.do("gpu-1", step, asked, found, lambda _: None)
    assert api.changes == [
        {
            f"extra/{SINCE}": "2026-02-01T00:00:00+00:00",
            "driver_info/redfish_username": "root",
            "driver_info/redfish_password": SECRET,
        }
    ]
    api.entry["extra"][SINCE] = "2026-02-01T00:00:00+00:00"
    assert kind.steps("gpu-1", asked, kind.find({"gpu-1": asked})["gpu-1"].state) == []


@pytest.mark.parametrize(
    ("node", "serial", "logins"),
    [
        (NODE, "SN1", BmcLogins()),
        (NODE, "SN2", BmcLogins(Kepts(SN1=kept("2026")))),
        (NODE, "", BmcLogins(Kepts(SN1=kept("2026")))),
        (NODE, "SN1", BmcLogins(Kepts(SN1=Kept(pending=Login("root", SECRET))))),
        ({"driver": "fake-hardware"}, "SN1", BmcLogins(Kepts(SN1=kept("2026")))),
    ],
)
def test_where_nothing_is_kept_the_node_is_what_the_site_says(
    node: dict[str, t.Any], serial: str, logins: BmcLogins
) -> None:
    assert logins.node(node, serial) == node
    assert logins.enrolled(node, serial) == node
    assert logins.changed({"driver": "redfish"}, serial) == {"driver": "redfish"}


def test_a_site_without_a_store_has_no_accounts() -> None:
    assert BmcLogins.of({}).node(NODE, "SN1") == NODE
