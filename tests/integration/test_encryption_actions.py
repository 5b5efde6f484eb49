# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The stages of encryption by ansible-playbook, against a real API server and a real etcd without hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    certificates,
    generate_key_file,
    open_store,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from .loopback_cluster import Control, address_on_loopback, find_programs, running
from .test_cluster_actions import ADDRESSES, Site, inventory, run
from .test_encryption import PLAIN, Cluster

pytestmark = [pytest.mark.lab, pytest.mark.long]


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose one control plane runs on loopback."""
    folder = tmp_path_factory.mktemp("site")
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    programs = find_programs(names=("etcd", "kube-apiserver"))
    with (
        address_on_loopback() as network,
        running(Control(programs, store, folder, network=network)) as control,
    ):
        control.members = {"az-1": control.address}
        control.start_etcd("az-1")
        control.start_api()
        control.bind_administrators()
        # Stages ask the API server itself, by its address.
        names = certificates.Names("kube-apiserver", dns=["api.test.internal"], ips=[control.address])
        control.issue("server", names, ExtendedKeyUsageOID.SERVER_AUTH)
        addresses = {**ADDRESSES, "az-1": control.address}
        path = inventory(folder, control, addresses)
        content = yaml.safe_load(path.read_text())
        content["all"]["vars"] |= {
            "control_plane_secrets_encryption": "secretbox",
            "control_plane_port": control.api_port,
        }
        path.write_text(yaml.safe_dump(content))
        yield Site(control, path, addresses)


def stage(site: Site, state: str, move: str, status: int = 0) -> str:
    """Run a part of the playbook."""
    tasks: list[Object] = [
        {"ironspan.hybrid.operation": {"name": "encryption_rotate"}},
        {"ironspan.hybrid.encryption_stage": {"state": state}},
    ]
    return run(site, tasks, "-e", json.dumps({"ironspan_encryption_stage": move}), status=status)


def test_stages_by_the_actions(site: Site) -> None:
    cluster = Cluster(site.control)
    cluster.make("before", PLAIN)
    text = stage(site, "entered", "read")
    assert "let 1 API servers read what secretbox-1 writes" in text
    text = stage(site, "entered", "write", status=2)
    assert "az-1: its API server has not loaded any encryption configuration" in text
    text = stage(site, "entered", "next")
    assert "stays in the stage read" in text
    cluster.follow()
    text = stage(site, "followed", "next")
    assert "the stage write may be entered" in text
    assert "1 secrets are stored with identity" in text
    stage(site, "entered", "next")
    cluster.follow()
    text = stage(site, "entered", "drop", status=2)
    assert "secret default/before is stored with identity still, not with secretbox-1" in text
    text = stage(site, "followed", "next")
    assert "1 secrets are stored with secretbox-1" in text
    assert "the stage drop may be entered" in text
    stage(site, "entered", "drop")
    cluster.follow()
    text = stage(site, "followed", "drop")
    assert "the change is complete, secretbox-1 is alone" in text
    # A run that was killed when all was done is run again.
    assert "is alone, and no change is under way" in stage(site, "followed", "drop")
    stage(site, "entered", "drop")
    assert cluster.text("before") == PLAIN
    key = cluster.keys.key("secretbox-1")
    assert key not in text and PLAIN not in text
    assert "not being changed" in stage(site, "entered", "next", status=2)
