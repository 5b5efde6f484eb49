# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What offers GPUs to the kubelet: its unit, and the lists that follow the policy of the site."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"
ON = {"nvidia_toolkit_enabled": True, "nvidia_device_plugin_enabled": True}


def document(render: Render, **variables: t.Any) -> dict[str, t.Any]:
    rendered = render(variables=variables, more=GPUS)
    read_document(rendered.document("rack-1"))
    return rendered.resources("rack-1")


def environment(render: Render, **variables: t.Any) -> dict[str, str]:
    """Return the environment of the unit."""
    unit = document(render, **ON, **variables)["nvidia_device_plugin/unit"]["content"]
    lines = (line.removeprefix("Environment=") for line in unit.splitlines() if "Environment=" in line)
    return dict(line.split("=", 1) for line in lines)


def test_it_is_off_unless_somebody_wants_it(render: Render) -> None:
    assert not [name for name in document(render) if name.startswith("nvidia_device_plugin/")]


def test_the_unit_runs_what_is_installed_once_there_is_a_driver(render: Render) -> None:
    found = document(render, **ON)
    unit = found["nvidia_device_plugin/unit"]["content"]
    path = found["nvidia_device_plugin/program"]["path"]
    assert f"do sleep 5; done; exec {path}'" in unit
    assert found["nvidia_device_plugin/unit"]["path"].endswith(
        "/" + found["nvidia_device_plugin/service"]["name"]
    )
    assert unit.splitlines()[-1] == "WantedBy=multi-user.target"


def test_containers_get_gpus_by_the_hook_of_the_toolkit(render: Render) -> None:
    found = environment(render)
    assert found["DEVICE_LIST_STRATEGY"] == "cdi-cri"
    assert found["NVIDIA_CDI_HOOK_PATH"] == document(render, **ON)["nvidia_toolkit/nvidia-cdi-hook"]["path"]


def test_the_lists_are_those_of_the_policy(render: Render) -> None:
    found = environment(render)
    lists = (found["DP_DISABLE_HEALTHCHECKS"], found["DP_ENABLE_HEALTHCHECKS"])
    assert lists == shipped().health_checks()
    assert "109" in lists[1].split(",")


def test_unknown_codes_take_nothing_away_where_the_agent_runs(render: Render) -> None:
    found = environment(render, nvidia_health_enabled=True)
    lists = (found["DP_DISABLE_HEALTHCHECKS"], found["DP_ENABLE_HEALTHCHECKS"])
    assert lists == shipped().health_checks(watched=True) != shipped().health_checks()


def test_what_the_site_says_otherwise_is_in_the_lists(render: Render) -> None:
    assert "79" not in environment(render)["DP_DISABLE_HEALTHCHECKS"].split(",")
    overrides = [
        {"event": "xid 79", "class": "A0", "reason": "ticket 4711"},
        {"event": "xid 13", "class": "A2", "reason": "ticket 4712"},
    ]
    found = environment(render, gpu_policy_overrides=overrides)
    assert "79" in found["DP_DISABLE_HEALTHCHECKS"].split(",")
    assert "13" not in found["DP_DISABLE_HEALTHCHECKS"].split(",")
    assert "13" in found["DP_ENABLE_HEALTHCHECKS"].split(",")


def test_infiniband_comes_with_gpus_where_the_site_says_so(render: Render) -> None:
    assert environment(render)["MOFED_ENABLED"] == "false"
    assert environment(render, nvidia_device_plugin_rdma=True)["MOFED_ENABLED"] == "true"
