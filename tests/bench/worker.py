# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a simulated worker starts as, and the mirror it gets its (small) artefacts from."""

from __future__ import annotations

import base64
import collections.abc
import functools
import hashlib
import io
import json
import os
import pathlib
import shutil
import sys
import tarfile
import typing as t

import yaml

from tests.bench.fleet import Fleet
from tests.bench.hosts import ROOT, Cost, Hosts

PROGRAMS = pathlib.Path(__file__).with_name("programs")

PORT = 8080
"""Of the mirror."""

PLAYBOOK = """\
- import_playbook: {playbooks}/validate.yml
  vars: {{__ironspan_purpose: apply}}

- name: assess
  hosts: nodes
  gather_facts: false
  tasks:
    - name: Compare with the whole document
      ironspan.hybrid.converge: {{mode: assess, root: "{{{{ user_root }}}}"}}

- name: prepare
  hosts: nodes:&__ironspan_pending
  gather_facts: false
  tasks:
    - name: Converge the layers that need no credentials
      ironspan.hybrid.converge:
        layers: [base, egress, containerd, flannel, gvisor, haproxy, node]
        root: "{{{{ user_root }}}}"

- name: nodes
  hosts: nodes:&__ironspan_pending_node
  gather_facts: false
  tasks:
    - name: Sign what the hosts asked for, each for itself
      ironspan.hybrid.join_certificates:
        hosts: "{{{{ ansible_play_hosts }}}}"
      run_once: true

    - name: Converge the kubelet and join
      ironspan.hybrid.converge:
        layers: [node]
        inputs: {{join: "yes"}}
        root: "{{{{ user_root }}}}"
"""
"""The phases of site.yml that run on a worker; what talks to the cluster's API is not simulated."""

PING = "- {hosts: nodes, gather_facts: false, tasks: [{ansible.builtin.ping: }]}\n"

FILES = {
    "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/hostname": "simulated\n",
    "etc/fstab": "/dev/vda1 / ext4 defaults 0 1\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n",
    "etc/group": "root:x:0:\n",
    "proc/swaps": "Filename Type Size Used Priority\n",
    "proc/meminfo": "MemTotal: 65536000 kB\n",
    "proc/modules": "overlay 1 0 - Live 0x0\nbr_netfilter 1 0 - Live 0x0\nvxlan 1 0 - Live 0x0\n",
    "proc/uptime": "1000.0 1000.0\n",
    "proc/sys/kernel/osrelease": "6.12.0-amd64\n",
    "proc/sys/kernel/hostname": "simulated\n",
    "proc/sys/net/ipv4/ip_forward": "0\n",
    "proc/sys/net/bridge/bridge-nf-call-iptables": "0\n",
    "proc/sys/net/bridge/bridge-nf-call-ip6tables": "0\n",
    "proc/sys/user/max_user_namespaces": "515207\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu io memory pids\n",
}
FOLDERS = (
    "run", "etc/systemd/system", "etc/sysctl.d", "etc/modules-load.d", "opt", "var/lib/dpkg",
    "var/lib/kubelet", "usr/local/bin", "usr/local/sbin", "usr/local/ironspan-test-bin",
)  # fmt: skip


def defaults(role: str) -> dict[str, t.Any]:
    """Return the defaults of a role."""
    return dict(yaml.safe_load((ROOT / "roles" / role / "defaults" / "main.yml").read_text()))


def make_root(root: pathlib.Path) -> None:
    """Make the folder of a host that has just been installed."""
    for path, text in FILES.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    names = [*defaults("base")["base_packages"], *(f"package-{index}" for index in range(400))]
    (root / "var/lib/dpkg/list").write_text("".join(f"{name}\tii \t1.0-1\n" for name in names))
    for program in PROGRAMS.iterdir():
        # not links: the programs find their host's folder by their own path
        shutil.copy(program, root / "usr/local/ironspan-test-bin" / program.name)


