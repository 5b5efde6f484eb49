# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Encryption of secrets on hosts: a cluster with two control planes goes there by the playbook, in stages.

All the time secrets are written through one API server and read through the other.
"""

from __future__ import annotations

import collections.abc
import typing as t

import pytest

from tests.integration.conftest import lab_cluster
from tests.support.encrypted_site import CONTROL_PLANES, EncryptedSite, reading

pytestmark = [pytest.mark.lab, pytest.mark.long]
PLAIN = "open-sesame-8471"
MANY = 400
SECRETBOX: dict[str, t.Any] = {"control_plane_secrets_encryption": "secretbox"}
FILE = "/etc/kubernetes/ironspan/encryption.json"
MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"


@pytest.fixture(scope="module")
def site() -> collections.abc.Iterator[EncryptedSite]:
    """Two control planes and a worker, whose secrets are in clear."""
    with lab_cluster(EncryptedSite, "enctest", azure=2, rack=1) as made:
        assert made.first is not None and made.first.status == 0, made.first
        yield made


def test_a_cluster_that_runs_is_encrypted_and_the_files_of_etcd_show_it(site: EncryptedSite) -> None:
    site.make("canary", PLAIN)
    site.make_many(MANY, PLAIN)
    assert PLAIN.encode() in site.raw("canary")
    assert site.found(PLAIN) > MANY, "nothing below would prove anything"
    with reading(site):
        site.wish = SECRETBOX
        # The inventory alone changes nothing: documents follow the stages.
        site.settled()
        site.rotate("read")
        for host in CONTROL_PLANES:
            assert site.on(host, f"stat -c %a:%U {FILE}") == "600:root"
            names = site.on(host, f"grep -o 'identity\\|secretbox-1' {FILE}").split()
            assert names == ["identity", "secretbox-1"]
            assert "--encryption-provider-config=" in site.on(host, f"cat {MANIFEST}")
        site.make("meanwhile", PLAIN, "az-2")
        assert PLAIN.encode() in site.raw("meanwhile")
        assert "secrets are stored with secretbox-1" in site.rotate("write").output
        assert "the change is complete, secretbox-1 is alone" in site.rotate("drop").output
    assert set(site.stored()) == {"secretbox-1"}
    assert site.raw("canary").startswith(b"k8s:enc:secretbox:v1:secretbox-1:")
    site.compact()
    site.defragment()
    assert site.found(PLAIN) == 0
    assert site.found("k8s:enc:secretbox:v1:secretbox-1:") > MANY
    assert site.found(PLAIN, "wal/*.wal") > 0, "the log has it until etcd removes its files"
    for host in CONTROL_PLANES:
        assert site.text("canary", host) == PLAIN
    site.settled()
