# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sites that do not fit their planned size, or that are no longer what their cluster was made with."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import sealing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import day_zero
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem

from .conftest import KEY, Example

ALL = "group_vars/all.yml"
PODS, MASK = "site_pod_cidr: 10.244.0.0/16", "site_node_cidr_mask: 24"


def the_problem(example: Example, at: str) -> Problem:
    """Return the only problem, which must be on a certain line."""
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / ALL), example.line(ALL, at))
    assert problem.remedy
    return problem


def test_too_small_for_the_profile(example: Example) -> None:
    example.append(ALL, "site_planned_nodes: 300\n")
    text = str(the_problem(example, PODS))
    assert "holds 256 nodes with a /24 each, too few for the size profile of 500" in text
    assert "write a network of /15 or larger" in text


@pytest.mark.parametrize(("planned", "prefix"), [(100, 16), (500, 15), (1000, 14), (1001, 12), (7500, 11)])
def test_large_enough(example: Example, planned: int, prefix: int) -> None:
    example.replace(ALL, PODS, f"site_pod_cidr: 10.{128 if prefix < 14 else 244}.0.0/{prefix}")
    example.append(ALL, f"site_planned_nodes: {planned}\n")
    if prefix > 11:
        assert example.site().size.nodes >= planned
        return
    assert example.site().size.nodes == 7500


@pytest.mark.parametrize(
    ("planned", "says"),
    [("5", "is 5, and the site has 13 nodes"), ("8000", "outside 0 to 7500"), ("-1", "outside 0 to 7500")],
)
def test_numbers_that_cannot_be_right(example: Example, planned: str, says: str) -> None:
    line = f"site_planned_nodes: {planned}"
    example.append(ALL, line + "\n")
    assert says in str(the_problem(example, line))


def test_more_pods_than_addresses(example: Example) -> None:
    example.append(ALL, "node_kubelet_max_pods: 250\n")
    assert example.problems() == []
    example.replace(ALL, "node_kubelet_max_pods: 250", "node_kubelet_max_pods: 254")
    text = str(the_problem(example, "node_kubelet_max_pods: 254"))
    assert "254 pods a node" in text and "site_node_cidr_mask: 23" in text


def test_a_part_that_holds_too_few_pods(example: Example) -> None:
    example.replace(ALL, MASK, "site_node_cidr_mask: 26")
    assert "110 pods a node" in str(the_problem(example, "site_node_cidr_mask: 26"))


def test_a_store_that_is_too_small(example: Example) -> None:
    example.append(ALL, "site_planned_nodes: 100\netcd_quota_bytes: 1073741824\n")
    assert "write 8589934592" in str(the_problem(example, "etcd_quota_bytes"))


def write_header(store: Path, identity: str) -> None:
    """Write the header of a PKI store, made with the example's key."""
    header = {"schema": 1, "key_id": sealing.key_id(base64.b64decode(KEY)), "site_uid": identity}
    (store / "store.json").write_text(json.dumps(header))
    (store / "secrets").mkdir(exist_ok=True)


def test_networks_are_remembered_and_their_change_is_refused(example: Example) -> None:
    site = example.site()
    store = example.folder.parent / "pki"
    site.pki_store = str(store)
    day_zero.remember(site)
    assert not day_zero.file_of(str(store)).exists()  # no store, no identity
    store.mkdir()
    write_header(store, "0123456789abcdef")
    day_zero.remember(site)
    known = day_zero.made_with(str(store))
    assert {name: known[name] for name in day_zero.FIXED} == {
        "site_pod_cidr": "10.244.0.0/16",
        "site_service_cidr": "10.96.0.0/16",
        "site_node_cidr_mask": 24,
    }
    example.replace(ALL, "site_pki_store: ~/.local/share/ironspan/example/pki", f"site_pki_store: {store}")
    assert example.problems() == []
    example.replace(ALL, PODS, "site_pod_cidr: 10.248.0.0/16")
    problem = str(the_problem(example, "site_pod_cidr: 10.248.0.0/16"))
    assert "is 10.248.0.0/16, and the cluster was made with 10.244.0.0/16" in problem
    assert "docs/sizes.md, Another pod network" in problem
    # What is known stays known.
    site.pod_cidr = "10.248.0.0/16"
    day_zero.remember(site)
    assert len(example.problems()) == 1
    # A site that was reset has another identity.
    write_header(store, "fedcba9876543210")
    assert example.problems() == []


@pytest.mark.parametrize(
    "content", ["", "[]", '{"site_uid": "x"}', "null", '{"site_uid": "a", "site_pod_cidr": []}']
)
def test_a_damaged_file_refuses_nothing(example: Example, content: str) -> None:
    store = example.folder.parent / "pki"
    store.mkdir()
    write_header(store, "a")
    day_zero.file_of(str(store)).write_text(content)
    assert day_zero.made_with(str(store)) == {}
