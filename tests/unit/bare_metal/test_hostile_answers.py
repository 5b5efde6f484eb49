# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sources of hosts that answer with anything: runs are refused, and never done as if there were no hosts."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible_collections.ironspan.hybrid.plugins.inventory import azure, ironic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import machines
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import unread

from tests.unit.azure.test_machines import Rest
from tests.unit.bare_metal.test_ironic_api import Answer, Session

ROW = "name,bmc_address,rack,position,nic1_mac\ngpu-1,192.0.2.1,a,1,5c:25:73:00:01:01\n"
DEEP = Answer(200)
DEEP.text, DEEP.content = "[" * 100_000, b"["
PAGE = Answer(200)
PAGE.text, PAGE.content = "<html>Log in first</html>", b"<html>"


@pytest.mark.parametrize(
    "answer",
    [
        PAGE,
        DEEP,
        Answer(200, []),
        Answer(200, {"nodes": [7]}),
        Answer(200, {"nodes": [{"name": "gpu-1", "uuid": "1", "properties": [7]}]}),
    ],
    ids=["page", "deep", "list", "numbers", "properties"],
)
def test_an_ironic(answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "racks.csv").write_text(ROW)
    plugin, path, inventory = ironic.InventoryModule(), tmp_path / "ironic.yml", InventoryData()
    options = {"expected": "racks.csv", "cloud": "racks", "mapping": ""}
    monkeypatch.setattr(plugin, "_read_config_data", lambda _: None)
    monkeypatch.setattr(plugin, "get_option", options.__getitem__)
    monkeypatch.setattr(ironic, "connected", lambda _: Session(answer).api())
    plugin.parse(inventory, DataLoader(), str(path))
    assert list(inventory.hosts) == []
    ((file, said),) = unread.marked(inventory.groups["all"].vars)
    assert file == str(path) and "its answer cannot be read" in said


@pytest.mark.parametrize(
    "answer", [[7], [{"tags": [7]}], [{"tags": {"ironspan-site": "lab"}, "properties": 7}]], ids=json.dumps
)
def test_a_resource_manager(answer: list[t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, inventory, rest = azure.InventoryModule(), InventoryData(), t.cast(t.Any, Rest(answer, []))
    for name in ("_read_config_data", "load_cache_plugin"):
        monkeypatch.setattr(plugin, name, lambda *_: None)
    monkeypatch.setattr(plugin, "_asked", lambda *_: machines.listed(rest, "lab"))
    plugin.parse(inventory, DataLoader(), "azure.yml")
    ((file, said),) = unread.marked(inventory.groups["all"].vars)
    assert file == "azure.yml" and re.search("its answer cannot be read|is not understood", said)


def test_what_has_words_for_people_keeps_them() -> None:
    inventory, told = InventoryData(), list[str]()

    def refuse() -> None:
        raise RemoteError("Azure says no", "ask again")

    unread.read(refuse, "azure.yml", inventory, told.append)
    assert told == ["azure.yml: Azure says no; ask again"]
