# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Single resources of a layer: a host's kubeadm is newer for a while than its kubelet."""

from __future__ import annotations

import json

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import only_layers
from hypothesis import given
from hypothesis import strategies as st

IDS = [
    "base/motd",
    "node/kubeadm",
    "node/kubelet",
    "node/image-pause",
    "node/image-kube-proxy",
    "node/service",
]


def raw(ids: list[str]) -> dict[str, object]:
    resources = [
        {"kind": "file", "id": name, "path": f"/{name}", "content": "", "requires": ["node/kubelet"]}
        for name in ids
    ]
    resources[ids.index("node/kubelet")].pop("requires")
    return {"schema": 1, "layers": ["base", "node"], "resources": resources}


@pytest.mark.parametrize(
    ("layers", "ids"),
    [
        (["node/kubeadm"], ["node/kubeadm"]),
        (["node/kubeadm", "node/image-*"], ["node/kubeadm", "node/image-pause", "node/image-kube-proxy"]),
        (["base", "node/kubelet"], ["base/motd", "node/kubelet"]),
        (["base", "node"], IDS),
        (["node/nothing"], []),
    ],
)
def test_they_are_chosen_by_id_on_the_controller_and_on_the_host(layers: list[str], ids: list[str]) -> None:
    whole = raw(IDS)
    smaller = dict(document.only_layers(whole, layers))
    assert [entry["id"] for entry in smaller["resources"]] == ids
    assert json.loads(only_layers(json.dumps(whole), layers))["resources"] == smaller["resources"]
    # What they refer to in their own layer counts as settled.
    assert {resource.id for resource in document.read_document(smaller).resources} == set(ids)


@given(st.sets(st.sampled_from(IDS)))
def test_any_choice_is_a_document(chosen: set[str]) -> None:
    smaller = document.only_layers(raw(IDS), sorted(chosen))
    found = [resource.id for resource in document.read_document(smaller).resources]
    assert sorted(found) == sorted(chosen)
