# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPUs that are shared: one contradiction each, named with its file and line."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, GPU, Mutation
from .test_mutations import test_mutation as insist

ON = """
nvidia_toolkit_enabled: true
nvidia_device_plugin_enabled: true
nvidia_mps_enabled: true
nvidia_mps_pods_count: 4
nvidia_mps_threads_percent: 50
"""
AT = "nvidia_mps_enabled: true"


def wrong(name: str, old: str, new: str, says: str, at: str = AT, everywhere: str = "") -> Mutation:
    """Return a mistake: ``old`` is ``new`` in what is right, and something is added for all hosts."""
    assert old in ON, name
    changes = ((GPU, "", ON.replace(old, new, 1)), *(((ALL, "", everywhere),) if everywhere else ()))
    return Mutation(f"MPS: {name}", changes, GPU, at, says)


DIVIDED = """
nvidia_driver_model: H100
nvidia_mig_layout: halves
nvidia_mig_layouts: [{name: halves, instances: [3g.40gb, 3g.40gb]}]
"""
REPAIRED = "\ngpu_repair_enabled: true\ngpu_repair_mode: repair\nnvidia_health_enabled: true\n"
MISTAKES = (
    wrong("no plugin", "plugin_enabled: true", "plugin_enabled: false", "no pod gets a share without"),
    wrong("divided", AT, AT, "shares GPUs that nvidia_mig_layout divides", everywhere=DIVIDED),
    wrong("threads", "percent: 50", "percent: 20", "leave 20 % to nobody", "percent: 20"),
    wrong("pods", "count: 4", "count: 49", "2 to 48", "count: 49"),
)


def test_what_is_right(example: Example) -> None:
    example.append(GPU, ON)
    example.append(ALL, REPAIRED)
    assert example.problems() == []


@pytest.mark.parametrize("mutation", MISTAKES, ids=lambda mutation: mutation.name)
def test_mistake(example: Example, mutation: Mutation) -> None:
    insist(example, mutation)
