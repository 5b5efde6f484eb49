# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From a server that is off to a Ready worker, twice: the site's own commands, real Ironic, agent and UEFI.

Nothing is edited in between: the lab writes the inventory and the file of expected servers. The server's TPM
is a program; what firmware, shim and GRUB measure into it is real.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation.record import Record, record_from
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.taken import Taker
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.tpm import read_tpm
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store

from ironspan.lab import keys
from ironspan.lab.errors import LabError
from ironspan.lab.virtual import rack as racks
from ironspan.lab.virtual import variables, world
from ironspan.lab.virtual.servers import LEAF, Server
from tests.integration.conftest import Cluster, lab_cluster

pytestmark = [pytest.mark.lab, pytest.mark.long]
STEP_S = 3600.0
"""Of one command: an emulated server on a machine that does other things takes minutes to start."""


class Stages:
    """What each stage took; Ironic's own states beside the commands of the site."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float]] = []
        self._began = time.monotonic()

    def done(self, name: str) -> None:
        """Note that a stage ended."""
        now = time.monotonic()
        self.rows.append((name, now - self._began))
        self._began = now
        print(f"{name}: {self.rows[-1][1]:.0f} s", flush=True)

    def report(self) -> str:
        """Return a table."""
        return "".join(f"| {name} | {seconds:.0f} |\n" for name, seconds in self.rows)


class Watched(threading.Thread):
    """Notes when Ironic brings a server into another state."""

    def __init__(self, api: IronicApi, name: str, stages: Stages, first: str) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._api, self._name, self._stages, self._first = api, name, stages, first

    def run(self) -> None:
        """Ask every second, until it is told to stop."""
        found = self._api.nodes().get(self._name)
        state, stage, seen = found[1].state if found else None, self._first, set[str | None]()
        while not self.over.wait(1):
            found = self._api.nodes().get(self._name)
            now = found[1].state if found else None
            if now != state:
                self._stages.done(stage)
                # A deployment is in the same state before its agent and after it.
                state, stage = now, f"Ironic: {now}{', again' if now in seen else ''}"
                seen.add(now)


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    found = Stages()
    yield found
    print(f"\n| stage | seconds |\n|---|---|\n{found.report()}", flush=True)


@pytest.fixture(scope="module")
def rack(stages: Stages) -> Iterator[Cluster]:
    if os.geteuid() != 0:
        pytest.skip("virtual servers need root: a bridge")
    try:
        world.require(racks.ALONE)
    except LabError as error:
        pytest.skip(str(error))
    with lab_cluster(Cluster, "itestvirt", azure=1, rack=1, bare_metal=1, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output[-6000:]
        stages.done("lab, its cluster, a server that is off, and Ironic")
        yield made


@pytest.fixture(scope="module")
def server(rack: Cluster) -> Server:
    return Server(folder(rack), racks.of(rack.lab._require().layout), 1)


def folder(rack: Cluster) -> Path:
    return rack.lab.folder / variables.FOLDER


def commanded(rack: Cluster, *arguments: str) -> str:
    """Run a command of the site on the lab's whole inventory, and return what it said."""
    done = rack.command(*arguments, "-i", str(rack.inventory.parent), timeout=STEP_S)
    assert done.returncode == 0, f"{arguments}: {done.stdout[-6000:]}"
    return done.stdout


def expected(rack: Cluster) -> list[str]:
    return ["--expected", str(folder(rack) / "expected.csv")]


def ironic(rack: Cluster) -> IronicApi:
    return connected("lab", str(folder(rack) / "ironic" / "clouds.yaml"))


@contextmanager
def watched(rack: Cluster, server: Server, stages: Stages, first: str) -> Iterator[None]:
    """Note Ironic's states while a block lasts; ``first`` is what it begins with."""
    watching = Watched(ironic(rack), server.name, stages, first)
    watching.start()
    try:
        yield
    finally:
        watching.over.set()
        watching.join()


def inspected(rack: Cluster, server: Server) -> tuple[str, str | None]:
    """Return when Ironic inspected a server, and the TPM that the agent found."""
    api = ironic(rack)
    uuid, _ = api.nodes()[server.name]
    found = api.inspection(uuid)
    assert found is not None
    return api.times(uuid)["inspection_finished_at"], read_tpm(found["plugin_data"], Taker())


def accepted(rack: Cluster, server: Server) -> Record:
    """Return what somebody has accepted of a server's TPM."""
    store = open_store(rack.lab.folder / "pki", rack.lab.folder / "pki.key")
    return record_from(store.tpms.read(server.name))


def host_key(rack: Cluster, server: Server) -> str:
    """Return the host key that is known of a server."""
    lines = (folder(rack) / "known_hosts").read_text().splitlines()
    [found] = [line.split()[-1] for line in lines if server.address in line.split()[0].split(",")]
    return found


def assert_started(rack: Cluster, server: Server) -> None:
    """Insist that its system is whole, with Secure Boot."""
    said = asked(rack, server, "hostname; mokutil --sb-state; systemctl is-system-running --wait")
    assert said.split("\n")[:3] == [server.name, "SecureBoot enabled", "running"]


