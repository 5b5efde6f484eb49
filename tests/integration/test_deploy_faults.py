# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Deployments that fail in a real Ironic, by its own way to write disks: what is said, and others finish.

Power and boot are pretended; the agent in the server's ramdisk is one that fails on command, or that never
speaks, as of a server that starts from its old disk.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import sqlite3
import threading
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
    racks_of,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)

from ironspan.lab import ironic
from ironspan.lab.ironic import Ironic
from tests.support.fake_agent import Agent
from tests.support.metal_site import ACCOUNT, FAKE, RACKS

pytestmark = pytest.mark.lab
DIRECT = {**FAKE, "deploy_interface": "direct", "automated_clean": False}
SILENT_S = 600
"""For so long Ironic waits for an agent: one that only is not let run for a while shall not be given up."""
AGED = """\
update nodes set provision_updated_at = datetime('now', ?)
where name = ? and provision_state = 'wait call-back' and provision_updated_at > datetime('now', ?)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    sections: dict[str, dict[str, object]] = {
        "DEFAULT": {"enabled_deploy_interfaces": "fake,direct"},
        "conductor": {"deploy_callback_timeout": SILENT_S, "check_provision_state_interval": 1},
        "agent": {"require_tls": False, "image_download_source": "http"},
    }
    with ironic.running(tmp_path_factory.mktemp("ironic"), sections) as found:
        yield found


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """An image that Ironic finds where it looks before it deploys."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "disk.raw").write_bytes(b"x" * 1024)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    digest = hashlib.sha256(b"x" * 1024).hexdigest()
    source = f"http://127.0.0.1:{server.server_port}/disk.raw"
    yield {"source": source, "sha256": digest, "format": "raw"}
    server.shutdown()
    server.server_close()


class Two:
    """Two servers: the first one is written by its agent, the second one by nobody, and well."""

    def __init__(self, lab: Ironic, image: Mapping[str, str], folder: Path, prefix: str) -> None:
        file = folder / "racks.csv"
        file.write_text(
            "name,bmc_address,rack,position,nic1_mac\n"
            f"d{prefix}-1,192.0.2.1,a,1,5c:25:74:00:{prefix}:01\n"
            f"d{prefix}-2,192.0.2.2,a,2,5c:25:74:00:{prefix}:02\n"
        )
        first, second = expected_servers(str(file))
        self.mac = first.nics[0].mac
        self.wanted: dict[str, State] = {
            first.name: wanted_node(first, DIRECT, racks_of(RACKS), image, False),
            second.name: wanted_node(second, FAKE, racks_of(RACKS), image, False),
        }
        self.api: IronicApi = connected("lab", str(lab.clouds))
        self._known = KnownHosts(str(folder / "known_hosts"))

    def brought(self) -> Outcome:
        kind = BareMetalServer(lambda: self.api, Account.of(ACCOUNT), self._known)
        return bring(kind, self.wanted, Consent(True), lambda text: None)

    @property
    def states(self) -> list[t.Any]:
        nodes = self.api.nodes()
        return [nodes[name][1].state for name in self.wanted]


@contextlib.contextmanager
def waited_long_enough(lab: Ironic, name: str) -> Iterator[None]:
    """Let a server have waited for its agent for too long as soon as it waits: nobody has to."""
    over = threading.Event()

    def age() -> None:
        while not over.wait(0.5):
            with contextlib.closing(sqlite3.connect(lab.folder / "ironic.sqlite", timeout=60)) as database:
                database.execute(AGED, (f"-{2 * SILENT_S} seconds", name, f"-{SILENT_S} seconds"))
                database.commit()

    ages = threading.Thread(target=age)
    ages.start()
    try:
        yield
    finally:
        over.set()
        ages.join()


def test_an_agent_that_never_calls_back_is_named_and_the_next_run_tries_again(
    lab: Ironic, image: Mapping[str, str], tmp_path: Path
) -> None:
    """A wrong boot device looks like this: the server starts its old disk, and no agent."""
    two = Two(lab, image, tmp_path, "01")
    with waited_long_enough(lab, "d01-1"):
        (problem,) = two.brought().problems
        assert problem.startswith("d01-1: 'write the operating system' ended in 'deploy failed'")
        assert "the agent never called back: look at the serial console, the boot device" in problem
        assert two.states == ["deploy failed", "active"]
        again = two.brought()
    assert again.done == [] and "the agent never called back" in again.problems[0]
    assert two.states == ["deploy failed", "active"]


@pytest.mark.parametrize(
    ("prefix", "said", "meaning"),
    [
        ("02", "[Errno 2] No such file or directory: 'qemu-img'", "lacks qemu-img"),
        ("03", "Unexpected error while running command: fuser: not found", "lacks fuser"),
        ("04", "No suitable device was found for deployment", "no disk fits the hints"),
    ],
)
def test_what_the_agent_could_not_do_is_said(
    lab: Ironic, image: Mapping[str, str], tmp_path: Path, prefix: str, said: str, meaning: str
) -> None:
    two = Two(lab, image, tmp_path, prefix)
    with Agent(lab.url, two.mac, {"write_image": said}) as agent:
        (problem,) = two.brought().problems
        told = [one["command_name"] for one in agent.commands]
    assert told[0] == "get_deploy_steps" and "execute_deploy_step" in told
    assert meaning in problem and "(Ironic says: " in problem
    assert two.states == ["deploy failed", "active"]
