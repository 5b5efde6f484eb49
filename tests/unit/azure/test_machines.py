# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Machines as Azure lists them, as hosts of the inventory, and the file with their keys."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.inventory import azure
from ansible_collections.ironspan.hybrid.plugins.inventory.azure import InventoryModule
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.machines import (
    Declared,
    Seen,
    handed_over,
    keys_in,
    listed,
    told_apart,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest as Asking
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.known_hosts import Entry, KnownHostsFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.estate.conftest import SMALL

SCOPE = "/subscriptions/s/providers"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIEJhc2U2NEJhc2U2NEJhc2U2NEJhc2U2NEJhc2U2NA"
DECLARED = {"etcd-1": Declared(("etcd",), "10.0.0.4", "westeurope", "1")}
POOLS = {"burst": ("gpu",)}


class Rest:
    subscription = "s"

    def __init__(self, machines: list[t.Any], interfaces: list[t.Any]) -> None:
        self._answers = {
            f"{SCOPE}/Microsoft.Compute/virtualMachines": machines,
            f"{SCOPE}/Microsoft.Network/networkInterfaces": interfaces,
        }
        self.asked = 0

    def listed(self, path: str, version: str, what: str) -> list[t.Any]:
        self.asked += 1
        return self._answers[path]


def vm(name: str, interface: str, **tags: str) -> dict[str, t.Any]:
    return {
        "id": f"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/{name}",
        "name": name,
        "location": "westeurope",
        "zones": ["2"],
        "tags": {"ironspan-site": "lab", **{key.replace("_", "-"): value for key, value in tags.items()}},
        "properties": {
            "vmId": f"id-{name}",
            "provisioningState": "Succeeded",
            "osProfile": {"computerName": f"{name}-PC"},
            "networkProfile": {"networkInterfaces": [{"id": interface.upper()}]},
        },
    }


def nic(name: str, *addresses: tuple[str, bool]) -> dict[str, t.Any]:
    configurations = [
        {"properties": {"privateIPAddress": text, "primary": primary}} for text, primary in addresses
    ]
    return {"id": name, "properties": {"ipConfigurations": configurations}}


def test_machines_of_the_site_are_found_in_two_lists() -> None:
    rest: t.Any = Rest(
        [
            vm("etcd-1", "/n/1", ironspan_host="etcd-1"),
            vm("pool_0a1b", "/n/2", ironspan_pool="burst"),
            {**vm("other", "/n/3"), "tags": {"ironspan-site": "elsewhere"}},
            {**vm("bare", "/n/4"), "tags": None},
        ],
        [nic("/n/1", ("10.0.0.9", False), ("10.0.0.4", True)), nic("/n/2", ("10.0.8.4", True))],
    )
    first, second = listed(rest, "lab")
    assert (first.name, first.address, first.zone, first.pool, first.identity) == (
        "etcd-1", "10.0.0.4", "2", "", "id-etcd-1",
    )  # fmt: skip
    assert (second.name, second.address, second.pool, second.ready) == (
        "pool-0a1b-pc", "10.0.8.4", "burst", True,
    )  # fmt: skip
    assert rest.asked == 2


@pytest.mark.parametrize(
    "said", ["-oProxyCommand=id", "10.0.0.4 evil", "etcd-1", "10.0.0.4\n@cert-authority *", 7.5, None]
)
def test_what_is_no_address_is_no_word_for_ssh(said: t.Any) -> None:
    rest: t.Any = Rest([vm("a", "/n/1", ironspan_pool="burst")], [nic("/n/1", (said, True))])
    (one,) = listed(rest, "lab")
    assert (one.address, one.ready) == ("", False)


def _without(**changes: t.Any) -> dict[str, t.Any]:
    whole = vm("a", "/n/1", ironspan_host="a")
    return {**whole, "properties": {**whole["properties"], **changes}}


@pytest.mark.parametrize(
    ("machine", "interface", "wrong"),
    [
        ({**vm("a", "/n/1"), "tags": "ironspan-site"}, {}, "tags of /subscriptions/.*/a is str"),
        ({**vm("a", "/n/1"), "tags": ["ironspan-site"]}, {}, "tags of .* is list in the place of an object"),
        ({**vm("a", "/n/1"), "properties": []}, {}, "properties of .*/a is list"),
        ({**vm("a", "/n/1"), "zones": "1"}, {}, "zones of the answer about a machine is str"),
        (_without(networkProfile="nic"), {}, "networkProfile of a resource is str"),
        (_without(networkProfile={"networkInterfaces": {"id": "n"}}), {}, "networkInterfaces of .* is dict"),
        (_without(networkProfile={"networkInterfaces": ["/n/1"]}), {}, "entry of networkInterfaces is str"),
        (_without(osProfile=7), {}, "osProfile of a resource is int"),
        (vm("a", "/n/1"), {"id": "/n/1", "properties": "p"}, "properties of /n/1 is str"),
        (
            vm("a", "/n/1"),
            {"id": "/n/1", "properties": {"ipConfigurations": [7]}},
            "entry of ipConf.* is int",
        ),
    ],
)
def test_a_malformed_list_is_refused_with_what_is_wrong_and_is_no_crash(
    machine: dict[str, t.Any], interface: dict[str, t.Any], wrong: str
) -> None:
    rest: t.Any = Rest([machine], [interface])
    with pytest.raises(RemoteError, match=wrong):
        listed(rest, "lab")


class Raw(Asking):
    """The resource manager with a page of its choice."""

    def __init__(self, page: t.Any) -> None:
        self._page, self._url = page, "https://management.azure.com"

    def _send(self, *asked: t.Any, **more: t.Any) -> t.Any:
        return self._page


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        (["a"], "the answer to list machines is list in the place of an object"),
        ("<html>proxy</html>", "the answer to list machines is str"),
        ({"value": "a"}, "value of the answer to list machines is str in the place of a list"),
        ({"value": {"id": "a"}}, "value of the answer .* is dict"),
        ({"value": [None, "a"]}, "an entry of the answer to list machines is str"),
    ],
)
def test_a_page_that_is_no_list_of_resources_is_refused(page: t.Any, wrong: str) -> None:
    with pytest.raises(RemoteError, match=wrong):
        Raw(page).listed("/x", "1", "to list machines")


