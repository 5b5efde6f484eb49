# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What control planes and the cluster get for the repair of GPU nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ironspan.gpu_repair import settings
from ironspan.gpu_repair.limits import Window
from ironspan.gpu_repair.model import Rule
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"
ENABLED = {
    "gpu_repair_enabled": True,
    "gpu_repair_drain_hours": 24,
    "gpu_repair_windows": ["mon,tue 22:00-04:00"],
    "gpu_policy_overrides": [{"event": "xid 94", "class": "A2", "reason": "4711"}],
}


def test_nothing_without_the_switch(render: Render) -> None:
    """Neither on hosts nor in the cluster; what was there goes."""
    rendered = render()
    assert rendered.renderer.objects("gpu_repair") == []
    assert not [name for name in rendered.resources("az-1") if name.startswith("gpu_repair/")]


def test_the_program_reads_what_the_role_writes(render: Render, tmp_path: Path) -> None:
    """Nodes and racks of the inventory, the site's policy, its limits; it begins by watching."""
    rendered = render(variables=ENABLED, more=GPUS)
    file = tmp_path / "settings.json"
    file.write_text(rendered.content("az-1", "gpu_repair/settings"))
    read = settings.load(file)
    gpu = [host for host in rendered.site.hosts.values() if host.in_group("gpu")]
    assert gpu
    assert read.nodes == {host.name: host.rack for host in gpu}
    assert read.mode == "watch"
    assert read.policy["xid 94"] == Rule("A2", again="A4")
    assert read.policy["xid 79"].action == "A3"
    assert read.limits.drain_seconds == 86400
    assert read.limits.windows == (Window(frozenset({0, 1}), 1320, 240),)
    assert read.server == f"https://{rendered.site.hosts['az-1'].address}:6443"


def test_its_certificate_is_its_own(render: Render) -> None:
    """A client's, of no group; the program restarts for another one."""
    resources = render(variables=ENABLED, more=GPUS).resources("az-1")
    assert resources["gpu_repair/key"]["csr"]["common_name"] == "ironspan:gpu-repair"
    assert resources["gpu_repair/key"]["csr"]["organizations"] == []
    assert resources["gpu_repair/certificate"]["profile"] == "gpu-repair"
    written = json.loads(resources["gpu_repair/settings"]["content"])
    assert (written["certificate"], written["key"]) == (
        resources["gpu_repair/certificate"]["path"],
        resources["gpu_repair/key"]["key_path"],
    )
    assert "gpu_repair/certificate" in resources["gpu_repair/service"]["restart_on"]
    assert not [
        name for name in render(variables=ENABLED, more=GPUS).resources("rack-1") if "gpu_repair" in name
    ]


def test_what_it_may_do_has_no_star_and_no_secret(render: Render) -> None:
    """And the right to release a storm is bound to nobody."""
    objects = render(variables=ENABLED, more=GPUS).renderer.objects("gpu_repair")
    roles = [item for item in objects if item["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"]]
    assert not [rule for rule in rules if "*" in str(rule)]
    assert not [rule for rule in rules if "secrets" in rule.get("resources", ())]
    assert not [rule for rule in rules if {"delete", "update"} & set(rule["verbs"]) - {"update"}]
    bound = {item["roleRef"]["name"] for item in objects if item["kind"].endswith("RoleBinding")}
    assert bound == {"ironspan:gpu-repair"}
