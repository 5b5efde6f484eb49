# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Another version of Kubernetes on a host that has joined: refused, or brought about by kubeadm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_config as text
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_phases as phases
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_upgrade as upgrade
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.kubeadm import KIND
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change, ResourceError

from .fake_host import FakeHost, converge, filled
from .test_kubeadm import CONFIG, ENDPOINT, OURS, PLANE_FILES, commands

KUBEADM = """
import os, sys
root = os.environ["IRONSPAN_ROOT"]
if sys.argv[1:2] == ["upgrade"]:
    if os.path.exists(root + "/fails"):
        sys.exit("error execution phase preflight: [upgrade/health] FATAL: node not Ready")
    if "apply" in sys.argv:
        open(root + "/etc/kubernetes/manifests/kube-apiserver.yaml", "w").write("new")
    open(root + "/var/lib/kubelet/config.yaml", "w").write("new")
"""
OLD, NEW = "1.36.4", "1.37.1"
NEW_CONFIG = CONFIG.replace(OLD, NEW)
CONSENT = {"upgrade": "allowed"}


def spec(action: str = "join", role: str = "worker", **values: Any) -> dict[str, Any]:
    resource = {"id": "x/y", "endpoint": ENDPOINT, "config": NEW_CONFIG, "action": action, "role": role}
    return filled(KIND, **{**resource, **values})


WORKER = spec(version=NEW)
PLANE = spec("init_or_join", "control_plane")
WAYS = [
    pytest.param(WORKER, "upgrade node", id="worker"),
    pytest.param(PLANE, f"upgrade apply v{NEW}", id="control plane"),
]


def cluster_has(host: FakeHost, version: str) -> None:
    """Let the cluster say that its control planes have a version."""
    host.program("kubectl", f"printf 'apiServer: {{}}\\nkubernetesVersion: v{version}\\n'")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path, secrets=CONSENT)
    host.python_program("kubeadm", KUBEADM)
    for path in PLANE_FILES:
        host.put(path, OURS)
    host.put("/var/lib/kubelet/config.yaml", "old")
    host.remember("x/y", {"config": CONFIG, "version": OLD})
    cluster_has(host, OLD)
    monkeypatch.setattr(phases, "wait_until_ready", lambda *_: None)
    return host


@pytest.mark.parametrize(("way", "command"), WAYS)
def test_kubeadm_upgrades_once_and_leaves_coredns_alone(
    host: FakeHost, way: dict[str, Any], command: str
) -> None:
    change = converge(KIND, way, host)
    assert change is not None
    assert (change.action, change.before["version"], change.after["version"]) == ("upgrade", OLD, NEW)
    assert commands(host) == [command]
    # The phase for tokens would let their holders become any node again.
    skipped = "addon/coredns,bootstrap-token" if command.startswith("upgrade apply") else "addon/coredns"
    assert f"--skip-phases={skipped}" in host.calls("kubeadm")[0]
    assert {"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env"} <= set(host.backups)
    assert ("/etc/kubernetes/manifests/kube-apiserver.yaml" in host.backups) == (way is not WORKER)


@pytest.mark.parametrize(("way", "command"), WAYS)
def test_without_consent_another_version_is_refused_before_anything_changes(
    host: FakeHost, way: dict[str, Any], command: str
) -> None:
    host._secrets = {}
    with pytest.raises(ResourceError, match=f"asks for Kubernetes {NEW}, .* set up with {OLD}") as caught:
        KIND.compare(way, host)
    assert "playbooks/upgrade.yml" in caught.value.remedy
    assert host.calls() == []


@pytest.mark.parametrize(("way", "command"), WAYS)
def test_consent_alone_changes_nothing(host: FakeHost, way: dict[str, Any], command: str) -> None:
    host.remember("x/y", {"config": NEW_CONFIG, "version": NEW})
    assert KIND.compare(way, host) is None


@pytest.mark.parametrize(
    ("says", "differs"),
    [(f"Kubernetes v{OLD}", True), (f"Kubernetes v{NEW}", False), ("what?", False)],
)
def test_a_worker_that_joined_before_versions_were_kept_is_asked(
    host: FakeHost, says: str, differs: bool
) -> None:
    host.remember("x/y", {"config": "kind: JoinConfiguration"})
    host.program("kubelet", f"echo '{says}'")
    assert (KIND.compare(WORKER, host) is not None) == differs


def test_a_worker_without_any_kubelet_is_not_known_to_differ(host: FakeHost) -> None:
    host.remember("x/y", {})
    assert KIND.compare(WORKER, host) is None


def test_once_the_cluster_has_the_version_a_control_plane_follows_as_a_node(host: FakeHost) -> None:
    cluster_has(host, NEW)
    converge(KIND, PLANE, host)
    assert commands(host) == ["upgrade node"]
    assert "/etc/kubernetes/manifests/kube-apiserver.yaml" in host.backups


def test_a_cluster_that_does_not_answer_is_not_upgraded(host: FakeHost) -> None:
    host.program("kubectl", "echo 'connection refused' >&2; exit 1")
    change = KIND.compare(PLANE, host)
    assert change is not None
    with pytest.raises(ResourceError, match="connection refused"):
        KIND.apply(PLANE, change, host)
    assert commands(host) == []


def test_a_changed_configuration_follows_the_upgrade(host: FakeHost) -> None:
    way = spec("init_or_join", "control_plane", config=NEW_CONFIG + "clusterName: other\n")
    converge(KIND, way, host)
    assert commands(host)[0] == f"upgrade apply v{NEW}"
    assert commands(host)[-1] == "init phase control-plane all"


@pytest.mark.parametrize(("way", "command"), WAYS)
def test_a_failure_says_why_and_the_next_run_tries_again(
    host: FakeHost, way: dict[str, Any], command: str
) -> None:
    host.put("/fails", "")
    change = KIND.compare(way, host)
    assert change is not None
    with pytest.raises(ResourceError, match="node not Ready"):
        KIND.apply(way, change, host)
    # As the journal has it: without texts.
    kept = Change("upgrade", {"version": OLD}, {"version": NEW}, "")
    KIND.undo(way, kept, host)
    KIND.settle(way, kept, host)
    assert host.note("x/y")["version"] == OLD
    (host.folder / "fails").unlink()
    again = converge(KIND, way, host)
    assert again is not None
    assert again.before["version"] == OLD


def test_an_upgrade_that_was_killed_is_done_again(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    change = KIND.compare(PLANE, host)
    assert change is not None

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(upgrade, "_kubeadm", killed)
    with pytest.raises(KeyboardInterrupt):
        KIND.apply(PLANE, change, host)
    monkeypatch.undo()
    again = KIND.compare(PLANE, host)
    assert again is not None
    assert (again.action, again.before["version"]) == ("upgrade", OLD)


def test_a_join_remembers_its_version() -> None:
    assert text.wanted_version(WORKER) == NEW
    assert text.wanted_version(spec()) == ""
    assert text.wanted_version(PLANE) == NEW
