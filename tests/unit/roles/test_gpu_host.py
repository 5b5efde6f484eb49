# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How GPU hosts boot, and which CPUs and NUMA nodes their pods get."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import kubelet_cpus

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"


def document(render: Render, **variables: t.Any) -> dict[str, t.Any]:
    rendered = render(variables=variables, more=GPUS)
    read_document(rendered.document("rack-1"))
    return rendered.resources("rack-1")


def test_hosts_that_ask_for_nothing_keep_what_boots_them(render: Render) -> None:
    assert not [name for name in document(render) if name.startswith("gpu_host/")]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"gpu_host_iommu": "passthrough"}, "intel_iommu=on iommu=pt"),
        ({"gpu_host_iommu": "disabled"}, "intel_iommu=off amd_iommu=off"),
        ({"gpu_host_acs": "disabled"}, "pci=disable_acs_redir=pci:0:0"),
        (
            {
                "gpu_host_hugepages_1gib_count": 64,
                "gpu_host_hugepages_2mib_count": 512,
                "base_min_memory_mib": 1048576,
            },
            "hugepagesz=1G hugepages=64 hugepagesz=2M hugepages=512",
        ),
        ({"gpu_host_kernel_arguments": " numa_balancing=disable  quiet"}, "numa_balancing=disable quiet"),
    ],
)
def test_the_boot_loader_gets_it_and_a_boot_is_asked_for(
    render: Render, variables: dict[str, t.Any], words: str
) -> None:
    found = document(render, **variables)
    last = found["gpu_host/arguments"]["content"].splitlines()[-1]
    assert last == f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {words}"'
    assert found["gpu_host/boot-loader"]["restart_on"] == ["gpu_host/arguments", "gpu_host/unit"]
    assert found["gpu_host/reboot"]["restart_on"] == ["gpu_host/arguments"]
    assert not [
        entry for entry in found.values() if entry["kind"] == "sysctl" and "hugepages" in entry["name"]
    ]


def test_the_way_back_is_a_file_without_arguments(render: Render) -> None:
    found = document(render, gpu_host_arguments_managed=True)
    last = found["gpu_host/arguments"]["content"].splitlines()[-1]
    assert last == 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX"'
    assert found["gpu_host/reboot"]["restart_on"] == ["gpu_host/arguments"]


def test_relaxed_ordering_is_the_modules_and_not_the_boot_loaders(render: Render) -> None:
    found = document(render, gpu_host_relaxed_ordering=True)
    assert "options nvidia NVreg_EnablePCIERelaxedOrderingMode=1" in found["gpu_host/ordering"]["content"]
    assert found["gpu_host/reboot"]["restart_on"] == ["gpu_host/ordering"]
    assert "gpu_host/boot-loader" not in found


def test_the_kubelet_gets_numa_and_cpus_as_declared(render: Render) -> None:
    plain = yaml.safe_load(document(render)["node/settings"]["content"])
    assert not {"topologyManagerPolicy", "topologyManagerScope", "cpuManagerPolicy", "reservedSystemCPUs"} & {
        *plain
    }
    variables = {
        "node_kubelet_topology_manager_policy": "single-numa-node",
        "node_kubelet_topology_manager_scope": "pod",
        "node_kubelet_cpu_manager_policy": "static",
        "node_kubelet_reserved_cpus": "0-3,64-67",
    }
    # Not site-wide: other hosts have no GPUs.
    gpus = {"all": {"children": {"gpu": {"hosts": {"rack-1": None}, "vars": variables}}}}
    found = render(variables={}, more=yaml.safe_dump(gpus)).resources("rack-1")
    settings = yaml.safe_load(found["node/settings"]["content"])
    assert {name: settings[name] for name in {*settings} - {*plain}} == {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0-3,64-67",
    }
    drop_in = found["node/cpus-drop-in"]["content"]
    assert f"{found['node/cpus']['path']} static\n" in drop_in
    names = list(found)
    assert names.index("node/cpus-drop-in") < names.index("node/service")


def test_only_hosts_with_gpus_have_the_program(render: Render) -> None:
    rendered = render(variables={}, more=GPUS)
    assert "node/cpus" not in rendered.resources("rack-2")


NONE = {"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}
STATIC = {"policyName": "static", "defaultCpuSet": "0-7", "checksum": 1}
BUSY = {**STATIC, "entries": {"pod": {"container": "2-3"}}}


@pytest.mark.parametrize(
    ("state", "policy", "stays"),
    [
        (NONE, "none", True),
        (NONE, "static", False),
        (STATIC, "static", True),
        (STATIC, "none", False),
        (BUSY, "static", True),
        (BUSY, "none", True),
        ([], "none", True),
        ({}, "none", True),
        ("{", "none", True),
        (None, "static", False),
    ],
)
def test_the_kubelets_state(tmp_path: Path, state: t.Any, policy: str, stays: bool) -> None:
    file = tmp_path / "cpu_manager_state"
    if state is not None:
        file.write_text(state if isinstance(state, str) else json.dumps(state))
    assert kubelet_cpus.main([policy], str(file)) == 0
    assert file.exists() is stays


def test_a_state_that_pods_hang_on_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "state"
    file.write_text(json.dumps(BUSY))
    kubelet_cpus.main(["none"], str(file))
    assert "drain the node first" in capsys.readouterr().err
    file.unlink()
    file.mkdir()
    assert kubelet_cpus.main(["none"], str(file)) == 0
    assert str(file) in capsys.readouterr().err
