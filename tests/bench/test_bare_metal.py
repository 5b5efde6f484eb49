# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What it costs to bring servers through Ironic: against openstacksdk alone, and in CPU of the controller.

Ironic is a real one, its hardware is pretended. `make bench` takes 100 servers and 1,000, a check fewer.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import sqlite3
import time
import typing as t
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import config_drive as drives
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import write
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    racks_of,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.drift import drift_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import connected
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)

from ironspan.lab import ironic
from ironspan.lab.ironic import USER, Ironic
from tests.bench.hosts import ROOT, Cost, Hosts
from tests.bench.raw_ironic import Raw
from tests.bench.table import Table
from tests.support import metal_site, racks
from tests.support.metal_site import ACCOUNT, FAKE, IMAGE

RECORDED = "IRONSPAN_BENCH_RECORD" in os.environ
COUNT = 100 if RECORDED else 8
COMPARED = 1000 if RECORDED else 100
RACK = 50
AT_ONCE = 10
"""Of each of two racks: raw has as many for both."""
ROUNDS = 3
"""At most; the fastest of each counts."""
AVAILABLE, DEPLOYED = 1.2, 1.1
MARGIN = 0.0 if RECORDED else 0.15
"""What other work on the machine, and few servers, may add to a ratio."""
NODE_S, NOTHING_S, COMPARE_S = 0.3, 2.0, 5.0
RACKS = {
    f"rack-{number}": {"network": f"10.30.{number}.0/24", "first": f"10.30.{number}.11"} for number in (1, 2)
}
SECTION = "Servers through Ironic"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with ironic.running(tmp_path_factory.mktemp("ironic")) as found:
        yield found


def login(lab: Ironic) -> dict[str, t.Any]:
    return {
        "auth_type": "http_basic",
        "auth": {"endpoint": lab.url, "username": USER, "password": lab.password},
        "baremetal_endpoint_override": lab.url,
    }


