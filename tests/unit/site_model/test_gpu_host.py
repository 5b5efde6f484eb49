# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How GPU hosts boot, and which CPUs pods get: one mistake each, named with its file and line."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, GPU, Mutation
from .test_mutations import test_mutation as insist

HOSTS = """
base_min_memory_mib: 1048576
gpu_host_iommu: passthrough
gpu_host_acs: disabled
gpu_host_hugepages_1gib_count: 512
gpu_host_hugepages_2mib_count: 1024
gpu_host_kernel_arguments: numa_balancing=disable
node_kubelet_topology_manager_policy: restricted
node_kubelet_cpu_manager_policy: static
node_kubelet_reserved_cpus: "0-3,64-67"
node_kubelet_settings: {topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}}
"""


def wrong(name: str, old: str, new: str, says: str, at: str, file: str = GPU) -> Mutation:
    """Return a mistake: ``old`` is ``new`` in what is right."""
    assert old in HOSTS, name
    return Mutation(f"GPU host: {name}", ((GPU, "", HOSTS.replace(old, new, 1)),), file, at, says)


ARGUMENTS = "gpu_host_kernel_arguments:"
MISTAKES = (
    wrong("no such IOMMU", "passthrough", "pt", "pt", "gpu_host_iommu:"),
    wrong("more pages than memory", "count: 512", "count: 800", "sets 821248 MiB aside", "1gib_count:"),
    wrong(
        "memory that nobody promised",
        "base_min_memory_mib: 1048576\n",
        "",
        "are only known to have",
        "1gib_count:",
    ),
    wrong("fewer than none", "count: 1024", "count: -1", "-1", "2mib_count:"),
    wrong("an argument that is ours", "numa_balancing=disable", "iommu=off", "has iommu=off", ARGUMENTS),
    wrong("ACS by hand", "numa_balancing=disable", "pci=disable_acs_redir=pci:0:0", "has pci=", ARGUMENTS),
    wrong("a quote", "numa_balancing=disable", "'a=\"b c\"'", "has a quote", ARGUMENTS),
    wrong("two lines", "numa_balancing=disable", '"a\\nb"', "is no line of kernel arguments", ARGUMENTS),
    wrong(
        "nothing is reserved", 'cpus: "0-3,64-67"', 'cpus: ""', "no CPUs are reserved", "cpu_manager_policy:"
    ),
    wrong("no list of CPUs", "0-3,64-67", "3-0", "is no list of CPUs", "reserved_cpus:"),
    wrong("CPUs twice", "0-3,64-67", "0-3,3", "is no list of CPUs", "reserved_cpus:"),
    wrong("an open range", "0-3,64-67", "0-", "is no list of CPUs", "reserved_cpus:"),
    wrong(
        "in two places",
        '{topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}}',
        "{topologyManagerPolicy: none}",
        "topologyManagerPolicy: is set by ironspan; take it out, and change the variable",
        "node_kubelet_settings:",
    ),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_each_is_named_where_it_is(example: Example, mistake: Mutation) -> None:
    insist(example, mistake)


def test_what_is_right_is_taken(example: Example) -> None:
    example.append(GPU, HOSTS)
    assert not example.problems()


def test_cpus_of_their_own_are_for_hosts_with_gpus(example: Example) -> None:
    example.append(ALL, 'node_kubelet_cpu_manager_policy: static\nnode_kubelet_reserved_cpus: "0"\n')
    problem = next(each for each in example.problems() if "host without GPUs" in each.message)
    assert (problem.file.endswith(ALL), problem.line) == (
        True,
        example.line(ALL, "node_kubelet_cpu_manager_policy"),
    )