def test_a_server_that_is_off_becomes_a_ready_worker(rack: Cluster, server: Server, stages: Stages) -> None:
    factory = folder(rack) / "bmc" / "factory.yml"
    commanded(rack, "bmc", "setup", *expected(rack), "--factory", str(factory))
    stages.done("BMC: password and certificate of the site")
    with watched(rack, server, stages, "powered off, unknown to Ironic"):
        commanded(rack, "bare-metal", *expected(rack), "--allow-destructive")
    stages.done("compared and handed over")
    assert_started(rack, server)
    stages.done("first start of the system")
    refused = rack.command("node", "add", server.name, "-i", str(rack.inventory.parent), timeout=STEP_S)
    assert refused.returncode != 0 and server.name not in rack.ready_nodes()
    assert "nobody has accepted this host's TPM" in refused.stdout, refused.stdout[-6000:]
    assert f"ironspan server attest {server.name} --accept NAME" in refused.stdout
    stages.done("site.yml's layers; its join is refused: nobody has accepted its TPM")
    commanded(rack, "server", "attest", server.name, "--accept", "anna")
    stages.done("TPM accepted")
    commanded(rack, "node", "add", server.name)
    stages.done("joined, Ready")
    assert server.name in rack.ready_nodes()
    labels = rack.kubectl("get", "node", server.name)["metadata"]["labels"]
    assert (labels["ironspan.io/rack"], labels["ironspan.io/leaf-switch"]) == (server.rack.name, LEAF)


def test_the_tpm_that_joined_is_the_one_that_was_inspected_and_it_measured_the_boot(
    rack: Cluster, server: Server
) -> None:
    record = accepted(rack, server)
    _, found = inspected(rack, server)
    assert record.accepted_by == "anna" and record.endorsement == found
    assert f"node_attestation_ek_sha256: {found}" in variables.hosts(rack.lab.folder).read_text()
    assert sorted(record.pcrs) == [0, 2, 4, 7]
    assert len({*record.pcrs.values(), "00" * 32}) == 5, "not measured, or all the same"


def test_it_is_what_the_config_drive_says_and_nobody_has_a_password(rack: Cluster, server: Server) -> None:
    shadow = asked(rack, server, "sudo cut -d: -f2 /etc/shadow")
    assert {line[:1] for line in shadow.split()} <= {"*", "!"}, "somebody has a password"
    addresses = asked(rack, server, "ip -brief -4 address show scope global | grep -v flannel")
    assert f" {server.address}/24" in addresses
    assert len([line for line in addresses.splitlines() if f"{server.rack.network[0]}"[:-1] in line]) == 1
    size = asked(rack, server, "df --output=size --block-size=1G /").split()[-1]
    assert int(size) >= server.disk_gib - 1, "the root did not grow to the disk"


def assert_settled(rack: Cluster) -> None:
    """Insist that the site and its servers have nothing left to do."""
    for command in (("apply", "--check"), ("bare-metal", *expected(rack), "--allow-destructive")):
        said = commanded(rack, *command)
        assert ": unchanged" in said
        assert re.findall(r"^.*: \d+ changes?$", said, re.MULTILINE) == []


def test_the_site_has_nothing_left_to_do(rack: Cluster) -> None:
    assert_settled(rack)


def test_it_is_redeployed_and_joins_again_with_the_tpm_that_was_accepted(
    rack: Cluster, server: Server, stages: Stages
) -> None:
    redeploy, marker = ("server", "redeploy", server.name, *expected(rack)), "/etc/of-the-system-before"
    key, record, (time_before, _) = host_key(rack, server), accepted(rack, server), inspected(rack, server)
    asked(rack, server, f"sudo touch {marker}")
    refused = rack.command(*redeploy, "-i", str(rack.inventory.parent), timeout=STEP_S)
    assert refused.returncode != 0 and "--allow-destructive" in refused.stdout, refused.stdout[-6000:]
    assert server.name in rack.ready_nodes() and host_key(rack, server) == key
    stages.done("redeploy: refused without consent")
    with watched(rack, server, stages, "redeploy: drained, reset, its Node deleted"):
        said = commanded(rack, *redeploy, "--allow-destructive")
    assert "Drain the nodes of this wave" in said
    stages.done("redeploy: compared and handed over")
    assert server.name not in {node["metadata"]["name"] for node in rack.kubectl("get", "nodes")["items"]}
    assert host_key(rack, server) != key
    time_after, found = inspected(rack, server)
    assert time_after > time_before and found == record.endorsement
    assert_started(rack, server)
    assert asked(rack, server, f"ls -d /etc {marker}").split() == ["/etc"], "the same system as before"
    stages.done("redeploy: first start of the system")
    commanded(rack, "node", "add", server.name)
    stages.done("redeploy: site.yml's layers, joined, Ready")
    assert server.name in rack.ready_nodes()
    assert accepted(rack, server) == record, "the TPM was asked for the same measurements"
    assert_settled(rack)


def asked(rack: Cluster, server: Server, command: str) -> str:
    """Run a command on a server, as soon as it answers with the key that is known; return what it printed."""
    options = [
        f"UserKnownHostsFile={folder(rack) / 'known_hosts'}",
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "ConnectTimeout=10",
    ]
    ssh = ["ssh", "-F", "none", "-i", str(keys.private_key(rack.lab.folder))]
    ssh += [part for option in options for part in ("-o", option)]
    until = time.monotonic() + STEP_S
    while time.monotonic() < until:
        answer = subprocess.run(
            [*ssh, f"{variables.USER}@{server.address}", command], capture_output=True, text=True, check=False
        )
        assert "HOST IDENTIFICATION HAS CHANGED" not in answer.stderr, answer.stderr
        if answer.returncode != 255:
            return answer.stdout
        time.sleep(2)
    raise AssertionError(f"no answer of {server.name}: {answer.stderr}; its console: {server.console}")
