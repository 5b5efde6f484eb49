# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan gpu preflight`` against a real API server, up to the verdict of the agent that was asked.

The GPUs are tests/support/nvml and tests/support/cuda. No systemd runs here, so a script in the place of
``systemd-run`` starts what the agent makes a unit for.
"""

from __future__ import annotations

import json
import os
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import idle
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

from tests.support import cuda, nvml

from . import test_cluster_actions as actions
from .test_gpud_api import World, until

pytestmark = [pytest.mark.lab, pytest.mark.long]
site = actions.site
SYSTEMD_RUN = """\
#!/bin/sh
while :; do
  case $1 in
    --setenv=*) export "${1#--setenv=}" ;;
    --*) ;;
    *) break ;;
  esac
  shift
done
"$@" < /dev/null > "$IRONSPAN_TEST_LOG" 2>&1 &
"""
NODES = "/api/v1/nodes"
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "training", "namespace": "default"},
    "spec": {
        "nodeName": "rack-2",
        "containers": [
            {"name": "a", "image": "example.com/a:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ],
    },
}


class Gpus(World):
    """The agent of rack-1, with a driver whose GPU can be tested."""

    def prepare(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        """Give it CUDA, one GPU, one short test, and something that starts what it asks for."""
        cuda.built(self.library.parent)
        self.gpus = nvml.State(folder / "gpus", "h200", gpus=1)
        cuda.State(folder / "cuda")
        environment.setenv(cuda.VARIABLE, str(folder / "cuda"))
        environment.setenv("IRONSPAN_TEST_LOG", str(folder / "preflight.log"))
        environment.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        (folder / "bin").mkdir()
        (folder / "bin" / "systemd-run").write_text(SYSTEMD_RUN)
        (folder / "bin" / "systemd-run").chmod(0o755)
        content = json.loads(self.settings.read_text())
        content |= {"expected": {"count": 1, "model": "H200"}, "preflight": {"tests": "A01"}}
        self.settings.write_text(json.dumps(content))


def asked(site: actions.Site, inventories: list[Path], *options: str, code: int = 0) -> str:
    """Run the command; return what it says."""
    return actions.command(site, inventories, "gpu", "preflight", *options, code=code)


def test_an_idle_node_is_asked_and_its_agent_answers(
    site: actions.Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = site.control.api()
    more = tmp_path / "gpu.yml"
    more.write_text(yaml.safe_dump({"gpu": {"hosts": dict.fromkeys(("rack-1", "rack-2"))}}))
    inventories = [site.inventory, more]
    # The policies that keep the request from everybody but administrators and the repair controller.
    task: list[Object] = [{"ironspan.hybrid.cluster_objects": {"layers": ["gpu_repair"]}}]
    actions.run(site, task, "-i", str(more), "-egpu_repair_enabled=true")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    api.apply("/api/v1/namespaces/default/serviceaccounts/default", account)
    api.request("POST", "/api/v1/namespaces/default/pods", POD)
    seen = {"metadata": {"annotations": {idle.SEEN: "[]"}}}
    api.merge(f"{NODES}/rack-2", seen)

    def request(name: str) -> dict[str, t.Any]:
        annotations = api.get(f"{NODES}/{name}")["metadata"].get("annotations") or {}
        return t.cast("dict[str, t.Any]", json.loads(annotations.get(idle.ACTION, "{}")))

    world = Gpus(site.control, tmp_path, nvml.built(tmp_path / "library"))
    world.prepare(tmp_path, monkeypatch)
    assert "not asked, its agent has never named its GPUs: rack-1" in asked(site, inventories)
    with world.agent():
        until(lambda: world.annotation(idle.SEEN))
        shown = asked(site, inventories, "--check")
        assert "rack-1: asked for a preflight (last one: never)" in shown
        assert "not asked, a pod uses its GPUs: rack-2" in shown
        assert not request("rack-1")
        asked(site, inventories)
        first = request("rack-1")
        assert first["do"] == "preflight" and not request("rack-2")
        until(lambda: (world.annotation(idle.DONE) or {}).get("id") == first["id"])
        until(lambda: (world.annotation(idle.VERDICT) or {}).get("passed") is True, 400)
        conditions = {each["type"]: each for each in api.get(f"{NODES}/rack-1")["status"]["conditions"]}
        assert conditions[idle.CONDITION]["status"] == "True"
        assert "not asked, tested less than 7 days ago: rack-1" in asked(site, inventories)
        assert request("rack-1") == first
        again = asked(site, inventories, "--older-days", "0", "--at-once", "1")
        assert re.search(r"rack-1: asked for a preflight \(last one: \d{4}-\d\d-\d\d\)", again)
        assert request("rack-1")["id"] != first["id"]
    # Whoever has the identity of a host asks nobody for a test, not even itself.
    refused = {"metadata": {"annotations": {idle.ACTION: json.dumps(first)}}}
    with pytest.raises(ApiError, match="ironspan"):
        world.kubelet.merge(f"{NODES}/rack-1", refused)
    api.delete("/api/v1/namespaces/default/pods/training", {"gracePeriodSeconds": 0})
