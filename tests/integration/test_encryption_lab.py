# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A cluster that runs is encrypted by the playbook, a stage a run, one of which is killed in the middle."""

from __future__ import annotations

import collections.abc
import json
import os
import signal
import subprocess
import time

import pytest

from tests.integration.conftest import Cluster, lab_cluster
from tests.support.playbooks import BIN, ROOT, Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]
PLAIN = "open-sesame-8471"
WISH = {"control_plane_secrets_encryption": "secretbox"}
COUNT = "grep -a -o '{mark}' /var/lib/etcd/*/member/snap/db | wc -l"


@pytest.fixture(scope="module")
def encrypted() -> collections.abc.Iterator[Cluster]:
    """A control plane, and one worker."""
    with lab_cluster(Cluster, "enctest", azure=1, rack=1, azure_services=False) as made:
        yield made


def rotate(cluster: Cluster, stage: str) -> Played:
    """Run a stage."""
    asked = json.dumps({"ironspan_stage": stage, **WISH})
    played = play("encryption_rotate", cluster.inventory, cluster.folder, "-e", asked)
    assert played.status == 0, played.output
    return played


def killed(cluster: Cluster, stage: str) -> str:
    """Run a stage and kill it, with all of its processes, while hosts follow."""
    asked = json.dumps({"ironspan_stage": stage, **WISH})
    command = [str(BIN / "ansible-playbook"), "-i", str(cluster.inventory)]
    log = cluster.folder / "killed.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*command, "playbooks/encryption_rotate.yml", "-e", asked],
            cwd=ROOT,
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        )
        end = time.monotonic() + 300
        while "TASK [Compare" not in log.read_text() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return log.read_text()


def marks(cluster: Cluster, mark: str) -> int:
    """Return how often the database of the member has a text."""
    return int(cluster.on("az-1", COUNT.format(mark=mark)))


def test_a_cluster_that_runs_is_encrypted_in_stages(encrypted: Cluster) -> None:
    cluster = encrypted
    assert cluster.first is not None and cluster.first.status == 0, cluster.first
    kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
    cluster.on("az-1", f"{kubectl} delete secret before --ignore-not-found")
    cluster.on("az-1", f"{kubectl} create secret generic before --from-literal=text={PLAIN}")
    assert marks(cluster, PLAIN) > 0
    rotate(cluster, "read")
    assert "--encryption-provider-config=" in cluster.on(
        "az-1", "cat /etc/kubernetes/manifests/kube-apiserver.yaml"
    )
    assert "secretbox-1" in cluster.on("az-1", "cat /etc/kubernetes/ironspan/encryption.json")
    assert cluster.on("az-1", "stat -c %a /etc/kubernetes/ironspan/encryption.json") == "600"
    text = killed(cluster, "write")
    assert "PLAY RECAP" not in text
    played = rotate(cluster, "next")
    assert "secrets are stored with secretbox-1" in played.output
    assert "the stage drop may be entered" in played.output
    played = rotate(cluster, "drop")
    assert "the change is complete, secretbox-1 is alone" in played.output
    cluster.on(
        "az-1",
        "set -a; . /etc/etcd/etcdctl.env; "
        "etcdctl compact $(etcdctl endpoint status -w json | grep -o '\"revision\":[0-9]*' | cut -d: -f2); "
        "etcdctl defrag",
    )
    assert marks(cluster, PLAIN) == 0
    assert marks(cluster, "k8s:enc:secretbox:v1:secretbox-1:") > 0
    found = cluster.kubectl("get", "secret", "before")
    assert found["data"]["text"]
    played = cluster.site("-e", json.dumps(WISH))
    assert played.status == 0 and played.changed == {}, played.output
