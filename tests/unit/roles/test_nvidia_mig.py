# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts whose GPUs are divided: what the layer declares, and what follows it."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import nvidia_mig
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import mig

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"
LAYOUTS = [
    {"name": "halves", "instances": ["3g.40gb", "3g.40gb"]},
    {"name": "first", "gpus": [0], "instances": ["1g.10gb"] * 7},
]
SITE = {
    "nvidia_driver_model": "H100",
    "nvidia_mig_layouts": LAYOUTS,
    "nvidia_toolkit_enabled": True,
    "nvidia_device_plugin_enabled": True,
}


def document(render: Render, layout: str) -> dict[str, t.Any]:
    rendered = render(variables={**SITE, "nvidia_mig_layout": layout}, more=GPUS)
    read_document(rendered.document("rack-1"))
    return rendered.resources("rack-1")


def test_gpus_are_left_alone_without_a_layout(render: Render) -> None:
    found = document(render, "")
    assert not [name for name in found if name.startswith("nvidia_mig/")]
    assert "nvidia_mig/layout" not in json.dumps(found)
    assert "Environment=MIG_STRATEGY=none" in found["nvidia_device_plugin/unit"]["content"]


def test_what_runs_and_what_a_boot_brings_back_are_the_same(render: Render) -> None:
    found = document(render, "halves")
    assert found["nvidia_mig/layout"]["layout"] == {"others": ["3g.40gb:0", "3g.40gb:4"]}
    assert found["nvidia_mig/settings"]["path"] == nvidia_mig.SETTINGS
    settings = json.loads(found["nvidia_mig/settings"]["content"])
    assert settings == {"layout": found["nvidia_mig/layout"]["layout"]}
    assert mig.OTHERS == nvidia_mig.OTHERS
    unit = found["nvidia_mig/unit"]["content"]
    assert found["nvidia_mig/program"]["path"] in unit
    assert "Before=ironspan-nvidia-cdi.service" in unit


def test_containers_and_the_kubelet_learn_of_other_instances(render: Render) -> None:
    for layout, strategy in (("halves", "single"), ("first", "mixed")):
        found = document(render, layout)
        names = list(found)
        for service in ("nvidia_toolkit/service", "nvidia_device_plugin/service"):
            assert "nvidia_mig/layout" in found[service]["restart_on"]
            assert names.index("nvidia_mig/layout") < names.index(service)
        assert f"MIG_STRATEGY={strategy}\n" in found["nvidia_device_plugin/unit"]["content"]
