# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Expected servers for tests: a fleet of any size, and any server for property tests."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import schema, values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import (
    Disks,
    ExpectedServer,
    Nic,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.gpus import known_gpus, model_names
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import is_taken_for_address
from hypothesis import strategies as st


def server(number: int) -> ExpectedServer:
    """Return one of a fleet of servers with eight H100: four servers a rack, a leaf switch a rail."""
    rack, place = divmod(number, 4)
    return ExpectedServer(
        name=f"gpu-{number + 1}",
        bmc_address=f"10.20.{number >> 8}.{number & 255 or 1}" if number & 255 else f"10.21.{number >> 8}.1",
        rack=f"rack-{rack + 1}",
        position=1 + 8 * place,
        height=8,
        serial=f"SN{number:06}",
        model="DGX H100",
        group="gpu",
        gpu_count=8,
        gpu_model="H100",
        memory_gib=2048,
        nvlink_domain=f"nvl-{rack + 1}",
        nics=tuple(
            Nic(
                mac=f"5c:25:73:{rail:02x}:{number >> 8:02x}:{number & 255:02x}",
                name=f"rail{rail}",
                switch=f"leaf-{number // 32 + 1}-{rail}",
                port=f"Ethernet1/{number % 32 + 1}",
                speed_gbit=400,
            )
            for rail in range(4)
        ),
        disks=(Disks(8, 3840, "nvme"), Disks(2, 960, "nvme")),
        firmware=(("bios", "1.6.7"), ("bmc", "24.09.17")),
    )


def fleet(size: int) -> list[ExpectedServer]:
    """Return so many servers."""
    return [server(number) for number in range(size)]


_label = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,12}[A-Za-z0-9])?", fullmatch=True)
_name = st.from_regex(
    r"[a-z0-9]([a-z0-9-]{0,12}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?)?", fullmatch=True
).filter(lambda text: not is_taken_for_address(text))
_text = st.from_regex(r"[A-Za-z0-9][ -~]{0,20}", fullmatch=True).map(str.strip)
_port = _text.filter(lambda text: "[" not in text and "]" not in text)
_mac = st.integers(0, 2**48 - 1).map(
    lambda number: ":".join(f"{byte:02x}" for byte in (number & ~(1 << 40) | 1 << 41).to_bytes(6, "big"))
)
_nic = st.one_of(
    st.builds(
        Nic, mac=_mac, name=st.just("") | _label, speed_gbit=st.none() | st.sampled_from(values.SPEEDS)
    ),
    st.builds(Nic, mac=_mac, switch=_label, port=_port),
)
_disks = st.builds(
    Disks,
    st.integers(1, values.MOST_OF_A_SIZE),
    st.integers(1, 10**6),
    st.sampled_from(("", *values.DISK_KINDS)),
)


@st.composite
def servers(draw: st.DrawFn) -> ExpectedServer:
    """Any server that can be declared."""
    position = draw(st.integers(1, values.HIGHEST_UNIT))
    gpus = draw(st.none() | st.integers(0, 64))
    return ExpectedServer(
        name=draw(_name),
        bmc_address=str(draw(st.ip_addresses(network="10.0.0.0/8") | st.ip_addresses(network="fd00::/16"))),
        rack=draw(_label),
        position=position,
        height=draw(st.integers(1, values.HIGHEST_UNIT - position + 1)),
        serial=draw(st.just("") | st.from_regex(r"SN[A-Z0-9._/-]{0,12}", fullmatch=True)),
        model=draw(st.just("") | _text),
        group=draw(
            st.sampled_from(("", "nodes", "gpu")) | st.from_regex(r"user_[a-z0-9_]{0,9}", fullmatch=True)
        ),
        gpu_count=gpus,
        gpu_model=draw(st.sampled_from(sorted(model_names().values()))) if gpus else "",
        memory_gib=draw(st.none() | st.integers(1, 1 << 20)),
        nvlink_domain=draw(st.just("") | _label),
        tpm_ek_sha256=draw(st.just("") | st.from_regex(r"[0-9a-f]{64}", fullmatch=True)),
        nics=tuple(
            draw(st.lists(_nic, max_size=4, unique_by=(lambda nic: nic.mac, lambda nic: nic.called.lower())))
        ),
        disks=tuple(draw(st.lists(_disks, max_size=3))),
        firmware=tuple(
            sorted(
                draw(
                    st.dictionaries(st.from_regex(schema.COMPONENT, fullmatch=True), _text, max_size=3)
                ).items()
            )
        ),
    )


