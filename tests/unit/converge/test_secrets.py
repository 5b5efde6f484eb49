# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which host is sent which secret: those that its document of the inventory names, one by one."""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import KMS, begun
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.handed_out import known
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.secret_names import (
    named_in,
    named_in_text,
)

from tests.support.converge_action import Controller
from tests.support.public_side import PublicSide
from tests.unit.roles.conftest import Rendered
from tests.unit.roles.conftest import render as render

TABLE = Path(__file__).with_name("secrets.yml")
GROUPS = ("etcd", "control_plane", "etcd_drill", "etcd_collector", "haproxy", "nodes")
"""What a host is; the rest of its groups is where it stands and what hardware it has."""
EVERYTHING = """\
all:
  vars:
    etcd_backup_stores: [{kind: file, path: /mnt/backups}]
    etcd_events_enabled: true
    control_plane_secrets_encryption: key_vault
    control_plane_key_vault:
      vault_url: https://acme.vault.azure.net
      key: etcd-secrets
      credential: {kind: managed_identity}
  children:
    azure:
      hosts:
        drill-1: {ansible_host: 10.20.0.21}
        gc-1: {ansible_host: 10.20.0.22}
        lb-1: {ansible_host: 10.20.0.23}
    etcd_drill: {hosts: {drill-1: }}
    etcd_collector: {hosts: {gc-1: }}
    haproxy: {hosts: {lb-1: }}
"""
SITES: dict[str, tuple[str, str]] = {
    "lab": ("lab", ""),
    "example": ("example", ""),
    "example with everything": ("example", EVERYTHING),
}


def shares(site: Rendered) -> dict[str, list[str]]:
    """Return the secrets that the documents of each kind of host name."""
    found: dict[str, set[str]] = {}
    for host in site.site.hosts.values():
        kind = " and ".join(group for group in GROUPS if host.in_group(group)) or "others"
        found.setdefault(kind, set()).update(named_in(site.document(host.name)))
    return {kind: sorted(names) for kind, names in sorted(found.items())}


@pytest.mark.parametrize("name", SITES)
def test_who_gets_what(name: str, render: Callable[..., Rendered], monkeypatch: pytest.MonkeyPatch) -> None:
    inventory, more = SITES[name]
    if more:
        monkeypatch.setattr(PublicSide, "encryption", lambda self: begun(KMS))
    assert shares(render(inventory, more=more)) == yaml.safe_load(TABLE.read_text())[name]


def document(*secrets: str, **more: t.Any) -> dict[str, t.Any]:
    """Return a document with a file for each secret."""
    files = [{"id": f"etcd_backup/{n}", "kind": "file", "path": f"/{n}", "secret": n} for n in secrets]
    return {"schema": 1, "layers": ["etcd_backup"], "resources": files, "site": "s", "host": "h", **more}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what a host's notes say of a store with everything in it."""
    folder = tmp_path_factory.mktemp("store")
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file

    key = generate_key_file(folder / "key")
    made = open_store(folder / "pki", key)
    made.ensure_cas()
    made.encryption.begin(KMS)
    made.backup_keys.add()
    return {"pki_store": str(folder / "pki"), "pki_key_file": str(key)}


def quiet(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
    """Answer that nothing was to be done."""
    return {"changed": False, "changes": [], "pending": []}


@pytest.mark.parametrize("mode", ["apply", "assess"])
def test_a_host_is_sent_what_its_document_names(
    mode: str, tmp_path: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = list(known(open_store(store["pki_store"], store["pki_key_file"])))
    hosts = {"all": everything, "one": ["backup-key-2"], "none": [], "foreign": ["etcd-key", "etcd-ca-key"]}
    controller = Controller(
        tmp_path / "run", {host: document(*names) for host, names in hosts.items()}, **store
    )
    for host, names in hosts.items():
        controller.run(host, quiet, monkeypatch, mode=mode)
        sent = controller.sent[-1]["secrets"]
        assert set(sent) == (set(names) & set(everything) if mode == "apply" else set())
        assert all(sent.values())


def test_only_for_the_layers_of_the_execution(
    tmp_path: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = document("backup-key-1", layers=["etcd_backup", "control_plane"])
    two["resources"].append({"id": "control_plane/sa", "kind": "file", "secret": "service-account-key"})
    controller = Controller(tmp_path / "run", {"h": two}, **store)
    controller.run("h", quiet, monkeypatch, layers=["etcd_backup"])
    assert set(controller.sent[-1]["secrets"]) == {"backup-key-1"}


def test_a_host_that_asks_is_sent_nothing_more(
    tmp_path: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        pending = [{"resource": "etcd_backup/x", "needs": f"secret:{n}"} for n in ("service-account-key",)]
        return {"changed": True, "changes": [], "pending": pending, "secrets": ["service-account-key"]}

    controller = Controller(tmp_path / "run", {"h": document("backup-key-1")}, **store)
    for _ in range(2):
        controller.run("h", asks, monkeypatch)
    assert [set(sent["secrets"]) for sent in controller.sent] == [{"backup-key-1"}] * 2


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
def test_a_document_of_the_hosts_making_gets_no_more_and_no_signature(
    marked: bool, tmp_path: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {
        "undoes": {"digest": "e", "time": 1}, "left": [], "removed_layers": [], "replaced_artifacts": [],
    }  # fmt: skip
    greedy = document("backup-key-1", "service-account-key", "kubernetes-ca-key")
    csr = {"common_name": "root", "organizations": ["system:masters"]}
    greedy["resources"] += [
        {"id": "etcd/key", "kind": "key_and_csr", "csr": csr},
        {"id": "etcd/client", "kind": "certificate", "key": "etcd/key", "profile": "etcd-client"},
    ]
    greedy |= {"rollback": facts} if marked else {}

    def lies(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        base = {"changed": True, "changes": [], "pending": [], "verdicts": [], "csrs": {"etcd/client": "CSR"}}
        return {**base, "document": greedy, "rollback": facts}

    controller = Controller(tmp_path / "run", {"h": document("backup-key-1", "backup-key-2")}, **store)
    controller.run("h", lies, monkeypatch, mode="rollback")
    result = controller.run("h", lies, monkeypatch)
    assert not result.get("failed")
    assert [set(sent["secrets"]) for sent in controller.sent] == [set(), {"backup-key-1"}]
    assert not any("certificates" in sent for sent in controller.sent)


def test_a_document_of_a_release_that_joined_with_tokens_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: dict[str, str]
) -> None:
    join = {"id": "node/join", "kind": "kubeadm", "token_secret": "join-token"}
    controller = Controller(tmp_path / "run", {"old": document() | {"resources": [join]}}, **store)
    controller.run("old", quiet, monkeypatch)
    assert [set(sent["secrets"]) for sent in controller.sent] == [set()]


def test_a_play_cannot_ask_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(tmp_path / "run", {"h": document()})
    with pytest.raises(AnsibleActionFail, match="those its document names"):
        controller.run("h", quiet, monkeypatch, secrets=["ca_keys"])


def test_names_are_read_from_every_field_that_holds_one() -> None:
    assert named_in_text('{"resources": [{"a_secret": "x", "secret": "y", "secrets": "z"}]}') == ["x", "y"]
    assert named_in_text('{"resources": [{"secret": 1, "content": "\\"secret\\": \\"q\\""}]}') == []
