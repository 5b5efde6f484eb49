# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Text of kubeadm: its configuration documents, the discovery file of a join, and its error output."""

from __future__ import annotations

import base64
import json
import re
import typing as t

SERVER = re.compile(r"^\s*server:\s*\"?https://([^\s\"]+)", re.MULTILINE)
KIND = re.compile(r"^kind:\s*\"?(\w+)\"?\s*$", re.MULTILINE)
VERSION = re.compile(r"^kubernetesVersion:\s*\"?v?([^\s\"]+)", re.MULTILINE)


def split_documents(text: str) -> t.List[t.Tuple[str, str]]:
    """Split a kubeadm configuration into its YAML documents.

    Args:
        text: documents separated by lines of ``---``.

    Returns:
        (kind, text of the document) for each, in order; without those that are empty.
    """
    documents = []
    for part in re.split(r"^---\s*$", text, flags=re.MULTILINE):
        if part.strip():
            match = KIND.search(part)
            documents.append((match.group(1) if match else "", part.strip("\n") + "\n"))
    return documents


def init_configuration(text: str) -> str:
    """Return what ``kubeadm init`` reads: every document but the one for joins."""
    return "---\n".join(part for kind, part in split_documents(text) if kind != "JoinConfiguration")


def join_configuration(text: str, discovery_path: str, ca_path: str) -> str:
    """Return the JoinConfiguration with its discovery section, which names a file.

    Args:
        text: the configuration of the document; other kinds than JoinConfiguration are left out.
        discovery_path: the discovery file on the host.
        ca_path: the cluster's CA certificate on the host.

    Raises:
        ValueError: there is no JoinConfiguration, or it has a discovery section of its own.
    """
    parts = [part for kind, part in split_documents(text) if kind == "JoinConfiguration"]
    if len(parts) != 1:
        raise ValueError("the configuration for a join needs exactly one JoinConfiguration")
    if re.search(r"^discovery:", parts[0], re.MULTILINE):
        raise ValueError("the discovery section is added on the host; leave it out")
    lines = ["discovery:", "  file:", f"    kubeConfigPath: {json.dumps(discovery_path)}"]
    if not re.search(r"^caCertPath:", parts[0], re.MULTILINE):
        lines.append(f"caCertPath: {json.dumps(ca_path)}")
    return parts[0] + "\n".join(lines) + "\n"


def discovery_file(endpoint: str, ca_pem: str, certificate_pem: str, key_pem: str) -> str:
    """Return the kubeconfig that kubeadm finds the cluster with.

    It carries a client certificate: with anonymous requests switched off the API server would answer 401 to a
    discovery without credentials, which kubeadm repeats until it times out, while a node gets 403 for
    cluster-info, and then kubeadm goes on with this file, whose CA it has verified (kubeadm 1.36 and 1.37,
    cmd/kubeadm/app/discovery/file). kubeadm hands the same credentials to the kubelet for TLS bootstrap.

    Args:
        endpoint: host:port of the API server.
        ca_pem: the cluster's CA certificate.
        certificate_pem: a certificate of this host, as the node that it will be.
        key_pem: its key.
    """
    cluster = {"server": f"https://{endpoint}", "certificate-authority-data": encoded(ca_pem)}
    user = {"client-certificate-data": encoded(certificate_pem), "client-key-data": encoded(key_pem)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "site", "cluster": cluster}],
        "users": [{"name": "join", "user": user}],
        "contexts": [{"name": "join", "context": {"cluster": "site", "user": "join"}}],
        "current-context": "join",
    }
    return json.dumps(config) + "\n"


def encoded(text: str) -> str:
    """Return a text as a kubeconfig holds it."""
    return base64.b64encode(text.encode()).decode()


def server_of(kubeconfig: t.Optional[str]) -> str:
    """Return host:port of the API server a kubeconfig names, "" if it names none."""
    match = SERVER.search(kubeconfig or "")
    return match.group(1).rstrip("/") if match else ""


def kubernetes_version(text: str) -> str:
    """Return the ClusterConfiguration's version without its "v", "" if it states none."""
    match = VERSION.search(text)
    return match.group(1) if match else ""


def wanted_version(spec: t.Mapping[str, t.Any]) -> str:
    """Return the version that a kubeadm resource asks for, "" for any."""
    configured = kubernetes_version(spec["config"]) if spec["role"] == "control_plane" else ""
    return str(spec.get("version") or configured)


def remembered_version(note: t.Mapping[str, t.Any]) -> str:
    """Return the version that the engine remembers of a host, "" if it does not."""
    return str(note.get("version") or kubernetes_version(note.get("config", "")))


def certificate_names(text: str) -> str:
    """Return the text that names the API server's certificate: certSANs and controlPlaneEndpoint."""
    names = re.findall(r"certSANs:[ \t]*(\[[^\]]*\]|(?:\n[ \t]*-[^\n]*)*)", text)
    endpoint = re.findall(r"^controlPlaneEndpoint:[^\n]*", text, re.MULTILINE)
    return "\n".join(" ".join(found.split()) for found in names + endpoint)


REMEDIES = (
    (r"no space left on device", "Make room on this host's file systems (df -h, df -i), and run again."),
    (
        r"certificate has expired or is not yet valid",
        "Compare this host's clock with the API server's. If they agree, renew: playbooks/certs_renew.yml.",
    ),
    (
        r"(upload-config|addon|mark-control-plane|upgrade|preupgrade)\b.*unauthorized",
        "The certificate in admin.conf has expired, or is another authority's: playbooks/certs_renew.yml.",
    ),
    (
        r"unauthorized",
        "The certificate for the join has expired, or the cluster's authority is another: run again.",
    ),
    (
        r"already exists in the cluster",
        "A node of this name is still Ready: delete it, or wait a minute if it was this host.",
    ),
    (
        r"i/o timeout|connection refused|no route to host|deadline exceeded|unreachable|no such host",
        "The API endpoint cannot be reached from here: check link, load balancer and name, and run again.",
    ),
    (
        r"certificate signed by unknown authority",
        "The API endpoint presents a certificate of another CA: check the endpoint and the PKI store.",
    ),
    (
        r"etcd",
        "Check that etcd is healthy and this host's etcd client certificate is valid, and run again.",
    ),
    (r"\[ERROR", "Correct what the preflight check names, and run again."),
)


def explain(output: str) -> str:
    """Return the lines of kubeadm's output that say what went wrong, at most a dozen."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("error", "[ERROR", "error:")) or "\t[ERROR" in line]
    for number, line in enumerate(lines):
        # "error execution phase X: ..." may go on in the next lines.
        if line.startswith("error execution phase"):
            telling += [other for other in lines[number + 1 : number + 6] if other not in telling]
    advice = ("To see the stack trace", "[preflight] If you know what you are doing")
    telling = [line for line in telling if not line.startswith(advice)]
    return "\n".join((telling or lines[-5:])[:12]) or "it gave no reason"


def remedy_for(output: str) -> str:
    """Return what usually helps against an error of kubeadm."""
    for pattern, remedy in REMEDIES:
        if re.search(pattern, output, re.IGNORECASE):
            return remedy
    return "Read 'journalctl -u kubelet' on the host, correct the cause, and run again."
