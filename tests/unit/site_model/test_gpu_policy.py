# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site does otherwise about what GPUs report: one mistake each, named with its file and line."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, Mutation
from .test_mutations import test_mutation as insist

OVERRIDES = """
gpu_policy_overrides:
  - {event: xid 94, class: A2, reason: ticket 4711}
  - {event: nvml remap_pending, class: A0, reason: ticket 4712}
gpu_policy_references:
  - {model: H200, test: A02, value: 4000, reason: ticket 4713}
  - {model: H100, test: A06, value: 0, reason: ticket 4714}
"""


def wrong(name: str, old: str, new: str, says: str, at: str = "") -> Mutation:
    """Return a mistake: ``old`` is ``new`` in overrides that are right."""
    assert old in OVERRIDES, name
    return Mutation(f"policy: {name}", ((ALL, "", OVERRIDES.replace(old, new, 1)),), ALL, at or new, says)


MISTAKES = (
    wrong("class", "class: A2", "class: A7", "'A7' is not one of"),
    wrong("no reason", "reason: ticket 4711", 'reason: ""', "reason: '' is no line of text"),
    wrong("unknown event", "event: xid 94", "event: xyd 94", "'xyd 94' is no event"),
    wrong("unknown state", "nvml remap_pending", "nvml remap_pendng", "no remap_pendng; write remap_pending"),
    wrong("no test", "test: A02", "test: A99", "'A99' is no test"),
    wrong("no figure", "value: 4000", "value: -1", "-1 is outside 0 to 1000000"),
    wrong("no reason of a figure", "reason: ticket 4713", 'reason: ""', "reason: '' is no line of text"),
    wrong("no model", "model: H200", 'model: ""', "model: '' is no line of text"),
    wrong(
        "figure twice",
        "model: H100, test: A06",
        "model: h200, test: A02",
        "is there already, as gpu_policy_ref",
    ),
    wrong("twice", "nvml remap_pending", "xid 094", "xid 94 is there already, as gpu_policy_overrides[0]"),
)


def test_overrides_that_are_right(example: Example) -> None:
    example.append(ALL, OVERRIDES)
    assert example.problems() == []


@pytest.mark.parametrize("mutation", MISTAKES, ids=lambda mutation: mutation.name)
def test_mistake(example: Example, mutation: Mutation) -> None:
    insist(example, mutation)
