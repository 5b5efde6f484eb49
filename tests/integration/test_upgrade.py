# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""upgrade.yml on a small lab: a workload answers throughout, also when a run is killed and its plan resumed.

The short version is the molecule scenario ``upgrade``: one control plane, one worker.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.playbooks import BIN, ROOT, Played, play

pytestmark = [
    pytest.mark.lab,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
]

OLD = ("gvisor_version=20260701.0",)
"""The rest is the roles' defaults: Kubernetes 1.36.4, etcd 3.6.14, containerd 2.3.4."""
NEW = (
    "site_kubernetes_version=1.37.1",
    "etcd_version=3.7.3",
    "containerd_version=2.3.7",
    "gvisor_version=20260817.0",
)
NODES = {"az-1", "az-2", "rack-1", "rack-2"}
WEB = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 10,
                        "topologySpreadConstraints": [
                            {
                                "maxSkew": 1,
                                "topologyKey": "kubernetes.io/hostname",
                                "whenUnsatisfiable": "ScheduleAnyway",
                                "labelSelector": {"matchLabels": {"app": "web"}},
                            }
                        ],
                        "containers": [
                            {
                                "name": "web",
                                "image": "docker.io/library/busybox:1.37.0",
                                "command": ["httpd", "-f", "-p", "8080", "-h", "/etc"],
                                "readinessProbe": {
                                    "httpGet": {"path": "/passwd", "port": 8080},
                                    "periodSeconds": 2,
                                },
                                # Still answers while every node learns that it is going.
                                "lifecycle": {"preStop": {"sleep": {"seconds": 6}}},
                            }
                        ],
                    },
                },
            },
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {
                "clusterIP": "10.96.0.200",
                "selector": {"app": "web"},
                "ports": [{"port": 80, "targetPort": 8080}],
            },
        },
    ],
}
CLIENT = """
while [ ! -e /tmp/client-stop ]; do
  curl -s -o /dev/null -m 3 -w '%{http_code} %{time_total}\\n' http://10.96.0.200/passwd \\
    >> /tmp/client-answers
  sleep 0.2
done
"""
"""On a control plane's host, so that its own kube-proxy is replaced under it too."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Build a small cluster with the versions to upgrade from, and a workload on it."""
    with tempfile.TemporaryDirectory(prefix="isu-") as folder:
        lab = Lab(lab_name("upgradetest"))
        lab.down()
        lab.up(azure=3, rack=2)
        made = Cluster(lab, pathlib.Path(folder))
        try:
            built = upgraded(made, "site", OLD)
            assert built.status == 0, built.output
            apply = "kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f -"
            made.on("az-1", f"echo {shlex.quote(json.dumps(WEB))} | {apply}")
            yield made
        finally:
            lab.down()


def upgraded(cluster: Cluster, playbook: str, versions: tuple[str, ...], *options: str) -> Played:
    extra = [option for version in versions for option in ("-e", version)]
    return play(playbook, cluster.inventory, cluster.folder, *extra, *options)


def killed_when_it_says(cluster: Cluster, words: str, *options: str) -> str:
    """Run upgrade.yml and kill all of it when it says something; return what it has said."""
    log = cluster.folder / "killed.log"
    command = [str(BIN / "ansible-playbook"), "-i", str(cluster.inventory), *options, "playbooks/upgrade.yml"]
    environment = os.environ | {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=stream,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    while words not in log.read_text() and process.poll() is None:
        time.sleep(0.5)
    assert process.poll() is None, log.read_text()[-20000:]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return log.read_text()


def versions_of(cluster: Cluster) -> dict[str, tuple[str, str]]:
    return {
        node["metadata"]["name"]: (
            node["status"]["nodeInfo"]["kubeletVersion"],
            node["status"]["nodeInfo"]["containerRuntimeVersion"],
        )
        for node in cluster.kubectl("get", "nodes")["items"]
    }


def test_site_yml_refuses_other_versions_and_names_the_way(cluster: Cluster) -> None:
    before = versions_of(cluster)
    played = upgraded(cluster, "site", NEW)
    assert played.status != 0
    assert "playbooks/upgrade.yml" in played.output
    assert "etcd version: found 3.6.14, wanted 3.7.3" in played.output
    assert versions_of(cluster) == before


def test_a_way_that_skips_a_version_is_refused_before_anything_is_touched(cluster: Cluster) -> None:
    # A kubelet newer than the API server: the inventory alone says it.
    played = upgraded(cluster, "upgrade", ("etcd_version=3.6.99",))
    assert played.status != 0
    assert "no host was contacted" in played.output


def test_a_pod_that_would_stop_it_late_is_named_before_anything_is_touched(cluster: Cluster) -> None:
    bare = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare"},
        "spec": {**WEB["items"][0]["spec"]["template"]["spec"], "nodeName": "rack-2"},  # type: ignore[index]
    }
    kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
    cluster.on("az-1", f"echo {shlex.quote(json.dumps(bare))} | {kubectl} apply -f -")
    before = versions_of(cluster)
    played = upgraded(cluster, "plan", NEW, "-e", "ironspan_planned=upgrade")
    assert played.status != 0
    assert "rack-2 cannot be emptied: pod default/bare has no controller" in played.output
    assert versions_of(cluster) == before
    cluster.on("az-1", f"{kubectl} delete pod bare --grace-period=1")


