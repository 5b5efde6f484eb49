# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which packages, modules and files bring the NVIDIA driver to a host."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import layers_asked

from tests.support.playbooks import ROOT
from tests.unit.roles.conftest import Rendered, Resource

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"
KERNEL = "6.8.0-60-generic"
DRIVER = {"nvidia_driver_version": "580.159.03", "nvidia_driver_kernel": KERNEL}


def resources(render: Render, **variables: t.Any) -> dict[str, Resource]:
    """Return the layer's resources of a host, by their names in the layer."""
    rendered = render(variables={**DRIVER, **variables}, more=GPUS)
    read_document(rendered.document("rack-1"))
    return {
        name.partition("/")[2]: resource
        for name, resource in rendered.resources("rack-1").items()
        if name.startswith("nvidia_driver/")
    }


def test_a_wave_takes_back_all_that_names_the_driver(render: Render) -> None:
    on = {f"nvidia_{name}_enabled": True for name in ("fabric", "health", "toolkit", "device_plugin")}
    both = [
        render(variables={**DRIVER, **on, "nvidia_driver_model": "H100", **version}, more=GPUS).resources(
            "rack-1"
        )
        for version in ({}, {"nvidia_driver_version": "580.126.09"})
    ]
    names = both[0].keys() | both[1].keys()
    layers = {name.partition("/")[0] for name in names if both[0].get(name) != both[1].get(name)}
    text = (ROOT / "playbooks/upgrade.yml").read_text()
    ways = re.findall(r"mode: rollback\n +layers: (.*)", text)
    assert len(ways) == 2
    asked = [layers_asked({"mode": "rollback", "layers": yaml.safe_load(way)}) for way in ways]
    assert [set(way) for way in asked] == [layers, layers]


def test_without_a_version_the_driver_is_somebody_else_s(render: Render) -> None:
    assert resources(render, nvidia_driver_version="") == {}


def test_precompiled_open_modules_are_the_default(render: Render) -> None:
    found = resources(render)
    packages = found["packages"]["packages"]
    assert packages[f"linux-modules-nvidia-580-server-open-{KERNEL}"] == ""
    assert packages["nvidia-utils-580-server"] == "580.159.03-*"
    assert not any("dkms" in name for name in packages)
    assert found["packages"]["hold"] is found["kernel"]["hold"] is True
    assert set(found["kernel"]["packages"]) == {f"linux-image-{KERNEL}", f"linux-headers-{KERNEL}"}
    assert found["modules"]["dkms"] == ""
    assert found["modules"]["licence"] == "Dual MIT/GPL"
    assert f"linux-modules-nvidia-580-server-{KERNEL}" in found["packages"]["without"]


def test_memory_of_gpus_by_a_module_is_one_variable(render: Render) -> None:
    usual, found = resources(render), resources(render, nvidia_driver_rdma="peermem")
    assert found["peermem"]["content"].splitlines()[-1] == "nvidia_peermem"
    assert "nvidia_driver/peermem" in found["reboot"]["restart_on"]
    assert "peermem" not in usual
    assert usual["without-peermem"]["path"] == found["peermem"]["path"]
    assert "without-peermem" not in found


def test_ofed_comes_before_the_driver_and_is_held(render: Render) -> None:
    packages = {"doca-ofed": "3.2.1-044000", "mlnx-ofed-kernel-dkms": "25.10.OFED.25.10.1.7.1.1"}
    found = resources(
        render,
        nvidia_driver_rdma_stack="ofed",
        nvidia_driver_ofed_version="25.10-1.7.1",
        nvidia_driver_ofed_packages=packages,
    )
    assert (found["ofed"]["packages"], found["ofed"]["hold"]) == (packages, True)
    modules = found["ofed-modules"]
    assert (modules["module"], modules["version"]) == ("mlx5_core", "25.10-1.7.1")
    assert modules["kernel"] == KERNEL
    assert "nvidia_driver/ofed-modules" in found["packages"]["requires"]
    assert "nvidia_driver/ofed" in found["reboot"]["restart_on"]
    names = list(found)
    assert names.index("ofed-modules") < names.index("packages")
    assert "ofed" not in resources(render)


@pytest.mark.parametrize(
    ("distribution", "modules", "package", "module"),
    [
        ("ubuntu", "open", "nvidia-dkms-580-server-open", "nvidia"),
        ("ubuntu", "proprietary", "nvidia-dkms-580-server", "nvidia"),
        ("debian", "open", "nvidia-open-kernel-dkms", "nvidia-current-open"),
        ("debian", "proprietary", "nvidia-kernel-dkms", "nvidia-current"),
    ],
)
def test_dkms_is_one_variable(
    render: Render, distribution: str, modules: str, package: str, module: str
) -> None:
    found = resources(
        render,
        nvidia_driver_build="dkms",
        nvidia_driver_distribution=distribution,
        nvidia_driver_modules=modules,
    )
    assert found["packages"]["packages"][package] == "580.159.03-*"
    assert found["modules"]["module"] == module
    assert found["modules"]["dkms"] != ""
    assert not set(found["packages"]["packages"]) & set(found["packages"]["without"])
    assert not any(name.startswith("linux-modules") for name in found["packages"]["packages"])


def test_further_packages_go_with_it(render: Render) -> None:
    more = {"nvidia-fabricmanager-580": "580.159.03-1", "nvidia-utils-580-server": "580.159.03-0ubuntu1"}
    packages = resources(render, nvidia_driver_packages=more)["packages"]["packages"]
    assert packages.items() >= more.items()


def test_nothing_else_changes_it(render: Render) -> None:
    found = resources(render, nvidia_driver_package_version="580.159.03-0ubuntu1")
    pins = dict(re.findall(r"^(\S+): (.*)$", found["preferences"]["content"], re.MULTILINE))
    assert pins["Pin"] == "version 580.159.03-0ubuntu1"
    assert int(pins["Pin-Priority"]) > 1000, "what is newer is replaced as well"
    patterns = re.findall(r'^  "(.*)";$', found["unattended"]["content"], re.MULTILINE)
    for name in {**found["packages"]["packages"], **found["kernel"]["packages"]}:
        assert any(re.match(pattern, name) for pattern in patterns), name


def test_nothing_is_loaded_and_a_reboot_is_asked_for(render: Render) -> None:
    found = resources(render)
    assert "blacklist nouveau" in found["nouveau"]["content"]
    assert found["reboot"]["kind"] == "reboot_request"
    assert set(found["reboot"]["restart_on"]) == {
        f"nvidia_driver/{name}" for name in ("nouveau", "kernel", "packages", "modules")
    }
    assert not {"kernel_module", "systemd_unit"} & {each["kind"] for each in found.values()}
