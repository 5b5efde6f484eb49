# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer egress: what hosts get when the site turns it on, and what it takes away."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document

from tests.support.egress_table import entry, table
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
SOON = str(datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=30))
ON = {
    "egress_enabled": True,
    "egress_resolvers": ["10.98.0.1"],
    "egress_allow": [
        {"destination": "203.0.113.0/24", "ports": [443], "owner": "a", "reason": "b", "expires": SOON}
    ],
}
IMAGE = "registry.k8s.io/networking/kube-network-policies@sha256:" + "7" * 64
NODES = ("az-1", "az-2", "rack-1", "rack-2")


def resources(rendered: Rendered, host: str, template: str = "desired.yml.j2") -> dict[str, dict[str, t.Any]]:
    """Return what is declared of the layer, and the kubelet's drop-in."""
    found = rendered.resources(host, template)
    return {key: value for key, value in found.items() if key.startswith("egress/") or key == "node/egress"}


def test_off_is_the_default_and_takes_everything_away(render: Render) -> None:
    on = resources(render("lab", ON), "rack-1")
    taken = render("lab").after("rack-1", render("lab", {**ON, "egress_policy_image": IMAGE}))
    off = {key: value for key, value in taken.items() if key.startswith(("egress/", "node/egress"))}
    files = {each["path"] for each in on.values() if each["kind"] == "file"}
    # The kernel's module for kube-network-policies, which this site has not chosen.
    files.add("/etc/modules-load.d/ironspan-egress-nft-queue.conf")
    assert {each["path"] for each in off.values() if each["kind"] == "absent"} == files
    units = [each for each in off.values() if each["kind"] == "systemd_unit"]
    declared = {each["name"] for each in on.values() if each["kind"] == "systemd_unit"}
    # The timer's service may be at work.
    assert {unit["name"] for unit in units} == {*declared, "ironspan-egress-watch.service"}
    assert all(unit["enabled"] is False and unit["state"] == "stopped" for unit in units)


def test_reset_takes_every_file_away(render: Render) -> None:
    on = resources(render("lab", ON), "rack-1")
    gone = {
        each["path"]
        for each in render("lab", ON).after("rack-1", render("lab", ON), "reset.yml.j2").values()
        if "path" in each
    }
    assert {
        each["path"] for name, each in on.items() if each["kind"] == "file" and name != "node/egress"
    } <= gone


@pytest.mark.parametrize("host", NODES)
def test_every_kubelet_has_the_same_table_before_containerd(render: Render, host: str) -> None:
    rendered = render("lab", ON)
    order = [resource.id for resource in read_document(rendered.document(host)).resources]
    assert order.index("egress/table") < order.index("egress/service") < order.index("containerd/service")
    assert order.index("egress/service") < order.index("node/egress") < order.index("node/service")
    assert rendered.content(host, "egress/table") == rendered.content("rack-1", "egress/table")
    assert "node/egress" in str(rendered.resources(host)["node/service"]["restart_on"])


def test_hosts_without_a_kubelet_have_none(render: Render) -> None:
    assert resources(render("lab", ON), "az-3") == {}


def test_the_unit_comes_before_whatever_starts_pods(render: Render) -> None:
    unit = render("lab", ON).content("rack-1", "egress/unit")
    (before,) = [line for line in unit.splitlines() if line.startswith("Before=")]
    assert {"containerd.service", "kubelet.service", "network-pre.target"} <= set(before[7:].split())
    assert "Conflicts=" not in unit
    drop_in = render("lab", ON).content("rack-1", "node/egress")
    assert "After=ironspan-egress.service" in drop_in
    assert "ExecStartPre=" in drop_in


def test_only_control_planes_answer_as_api_servers(render: Render) -> None:
    text = render("lab", ON).content("rack-1", "egress/table")
    assert text.count("ip daddr { 10.98.0.11, 10.98.0.12 } tcp dport 6443 accept") == 2


def test_what_no_entry_opens_is_judged_before_the_entries() -> None:
    text = table([entry("8.0.0.0/8", ports=["1-65535"])])
    pods = text[text.index("chain pods {") :]
    assert pods.index("jump names") < pods.index("allow_1")
    assert pods.index("jump source") < pods.index("jump names")
    names = text[text.index("chain names {") :]
    assert names.index("@metadata") < names.index("drop_resolver")