def test_the_cluster_is_upgraded_and_a_workload_answers_throughout(cluster: Cluster) -> None:
    wait_until_ready(cluster)
    plan = cluster.folder / "upgrade.plan.json"
    planned = upgraded(
        cluster, "plan", NEW, "-e", "ironspan_planned=upgrade", "-e", f"ironspan_plan_file={plan}"
    )
    assert planned.status == 0, planned.output[-20000:]
    extra = [option for version in (*NEW, f"ironspan_plan={plan}") for option in ("-e", version)]
    cluster.on("az-1", "rm -f /tmp/client-*; nohup sh -c " + shlex.quote(CLIENT) + " >/dev/null 2>&1 &")
    began = time.monotonic()
    # kube-proxy is upgraded by then, so all kubelets have fetched images that the plan wanted to fetch.
    said = killed_when_it_says(cluster, "PLAY [Nodes, wave after wave]", *extra)
    assert "changed=" not in said, "it was killed before its end"
    halfway = versions_of(cluster)
    assert {name for name, (kubelet, _) in halfway.items() if kubelet == "v1.37.1"} == {"az-1", "az-2"}
    # The same plan, with whatever approvals it had, finishes it.
    played = play("upgrade", cluster.inventory, cluster.folder, *extra)
    seconds = time.monotonic() - began
    cluster.on("az-1", "touch /tmp/client-stop")
    assert played.status == 0, played.output[-20000:]
    answers = [line.split() for line in cluster.on("az-1", "cat /tmp/client-answers").splitlines()]
    lost = [line for line in answers if line[0] != "200"]
    slowest = max(float(line[1]) for line in answers)
    print(f"{len(answers)} requests, {len(lost)} lost, slowest {slowest:.2f} s; upgrade took {seconds:.0f} s")
    assert len(answers) > 100
    assert lost == []
    assert versions_of(cluster) == dict.fromkeys(NODES, ("v1.37.1", "containerd://2.3.7"))
    members = json.loads(
        cluster.on("az-1", "set -a; . /etc/etcd/etcdctl.env; etcdctl endpoint status --cluster -w json")
    )
    assert {member["Status"]["version"] for member in members} == {"3.7.3"}
    assert "20260905" in cluster.on("rack-1", "runsc --version")
    snapshots = cluster.on("az-1", "ls -l /var/lib/etcd/snapshots").splitlines()
    assert len([line for line in snapshots if "snapshot-" in line and line.startswith("-rw-------")]) == 2, (
        "one of each run"
    )


def test_a_second_run_has_nothing_to_do(cluster: Cluster) -> None:
    played = upgraded(cluster, "upgrade", NEW)
    assert played.status == 0, played.output[-5000:]
    assert played.changed == {}
    again = upgraded(cluster, "site", NEW)
    assert again.status == 0, again.output[-5000:]
    assert again.changed == {}, again.output[-5000:]


def wait_until_ready(cluster: Cluster) -> None:
    command = "kubectl --kubeconfig /etc/kubernetes/admin.conf rollout status deployment/web --timeout=120s"
    done = subprocess.run(
        cluster.lab.ssh_command("az-1", [command]), check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
