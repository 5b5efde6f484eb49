# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers whose image has two roots: what they are told, and disks that these do not fit on."""

from __future__ import annotations

import dataclasses
import json

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    SLOT_SETTINGS,
    Account,
    HostKey,
    config_drive,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    LEAST_GB,
    racks_of,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import Disks
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State

from ironspan.artifacts.system import slots
from ironspan.artifacts.system.boot_slots import checks, state
from tests.support import racks

RACKS = racks_of({"rack-1": {"network": "10.2.1.0/24", "first": "10.2.1.11", "gateway": "10.2.1.1"}})
IMAGE = {"source": "http://192.0.2.1/disk.raw", "sha256": "ab" * 32}


def wanted(*disks: Disks, layout: str = "ab", named: bool = False) -> State:
    server = dataclasses.replace(racks.server(0), disks=disks)
    node = {"driver": "redfish", "properties": {"root_device": {"name": "/dev/sda"}} if named else {}}
    return wanted_node(server, node, RACKS, IMAGE, True, layout)


def user_data(state: State) -> dict[str, object]:
    key, account = HostKey("private", "public"), Account("ironspan", ("ssh-ed25519 AAAA",))
    drive = config_drive("gpu-1", state["host"], "52:54:00:00:00:01", key, account)
    return dict(json.loads(drive["user_data"].partition("\n")[2]))


def test_a_server_with_two_roots_is_told_what_its_first_start_is_judged_by() -> None:
    written = user_data(wanted())["write_files"]
    assert isinstance(written, list)
    (file,) = written
    assert json.loads(file["content"]) == {"address": "10.2.1.11/24", "gateway": "10.2.1.1"}
    assert file["path"] == SLOT_SETTINGS == f"/{checks.SETTINGS}"


def test_a_server_with_one_root_is_told_what_it_was_told_before() -> None:
    plain = wanted(layout="plain")
    assert "write_files" not in user_data(plain)
    # A plan of before is one of now: nothing of a plain server says that there is another layout.
    assert set(plain["host"]) == {"address", "gateway", "dns"}


@pytest.mark.parametrize(
    ("disks", "named", "fits"),
    [
        ((), False, True),
        ((Disks(1, LEAST_GB),), False, True),
        ((Disks(1, LEAST_GB - 1),), False, False),
        # Ironic takes the smallest disk, but none of less than 4 GiB.
        ((Disks(2, 8), Disks(8, 3840, "nvme")), False, False),
        ((Disks(2, 8), Disks(8, 3840, "nvme")), True, True),
        ((Disks(1, 2), Disks(8, 3840, "nvme")), False, True),
        ((Disks(1, 2),), True, False),
    ],
)
def test_disks_that_two_roots_do_not_fit_on_are_refused(
    disks: tuple[Disks, ...], named: bool, fits: bool
) -> None:
    assert wanted(*disks, layout="plain", named=named)["goal"] == "active"
    if fits:
        assert wanted(*disks, named=named)["host"]["layout"] == "ab"
        return
    with pytest.raises(RemoteError, match=rf"gpu-1: .* two roots with data need {LEAST_GB}") as caught:
        wanted(*disks, named=named)
    assert "site_bare_metal_layout: plain" in str(caught.value.remedy)


def test_what_a_disk_has_to_have_is_what_the_image_and_its_data_take() -> None:
    image_mib = 64 + 2 + len(state.SLOTS) * slots.SLOT_MIB
    data_mib, config_drive_mib = 4096, 64
    assert (image_mib + data_mib + config_drive_mib) << 20 < LEAST_GB * 10**9