def in_band(expected: ExpectedServer) -> dict[str, t.Any]:
    """Return what Ironic has after its agent has inspected a server that is what was declared.

    The fields are those that ironic-python-agent 13.0.0 sends, with the collectors default, pci-devices and
    LLDP (whose TLVs Ironic 39.0.0 keeps as ``lldp_raw``).
    """
    memory = expected.memory_gib or 1
    firmware_ = {"vendor": "AMI", "version": dict(expected.firmware).get("bios", "0"), "build_date": ""}
    vendor = {"product_name": "DGX", "serial_number": expected.serial, "manufacturer": "NVIDIA"}
    return {
        "inventory": {
            "interfaces": [_interface(nic) for nic in expected.nics],
            "disks": [{"name": "/dev/sr0", "size": 1 << 30, "tran": "usb"}, *_block_devices(expected)],
            "memory": {"total": memory * (1 << 30) * 97 // 100, "physical_mb": memory * 1024},
            "cpu": {"model_name": "Xeon", "count": 112, "architecture": "x86_64", "flags": ["fpu"] * 100},
            "system_vendor": {**vendor, "firmware": firmware_},
            "boot": {"current_boot_mode": "uefi", "pxe_interface": None},
            "bmc_address": expected.bmc_address,
        },
        "plugin_data": {
            "pci_devices": _pci_devices(expected),
            "lldp_raw": {nic.called: tlvs(nic.switch, nic.port) for nic in expected.nics if nic.switch},
        },
    }


def _interface(nic: Nic) -> dict[str, t.Any]:
    speed = nic.speed_gbit * 1000 if nic.speed_gbit else None
    return {
        "name": nic.called, "mac_address": nic.mac, "ipv4_address": None, "ipv6_address": "fe80::1%eth",
        "has_carrier": True, "lldp": None, "vendor": "0x15b3", "product": "0x1021", "speed_mbps": speed,
        "pci_address": "0000:05:00.0", "driver": "mlx5_core",
    }  # fmt: skip


def _block_devices(expected: ExpectedServer) -> list[dict[str, t.Any]]:
    return [
        {
            "name": f"/dev/{disks.kind or 'sd'}{group}n{number}", "model": "x", "serial": None,
            "size": disks.size_gb * 10**9 + 755982336, "rotational": disks.kind == "hdd",
            "tran": "nvme" if disks.kind == "nvme" else "sas",
        }
        for group, disks in enumerate(expected.disks)
        for number in range(disks.count)
    ]  # fmt: skip


def _pci_devices(expected: ExpectedServer) -> list[dict[str, t.Any]]:
    gpus = [
        ("10de", _device_of(expected), "030200", 0x18 + number) for number in range(expected.gpu_count or 0)
    ]
    others = [("10de", "22a3", "068000", 1), ("1a03", "2000", "030000", 2), ("15b3", "1021", "020000", 5)]
    return [
        {
            "vendor_id": vendor,
            "product_id": product,
            "class": kind,
            "revision": "a1",
            "bus": f"0000:{bus:02x}:00.0",
        }
        for vendor, product, kind, bus in (*gpus, *others)
    ]


def _device_of(expected: ExpectedServer) -> str:
    """Return the first id in the table that is what was declared."""
    return next((device for device, known in known_gpus().items() if expected.gpu_model in known), "")


def tlvs(switch: str, port: str) -> list[list[t.Any]]:
    """Return what a switch sends by LLDP, as the agent passes it on."""
    return [
        [1, "04001c73000001"],
        [2, "05" + port.encode().hex()],
        [3, "0078"],
        [5, f"{switch}.dc1.example".encode().hex()],
        [0, ""],
    ]


def out_of_band(expected: ExpectedServer) -> dict[str, t.Any]:
    """Return what Ironic has after it asked the management controller (``inspect_interface: redfish``)."""
    product = f"0x{_device_of(expected).upper()}"
    device = {"class": "ProcessingAccelerators", "product_id": product, "vendor_id": "0x10DE"}
    ports = [{"mac_address": nic.mac, "name": f"NIC{number}"} for number, nic in enumerate(expected.nics)]
    return {
        "inventory": {
            "memory": {"physical_mb": (expected.memory_gib or 1) * 1024},
            "cpu": {"count": 2, "architecture": "x86_64"},
            "interfaces": ports,
            "pci_devices": [device] * (expected.gpu_count or 0),
            "system_vendor": {"product_name": "DGX", "serial_number": expected.serial.lower()},
        },
        "plugin_data": {"parsed_lldp": {"1": {"switch_chassis_id": "aa", "switch_port_id": "bb"}}},
    }


def firmware(expected: ExpectedServer) -> dict[str, t.Any]:
    """Return what Ironic's firmware interface knows of a server."""
    return {
        "firmware": [
            {
                "component": component,
                "initial_version": "0",
                "current_version": version,
                "last_version_flashed": None,
            }
            for component, version in expected.firmware
        ]
    }
