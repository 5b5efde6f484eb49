# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site says of the repair of GPU nodes: one mistake each, named with its file and line."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks import gpu_repair

from ironspan.gpu_repair import settings

from .conftest import Example
from .mutations import ALL, Mutation
from .test_mutations import test_mutation as insist

VARIABLES = """
gpu_repair_enabled: true
gpu_repair_mode: repair
nvidia_health_enabled: true
gpu_repair_most_out: 8
gpu_repair_most_out_percent: 20
gpu_repair_most_at_once: 3
gpu_repair_most_per_rack: 2
gpu_repair_tests: [A01, A03]
gpu_repair_windows: ["mon,tue 22:00-04:00", "sun 00:00-12:00"]
"""


def wrong(name: str, old: str, new: str, says: str, at: str = "") -> Mutation:
    """Return a mistake: ``old`` is ``new`` in variables that are right."""
    assert old in VARIABLES, name
    return Mutation(f"repair: {name}", ((ALL, "", VARIABLES.replace(old, new, 1)),), ALL, at or new, says)


MISTAKES = (
    wrong("mode", "mode: repair", "mode: act", "'act' is not one of"),
    wrong("breaker of 100 %", "out_percent: 20", "out_percent: 100", "half of them out at once is no repair"),
    wrong("no breaker", "most_out: 8", "most_out: 0", "0"),
    wrong("more at once", "at_once: 3", "at_once: 9", "9 is more than gpu_repair_most_out, which is 8"),
    wrong("more of a rack", "per_rack: 2", "per_rack: 4", "4 is more than gpu_repair_most_at_once"),
    wrong("no test", "[A01, A03]", "[A01, B3]", "'B3' is no test", "gpu_repair_tests"),
    wrong("unknown test", "[A01, A03]", "[A01, A09]", "'A09' is no test", "gpu_repair_tests"),
    wrong("no tests", "[A01, A03]", "[]", "nodes would get in untested", "gpu_repair_tests"),
    wrong("window", "sun 00:00-12:00", "sunday 0-12", "'sunday 0-12' is no window", "gpu_repair_windows"),
)


def test_variables_that_are_right(example: Example) -> None:
    example.append(ALL, VARIABLES)
    assert example.problems() == []


@pytest.mark.parametrize("mutation", MISTAKES, ids=lambda mutation: mutation.name)
def test_mistake(example: Example, mutation: Mutation) -> None:
    insist(example, mutation)


def test_the_program_reads_the_same_windows() -> None:
    """The pattern stands in two places, as neither may import the other."""
    for text in ("mon 00:00-24:00", "mon 22:00-04:00", "mon,sun 1:00-2:00", "tue,wed 23:59-00:00", "xxx"):
        assert bool(settings.WINDOW.fullmatch(text)) is bool(gpu_repair.WINDOW.fullmatch(text))
