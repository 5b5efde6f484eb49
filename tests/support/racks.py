# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Expected servers for tests: a fleet of any size, and any server for property tests."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import (
    Disks,
    ExpectedServer,
    Nic,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.gpus import model_names
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
)
_text = st.from_regex(r"[A-Za-z0-9][ -~]{0,20}", fullmatch=True).map(str.strip)
_port = _text.filter(lambda text: "[" not in text and "]" not in text)
_mac = st.integers(0, 2**48 - 1).map(
    lambda number: ":".join(f"{byte:02x}" for byte in (number & ~(1 << 40) | 1 << 41).to_bytes(6, "big"))
)
_nic = st.one_of(
    st.builds(Nic, mac=_mac, name=st.just("") | _label, speed_gbit=st.none() | st.integers(1, 10_000)),
    st.builds(Nic, mac=_mac, switch=_label, port=_port),
)
_disks = st.builds(
    Disks, st.integers(1, 1000), st.integers(1, 10**6), st.sampled_from(("", *values.DISK_KINDS))
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
        serial=draw(st.just("") | st.from_regex(r"[A-Z][A-Z0-9._/-]{0,12}", fullmatch=True)),
        model=draw(st.just("") | _text),
        group=draw(st.just("") | st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True)),
        gpu_count=gpus,
        gpu_model=draw(st.sampled_from(sorted(model_names().values())))
        if gpus is not None and (gpus or draw(st.booleans()))
        else "",
        memory_gib=draw(st.none() | st.integers(1, 1 << 20)),
        nvlink_domain=draw(st.just("") | _label),
        nics=tuple(draw(st.lists(_nic, max_size=4, unique_by=lambda nic: nic.mac))),
        disks=tuple(draw(st.lists(_disks, max_size=3))),
        firmware=tuple(
            sorted(
                draw(
                    st.dictionaries(st.from_regex(values.COMPONENT, fullmatch=True), _text, max_size=3)
                ).items()
            )
        ),
    )