def archive(members: t.Iterable[str]) -> bytes:
    """Return a gzipped tar of small programs."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as file:
        for name in members:
            item = tarfile.TarInfo(name)
            item.size, item.mode = 4096, 0o755
            file.addfile(item, io.BytesIO(name.encode().ljust(4096)))
    return stream.getvalue()


def make_mirror(folder: pathlib.Path) -> pathlib.Path:
    """Fill a folder with small artefacts under the real names; return the path of its index."""
    containerd, flannel, gvisor, site = (
        defaults(role) for role in ("containerd", "flannel", "gvisor", "site")
    )
    kubernetes = site["site_kubernetes_version"]
    contents: dict[str, tuple[str, bytes]] = {
        name: (kubernetes, f"program {name}\n".encode() * 200) for name in ("kubeadm", "kubelet", "kubectl")
    }
    daemons = ("containerd", "containerd-shim-runc-v2", "ctr")
    contents |= {
        "containerd": (containerd["containerd_version"], archive(f"bin/{name}" for name in daemons)),
        "runc": (containerd["containerd_runc_version"], b"program runc\n"),
        "cni-plugins": (
            containerd["containerd_cni_version"],
            archive(f"./{name}" for name in containerd["containerd_cni_plugins"]),
        ),
        "flannel-cni": (flannel["flannel_cni_version"], archive(["./flannel"])),
        "runsc": (gvisor["gvisor_version"], b"program runsc\n"),
        "containerd-shim-runsc-v1": (gvisor["gvisor_version"], b"program shim\n"),
        "etcd": (defaults("etcd")["etcd_version"], archive(["etcd/etcd", "etcd/etcdctl", "etcd/etcdutl"])),
    }
    artifacts = {}
    for name, (version, content) in contents.items():
        path = f"/bench/{name}-{version}"
        (folder / "bench").mkdir(parents=True, exist_ok=True)
        (folder / path.lstrip("/")).write_bytes(content)
        artifacts[f"{name}/{version}/amd64"] = {
            "name": name,
            "version": version,
            "arch": "amd64",
            "path": path,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
        }
    coredns = defaults("control_plane")["control_plane_coredns_version"]
    references = [
        *(f"registry.k8s.io/kube-{name}:v{kubernetes}" for name in ("proxy", "apiserver", "scheduler")),
        f"registry.k8s.io/kube-controller-manager:v{kubernetes}",
        f"registry.k8s.io/pause:{containerd['containerd_pause_version']}",
        f"registry.k8s.io/coredns/coredns:v{coredns}",
        f"ghcr.io/flannel-io/flannel:v{flannel['flannel_version']}",
        "docker.io/library/busybox:1.37.0",
    ]
    images = {
        reference: {"digest": "sha256:" + hashlib.sha256(reference.encode()).hexdigest(), "size": 1}
        for reference in references
    }
    index = folder / "index.json"
    index.write_text(json.dumps({"schema": 1, "artifacts": artifacts, "images": images}))
    return index


def variables(folder: pathlib.Path) -> dict[str, t.Any]:
    """Make mirror and keys of a site of many workers, and return the site's variables.

    Args:
        folder: where they are put.
    """
    index = make_mirror(folder / "mirror")
    key = folder / "pki.key"
    if not key.exists():
        key.write_text(base64.b64encode(os.urandom(32)).decode())
        key.chmod(0o600)
    return {
        "site_name": "bench",
        "site_api_endpoint": "10.20.0.11:8443",
        "site_api_address": "10.20.0.11",
        "site_pod_cidr": "10.244.0.0/14",
        "site_mirror_url": f"http://127.0.0.1:{PORT}",
        "site_artifacts_index": str(index),
        "site_pki_store": str(folder / "pki"),
        "site_pki_key_file": str(key),
    }


def prepare(hosts: Hosts, **more: t.Any) -> collections.abc.Callable[..., Cost]:
    """Write inventory and playbook of a site of many workers; return what runs the playbook.

    Args:
        hosts: the workers.
        more: variables of the site.
    """
    core = {"core-1": {"ansible_host": "10.20.0.11"}}
    inventory = hosts.inventory(
        variables(hosts.folder) | more,
        {"nodes": hosts.names, "on_prem": hosts.names, "gvisor": hosts.names},
        dict.fromkeys(("azure", "etcd", "control_plane", "haproxy"), core),
    )
    playbook = hosts.folder / "bench.yml"
    playbook.write_text(PLAYBOOK.format(playbooks=ROOT / "playbooks"))
    ping = hosts.folder / "ping.yml"
    ping.write_text(PING)
    return functools.partial(hosts.play, playbook, inventory)


PING_RUN_S, PING_CONTROLLER_S, PING_TARGET_S = 0.5, 0.035, 0.2
"""What ansible.builtin.ping costs where the budgets were set, an otherwise idle machine: the start of a run,
the controller's side of one host, and the host's side with its SSH session. CPU-seconds differ between
machines and stretch when neighbours are busy; the same ping in the same run tells by how much."""


def pinged(hosts: Hosts) -> Cost:
    """Run ``ansible.builtin.ping`` on all hosts that were prepared."""
    return hosts.play(
        hosts.folder / "ping.yml", hosts.folder / "hosts.yml", environment={"IRONSPAN_BENCH_SCENE": "ping"}
    )


def serve_mirror(fleet: Fleet) -> None:
    """Start the mirror of a site that was prepared."""
    folder = str(fleet.folder / "mirror")
    fleet.serve(sys.executable, "-m", "http.server", "-d", folder, "-b", "127.0.0.1", str(PORT))
