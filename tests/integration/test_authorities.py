# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every authority of a running cluster is changed, while a pod and the API are asked all the time."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store

from tests.integration.conftest import Cluster
from tests.support.playbooks import play
from tests.support.probe import Probe

pytestmark = [pytest.mark.lab, pytest.mark.long]

LONGEST_GAP_S = 20.0
"""An API server that restarts ends its connections; the balancer notices within three of its looks."""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "answer", "namespace": "default"},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "answer",
                "image": "docker.io/library/busybox:1.37.0",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "mkdir /www; echo ok >/www/index.html; exec httpd -f -p 80 -h /www"],
            }
        ],
    },
}
POD_PATH = "/api/v1/namespaces/default/pods/answer"


def api(cluster: Cluster) -> Api:
    """Return a client as the controller makes it at this moment."""
    store = open_store(cluster.lab.folder / "pki", cluster.lab.folder / "pki.key")
    config = store.admin_kubeconfig("api.lab.internal:8443", 1, cluster.address("az-3"))
    return Api.from_kubeconfig(config, None, patience=0)


def test_an_authority_changes_only_as_fast_as_the_hosts_follow(cluster: Cluster) -> None:
    """One stage and back; before that, a host that seems not to have followed forbids the next one."""

    def rotate(*arguments: str) -> tuple[int, str]:
        done = cluster.command("certs", "rotate", "front-proxy", *arguments, "-i", str(cluster.inventory))
        return done.returncode, done.stdout

    code, output = rotate("trust")
    assert code == 0, output
    bundle = cluster.on("az-2", "cat /etc/kubernetes/pki/front-proxy-ca.crt")
    assert bundle.count("BEGIN CERTIFICATE") == 2
    cluster.on("az-2", "touch /etc/kubernetes/pki/front-proxy-ca.crt")
    code, output = rotate("issue")
    assert code != 0
    assert "az-2: kube-apiserver was started before /etc/kubernetes/pki/front-proxy-ca.crt" in output
    code, output = rotate("back")
    assert code == 0, output
    assert cluster.on("az-2", "cat /etc/kubernetes/pki/front-proxy-ca.crt").count("BEGIN CERTIFICATE") == 1
    assert cluster.site().changed == {}


@pytest.mark.parametrize("authority", ["etcd", "kubernetes", "front-proxy"])
def test_an_authority_is_changed_and_nobody_notices(cluster: Cluster, authority: str) -> None:
    admin = api(cluster)
    admin.apply(POD_PATH, POD)
    end = time.monotonic() + 120
    while admin.get(POD_PATH)["status"]["phase"] != "Running" and time.monotonic() < end:
        time.sleep(1)
    with Probe(lambda: api(cluster), {"api": "/version", "pod": f"{POD_PATH}/proxy/"}) as probe:
        for stage in ("trust", "issue", "drop"):
            played = play(
                "ca_rotate",
                cluster.inventory,
                cluster.folder,
                "-e",
                json.dumps({"ironspan_authority": authority, "ironspan_authority_stage": stage}),
            )
            assert played.status == 0, played.output
        assert "the change is complete" in played.output
    for name, answers in probe.answers.items():
        assert answers.good > 100, name
        assert answers.longest_gap < LONGEST_GAP_S, (name, answers)
    played = cluster.site()
    assert played.status == 0, played.output
    assert played.changed == {}, played.output
    report = cluster.folder / "certificates.json"
    done = cluster.command("certs", "-i", str(cluster.inventory), "--report", str(report))
    assert done.returncode == 0, done.stdout
    leaves = [
        entry for entry in json.loads(report.read_text())["certificates"] if entry["authority"] == authority
    ]
    assert {entry["generation"] for entry in leaves} == {2}
