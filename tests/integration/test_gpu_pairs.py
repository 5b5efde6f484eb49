# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan gpu pairs`` against a real API server, with two agents that meet over TCP and TLS.

The GPUs, CUDA and NCCL are those of tests/support; the certificates are of the cluster's own authority.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import idle, pairs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates
from cryptography.x509.oid import ExtendedKeyUsageOID

from ironspan.lab.ports import free_port
from tests.support import cuda, nccl, nvml
from tests.support.playbooks import ROOT

from . import test_cluster_actions as actions
from .test_cluster_api import user_api
from .test_gpu_preflight import SYSTEMD_RUN
from .test_gpud_api import until

pytestmark = [pytest.mark.lab, pytest.mark.long]
site = actions.site
NODES = "/api/v1/nodes"


class Agent:
    """The agent of one node, with everything that its kubelet would have."""

    def __init__(self, site: actions.Site, folder: Path, name: str, library: Path) -> None:
        self.folder, self.name, self.api = folder / name, name, site.control.api()
        self.folder.mkdir()
        control, names = site.control, certificates.Names(f"system:node:{name}", ["system:nodes"])
        client, key = control.issue(f"{name}-client", names, ExtendedKeyUsageOID.CLIENT_AUTH)
        serving = [
            path.read_text()
            for path in control.issue(f"{name}-serving", names, ExtendedKeyUsageOID.SERVER_AUTH)
        ]
        (self.folder / "serving.pem").write_text("".join(serving))
        config = control.store.admin_kubeconfig(control.endpoint, 1, control.address)
        config["users"][0]["user"] = {"client-certificate": str(client), "client-key": str(key)}
        (self.folder / "kubelet.conf").write_text(json.dumps(config))
        (self.folder / "kmsg").write_text("")
        self.nccl = self.folder / "nccl"
        self.nccl.write_text("")
        cards = nvml.State(self.folder / "gpus", "h200", gpus=1)
        cuda.State(self.folder / "cuda").set({"memory_mib": 8})
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "systemd-run").write_text(SYSTEMD_RUN)
        (self.folder / "bin" / "systemd-run").chmod(0o755)
        content = {
            "node": name, "kubeconfig": str(self.folder / "kubelet.conf"), "state": str(self.folder),
            "kmsg": str(self.folder / "kmsg"), "library": str(library), "every_seconds": 1,
            "serving": str(self.folder / "serving.pem"), "expected": {"count": 1, "model": "H200"},
            "metrics": {"port": free_port("127.0.0.1")},
        }  # fmt: skip
        (self.folder / "gpud.json").write_text(json.dumps(content))
        self.environment = {
            **os.environ, **cards.environment, cuda.VARIABLE: str(self.folder / "cuda"),
            nccl.VARIABLE: str(self.nccl), "IRONSPAN_TEST_LOG": str(self.folder / "pair.log"),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
        }  # fmt: skip

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run it."""
        command = [sys.executable, "-m", "ironspan.gpud", "run", "--settings", str(self.folder / "gpud.json")]
        with subprocess.Popen(command, cwd=ROOT, env=self.environment) as process:
            try:
                until(lambda: self.annotation(idle.SEEN), 300)
                yield
            finally:
                process.terminate()

    def annotation(self, name: str) -> t.Any:
        found = self.api.get(f"{NODES}/{self.name}")["metadata"].get("annotations") or {}
        return json.loads(found.get(name, "null"))


@contextlib.contextmanager
def addresses(*found: str) -> Iterator[None]:
    """Give the loopback device the nodes' addresses."""
    for address in found:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    try:
        yield
    finally:
        for address in found:
            subprocess.run(["ip", "address", "delete", f"{address}/32", "dev", "lo"], check=True)


def asked(site: actions.Site, more: Path, *options: str, code: int = 0) -> str:
    """Run the command; return what it says."""
    return actions.command(site, [site.inventory, more], "gpu", "pairs", *options, code=code)


def test_two_nodes_test_each_other_and_a_bad_one_is_named_by_two_others(
    site: actions.Site, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    nvml.built(library)
    cuda.built(library)
    nccl.built(library)
    port, names = free_port("127.0.0.1"), ("rack-1", "rack-2")
    hosts = {name: {"site_rack": "r1"} for name in names}
    more = tmp_path / "gpu.yml"
    content = {"gpu": {"hosts": hosts, "vars": {"nvidia_health_pairs_port": port}}}
    more.write_text(yaml.safe_dump(content))
    actions.run(
        site,
        [{"ironspan.hybrid.cluster_objects": {"layers": ["gpu_repair"]}}],
        "-i", str(more), "-egpu_repair_enabled=true",
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.enter_context(addresses(*(site.addresses[name] for name in names)))
        agents = [Agent(site, tmp_path, name, library) for name in names]
        assert "its agent has never named its GPUs" in asked(site, more)
        for agent in agents:
            stack.enter_context(agent.running())
        assert "rack-1 and rack-2: would test each other" in asked(site, more, "--check")
        assert agents[0].annotation(idle.ACTION) is None
        shown = asked(site, more)
        assert "rack-1 and rack-2: well: A10" in shown, shown
        for agent in agents:
            (found,) = agent.annotation(pairs.PAIRS)
            assert found["passed"] is True, found
            assert {each["test"]: each["passed"] for each in found["results"]} == {"A10": True, "A09": True}
        assert "tested less than 7 days ago" in asked(site, more)
        agents[1].nccl.write_text("wrong 3\n")
        failed = asked(site, more, "--older-days", "0", code=1)
        assert "wrong sums on 0" in failed, failed
        assert "no third node of the rack is idle" in failed
        # Nobody is named by one test.
        assert [agent.annotation(pairs.VERDICT) for agent in agents] == [None, None]
    # A node asks nobody, and says nothing of a third.
    kubelet = user_api(site.control, "system:node:rack-1", ["system:nodes"])
    for name in (idle.ACTION, pairs.VERDICT):
        with pytest.raises(ApiError, match=r"ironspan|of a node.s repair"):
            kubelet.merge(f"{NODES}/rack-1", {"metadata": {"annotations": {name: "[]"}}})
