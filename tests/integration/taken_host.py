# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Root of a worker, with everything that its host holds during and after a join, tries to become another."""

from __future__ import annotations

import json
import shlex
import time
import typing as t

from tests.integration.conftest import Cluster

TAKEN = "/root/taken"
KUBELET = "/var/lib/kubelet/pki/kubelet-client-current.pem"
API = "https://api.lab.internal:8443"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"
AUDIT = "/var/log/kubernetes/audit/audit.log"
API_SERVERS = ("az-1", "az-2")
SPLIT = f"""
import base64, json
user = json.load(open("{TAKEN}.conf"))["users"][0]["user"]
parts = [base64.b64decode(user["client-%s-data" % name]) for name in ("certificate", "key")]
open("{TAKEN}.pem", "wb").write(b"".join(parts))
"""
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"


def watch_the_join(cluster: Cluster, host: str) -> None:
    """Copy what the host joins with as soon as it is there."""
    loop = f"until cp /run/ironspan/discovery.conf {TAKEN}.conf 2>/dev/null; do sleep 0.02; done"
    cluster.on(host, f"systemd-run --quiet --collect --unit=taken sh -c {shlex.quote(loop)}")


def cannot_become_another(cluster: Cluster, host: str, others: t.Sequence[str]) -> None:
    """Ask for certificates of other nodes and of administrators; only the host's own is ever signed.

    Args:
        cluster: the cluster.
        host: a worker on which ``watch_the_join`` ran while it joined.
        others: names of other nodes.
    """
    cluster.on(host, f"python3 -c {shlex.quote(SPLIT)}")
    subject = cluster.on(host, f"openssl x509 -in {TAKEN}.pem -noout -subject -enddate")
    assert f"system:node:{host}" in subject and "ironspan:joining" in subject, subject
    leaves = "find /run/ironspan /etc/kubernetes/bootstrap-kubelet.conf -type f 2>/dev/null || true"
    assert cluster.on(host, leaves) == "", "a host that has joined holds nothing of its join"

    pairs = {"join": f"{TAKEN}.pem", "kubelet": KUBELET}
    foreign: list[str] = []
    for holder, pair in pairs.items():
        for number, (names, signer) in enumerate(
            [
                *((f"/O=system:nodes/CN=system:node:{other}", f"{CLIENT}-kubelet") for other in others),
                ("/O=system:masters/CN=kubernetes-admin", CLIENT),
                (f"/O=system:nodes/O=system:masters/CN=system:node:{host}", f"{CLIENT}-kubelet"),
            ]
        ):
            name = f"taken-{holder}-{number}"
            foreign.append(name)
            _ask(cluster, host, pair, name, names, signer)
    own = [f"taken-{holder}-own" for holder in pairs]
    for name, pair in zip(own, pairs.values(), strict=True):
        assert _ask(cluster, host, pair, name, f"/O=system:nodes/CN=system:node:{host}", f"{CLIENT}-kubelet")
    # What the cluster signs by itself is signed within seconds, so the others had their time too.
    until = time.monotonic() + 180
    while not all(_signed(cluster).get(name) for name in own):
        assert time.monotonic() < until, "the cluster signs nothing"
        time.sleep(1)
    cluster.command("certs", "approve", "-i", str(cluster.inventory))
    signed = _signed(cluster)
    assert not [name for name in foreign if signed.get(name)]
    decided = {
        item["metadata"]["name"]: [entry["type"] for entry in item["status"].get("conditions", ())]
        for item in cluster.kubectl("get", "csr")["items"]
    }
    assert not [name for name in foreign if "Approved" in decided.get(name, ())]
    for name in decided.keys() & {*foreign, *own}:
        cluster.on("az-1", f"{KUBECTL} delete csr {name}")


def reads_of_secrets_are_in_the_audit_log(cluster: Cluster, host: str) -> None:
    """Let a pod use a secret, and root of its host ask for one that no pod there uses."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "reader", "namespace": "default"},
        "spec": {
            "nodeName": host,
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "s", "secret": {"secretName": "of-a-pod"}}],
            "containers": [
                {
                    "name": "c",
                    "image": "docker.io/library/busybox:1.37.0",
                    "command": ["sleep", "600"],
                    "volumeMounts": [{"name": "s", "mountPath": "/s"}],
                }
            ],
        },
    }
    for name in ("of-a-pod", "of-others"):
        cluster.on("az-1", f"{KUBECTL} create secret generic {name} --from-literal=a=b")
    cluster.on("az-1", f"{KUBECTL} apply -f - <<'EOF'\n{json.dumps(pod)}\nEOF")
    cluster.on("az-1", f"{KUBECTL} wait --for=condition=Ready pod/reader --timeout=170s")
    refused = _curl(host, cluster, KUBELET, f"{API}/api/v1/namespaces/default/secrets/of-others")
    assert refused == "403"
    entries = [
        json.loads(line)
        for server in API_SERVERS
        for line in cluster.on(server, f'grep -h \'"resource":"secrets"\' {AUDIT}').splitlines()
    ]
    read = {
        (entry["verb"], entry["objectRef"].get("name", ""), entry["responseStatus"]["code"])
        for entry in entries
        if entry["user"]["username"] == f"system:node:{host}"
    }
    assert ("get", "of-others", 403) in read, read
    assert {verb for verb, name, code in read if name == "of-a-pod" and code == 200} & {
        "get",
        "list",
        "watch",
    }
    assert not [entry for entry in entries if "responseObject" in entry or "requestObject" in entry]
    cluster.on("az-1", f"{KUBECTL} delete pod/reader secret/of-a-pod secret/of-others")


def _ask(cluster: Cluster, host: str, pair: str, name: str, subject: str, signer: str) -> bool:
    """Send a request; return whether the API took it."""
    cluster.on(
        host,
        "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /root/x.key "
        f"-subj {shlex.quote(subject)} -out /root/x.csr 2>&1",
    )
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": signer,
            "usages": ["digital signature", "client auth"],
            "request": cluster.on(host, "base64 -w0 /root/x.csr"),
        },
    }
    data = f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    code = _curl(host, cluster, pair, f"{API}{REQUESTS}", data)
    assert code in ("201", "403"), f"{name}: {code}"
    return code == "201"


def _curl(host: str, cluster: Cluster, pair: str, url: str, more: str = "") -> str:
    """Send a request as a host does; return the status."""
    trust = f"--cert {pair} --key {pair} --cacert /etc/kubernetes/pki/ca.crt"
    return cluster.on(host, f"curl -s -o /dev/null -w '%{{http_code}}' {trust} {more} {url}")


def _signed(cluster: Cluster) -> dict[str, bool]:
    """Return of each request whether there is a certificate."""
    return {
        item["metadata"]["name"]: "certificate" in item["status"]
        for item in cluster.kubectl("get", "csr")["items"]
    }
