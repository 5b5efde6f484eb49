# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The agent of GPU hosts as its layer declares it; its settings are read by the agent's own reader."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import Event
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError

from ironspan.gpud import settings
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"


def layer(render: Render, **variables: t.Any) -> dict[str, t.Any]:
    """Return the layer's resources."""
    rendered = render(variables={"nvidia_health_enabled": True, **variables}, more=GPUS)
    read_document(rendered.document("rack-1"))
    found = rendered.resources("rack-1")
    return {name: entry for name, entry in found.items() if name.startswith("nvidia_health/")}


def read(found: dict[str, t.Any], folder: Path) -> settings.Settings:
    """Return the settings as the agent reads them."""
    path = folder / "gpud.json"
    path.write_text(found["nvidia_health/settings"]["content"])
    return settings.load(path)


def test_it_is_off_unless_somebody_wants_it(render: Render) -> None:
    assert layer(render, nvidia_health_enabled=False) == {}


def test_the_agent_reads_what_the_role_writes(render: Render, tmp_path: Path) -> None:
    found = read(layer(render), tmp_path)
    assert (found.node, found.every_s, found.hang_s, found.off) == ("rack-1", 2, 45, frozenset())
    assert found.expected.count is None
    assert found.metrics.port == settings.PORT
    assert found.kubeconfig == Path("/etc/kubernetes/kubelet.conf")


def test_what_a_site_says_differently(render: Render, tmp_path: Path) -> None:
    found = read(
        layer(
            render,
            nvidia_health_gpus_count=8,
            nvidia_health_links_count=18,
            nvidia_driver_model="H100",
            nvidia_health_checks={"H18": {"off": True}, "H08": {"rows": 256}},
            nvidia_health_readings_off=["fabric", "sram"],
            gpu_repair_tests=["A01", "A04"],
            gpu_policy_references=[{"model": "H200", "test": "A02", "value": 4000, "reason": "ticket 9"}],
            gpu_policy_overrides=[
                {"event": "xid 94", "class": "A2", "reason": 'seen "often"'},
                {"event": "nvml remap_pending", "class": "A0", "reason": "ticket 7"},
            ],
        ),
        tmp_path,
    )
    assert (found.expected.count, found.expected.links, found.expected.model) == (8, 18, "H100")
    assert found.off == frozenset({"H18"})
    assert found.limits["H08"]["rows"] == 256
    assert set(found.left_out) == {"fabric", "sram"}
    assert found.preflight_tests == ("A01", "A04")
    wanted = found.references.wanted("NVIDIA H200", "A02", "any")
    assert wanted is not None
    assert (wanted[0], wanted[1].source) == (3600, "ticket 9")
    rule = found.policy.rule(Event("xid", "94"))
    assert (rule.action, rule.why, rule.by_site) == ("A2", 'seen "often"', True)


@pytest.mark.parametrize("mps", [True, False])
def test_the_agent_knows_whether_pods_share_the_gpus(mps: bool, render: Render, tmp_path: Path) -> None:
    shares = {"nvidia_toolkit_enabled": True, "nvidia_device_plugin_enabled": True, "nvidia_mps_enabled": mps}
    assert read(layer(render, **shares), tmp_path).mps is mps


def test_a_check_that_is_none_is_refused(render: Render, tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="there is no such check"):
        read(layer(render, nvidia_health_checks={"H99": {"off": True}}), tmp_path)


def test_its_unit_has_few_devices_and_rights(render: Render) -> None:
    unit = layer(render)["nvidia_health/unit"]["content"].splitlines()
    assert "DevicePolicy=closed" in unit
    assert {line for line in unit if line.startswith("DeviceAllow=")} == {
        "DeviceAllow=char-nvidia* rw", "DeviceAllow=/dev/nvidiactl rw", "DeviceAllow=/dev/kmsg r",
    }  # fmt: skip
    assert "PrivateDevices=yes" not in unit
    assert "CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_SYSLOG" in unit
    for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "ReadWritePaths=/var/lib/ironspan/gpud"):
        assert line in unit


def test_other_programs_have_no_device(render: Render) -> None:
    rendered = render(more=GPUS)
    units = [entry for host in ("az-1", "rack-1") for entry in rendered.resources(host).values()]
    sandboxed = [each["content"] for each in units if "ProtectSystem=strict" in str(each.get("content"))]
    assert all("PrivateDevices=yes" in text for text in sandboxed)
    assert json.dumps(sandboxed).count("DeviceAllow") == 0
