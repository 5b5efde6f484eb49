# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What was declared against what was measured: every difference is found and names slot and part."""

from __future__ import annotations

import collections
import copy
import dataclasses
import json
import time
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import lldp, write
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.compare import compare, compare_all
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import Disks, ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.findings import Finding
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.gpus import (
    folded,
    known_gpus,
    model_names,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory import (
    Expected,
    Source,
    read_expected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import (
    Inspection,
    read_inspection,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import racks

FLEET = racks.fleet(40)
SERVER = FLEET[0]
Data = dict[str, t.Any]


def found(change: Callable[[Data], object], server: ExpectedServer = SERVER) -> list[str]:
    """Return what is found when the agent's data of a server is changed."""
    data = copy.deepcopy(racks.in_band(server))
    change(data)
    inspection = read_inspection("in band", data, racks.firmware(server))
    return [str(finding) for finding in compare(server, [inspection], Index(FLEET))]


def inspected(server: ExpectedServer) -> list[Inspection]:
    return [
        read_inspection("in band", racks.in_band(server), racks.firmware(server)),
        read_inspection("out of band", racks.out_of_band(server)),
    ]


def test_what_is_as_declared_has_no_finding() -> None:
    assert compare_all(FLEET, {server.name: inspected(server) for server in FLEET}) == []


@pytest.mark.parametrize("source", ["in band", "out of band"])
@pytest.mark.parametrize("model", ["A100", "H100", "H200", "B200", "GB200", "H100 SXM5 80GB"])
def test_gpus_are_known_by_their_ids(model: str, source: str) -> None:
    server = dataclasses.replace(SERVER, gpu_model=model, gpu_count=4)
    make = racks.in_band if source == "in band" else racks.out_of_band
    inspection = read_inspection(source, make(server))  # type: ignore[arg-type]
    assert len(inspection.gpus or ()) == 4
    assert not [one for one in compare(server, [inspection], Index([server])) if one.part == "GPU"]


def test_the_table_has_the_gpus_that_sites_have() -> None:
    table = known_gpus()
    counts = collections.Counter(gpu.model for gpu in table.values())
    assert [counts[model] for model in ("A100", "H100", "H200", "B200", "GB200")] == [6, 8, 2, 2, 1]
    assert (table["2330"].variant, table["2335"].model, table["2901"].model, table["2941"].model) == (
        "H100 SXM5 80GB", "H200", "B200", "GB200",
    )  # fmt: skip
    assert all(len(device) == 4 and device == device.lower() for device in table)
    assert model_names()[folded("NVIDIA H100-SXM5 80gb")] == "H100 SXM5 80GB"


def remove_gpu(data: Data) -> None:
    del data["plugin_data"]["pci_devices"][3]


def other_gpus(data: Data) -> None:
    for device in data["plugin_data"]["pci_devices"][:2]:
        device["product_id"] = "2331"
    data["plugin_data"]["pci_devices"][2]["product_id"] = "beef"


def cable(nic: str, switch: str, port: str) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data["plugin_data"]["lldp_raw"][nic] = racks.tlvs(switch, port)

    return change


def interface(number: int, **values: t.Any) -> Callable[[Data], None]:
    return lambda data: data["inventory"]["interfaces"][number].update(values)


def without(*path: str) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


CHANGES: dict[str, Callable[[Data], object]] = {
    "gpu_missing": remove_gpu,
    "gpu_of_other_models": other_gpus,
    "no_pci_list": lambda data: data["plugin_data"].pop("pci_devices"),
    "memory_module_missing": lambda data: data["inventory"]["memory"].update(physical_mb=1920 * 1024),
    "more_memory": lambda data: data["inventory"]["memory"].update(physical_mb=4096 * 1024),
    "only_usable_memory": lambda data: data["inventory"]["memory"].pop("physical_mb"),
    "no_memory": lambda data: data["inventory"].pop("memory"),
    "disk_missing": lambda data: data["inventory"]["disks"].pop(),
    "disk_of_another_size": lambda data: data["inventory"]["disks"][1].update(size=7680 * 10**9),
    "disk_of_another_kind": lambda data: data["inventory"]["disks"][1].update(name="/dev/sda", tran="sas"),
    "no_disks": lambda data: data["inventory"].pop("disks"),
    "slow_port": interface(0, speed_mbps=100_000),
    "no_speed": interface(0, speed_mbps=None),
    "card_exchanged": interface(0, mac_address="5c:25:73:aa:aa:aa"),
    "card_of_another_server": interface(0, mac_address=FLEET[9].nics[2].mac),
    "short_port_name": cable("rail1", "leaf-1-1", "Eth1/1"),
    "cable_of_another_server": cable("rail1", "leaf-1-1", "Ethernet1/11"),
    "cables_exchanged": cable("rail1", "leaf-1-2", "Ethernet1/1"),
    "cable_to_nowhere": cable("rail1", "spine-9", "Ethernet1/1"),
    "no_switch_heard": lambda data: data["plugin_data"]["lldp_raw"].pop("rail1"),
    "no_link": lambda data: (
        data["plugin_data"]["lldp_raw"].pop("rail1"),
        interface(1, has_carrier=False)(data),
    ),
    "no_interfaces": without("inventory", "interfaces"),
    "wrong_server": lambda data: data["inventory"]["system_vendor"].update(serial_number="sn000005"),
    "unknown_serial": lambda data: data["inventory"]["system_vendor"].update(serial_number="OTHER"),
    "no_serial": lambda data: data["inventory"]["system_vendor"].pop("serial_number"),
}
FINDINGS = json.loads((Path(__file__).parent / "findings.json").read_text())


@pytest.mark.parametrize("name", CHANGES)
def test_a_difference_names_slot_and_part(name: str) -> None:
    assert found(CHANGES[name]) == [f"gpu-1 (rack-1 U1-8): {finding}" for finding in FINDINGS[name]]


def test_every_sentence_has_its_case() -> None:
    assert CHANGES.keys() == FINDINGS.keys()


def test_a_server_without_its_serial_is_known_by_its_ports() -> None:
    moved = dataclasses.replace(SERVER, serial="")
    data = racks.in_band(dataclasses.replace(FLEET[7], serial=""))
    findings = compare(moved, [read_inspection("in band", data)], Index([moved, *FLEET[1:]]))
    assert [str(finding) for finding in findings] == [
        "gpu-1 (rack-1 U1-8): server: this is gpu-8, which belongs into rack-2 U25-32; "
        "put gpu-8 there, or exchange the two BMC addresses in the file"
    ]


def test_two_servers_that_were_exchanged_name_each_other() -> None:
    measured = {server.name: inspected(server) for server in FLEET}
    measured["gpu-1"], measured["gpu-2"] = measured["gpu-2"], measured["gpu-1"]
    assert [(one.server, one.kind, one.message) for one in compare_all(FLEET, measured)] == [
        ("gpu-1", "wrong server", "this is gpu-2, which belongs into rack-1 U9-16"),
        ("gpu-2", "wrong server", "this is gpu-1, which belongs into rack-1 U1-8"),
    ]


def test_the_empty_slot_of_a_gpu_is_named_by_its_siblings() -> None:
    measured = {server.name: inspected(server) for server in FLEET}
    data = racks.in_band(FLEET[4])
    remove_gpu(data)
    measured["gpu-5"] = [read_inspection("in band", data, racks.firmware(FLEET[4]))]
    (finding,) = compare_all(FLEET, measured)
    assert str(finding) == (
        "gpu-5 (rack-2 U1-8): GPU: 7 of 8 H100 measured; none at PCI 0000:1b:00.0, where the others of this "
        "model have one; reseat or exchange it, and inspect again"
    )


def test_firmware_is_compared_with_the_baseline() -> None:
    said = {
        "firmware": [
            {"component": "bmc", "current_version": "24.01"},
            {"component": "bios", "current_version": "1.6.7"},
        ]
    }
    inspection = read_inspection("out of band", racks.out_of_band(SERVER), said)
    findings = [one for one in compare(SERVER, [inspection], Index(FLEET)) if one.part.startswith("firmware")]
    assert [(one.part, one.message) for one in findings] == [
        ("firmware bmc", "24.09.17 declared, 24.01 measured")
    ]
    inspection = read_inspection("out of band", racks.out_of_band(SERVER))
    findings = [one for one in compare(SERVER, [inspection], Index(FLEET)) if one.part.startswith("firmware")]
    assert [one.kind for one in findings] == ["not measured", "not measured"]


def test_who_was_not_inspected_and_who_is_not_expected() -> None:
    findings = compare_all(FLEET[:1], {"stranger": inspected(FLEET[1])})
    assert [(one.server, one.kind) for one in findings] == [
        ("gpu-1", "not measured"),
        ("stranger", "surplus"),
    ]


def test_what_was_not_declared_is_not_compared() -> None:
    bare = ExpectedServer("gpu-1", "10.0.0.1", "rack-1", 1)
    assert compare(bare, inspected(SERVER), Index([bare])) == []
    none = dataclasses.replace(bare, gpu_count=0)
    assert [one.message for one in compare(none, inspected(SERVER), Index([none]))] == [
        "none declared, 8 x H100 NVL 94GB measured"
    ]


@pytest.mark.parametrize(
    ("declared", "said", "same"),
    [
        ("Ethernet1/10", "Eth1/10", True), ("Ethernet1/10", "ethernet 1/10", True),
        ("et-0/0/1", "et-0/0/1", True),
        ("swp1", "swp10", False), ("Ethernet1/1", "Te1/1", False), ("1", "1", True), ("uplink", "up", False),
        ("TenGigE0/1", "Te0/1", True), ("mgmt", "MGMT", True), ("Ethernet1/1", "1/1", False),
    ],
)  # fmt: skip
def test_names_of_ports_may_be_shortened(declared: str, said: str, same: bool) -> None:
    assert lldp.same_port(declared, said) == same


def test_a_disk_whose_kind_matters_is_not_taken_by_another() -> None:
    server = dataclasses.replace(SERVER, disks=(Disks(1, 960), Disks(1, 960, "nvme")))
    assert not [one for one in compare(server, inspected(server), Index([server])) if one.part == "disks"]


_keys = st.sampled_from(
    ["inventory", "plugin_data", "pci_devices", "interfaces", "disks", "memory", "system_vendor", "firmware",
     "lldp_raw", "parsed_lldp", "vendor_id", "product_id", "class", "bus", "name", "mac_address", "lldp",
     "size", "physical_mb", "serial_number", "speed_mbps", "rail0", "switch_port_id"]
)  # fmt: skip
_hostile = st.sampled_from(
    ["10de", "2330", "030200", "\x1b[2J", "x" * 400, "5c:25:73:00:00:00", "\ud800", "05616263"]
)
_numbers = st.booleans() | st.integers(-(2**70), 2**70) | st.floats()
_leaf = st.none() | _numbers | st.text(max_size=6) | _hostile
_json = st.recursive(
    _leaf,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=25,
)


@given(_json, _json)
@settings(max_examples=150, deadline=None)
def test_whatever_a_server_says_is_read_and_never_matches_by_accident(data: object, firmware: object) -> None:
    inspection = read_inspection("in band", data, firmware)
    findings = compare(SERVER, [inspection], Index(FLEET))
    assert {"GPU", "memory", "disks", "serial"} - {one.part for one in findings} == set()
    for finding in findings:
        assert str(finding).isprintable() and len(str(finding)) < 2000


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), _json)
@settings(max_examples=150, deadline=None)
def test_a_value_that_is_something_else_is_found(path: list[int], value: object) -> None:
    """Anywhere in good data: another value is a finding, or what was there did not count."""
    data = copy.deepcopy(racks.in_band(SERVER))
    holder: t.Any = data
    for step in path:
        inner = list(holder.values()) if isinstance(holder, dict) else holder
        if not isinstance(inner, list) or not inner or not isinstance(inner[step % len(inner)], (dict, list)):
            break
        holder = inner[step % len(inner)]
    if isinstance(holder, dict):
        holder[list(holder)[path[-1] % len(holder)]] = value
    elif holder:
        holder[path[-1] % len(holder)] = value
    inspection = read_inspection("in band", data, racks.firmware(SERVER))
    for finding in compare(SERVER, [inspection], Index(FLEET)):
        assert str(finding).isprintable()
    assert inspection.serial in ("", SERVER.serial) or isinstance(value, (str, dict))


def within(seconds: float, run: Callable[[], object]) -> bool:
    """Tell whether one of three calls takes no more processor seconds: other work only adds to it."""
    for _ in range(3):
        began = time.process_time()
        run()
        if time.process_time() - began <= seconds:
            return True
    return False


def test_a_thousand_servers_are_read_and_compared_in_little_time() -> None:
    """Budgets of processor time: 2 s to read a file of 1,000 servers, 5 s to compare them."""
    servers = racks.fleet(1000)
    for file, data in (("racks.csv", write.as_csv(servers)), ("racks.yml", write.as_yaml(servers))):
        source = Source(file, data)
        assert read_expected([source]) == Expected(tuple(servers), ())
        assert within(2, lambda source=source: read_expected([source])), file  # type: ignore[misc]
    answers = {server.name: (racks.in_band(server), racks.out_of_band(server)) for server in servers}
    firmware = racks.firmware(servers[0])

    def compared() -> list[Finding]:
        measured = {
            name: [read_inspection("in band", inside, firmware), read_inspection("out of band", outside)]
            for name, (inside, outside) in answers.items()
        }
        return compare_all(servers, measured)

    assert compared() == []
    assert within(5, compared)
