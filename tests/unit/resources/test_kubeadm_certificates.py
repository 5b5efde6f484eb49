# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kubeadm_certificates``: a stand-in for kubeadm, the real openssl, readers that come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeconfig
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import kubeadm_certificates as kind
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.kubeadm_certificates import (
    KIND,
    LEAVES,
    Leaf,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

from .authorities import Authority, key_pem, kubeconfig, new_key
from .fake_host import FakeHost, converge, filled

OLD, NEW = Authority(), Authority("kubernetes-2")
FRONT = Authority("front-proxy-ca")
CONFIG = "kind: ClusterConfiguration\netcd: {external: {}}\n"
READERS = ("kube-controller-manager", "kube-scheduler")


def spec(kubernetes: Authority = OLD, front: Authority = FRONT, **values: Any) -> dict[str, Any]:
    issuers = {"kubernetes": kubernetes.sha256, "front-proxy": front.sha256}
    return filled(
        KIND,
        id="control_plane/kubeadm-certificates",
        kubeadm="control_plane/member",
        issuers=issuers,
        **values,
    )


class ControlPlane:
    """A host with all of kubeadm's certificates, and a kubeadm that renews them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = FakeHost(root)
        self.signing, self.trusted = OLD, OLD.pem
        self.restarted: list[str] = []
        self.host.remember("control_plane/member", {"config": CONFIG})
        for leaf in LEAVES:
            self.write(leaf)
        self.trust(OLD, OLD.pem)
        self.host.program("kubeadm", "exit 0")
        monkeypatch.setattr(kind, "kubeadm", self.kubeadm)
        monkeypatch.setattr(kind, "restart", lambda host, leaf: self.restarted.append(leaf.reader))

    def trust(self, signing: Authority, bundle: str) -> None:
        """Put the CA files there, as resources before this one do."""
        self.signing, self.trusted = signing, bundle
        self.host.put("/etc/kubernetes/pki/ca.crt", bundle)
        self.host.put("/etc/kubernetes/pki/front-proxy-ca.crt", FRONT.pem)

    def write(self, leaf: Leaf, days: float = 365) -> None:
        """Sign a leaf; as kubeadm does, a kubeconfig gets the first authority of the file only."""
        key = new_key()
        issuer = FRONT if leaf.authority == "front-proxy" else self.signing
        pem = issuer.sign(key.public_key(), leaf.name, days=days)
        if leaf.is_kubeconfig:
            self.host.put(leaf.path, kubeconfig(self.signing.pem, pem, key_pem(key)), 0o600)
        else:
            self.host.put(leaf.path, pem)
            self.host.put(leaf.path.replace(".crt", ".key"), key_pem(key), 0o600)

    def kubeadm(self, host: FakeHost, *arguments: str) -> None:
        """Stand for ``kubeadm certs renew NAME``."""
        assert host.text("/run/ironspan/kubeadm.yaml") == CONFIG
        host.run(["kubeadm", *arguments])
        assert arguments[:2] == ("certs", "renew")
        self.write(next(leaf for leaf in LEAVES if leaf.name == arguments[2]))

    def renewed(self) -> list[str]:
        """Return what kubeadm was asked to renew."""
        return [call[3] for call in self.host.calls("kubeadm")]


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    return ControlPlane(tmp_path, monkeypatch)


def test_before_the_host_is_a_control_plane_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert KIND.compare(spec(), FakeHost(tmp_path)) is None


def test_what_is_right_stays_and_is_looked_at_once(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KIND.compare(spec(), plane.host) is None
    monkeypatch.setattr(plane.host, "run", lambda *_, **__: pytest.fail("a program was run"))
    assert KIND.compare(spec(), plane.host) is None


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_only_what_is_due_is_renewed_and_only_its_reader_restarts(plane: ControlPlane, leaf: Leaf) -> None:
    plane.write(leaf, days=10)
    change = converge(KIND, spec(), plane.host)
    assert change is not None
    assert change.reason == f"{leaf.name}: expires soon"
    assert change.after == {leaf.name: "renewed"}
    assert plane.renewed() == [leaf.name]
    assert plane.restarted == ([leaf.reader] if leaf.reader else [])
    assert leaf.path in plane.host.backups


def test_days_decide_what_is_due(plane: ControlPlane) -> None:
    converge_all = KIND.compare(spec(renew_before_days=400), plane.host)
    assert converge_all is not None
    assert set(converge_all.after) == {leaf.name for leaf in LEAVES}
    assert KIND.compare(spec(renew_before_days=300), plane.host) is None


def test_a_second_authority_is_trusted_before_anything_is_signed_with_it(plane: ControlPlane) -> None:
    plane.trust(OLD, OLD.pem + NEW.pem)
    change = converge(KIND, spec(), plane.host)
    assert change is not None
    kubeconfigs = [leaf.name for leaf in LEAVES if leaf.is_kubeconfig]
    assert list(change.after) == kubeconfigs
    assert plane.renewed() == []
    assert plane.restarted == list(READERS)


def test_another_authority_signs_everything_anew_and_kubeconfigs_still_trust_both(
    plane: ControlPlane,
) -> None:
    plane.trust(NEW, NEW.pem + OLD.pem)
    change = converge(KIND, spec(NEW), plane.host)
    assert change is not None
    assert plane.renewed() == [leaf.name for leaf in LEAVES if leaf.authority == "kubernetes"]
    assert plane.restarted == list(READERS)
    for leaf in LEAVES:
        if leaf.is_kubeconfig:
            text = plane.host.text(leaf.path)
            assert _kubeconfig.embedded(text, "certificate-authority-data") == NEW.pem + OLD.pem


def test_an_authority_that_this_same_run_brings_is_seen_when_it_is_there(plane: ControlPlane) -> None:
    before = KIND.compare(spec(NEW), plane.host)
    assert before is not None
    plane.trust(NEW, NEW.pem + OLD.pem)
    assert converge(KIND, spec(NEW), plane.host) is not None


def test_a_rollback_lets_the_readers_have_the_former_files(plane: ControlPlane) -> None:
    plane.write(LEAVES[-1], days=1)
    change = KIND.compare(spec(), plane.host)
    assert change is not None
    KIND.apply(spec(), change, plane.host)
    KIND.settle(spec(), change, plane.host)
    assert plane.restarted == ["kube-scheduler", "kube-scheduler"]


def test_missing_leaves_are_left_to_kubeadm(plane: ControlPlane) -> None:
    Path(plane.host.path("/etc/kubernetes/super-admin.conf")).unlink()
    assert KIND.compare(spec(), plane.host) is None


def test_both_issuers_must_be_named() -> None:
    assert KIND.check(filled(KIND, issuers={"kubernetes": "x"}, kubeadm="a/b")) == [
        "issuers: front-proxy is missing"
    ]


def process(host: FakeHost, number: int, name: str) -> None:
    host.put(f"/proc/{number}/cmdline", f"{name}\0--flag\0")


def test_a_restart_waits_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost(tmp_path)
    process(host, 7, "/usr/local/bin/kube-scheduler")
    host.program("kill", f"mv {tmp_path}/proc/7 {tmp_path}/proc/8")
    monkeypatch.setattr(kind, "_listens", lambda port: port == 10259)
    kind.restart(host, LEAVES[-1])
    assert host.calls("kill") == [["kill", "-TERM", "7"]]


def test_a_reader_that_does_not_run_needs_no_restart(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.program("kill")
    kind.restart(host, LEAVES[-1])
    assert host.calls("kill") == []


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_reader_that_stays_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    host = FakeHost(tmp_path)
    process(host, 7, "kube-scheduler")
    # It comes back, but does not listen; or it never goes.
    host.program("kill", f"mv {tmp_path}/proc/7 {tmp_path}/proc/8" if comes_back else "")
    monkeypatch.setattr(kind, "RESTART_TIMEOUT", 0.2)
    monkeypatch.setattr(kind, "_listens", lambda port: not comes_back)
    with pytest.raises(ResourceError, match="kube-scheduler did not come back"):
        kind.restart(host, LEAVES[-1])


def test_no_key_is_in_what_is_remembered_or_shown(plane: ControlPlane) -> None:
    plane.write(LEAVES[3], days=1)
    change = KIND.compare(spec(), plane.host)
    shown = json.dumps([change, plane.host.note("control_plane/kubeadm-certificates")])
    assert "PRIVATE" not in shown
    assert "LS0tLS1CRUdJTi" not in shown
