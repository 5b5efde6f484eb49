# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Addresses of caches for names and of the resolvers that they ask."""

from __future__ import annotations

import pytest

from .conftest import Example

ALL = "group_vars/all.yml"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("dns_node_cache_address: 10.0.0.1", "10.0.0.1 is no link-local address"),
        ("dns_node_cache_address: 169.254.169.254", "is where a cloud hands out credentials"),
        ("dns_node_cache_address: cache", "'cache' is no IPv4 address"),
        ("dns_resolvers: [10.244.0.10]", "10.244.0.10 lies in site_pod_cidr (10.244.0.0/16)"),
        ("dns_resolvers: [10.96.0.10]", "10.96.0.10 lies in site_service_cidr (10.96.0.0/16)"),
        ("dns_resolvers: [resolver.example]", "'resolver.example' is no IPv4 address"),
        ("dns_resolvers: [169.254.20.10]", "169.254.20.10 is the cache itself"),
        ("dns_cores_count: -1", "outside 0 to 1000000"),
    ],
)
def test_mistakes(example: Example, line: str, says: str) -> None:
    example.append(ALL, line + "\n")
    (problem,) = example.problems()
    assert says in problem.message
    assert (problem.file, problem.line) == (str(example.folder / ALL), example.line(ALL, line))
    assert problem.remedy.startswith("write")


def test_resolvers(example: Example) -> None:
    example.append(ALL, "dns_node_cache: true\ndns_resolvers: [10.20.0.53, 10.30.0.53]\n")
    assert example.problems() == []