def seen(name: str, **more: t.Any) -> Seen:
    made = Seen(f"/{name}", f"id-{name}", name, "10.0.8.4", "westeurope", "1", "burst", "succeeded")
    return made._replace(**more)


ETCD = seen("etcd-1", pool="", address="10.0.0.4")


def test_declared_machines_are_hosts_before_they_are_there_and_instances_only_when_they_run() -> None:
    handed = handed_over(DECLARED, POOLS, [seen("a")], {})
    assert {name: groups for name, (groups, _) in handed.hosts.items()} == {
        "etcd-1": ("azure", "etcd"),
        "a": ("azure", "nodes", "gpu"),
    }
    assert "not in Azure" in handed.held["etcd-1"]
    labels = handed.hosts["a"][1]["site_measured_labels"]
    assert labels["topology.kubernetes.io/zone"] == "westeurope-1"
    assert labels["ironspan.io/pool"] == "burst"
    assert handed_over(DECLARED, POOLS, [ETCD], {}).held == {}


def test_a_member_gets_the_paths_of_its_disk_and_other_machines_none() -> None:
    machines = {"etcd-1": DECLARED["etcd-1"]._replace(devices=("/dev/disk/azure/scsi1/lun0",))}
    machines["cp-1"] = Declared(("control_plane",), "10.0.0.5", "westeurope", "1")
    hosts = handed_over(machines, {}, [], {}).hosts
    assert hosts["etcd-1"][1]["etcd_disk_devices"] == ["/dev/disk/azure/scsi1/lun0"]
    assert "etcd_disk_devices" not in hosts["cp-1"][1]


@pytest.mark.parametrize(
    ("machine", "unknown", "reason"),
    [
        (seen("a", state="creating"), {}, "Azure says that it is creating"),
        (seen("a", address=""), {}, "no address yet"),
        (seen("a", pool="former"), {}, "its pool former is none of the site's"),
        (seen("a", pool=""), {}, "the site does not declare it any more"),
        (seen("a"), {"a": "no key"}, "no key"),
        (seen("-bad-"), {}, "its name is none of a host"),
        (seen("a" * 64), {}, "its name is none of a host"),
    ],
)
def test_what_is_no_host_has_a_reason(machine: Seen, unknown: dict[str, str], reason: str) -> None:
    handed = handed_over({}, POOLS, [machine], unknown)
    assert handed.hosts == {}
    assert reason in handed.held[machine.name]


