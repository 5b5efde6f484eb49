# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runtime classes of a site: mistakes with file and line, and what nodes get for them."""

from __future__ import annotations

import typing as t

import pytest

from .conftest import Example
from .mutations import ALL, HOSTS
from .runtime_mutations import CLASSES, ON_GPUS, RUNTIME
from .test_mutations import test_mutation as check_mutation


@pytest.mark.parametrize("mutation", RUNTIME, ids=lambda mutation: mutation.name)
def test_mistakes(example: Example, mutation: t.Any) -> None:
    check_mutation(example, mutation)


def test_a_site_that_says_nothing_has_gvisor_on_the_hosts_of_its_group(example: Example) -> None:
    site = example.site()
    assert [each.name for each in site.runtime.offered] == ["gvisor"]
    assert site.hosts["cpu-c-01"].labels == {"ironspan.io/gvisor": "true"}
    assert "ironspan.io/gvisor" not in site.hosts["gpu-a-01"].labels
    assert site.hosts["cpu-c-01"].taints == ()


def on_gpus(example: Example) -> None:
    """Put rack a's hosts into the group of gVisor with GPUs."""
    example.append(ALL, CLASSES)
    for file, old, new in ON_GPUS:
        example.replace(file, old, new)


def test_a_class_with_gpus(example: Example) -> None:
    on_gpus(example)
    site = example.site()
    assert [each.name for each in site.runtime.offered] == ["gvisor", "gvisor-gpu"]
    host = site.hosts["gpu-a-01"]
    assert host.labels["ironspan.io/gvisor-gpu"] == "true"
    assert "ironspan.io/gvisor" not in host.labels
    taint = host.taints[-1]
    assert (taint.key, taint.effect) == ("ironspan.io/gvisor-gpu", "NoSchedule")
    assert "gvisor" in host.layers
    assert site.hosts["cpu-c-01"].taints == ()


def test_what_the_site_has_seen_working_is_taken(example: Example) -> None:
    on_gpus(example)
    example.replace(ALL, "gvisor_gpu_model: H100", "gvisor_gpu_model: B200")
    assert [problem.path for problem in example.problems()] == ["gvisor_gpu_model"]
    example.append(ALL, 'gvisor_gpu_tested: [{driver: "580.159.03", gvisor: "20260817.0", model: B200}]\n')
    assert example.problems() == []


def test_an_upgrade_of_either_side_is_judged_again(example: Example) -> None:
    on_gpus(example)
    example.append(ALL, 'gvisor_version: "20260701.0"\n')
    assert example.problems() == []
    example.replace(ALL, "580.159.03", "580.173.02")
    (problem,) = example.problems()
    assert "gVisor 20260701.0 does not know the driver 580.173.02" in problem.message
    assert 'gvisor_version: "20260817.0"' in problem.remedy
    example.replace(ALL, 'gvisor_version: "20260701.0"', 'gvisor_version: "20260817.0"')
    assert example.problems() == []


def test_a_class_for_some_hosts_only(example: Example) -> None:
    example.append(ALL, "gvisor_classes: [{name: gvisor}, {name: fast, group: user_fast}]\n")
    example.replace(
        HOSTS, "    haproxy: {}\n", "    haproxy: {}\n    user_fast:\n      hosts:\n        cpu-c-02:\n"
    )
    site = example.site()
    assert [host.name for host in site.hosts.values() if "ironspan.io/fast" in host.labels] == ["cpu-c-02"]
