# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What layers may not say of themselves: each refused with file, line, and the nearest known name."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers, read_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import (
    ROLES_FOLDER,
    load_specification,
)

SPECS = "argument_specs.yml"


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """Return a copy of what all roles say of their layers and variables."""
    for file in ROLES_FOLDER.glob("*/meta/*.yml"):
        folder = tmp_path / file.parent.parent.name / "meta"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.name)
    return tmp_path


def problems(roles: Path) -> list[str]:
    """Return what is refused of a folder of roles, with paths from there."""
    with pytest.raises(SiteError) as refused:
        read_layers(roles)
    return [str(problem).replace(f"{roles}/", "") for problem in refused.value.problems]


def edit(roles: Path, role: str, old: str, new: str, name: str = "layer.yml") -> int:
    """Change a role's file; return the line of what is new."""
    file = roles / role / "meta" / name
    text = file.read_text()
    assert text.count(old) == 1, text
    text = text.replace(old, new)
    file.write_text(text)
    return text[: text.index(new)].count("\n") + new.rstrip("\n").count("\n") + 1


@pytest.mark.parametrize(
    ("role", "old", "new", "said"),
    [
        (
            "gvisor", "phase: prepare", "phaze: prepare",
            "phaze: unknown key; write phase",
        ),
        (
            "gvisor", "phase: prepare", "phase: prepair",
            "phase: is prepair, which nothing is called; write prepare",
        ),
        (
            "gvisor", "upgrade: nodes", "upgrade: node",
            "upgrade: is node, which nothing is called; write nodes",
        ),
        (
            "node", "also: [prepare,", "also: [prepar,",
            "also: is prepar, which nothing is called; write prepare",
        ),
        (
            "gvisor", "kind: host", "kind: hosts",
            "kind: is hosts, which nothing is called; write host",
        ),
        (
            "dns", "after: [gvisor]", "after: [gvizor]",
            "after: names gvizor, and there is no such layer; write gvisor",
        ),
        (
            "dns", "needs: [containerd]", "needs: [containered]",
            "needs: names containered, and there is no such layer; write containerd",
        ),
        (
            "nvidia_fabric", "back_with: [nvidia_driver]", "back_with: [nvidia_drivers]",
            "back_with: names nvidia_drivers, and there is no such layer; write nvidia_driver",
        ),
        (
            "dns", "hosts: [control_plane, nodes]", "hosts: [control_plane, node]",
            "hosts: names node, and there is no such group; write nodes",
        ),
        (
            "gvisor", "kata_gpu: {inside: [gpu]}", "kata_gpu: {inside: [gpus]}",
            "groups.kata_gpu.inside: names gpus, and there is no such group; write gpu",
        ),
        (
            "gvisor", "kata_gpu: {inside: [gpu]}", "kata_gpu: {insides: [gpu]}",
            "groups.kata_gpu.insides: unknown key; write inside",
        ),
        (
            "cilium", "chosen_by: site_cni", "chosen_by: site_cnis",
            "chosen_by: is site_cnis, which chooses no layer; write site_cni",
        ),
        (
            "gvisor", "phase: prepare", "phase: prepare\nphase: prepare",
            "phase: is there twice, first on line 11",
        ),
        (
            "etcd", "member: true", "member: maybe",
            "member: is maybe; write true or false",
        ),
        (
            "etcd", "hosts: [etcd]", "hosts: etcd",
            "hosts: must be a list of names; write [NAME, NAME]",
        ),
        (
            "etcd", "hosts: [etcd]", "hosts: [etcd, etcd]",
            "hosts: names etcd twice; write it once",
        ),
        (
            "admission", "phase: isolation", "phase: isolation\nhosts: [nodes]",
            "hosts: says nothing for kind: cluster",
        ),
        (
            "gvisor", "kata_gpu: {inside: [gpu]}", "kata_gpu: {}",
            "needs: hosts of the group kata_gpu have gvisor and may be without containerd",
        ),
        (
            "node", "  nodes: {purpose: true}", "  nodes: {purpose: true}\n  gvisor: {}",
            "groups.gvisor: roles/gvisor/meta/layer.yml declares it too; declare it in one of them",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(roles: Path, role: str, old: str, new: str, said: str) -> None:
    line = edit(roles, role, old, new)
    found = problems(roles)
    assert any(said in problem for problem in found), found
    named = next(problem for problem in found if said in problem)
    if "may be without" in said:
        line = (roles / role / "meta" / "layer.yml").read_text().split("\nneeds:")[0].count("\n") + 2
    assert named.startswith(f"{role}/meta/layer.yml:{line}: "), named


@pytest.mark.parametrize("key", ["kind", "hosts", "phase", "upgrade"])
def test_what_is_missing_is_named(roles: Path, key: str) -> None:
    file = roles / "haproxy" / "meta" / "layer.yml"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith(f"{key}:")))
    assert any(
        problem.startswith(f"haproxy/meta/layer.yml:1: {key}: is not written") for problem in problems(roles)
    )


def test_a_role_without_its_file_is_refused(roles: Path) -> None:
    file = roles / "haproxy" / "meta" / "layer.yml"
    (named,) = [each for each in (file.rename(file.with_name("layers.yml")), None) if each]
    (said,) = problems(roles)
    assert said.startswith("haproxy/meta/layer.yml: roles.haproxy: the role has no such file")
    assert said.endswith("rename meta/layers.yml")
    named.unlink()
    assert "write it: docs/roles.md" in problems(roles)[0]
    # A folder that an editor or another branch left behind is no role.
    shutil.rmtree(roles / "haproxy")
    (roles / "left_behind").mkdir()
    assert "haproxy" in problems(roles)[0]


def test_layers_in_a_circle_are_refused(roles: Path) -> None:
    line = edit(roles, "containerd", "after: [egress_proxy", "after: [egress_proxy, node")
    (said,) = problems(roles)
    assert said.startswith(f"containerd/meta/layer.yml:{line}: after: the layers come after each other")
    assert "node, containerd, node; take node out here" in said


def test_a_layer_after_itself_is_a_circle(roles: Path) -> None:
    edit(roles, "base", "phase: prepare", "after: [base]\nphase: prepare")
    assert "in a circle: base, base; take base out here" in problems(roles)[0]


@pytest.mark.parametrize(
    ("text", "line"), [("kind: [", 2), ("kind: host\n  hosts: x\n", 2), ("", 1), ("- x\n", 1)]
)
def test_a_file_that_is_no_dictionary_is_refused(roles: Path, text: str, line: int) -> None:
    (roles / "haproxy" / "meta" / "layer.yml").write_text(text)
    assert any(said.startswith(f"haproxy/meta/layer.yml:{line}: ") for said in problems(roles))


def test_every_problem_is_named_at_once(roles: Path) -> None:
    edit(roles, "dns", "phase: prepare", "phase: prepair")
    edit(roles, "etcd", "member: true", "membre: true")
    assert len(problems(roles)) == 2


@pytest.mark.parametrize(
    ("role", "old", "new", "up", "said"),
    [
        (
            "etcd", "range: [10, 5000]", "range: [5000, 10]", 3,
            "etcd_heartbeat_ms: has no range that can be checked",
        ),
        (
            "etcd", "range: [10, 5000]", "rang: [10, 5000]", 0,
            "etcd_heartbeat_ms.rang: unknown key; write range",
        ),
        ("dns", "scope: site", "scope: side", 0, "is side, which nothing is called; write site"),
        (
            "etcd", "etcd_heartbeat_ms:", "node_heartbeat_ms:", 0,
            "node_heartbeat_ms: is no name for a variable of the role etcd; let its name begin with etcd_",
        ),
        (
            "flannel", "files: [flannel-cni]", "filles: [flannel-cni]", 0,
            "flannel_cni_version.filles: unknown key; write files",
        ),
        (
            "flannel", "flannel:v{}", "flannel:v1", 0,
            "flannel_version.images: ghcr.io/flannel-io/flannel:v1 has no place for the version",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_variable_is_named_with_its_line(
    roles: Path, role: str, old: str, new: str, up: int, said: str
) -> None:
    file = roles / role / "meta" / "argument_specs.yml"
    text = file.read_text()
    at = text.index(old)
    file.write_text(text[:at] + new + text[at + len(old) :])
    line = text[:at].count("\n") + 1 - up
    assert any(
        each.startswith(f"{role}/meta/argument_specs.yml:{line}: ") and said in each
        for each in problems(roles)
    ), problems(roles)


def test_a_variable_that_two_roles_declare_is_refused(roles: Path) -> None:
    file = roles / "etcd" / "meta" / "argument_specs.yml"
    file.write_text(f"{file.read_text()}      etcd_events_enabled:\n        type: bool\n")
    with pytest.raises(SiteError) as refused:
        load_specification(roles)
    (problem,) = refused.value.problems
    other = roles / "etcd_events" / "meta" / "argument_specs.yml"
    assert problem.file == str(other)
    assert other.read_text().splitlines()[problem.line - 1].strip() == "etcd_events_enabled:"
    assert problem.message == "is declared twice, first by the role etcd"


def test_a_variable_that_is_declared_twice_is_refused(roles: Path) -> None:
    file = roles / "haproxy" / "meta" / "argument_specs.yml"
    before = file.read_text()
    file.write_text(f"{before}      haproxy_maxconn: {{type: int, default: 1}}\n")
    with pytest.raises(SiteError) as refused:
        load_specification(roles)
    first = before.split("haproxy_maxconn:")[0].count("\n") + 1
    (problem,) = refused.value.problems
    assert problem.message == f"haproxy_maxconn is there twice, first on line {first}"
    assert (problem.file, problem.line) == (str(file), before.count("\n") + 1)


def test_a_version_goes_with_a_variable_that_there_is(roles: Path) -> None:
    line = edit(roles, "etcd_backup", "only_with: etcd_backup_stores", "only_with: etcd_backup_store", SPECS)
    with pytest.raises(SiteError) as refused:
        read_layers(roles).insist_on(load_specification(roles).options)
    (problem,) = refused.value.problems
    assert problem.path == "etcd_backup_version.only_with"
    assert (problem.remedy, line - problem.line < 6) == ("write etcd_backup_stores", True)


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(
        SiteError, match="phase: is upgrade_node, which nothing is called; write upgrade_nodes"
    ):
        all_layers().in_phase("upgrade_node")


def least(run: Callable[[], object]) -> float:
    """Return the processor seconds of a call: the least of five, because other work only adds to it."""
    spent = []
    for _ in range(5):
        began = time.process_time()
        run()
        spent.append(time.process_time() - began)
    return min(spent)


def test_reading_them_costs_little() -> None:
    """A run of site.yml does it once: 10 times what libyaml takes for the same files (22 ms) was measured."""
    files = [file.read_bytes() for file in ROLES_FOLDER.glob("*/meta/layer.yml")]
    parsed = least(lambda: [yaml.compose(data, Loader=yaml.CSafeLoader) for data in files])
    assert least(lambda: read_layers(ROLES_FOLDER)) < 20 * parsed