def test_two_machines_of_one_name_are_no_host_and_a_moved_address_is_told() -> None:
    handed = handed_over({}, POOLS, [seen("a"), seen("a", id="/other", identity="2")], {})
    assert handed.hosts == {}
    assert "two machines have this name" in handed.held["a"]
    moved = handed_over(DECLARED, POOLS, [ETCD._replace(address="10.0.0.7")], {})
    assert moved.hosts["etcd-1"][1]["ansible_host"] == "10.0.0.4"
    assert "it has the address 10.0.0.7" in moved.held["etcd-1"]


def at(group: str, name: str, **more: t.Any) -> Seen:
    place = f"/subscriptions/s/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{name}"
    return seen(name, **{"id": place, "identity": f"{group}/{name}", **more})


def test_a_tag_elsewhere_in_the_subscription_makes_no_host() -> None:
    everyone = [at("LAB-Nodes", "a"), at("thief", "b"), at("thief", "etcd-1", pool=""), seen("c")]
    own, others = told_apart(everyone, ["lab-nodes", "lab-machines"])
    assert [one.name for one in own] == ["a"]
    assert [reason.partition(", which")[0] for reason in others.values()] == [
        "it calls itself b, in the resource group thief",
        "it calls itself etcd-1, in the resource group thief",
        "it calls itself c, in the resource group ?",
    ]


@pytest.mark.parametrize("written", [None, [], ["/dev/disk/by-id/x"]])
def test_what_the_site_writes_of_etcds_disk_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[str] | None
) -> None:
    """A variable of a host would hide that of a group, so the plugin writes none."""
    told = {**SMALL, **({} if written is None else {"etcd_disk_devices": written})}
    monkeypatch.setattr(azure, "variables_of_all", lambda *_: dict(told))
    monkeypatch.setattr(azure, "connection", lambda _: None)
    monkeypatch.setattr(InventoryModule, "_seen", lambda *_: [])
    monkeypatch.setattr(InventoryModule, "_unknown", lambda *_: {})
    plugin: t.Any = InventoryModule()
    plugin.loader = None
    hosts = plugin._asked(tmp_path / "azure.yml", False).hosts
    given = {name: variables.get("etcd_disk_devices") for name, (_, variables) in hosts.items()}
    paths = ["/dev/disk/azure/data/by-lun/0", "/dev/disk/azure/scsi1/lun0"] if written is None else None
    assert given["etcd-1"] == given["etcd-3"] == paths and given["control-plane-1"] is None


def test_keys_are_taken_out_of_what_a_machine_printed_and_nothing_else_is() -> None:
    printed = (
        f"Enable succeeded: \n[stdout]\nssh-ed25519 {KEY} root@etcd-1\nssh-ed25519 {KEY} again\n"
        f"@cert-authority * ssh-ed25519 {KEY}\nssh-dss {KEY}\nssh-rsa short\n[stderr]\n"
    )
    assert keys_in(printed) == [f"ssh-ed25519 {KEY}"]


@given(st.text(max_size=200))
def test_no_text_makes_a_second_line(text: str) -> None:
    for key in keys_in(f"{text}\nssh-ed25519 {KEY} {text}"):
        assert "\n" not in key
        assert len(key.split()) == 2


def test_keys_are_recorded_replaced_and_removed(tmp_path: Path) -> None:
    file = KnownHostsFile(str(tmp_path / "known_hosts"), "azure_known_hosts")
    assert file.entries() == []
    (tmp_path / "known_hosts").write_text("# ours\nold.example ssh-rsa AAAA\n")
    file.record([Entry("10.0.0.4", "etcd-1", ("ssh-ed25519 A", "ssh-rsa B"), "id-1")])
    assert [entry.identity for entry in file.entries()] == ["", "id-1", "id-1"]
    file.record([Entry("10.0.0.4", "etcd-1", ("ssh-ed25519 C",), "id-2")])
    assert (tmp_path / "known_hosts").read_text() == (
        "# ours\nold.example ssh-rsa AAAA\n10.0.0.4,etcd-1 ssh-ed25519 C id-2\n"
    )
    file.record([], gone=["id-2"])
    assert (tmp_path / "known_hosts").read_text() == "# ours\nold.example ssh-rsa AAAA\n"
    with pytest.raises(RemoteError, match="write azure_known_hosts"):
        KnownHostsFile("", "azure_known_hosts").record([])
