# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Into which groups a host can get by what it answers: those of its own document's layers, and no others."""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    PENDING_GROUP,
    RECOVERY_GROUP,
)

from tests.support.converge_action import Controller
from tests.unit.roles.conftest import Rendered
from tests.unit.roles.conftest import render as render

MODES = ("assess", "apply")


def everything(site: Rendered) -> list[tuple[str, str]]:
    """Return all resources of all hosts with their kinds."""
    found: dict[tuple[str, str], None] = {}
    for host in site.site.hosts:
        found.update({(r["id"], r["kind"]): None for r in site.document(host)["resources"]})
    return list(found)


def greedy(resources: list[tuple[str, str]], after: t.Any = None) -> Callable[[dict[str, t.Any]], t.Any]:
    """Return a host that claims to have done, and to wait for, everything there is."""
    needs = ("membership:etcd", "cluster:start-or-join", "certificate:control_plane/member")
    changes = [
        {"resource": name, "kind": kind, "action": action, "after": after or {"action": "init"}}
        for name, kind in resources
        for action in ("update", "restart", "run", "create")
    ]
    pending = [{"resource": name, "needs": need} for name, _ in resources for need in needs]
    return lambda arguments: {"changed": True, "changes": changes, "pending": pending, "verdicts": []}


@pytest.mark.parametrize("mode", MODES)
def test_a_host_gets_into_no_group_of_a_layer_that_it_does_not_have(
    mode: str, render: Callable[..., Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = render("lab")
    resources = everything(site)
    controller = Controller(tmp_path / "run", {name: site.document(name) for name in site.site.hosts})
    for name, host in site.site.hosts.items():
        claims = greedy([*resources, ("etcd_backup/recovery", "file"), ("etcd/made-up", "kubeadm")])
        controller.run(name, claims, monkeypatch, mode=mode)
        layers = set(site.document(name)["layers"])
        for group in controller.groups[name]:
            layer = group.removeprefix("__ironspan_").partition("_")[2]
            assert group in (PENDING_GROUP, RECOVERY_GROUP) or layer in layers, (name, group)
        assert (RECOVERY_GROUP in controller.groups[name]) is (mode == "apply" and host.in_group("etcd"))
    assert "__ironspan_pending_node" in controller.groups["rack-1"] or mode == "apply"
    assert not {"__ironspan_starting_control_plane", "__ironspan_bare_etcd"} & set(
        controller.groups["rack-1"]
    )


def test_a_kind_is_what_the_document_says(
    render: Callable[..., Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is kubeadm's makes a host join; the rest of the layer is changed without."""
    site = render("lab")
    controller = Controller(tmp_path / "run", {"rack-1": site.document("rack-1")})
    controller.run("rack-1", greedy_of("node/kubelet", "kubeadm"), monkeypatch, mode="assess")
    assert controller.groups["rack-1"] == [PENDING_GROUP]


def greedy_of(name: str, kind: str) -> Callable[[dict[str, t.Any]], t.Any]:
    """Return a host that claims one change."""
    changes = [{"resource": name, "kind": kind, "action": "update", "before": {}, "after": {}}]
    return lambda arguments: {"changed": True, "changes": changes, "pending": [], "verdicts": []}


def test_what_is_taken_away_is_still_to_be_done(
    render: Callable[..., Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = render("lab")
    controller = Controller(tmp_path / "run", {"rack-1": site.document("rack-1")})
    controller.run("rack-1", greedy_of("gone/file", "file"), monkeypatch, mode="assess")
    assert controller.groups["rack-1"] == [PENDING_GROUP]


@pytest.mark.parametrize(
    ("host", "resource", "action", "groups"),
    [
        ("az-1", "etcd_backup/service-removed", "stop", ["__ironspan_pending_etcd_backup"]),
        ("az-1", "etcd_backup/unit-removed-1", "delete", ["__ironspan_pending_etcd_backup"]),
        (
            "az-1", "etcd/server-told", "restart",
            ["__ironspan_pending_etcd", "__ironspan_restart_etcd"],
        ),
        ("rack-1", "etcd_backup/service-removed", "stop", []),
        ("rack-1", "etcd/server-told", "restart", []),
        ("az-1", "etcd_backup/made-up", "delete", []),
    ],
)  # fmt: skip
def test_what_a_layer_loses_is_done_in_the_phase_of_that_layer(
    host: str,
    resource: str,
    action: str,
    groups: list[str],
    render: Callable[..., Rendered],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a backup nothing of its layer is in the document: only the removal names it."""
    site = render("lab")
    controller = Controller(tmp_path / "run", {host: site.document(host)})
    change = {"resource": resource, "kind": "absent", "action": action, "before": {}, "after": {}}
    claims = {"changed": True, "changes": [change], "pending": [], "verdicts": []}
    controller.run(host, lambda arguments: claims, monkeypatch, mode="assess")
    found = [group for group in controller.groups[host] if not group.startswith("__ironspan_compared_")]
    assert found == [PENDING_GROUP, *groups]


def test_a_document_of_the_hosts_making_leads_into_no_phase(
    render: Callable[..., Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = render("lab")
    member = site.document("az-1")
    facts: dict[str, t.Any] = {
        "undoes": {"digest": "e", "time": 1}, "left": [], "removed_layers": [], "replaced_artifacts": [],
    }  # fmt: skip
    claims = greedy([(r["id"], r["kind"]) for r in member["resources"]])

    def lies(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        return {**claims(arguments), "document": {**member, "rollback": facts}, "rollback": facts}

    controller = Controller(tmp_path / "run", {"rack-1": site.document("rack-1")})
    controller.run("rack-1", lies, monkeypatch, mode="rollback")
    controller.run("rack-1", lies, monkeypatch)
    found = set(controller.groups["rack-1"])
    assert PENDING_GROUP in found
    assert all(group == PENDING_GROUP or group.startswith("__ironspan_restart_") for group in found)
