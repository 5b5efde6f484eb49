# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Layouts of divided GPUs: one mistake each, named with its file and line."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, GPU, Mutation
from .test_mutations import test_mutation as insist

LAYOUTS = """
nvidia_mig_layouts:
  - name: halves
    instances: [3g.40gb, 3g.40gb]
  - name: mixed
    gpus: [0, 1]
    instances: [1g.10gb, 2g.20gb]
  - name: mixed
    instances: []
"""
HOSTS = """
nvidia_driver_model: H100
nvidia_mig_layout: mixed
"""


def wrong(name: str, old: str, new: str, says: str, at: str, file: str = ALL) -> Mutation:
    """Return a mistake: ``old`` is ``new`` in layouts that are right."""
    assert old in LAYOUTS + HOSTS, name
    changes = ((ALL, "", LAYOUTS.replace(old, new, 1)), (GPU, "", HOSTS.replace(old, new, 1)))
    return Mutation(f"MIG: {name}", changes, file, at, says)


MISTAKES = (
    wrong(
        "does not fit",
        "[1g.10gb, 2g.20gb]",
        "[4g.40gb, 4g.40gb]",
        "2 of 4g.40gb do not fit on one H100 with 80 GB",
        "4g.40gb",
    ),
    wrong(
        "profile of another GPU", "[1g.10gb, 2g.20gb]", "[1g.18gb]", "H100 with 80 GB has no 1g.18gb", "18gb"
    ),
    wrong("GPU that has none", "H100", "T4", "how T4 can be divided", "nvidia_mig_layout: mixed", GPU),
    wrong("twice", "instances: []", "gpus: [1]\n    instances: []", "GPU 1 is divided twice", "gpus: [1]"),
    wrong(
        "no such layout", "layout: mixed", "layout: mixd", "there is no layout mixd (gpu-a-01)", "mixd", GPU
    ),
    wrong(
        "no model",
        "nvidia_driver_model: H100\n",
        "",
        "which GPUs it divides is not known (gpu-a-01)",
        "nvidia_mig_layout: mixed",
        GPU,
    ),
)


def test_layouts_that_are_right(example: Example) -> None:
    example.append(ALL, LAYOUTS)
    example.append(GPU, HOSTS)
    assert example.problems() == []


@pytest.mark.parametrize("mutation", MISTAKES, ids=lambda mutation: mutation.name)
def test_mistake(example: Example, mutation: Mutation) -> None:
    insist(example, mutation)
