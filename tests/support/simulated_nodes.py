# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Operations on workers of a simulated site: their playbooks, and an API with kubelets and pods."""

from __future__ import annotations

import shutil
import tempfile
import typing as t
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store

from tests.support.fake_api import NODES, FakeApi, Joins, Object, server_files
from tests.support.playbooks import ROOT
from tests.support.ports import free_network
from tests.support.simulated_site import API_NAME, ROLES, SimulatedSite

PODS = "/api/v1/pods"
BOOT = Path("/proc/sys/kernel/random/boot_id")
KUBELET = 10250
"""Its port."""
_NETWORK = free_network(KUBELET)
LOOPBACK = {name: f"{_NETWORK}.{number}" for number, name in enumerate(("a1", "w1", "w2"), 1)}
"""Addresses that a test may try to reach a kubelet at; nobody answers there but where this process lets one.
Each process has its own: what is asked here is no answer to what another one asks at the same time."""


def plays_of(name: str, variables: Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return a playbook with everything it imports as one list of plays, for hosts that are private roots."""
    plays: list[dict[str, t.Any]] = []
    for entry in yaml.safe_load((ROOT / "playbooks" / name).read_text()):
        inner = {**variables, **entry.get("vars", {})}
        if "ansible.builtin.import_playbook" in entry:
            plays += plays_of(entry["ansible.builtin.import_playbook"], inner)
            continue
        for task in entry["tasks"]:
            for action in ("ironspan.hybrid.converge", "ironspan.hybrid.validate", "ironspan.hybrid.attest"):
                if action in task:
                    task[action]["roles_folder"] = str(ROLES)
            if "ironspan.hybrid.converge" in task:
                task["ironspan.hybrid.converge"]["root"] = "{{ user_root }}"
        plays.append({**entry, "vars": inner})
    return plays


class Site(SimulatedSite):
    """A simulated site on which operations can be run."""

    def __init__(self, folder: Path, store: Path, address: str, port: int) -> None:
        super().__init__(folder, store, address, port)
        inventory = yaml.safe_load((folder / "hosts.yml").read_text())
        for name, entry in inventory["all"]["hosts"].items():
            entry["site_address"] = LOOPBACK[name]
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))
        self.site_playbook = (folder / "site.yml").read_text()

    def new_machine(self, name: str) -> None:
        """Put a bare machine in the place of a host."""
        shutil.rmtree(self.root(name))
        self._make_root(name)

    def choose(self, operation: str, **variables: t.Any) -> None:
        """Let the next runs be an operation; ``site`` is site.yml."""
        text = self.site_playbook
        if operation != "site":
            text = yaml.safe_dump(plays_of(f"{operation}.yml", variables), sort_keys=False)
        (self.folder / "site.yml").write_text(text)


class NodeApi(FakeApi):
    """An API whose nodes are Ready when the kubelet of their host runs, and whose pods can be evicted.

    A pod that is evicted starts again on w2, if it has a controller.
    """

    roots: Path

    def __init__(self, *arguments: t.Any) -> None:
        super().__init__(*arguments)
        self.dead: set[str] = set()
        """Hosts that the cluster has not heard of for a while."""

    def add_pod(self, name: str, node: str, *, lonely: bool = False) -> None:
        """Add a pod of some controller, or of none."""
        self.objects[f"{PODS}/{name}"] = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}-{node}",
                "ownerReferences": []
                if lonely
                else [{"kind": "ReplicaSet", "name": "front", "controller": True}],
            },
            "spec": {"nodeName": node},
            "status": {"phase": "Running"},
        }

    def pods(self) -> dict[str, str]:
        """Return the node of each pod."""
        return {
            body["metadata"]["name"]: body["spec"]["nodeName"]
            for path, body in self.objects.items()
            if path.startswith(f"{PODS}/")
        }

    def _pod_goes(self, name: str, status: int) -> tuple[int, Object]:
        pod = self.objects.pop(f"{PODS}/{name}", None)
        if pod is None:
            return 404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": f"{name} not found"}
        if pod["metadata"]["ownerReferences"]:
            # Its controller makes it again elsewhere.
            self.add_pod(name, "w2")
        return status, {"kind": "Status", "status": "Success"}

    def _look(self) -> None:
        super()._look()
        for path, node in self.objects.items():
            folder, _, name = path.rpartition("/")
            if folder != NODES:
                continue
            runs = (self.roots / name / "run/units/kubelet.service.active").exists()
            ready = "Unknown" if name in self.dead else "True" if runs else "False"
            node.setdefault("spec", {})
            if "uid" not in node["metadata"]:
                node["metadata"]["uid"] = f"uid-{len(self.asked)}"
            node["status"] = {
                "conditions": [{"type": "Ready", "status": ready}],
                "addresses": [{"type": "InternalIP", "address": LOOPBACK[name]}],
                "nodeInfo": {"kubeletVersion": "v1.36.4", "bootID": BOOT.read_text().strip()},
            }

    def _do(
        self, method: str, path: str, body: Object | None, query: Mapping[str, str], kind: str
    ) -> tuple[int, t.Any]:
        if path == PODS:
            node = query["fieldSelector"].removeprefix("spec.nodeName=")
            return 200, {
                "items": [self.objects[f"{PODS}/{pod}"] for pod, on in self.pods().items() if on == node]
            }
        if method == "DELETE" and path.startswith(f"{NODES}/"):
            # Another machine gets the name.
            self.dead.discard(path.rpartition("/")[2])
        if method == "DELETE" and "/pods/" in path:
            return self._pod_goes(path.rpartition("/")[2], 200)
        if path.endswith("/eviction"):
            return self._pod_goes(path.split("/")[-2], 201)
        return super()._do(method, path, body, query, kind)


@contextmanager
def node_api(store: Store, site: Site, address: str, port: int) -> Iterator[NodeApi]:
    """Serve the API of a site."""
    joins = Joins(site.folder / "api", LOOPBACK)
    with tempfile.TemporaryDirectory(prefix="isf-") as folder:
        certificate = server_files(store, Path(folder), API_NAME)
        api = NodeApi(certificate, store.ca("kubernetes").certificate_pem, joins, address, port)
        api.roots = site.folder / "roots"
        with api:
            yield api
