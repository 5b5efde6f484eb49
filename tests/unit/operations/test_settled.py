# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""After an operation site.yml finds nothing to do: each converges all layers that its hosts may have to get.

The lab shows it with the layers that its sites have (``Cluster.assert_settled``); here it is all layers.
"""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    groups_after_reset,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import OPERATIONS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

from tests.support.playbooks import ROOT

BOOKS = ROOT / "playbooks"
EVERYTHING = set(all_layers().order)
OF_SERVERS = {"etcd", "etcd_events", "control_plane", "access", "gpu_repair"}
UNVERSIONED = {"egress_proxy", "etcd_disk", "haproxy", "access", "gpu_repair", "ironic", "events"}
"""Layers without a version that upgrade.yml is about."""

NEEDED: dict[str, set[str]] = {
    "member_add": EVERYTHING,
    "member_replace": EVERYTHING,
    "node_add": EVERYTHING - OF_SERVERS,
    "node_replace": EVERYTHING - OF_SERVERS,
    "upgrade": EVERYTHING - UNVERSIONED,
    "certs_renew": EVERYTHING,
    "ca_rotate": EVERYTHING,
    "encryption_rotate": EVERYTHING,
    "ironic_password": set(all_layers().in_phase("prepare")),
    # The host on which etcd starts over keeps what it has beside its data.
    "etcd_restore": EVERYTHING - {"etcd_events", "control_plane", "access", "gpu_repair"},
}
EXEMPT = {
    "bare_metal": "no host takes part",
    "server_redeploy": "what is reset is forgotten, and written again",
    "server_retire": "what is reset is forgotten, and erased",
    "server_firmware": "a host's document stays as it is: only its server changes",
    "backup_store": "no host takes part",
    "azure": "no host takes part",
    "awx_configure": "no host takes part",
    "bmc_setup": "servers without a system take part, and no host",
    "member_remove": "what is reset is forgotten; the others follow",
    "node_remove": "what is reset is forgotten",
    "rollback": "hosts go back to what the inventory does not want",
    "cni_migrate": "it ends with the inventory's own change of site_cni",
}


def converged(book: str, scope: str = "") -> dict[str, list[str]]:
    """Return the layers that a playbook converges, each with the hosts' patterns of its plays."""
    found: dict[str, list[str]] = {}
    for entry in yaml.safe_load((BOOKS / book).read_text()):
        inner = str(entry.get("vars", {}).get("__ironspan_scope", scope))
        if "ansible.builtin.import_playbook" in entry:
            for layer, patterns in converged(entry["ansible.builtin.import_playbook"], inner).items():
                found.setdefault(layer, []).extend(patterns)
            continue
        for task in entry["tasks"]:
            for layer in _layers(task):
                found.setdefault(layer, []).append(f"{entry['hosts']} {inner}")
    return found


def _layers(task: dict[str, t.Any]) -> list[str]:
    role = task.get("ansible.builtin.import_role")
    if role:
        return [str(role["name"]).rpartition(".")[2]]
    asked = task.get("ironspan.hybrid.converge") or {}
    if asked.get("mode"):
        return []
    if "phase" in asked:
        return all_layers().in_phase(asked["phase"])
    return [name.partition("/")[0] for name in asked.get("layers") or []]


def test_every_operation_is_looked_at() -> None:
    assert NEEDED.keys() | EXEMPT.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("name", NEEDED)
def test_no_layer_is_left_for_the_next_run_of_site(name: str) -> None:
    assert NEEDED[name] - converged(f"{name}.yml").keys() == set()


def test_what_site_converges_is_every_layer() -> None:
    assert converged("site.yml").keys() == EVERYTHING | set(all_layers().cluster)


def test_a_member_that_was_replaced_gets_its_backup_agent_and_access_too() -> None:
    """They are not reset: spools and closed databases stay. Another machine has neither."""
    reset = ["etcd", "etcd_events", "control_plane", "node"]
    groups = groups_after_reset(reset, [*all_layers().order])
    assert {f"__ironspan_pending_{layer}" for layer in all_layers().pending} <= set(groups)
    worker = groups_after_reset(["node"], ["base", "containerd", "node"])
    assert set(worker) == {"__ironspan_pending", "__ironspan_pending_node"}


def test_layers_of_members_are_never_converged_beside_their_reset() -> None:
    """What makes a host a member of something is begun only by those who took its membership away."""
    groups = groups_after_reset(["node"], [*all_layers().order])
    assert not {"__ironspan_pending_etcd", "__ironspan_pending_control_plane"} & set(groups)
