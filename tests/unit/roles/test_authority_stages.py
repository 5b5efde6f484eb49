# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The roles' own documents through the stages of an authority: real store, real engine, real requests."""

from __future__ import annotations

import base64
import ipaddress
import json
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _certificates
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import found
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import Request, exchange
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates as made
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import DROP, ISSUE, TRUST
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.handed_out import known
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.profiles import PROFILES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from cryptography.hazmat.primitives import serialization

from .conftest import Rendered

KINDS = ("directory", "key_and_csr", "certificate", "kubelet_certificate", "kubeconfig_authority")
FILES = ("etcd/ca", "node/ca", "control_plane/etcd-ca", "control_plane/signing-ca", "haproxy/ca")
FOLDERS = ("etc/etcd", "etc/etcd/pki", "etc/kubernetes", "etc/kubernetes/pki", "etc/kubernetes/pki/etcd")
KUBELET = {
    "kubelet-client": "/var/lib/kubelet/pki/kubelet-client-current.pem",
    "kubelet-serving": "/var/lib/kubelet/pki/kubelet-server-current.pem",
}


class Machine:
    """One host of the lab, as far as certificates go, in a private root."""

    def __init__(self, site: Site, name: str, root: Path) -> None:
        self.site, self.name, self.root = site, name, root
        self.store: Store = open_store(site.pki_store, site.pki_key_file)
        self.store.ensure_cas()
        for folder in ("etc", "proc", "var/lib/kubelet/pki"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "proc/stat").write_text("btime 1\n")

    def renderer(self) -> Renderer:
        """Return a renderer that reads the store again, as each run does."""
        return renderer_for(self.site, make=True)[0]

    def document(self) -> dict[str, t.Any]:
        """Return the host's document without what is not about certificates."""
        whole = self.renderer().document(self.site.hosts[self.name])
        folders = {f"/{folder}" for folder in FOLDERS}
        kept = [
            {**entry, **({"owner": "root", "group": "root"} if "owner" in entry else {})}
            for entry in whole["resources"]
            if (entry["kind"] in KINDS and (entry["kind"] != "directory" or entry["path"] in folders))
            or entry["id"] in FILES
        ]
        names = {entry["id"] for entry in kept} | {"haproxy/folder"}
        for entry in kept:
            entry["requires"] = [name for name in entry.get("requires", ()) if name in names]
        haproxy = {"kind": "directory", "id": "haproxy/folder", "path": "/etc/haproxy"}
        return {**whole, "resources": [haproxy, *kept], "fitness": {}}

    def follow(self) -> dict[str, t.Any]:
        """Converge, as the action does: twice when the host asks for certificates."""
        request = Request(document=json.dumps(self.document()), mode="apply", mirror="", root=str(self.root))

        def execute(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
            return run({**arguments, "document": json.loads(arguments["document"])})

        result = exchange(request, execute, lambda *given: self.store.sign(*given), lambda *_: [])
        assert "failed" not in result, result
        assert not result["pending"], result
        return result

    def join(self) -> None:
        """Do what joining leaves: the kubelet's certificates and its kubeconfig."""
        for profile, path in KUBELET.items():
            key = made.new_key()
            host = self.site.hosts[self.name]
            serving = profile == "kubelet-serving"
            names = made.Names(
                f"system:node:{self.name}",
                ["system:nodes"],
                [self.name] if serving else [],
                [str(ipaddress.ip_address(host.address))] if serving else [],
            )
            pem = (
                self.store._issue(PROFILES[profile], key.public_key(), names, PROFILES[profile].lifetime)
                + key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.TraditionalOpenSSL,
                    serialization.NoEncryption(),
                ).decode()
            )
            real = self.root / path.lstrip("/")
            dated = real.with_name(real.name.replace("current", "2026-01-01-00-00-00"))
            dated.write_text(pem)
            real.symlink_to(dated.name)
        data = base64.b64encode(self.store.ca("kubernetes").certificate_pem.encode()).decode()
        config = self.root / "etc/kubernetes/kubelet.conf"
        config.write_text(f"clusters:\n- cluster:\n    certificate-authority-data: {data}\n")

    def generations(self, name: str) -> dict[str, set[int]]:
        """Return the generations of an authority that are trusted and that signed, on this host."""
        entries = _certificates.read(str(self.root))["certificates"]
        seen: dict[str, set[int]] = {found.AUTHORITY: set(), found.LEAF: set()}
        for entry in found.of_host(self.name, entries, found.Authorities(self.store)):
            if entry.authority == name and "signing" not in entry.path:
                seen[entry.kind].add(entry.generation)
        return seen


@pytest.mark.parametrize(
    ("host", "authority"), [("az-1", "etcd"), ("az-3", "etcd"), ("rack-1", "kubernetes")]
)
def test_a_host_follows_every_stage_and_then_rests(
    render: Callable[..., Rendered], tmp_path: Path, host: str, authority: str
) -> None:
    site = render("lab", {"site_pki_store": str(tmp_path / "pki")}).site
    machine = Machine(site, host, tmp_path / "root")
    machine.follow()
    if authority == "kubernetes":
        machine.join()
    assert not machine.follow()["changed"]
    assert machine.generations(authority) == {found.AUTHORITY: {1}, found.LEAF: {1}}
    trusted = {TRUST: {1, 2}, ISSUE: {1, 2}, DROP: {2}}
    signed = {TRUST: {1}, ISSUE: {2}, DROP: {2}}
    for stage in (TRUST, ISSUE, DROP):
        machine.store.move(authority, stage)
        assert machine.follow()["changed"]
        assert machine.generations(authority) == {
            found.AUTHORITY: trusted[stage],
            found.LEAF: signed[stage],
        }
        assert not machine.follow()["changed"]


def test_members_restart_for_trust_and_not_for_another_signature(
    render: Callable[..., Rendered], tmp_path: Path
) -> None:
    site = render("lab", {"site_pki_store": str(tmp_path / "pki")}).site
    machine = Machine(site, "az-3", tmp_path / "root")

    def part(name: str) -> str:
        entries = {entry["id"]: entry for entry in machine.document()["resources"]}
        return str(entries[name]["content"])

    before = part("etcd/ca")
    machine.store.move("etcd", TRUST)
    trusting = part("etcd/ca")
    assert trusting != before
    machine.store.move("etcd", ISSUE)
    assert part("etcd/ca") == trusting


def test_control_planes_restart_for_trust_and_get_keys_by_another_name(
    render: Callable[..., Rendered], tmp_path: Path
) -> None:
    site = render("lab", {"site_pki_store": str(tmp_path / "pki")}).site
    machine = Machine(site, "az-1", tmp_path / "root")

    def seen() -> tuple[str, str, str]:
        document = machine.renderer().document(site.hosts["az-1"])
        entries = {entry["id"]: entry for entry in document["resources"]}
        assert entries["control_plane/signing-ca"]["content"].count("BEGIN CERTIFICATE") == 1
        return (
            entries["control_plane/member"]["config"],
            entries["control_plane/kubernetes-ca-key"]["secret"],
            entries["control_plane/kubeadm-certificates"]["issuers"]["kubernetes"],
        )

    config, secret, issuer = seen()
    machine.store.move("kubernetes", TRUST)
    trusting = seen()
    assert trusting[0] != config
    assert trusting[1:] == (secret, issuer)
    machine.store.move("kubernetes", ISSUE)
    issuing = seen()
    assert issuing[0] == trusting[0]
    assert issuing[1] != secret
    assert issuing[1] in known(machine.store)
    assert issuing[2] != issuer
    machine.store.move("kubernetes", DROP)
    assert seen()[0] != issuing[0]