def fleet(folder: Path, prefix: int, count: int) -> tuple[Path, list[ExpectedServer]]:
    """Write a file of expected servers with one port each, no two rounds with the same one."""
    rack = max(min(RACK, count // 2), 1)
    servers = [
        dataclasses.replace(
            server,
            name=f"s{prefix}-{number}",
            serial=f"SN{prefix:02}{number:04}",
            rack=f"rack-{1 + number // rack}",
            position=1 + number % rack,
            height=1,
            firmware=(),  # pretended hardware says nothing of it
            nics=(
                dataclasses.replace(
                    server.nics[0], mac=f"5c:25:{prefix:02x}:00:{number >> 8:02x}:{number & 255:02x}"
                ),
            ),
        )
        for number, server in enumerate(racks.fleet(count))
    ]
    file = folder / f"servers-{prefix}.csv"
    file.write_bytes(write.as_csv(servers))
    return file, servers


def wanted_of(
    servers: Sequence[ExpectedServer], *, image: bool = False, inspect: bool = False
) -> dict[str, State]:
    networks = racks_of(RACKS)
    return {one.name: wanted_node(one, FAKE, networks, IMAGE if image else {}, inspect) for one in servers}


def quiet(text: str) -> None:
    """Say nothing."""


class Ours:
    """The same by the kind of remote things that the playbook has."""

    def __init__(self, lab: Ironic, folder: Path) -> None:
        api = connected(**login(lab))
        known = drives.KnownHosts(str(folder / "known_hosts"))
        self._kind = BareMetalServer(lambda: api, drives.Account.of(ACCOUNT), known, AT_ONCE)

    def brought(self, wanted: Mapping[str, State]) -> float:
        """Bring servers to what is wanted. Returns seconds."""
        began = time.monotonic()
        outcome = bring(self._kind, wanted, Consent(True), quiet)
        assert outcome.problems == []
        return time.monotonic() - began


def drives_of(wanted: Mapping[str, State]) -> dict[str, t.Any]:
    """Return config drives for the servers, all with one key."""
    key, account = drives.HostKey("private", "public"), drives.Account.of(ACCOUNT)
    return {
        name: drives.config_drive(name, state["host"], state["macs"][0], key, account)
        for name, state in wanted.items()
    }


def test_servers_become_available_and_get_a_system_as_fast_as_by_openstacksdk_alone(
    lab: Ironic, tmp_path: Path, table: Table
) -> None:
    import openstack.connection

    raw = Raw(openstack.connection.Connection(**login(lab)).baremetal, 2 * AT_ONCE)
    ours = Ours(lab, tmp_path)
    taken: dict[str, list[float]] = {name: [] for name in ("raw", "ours", "raw deploy", "our deploy")}

    def by_raw(prefix: int) -> None:
        wanted = wanted_of(fleet(tmp_path, prefix, COUNT)[1], image=True)
        nodes = {name: state["node"] for name, state in wanted.items()}
        macs = {name: state["macs"] for name, state in wanted.items()}
        taken["raw"].append(raw.available(nodes, macs))
        taken["raw deploy"].append(raw.deployed(drives.instance_info(IMAGE), drives_of(wanted)))

    def by_ours(prefix: int) -> None:
        servers = fleet(tmp_path, prefix, COUNT)[1]
        taken["ours"].append(ours.brought(wanted_of(servers)))
        taken["our deploy"].append(ours.brought(wanted_of(servers, image=True)))

    first, second = math.inf, math.inf
    for number in range(ROUNDS):
        # Ironic grows slower with each server that it has: who goes first changes.
        turns: list[Callable[[int], None]] = [by_raw, by_ours] if number % 2 else [by_ours, by_raw]
        for half, turn in enumerate(turns):
            turn(2 * number + half)
        first = min(taken["ours"]) / min(taken["raw"])
        second = min(taken["our deploy"]) / min(taken["raw deploy"])
        if first <= AVAILABLE and second <= DEPLOYED:
            break
    for what, ratio, budget, mine, theirs in (
        ("enrolled to available", first, AVAILABLE, "ours", "raw"),
        ("available to active", second, DEPLOYED, "our deploy", "raw deploy"),
    ):
        seconds = f"{min(taken[mine]):.1f} s and {min(taken[theirs]):.1f} s, {2 * AT_ONCE} at once"
        named = f"{COUNT} servers, {what}: time, of that of openstacksdk alone"
        table.add(SECTION, named, ratio, budget + MARGIN, note=seconds)
    table.check()


def test_the_playbook_s_controller_does_little(
    lab: Ironic, tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(lab.clouds))
    monkeypatch.setenv("IRONSPAN_PKI_KEY", base64.b64encode(bytes(32)).decode())
    file, _ = fleet(tmp_path, 90, COUNT)
    inventory = metal_site.site(
        tmp_path, site_bare_metal_racks=RACKS, site_bare_metal_at_once=AT_ONCE, site_bare_metal_inventory=""
    )
    hosts = Hosts(tmp_path, COUNT)

    def run(book: str, *options: str) -> Cost:
        cost = hosts.play(ROOT / "playbooks" / f"{book}.yml", inventory, *options)
        assert "failed=0" in cost.output, cost.output[-3000:]
        return cost

    def least(book: str, *options: str) -> Cost:
        return min(
            (run(book, *options) for _ in range(ROUNDS if RECORDED else 1)),
            key=lambda cost: cost.controller_cpu,
        )

    told = ("-e", f"ironspan_expected={file}")
    installed = run("bare_metal", *told, "-e", "ironspan_allow_destructive=true")
    assert f"write the operating system: {COUNT} times" in installed.output, installed.output[-3000:]
    nothing = least("bare_metal", *told)
    assert "changed=0" in nothing.output, nothing.output[-3000:]
    start = least("validate").controller_cpu
    each = (installed.controller_cpu - start) / COUNT
    beyond = f"beyond the {start:.1f} s of Ansible's start and the check of the inventory"
    name = f"{COUNT} servers, the whole playbook"
    table.add(SECTION, f"{name}, unknown to active: controller CPU of a server", each, NODE_S, "s", beyond)
    what = f"{name}, nothing to do: controller CPU"
    table.add(SECTION, what, nothing.controller_cpu - start, NOTHING_S, "s", beyond)
    table.check()


def test_servers_are_compared_with_what_ironic_measured(lab: Ironic, tmp_path: Path, table: Table) -> None:
    _, servers = fleet(tmp_path, 99, COMPARED)
    api = connected(**login(lab))
    api.enrol(servers[0].name, FAKE, [])
    with sqlite3.connect(lab.folder / "ironic.sqlite", timeout=30) as database:
        database.row_factory = sqlite3.Row
        (first,) = database.execute("select * from nodes where name = ?", (servers[0].name,)).fetchall()
        for server in servers:
            if server is not servers[0]:
                row = {**first, "id": None, "uuid": str(uuid.uuid4()), "name": server.name}
                marks = ", ".join("?" * len(row))
                insert = f"insert into nodes ({', '.join(row)}) values ({marks})"
                database.execute(insert, tuple(row.values()))
            said = racks.in_band(server)
            database.execute(
                "insert into node_inventory (version, node_id, inventory_data, plugin_data) "
                "select '1.0', id, ?, ? from nodes where name = ?",
                (json.dumps(said["inventory"]), json.dumps(said["plugin_data"]), server.name),
            )
    wanted = wanted_of(servers, inspect=True)
    spent = []
    for _ in range(ROUNDS):
        began = time.process_time()
        found = drift_of(api, wanted)
        spent.append(time.process_time() - began)
        if spent[-1] <= COMPARE_S:
            break
    assert {one.part for one in found} == {"Ironic"}, found[:3]
    table.add(
        SECTION,
        f"{COMPARED} servers compared with what was measured: controller CPU",
        min(spent),
        COMPARE_S,
        "s",
        "asked of Ironic, one by one",
    )
    table.check()
