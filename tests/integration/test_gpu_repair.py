# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The repair of GPU nodes: the program itself, with its own certificate, at a real kube-apiserver and etcd.

The test is the node: with a kubelet's certificate it writes what the agent would, and says that it has
started again. No kubelet runs, so evicted pods are gone at once.
"""

from __future__ import annotations

import base64
import datetime
import json
import signal
import subprocess
import sys
import time
import typing as t
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import apply_objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    certificates,
    generate_key_file,
    open_store,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import Templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from cryptography.x509.oid import ExtendedKeyUsageOID

from ironspan.cli import main as command
from ironspan.gpu_repair import model
from ironspan.gpu_repair.model import State
from ironspan.gpu_repair.reading import node_of
from ironspan.lab.ports import free_port

from .loopback_cluster import Control, find_programs, running

pytestmark = [pytest.mark.lab, pytest.mark.long]
NODES = {"gpu-1": "rack-1", "gpu-2": "rack-2", "gpu-3": "rack-3"}
DRIVER, GPU = "580.95.05", "GPU-1"
GATE = {"key": model.PREFLIGHT_TAINT, "value": "pending", "effect": "NoSchedule"}
OTHER = {"key": "team", "value": "a", "effect": "NoSchedule"}


class ByAddress(Control):
    """A control plane whose server is known by its address, too, as kubeadm's are."""

    def issue(self, name: str, names: certificates.Names, usage: t.Any) -> tuple[Path, Path]:
        """Make a certificate."""
        named = names._replace(ips=[self.address]) if name == "server" else names
        return super().issue(name, named, usage)


class Site:
    """A control plane, its GPU nodes, and controllers."""

    def __init__(self, control: Control) -> None:
        self.control, self.admin = control, control.api(patience=10)
        self.kubelets = {name: self.user(f"system:node:{name}", "system:nodes") for name in NODES}
        self.boots = dict.fromkeys(NODES, 0)
        self.controllers: list[subprocess.Popen[bytes]] = []
        self.settings = control.folder / "gpu-repair.json"
        self.metrics = free_port("127.0.0.1")

    def user(self, name: str, *groups: str) -> Api:
        """Return a client with a certificate of that name."""
        certificate, key = self.issue(name, *groups)
        context = client_context(
            self.control.store.ca("kubernetes").certificate_pem,
            certificate.read_text(),
            key.read_text(),
            self.control.folder / "tmp",
        )
        server = f"https://{self.control.address}:{self.control.api_port}"
        return Api(server, context, "api.test.internal", 10)

    def issue(self, name: str, *groups: str) -> tuple[Path, Path]:
        """Make a client certificate."""
        names = certificates.Names(name, groups)
        return self.control.issue(name.replace(":", "-"), names, ExtendedKeyUsageOID.CLIENT_AUTH)

    def node(self, name: str) -> Object:
        """Return a Node object."""
        return self.admin.get(f"/api/v1/nodes/{name}")

    def state(self, name: str) -> State:
        """Return where a node is."""
        return node_of(self.node(name), "", ()).state

    def taints(self, name: str) -> dict[str, str]:
        """Return the taints of a node, without Kubernetes' own, which have no value."""
        taints = self.node(name)["spec"].get("taints", ())
        return {each["key"]: each["value"] for each in taints if "value" in each}

    def until(self, what: t.Callable[[], bool], seconds: float = 180) -> float:
        """Wait until something is so; return how long that took."""
        begun = time.monotonic()
        while not what():
            if time.monotonic() - begun > seconds:
                log = (self.control.folder / "gpu-repair.log").read_text()[-3000:]
                states = {
                    name: self.node(name)["metadata"]["annotations"].get(model.RECORD) for name in NODES
                }
                pytest.fail(f"it is not so after {seconds} s: {states}\n{log}")
            time.sleep(0.1)
        return time.monotonic() - begun

    def is_in(self, name: str, state: State) -> t.Callable[[], bool]:
        """Return the question whether a node is in a state."""
        return lambda: self.state(name) is state

    # -- what a node does ---------------------------------------------------------------------------

    def register(self, name: str) -> None:
        """Register a node with its taint, as its kubelet does."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"taints": [GATE, OTHER]},
        }
        self.kubelets[name].request("POST", "/api/v1/nodes", body)
        self.report(name, {"type": "Ready", "status": "True"})
        self.see(name)

    def report(self, name: str, *conditions: Object) -> None:
        """Write conditions and the boot id, as kubelet and agent do."""
        path = f"/api/v1/nodes/{name}/status"
        there = {each["type"]: each for each in self.node(name)["status"].get("conditions", ())}
        now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
        for each in conditions:
            times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
            there[each["type"]] = {"reason": "Test", "message": "", **times, **each}
        empty = dict.fromkeys(
            (
                "machineID",
                "systemUUID",
                "kernelVersion",
                "osImage",
                "containerRuntimeVersion",
                "kubeletVersion",
            ),
            "x",
        )
        info = {**empty, "bootID": self.boot(name), "kubeProxyVersion": "", "operatingSystem": "linux"}
        status = {"conditions": list(there.values()), "nodeInfo": {**info, "architecture": "amd64"}}
        self.kubelets[name].merge(path, {"status": status})

    def annotate(self, name: str, **values: t.Any) -> None:
        """Write annotations with the kubelet's certificate."""
        texts = {model.PREFIX + key.replace("_", "-"): json.dumps(value) for key, value in values.items()}
        self.kubelets[name].merge(f"/api/v1/nodes/{name}", {"metadata": {"annotations": texts}})

    def boot(self, name: str) -> str:
        """Return its boot id."""
        return f"{name}-boot-{self.boots[name]}"

    def see(self, name: str) -> None:
        """Say which GPU there is."""
        gpu = {"uuid": GPU, "serial": f"S-{name}"}
        self.annotate(name, gpu_seen={"boot": self.boot(name), "driver": DRIVER, "gpus": [gpu]})

    def event(self, name: str, key: str) -> None:
        """Let something happen."""
        event = {"event": key, "gpu": GPU, "last": "now", "count": 1, "boot": self.boot(name)}
        self.annotate(name, gpu_events=[{**event, "detail": "fallen off the bus"}])

    def start_again(self, name: str) -> None:
        """Start the node again."""
        self.boots[name] += 1
        self.report(name)
        self.see(name)

    def preflight(self, name: str, passed: bool = True) -> None:
        """Run a preflight."""
        result = {"test": "A01", "gpu": GPU, "passed": passed}
        said = {"boot": self.boot(name), "driver": DRIVER, "passed": passed, "results": [result]}
        now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
        self.annotate(name, gpu_preflight={**said, "started": now, "ended": now})
        self.report(name, {"type": "GPUPreflight", "status": str(passed)})

    def asked(self, name: str) -> Object:
        """Return what the agent is asked to do."""
        text = self.node(name)["metadata"]["annotations"].get(model.ACTION, "{}")
        return t.cast("Object", json.loads(text))

    # -- controllers --------------------------------------------------------------------------------

    def write_settings(self, **more: t.Any) -> None:
        """Write what the role would, with times for a test."""
        certificate, key = self.issue("ironspan:gpu-repair")
        limits = {"settle_seconds": 3, "most_out_percent": 50, "most_out": 2, "most_at_once": 2}
        self.settings.write_text(
            json.dumps(
                {
                    "server": f"https://{self.control.address}:{self.control.api_port}",
                    "ca": str(self.control.folder / "api" / "ca.crt"),
                    "certificate": str(certificate),
                    "key": str(key),
                    "nodes": NODES,
                    "tests": "A01",
                    "classes": shipped().classes(),
                    "again": shipped().classes_again(),
                    "mode": "repair",
                    "empty_dir_data": "refuse",
                    "limits": limits,
                    "metrics": {"port": self.metrics},
                    **more,
                }
            )
        )

    def start_controller(self) -> subprocess.Popen[bytes]:
        """Start the program."""
        with (self.control.folder / "gpu-repair.log").open("ab") as log:
            program = [
                sys.executable,
                "-m",
                "ironspan.gpu_repair.main",
                "run",
                "--settings",
                str(self.settings),
            ]
            started = subprocess.Popen(program, stdout=log, stderr=log)
        self.controllers.append(started)
        return started

    def metric(self, name: str) -> float:
        """Return a metric of the controller."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return next(
            float(line.split()[-1]) for line in lines if line.startswith(f"ironspan_gpu_repair_{name} ")
        )

    def leads(self) -> bool:
        """Tell whether the controller acts; one that has just started does not answer yet."""
        try:
            return self.metric("leader") == 1
        except OSError:
            return False

    def alarm(self, action: str) -> None:
        """Raise or end etcd's alarm that its space is used up."""
        pool = urllib3.PoolManager(ssl_context=self.control.etcd_context())
        url = f"https://{self.control.members['etcd-1']}:{self.control.etcd_port}/v3/maintenance/alarm"
        members = pool.request("POST", url.replace("maintenance/alarm", "cluster/member/list"), body=b"{}")
        member = json.loads(members.data)["members"][0]["ID"]
        body = {"action": action, "memberID": member, "alarm": "NOSPACE"}
        answer = pool.request("POST", url, body=json.dumps(body).encode())
        assert answer.status == 200, answer.data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An API server with the role's objects and three nodes that have just registered."""
    folder = tmp_path_factory.mktemp("control")
    programs = find_programs(names=("etcd", "kube-apiserver"))
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    text = Templates(ROLES_FOLDER).get("gpu_repair/objects.yml.j2").render({"gpu_repair_enabled": True})
    with running(ByAddress(programs, store, folder)) as control:
        control.start_etcd("etcd-1")
        control.start_api(
            "--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount"
        )
        control.bind_administrators()
        api = control.api()
        control.wait(lambda: bool(api.get("/api/v1/namespaces/default")))
        control.wait(lambda: not apply_objects(api, list(yaml.safe_load(text))))
        made = Site(control)
        for name in NODES:
            made.register(name)
        control.wait(lambda: _refused(made, "gpu-1", {model.RECORD: str(time.time())}))
        made.write_settings()
        try:
            yield made
        finally:
            for process in made.controllers:
                process.kill()
                process.wait()


def _refused(site: Site, name: str, annotations: dict[str, str], user: Api | None = None) -> bool:
    """Tell whether the API server refuses annotations; the node has them where it does not."""
    try:
        (user or site.kubelets[name]).merge(
            f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotations}}
        )
    except ApiError as error:
        assert error.status in (403, 422), error
        return True
    return False


def test_nodes_get_in_by_their_preflight_alone(site: Site) -> None:
    """The taint with which they registered goes when the controller has seen the evidence."""
    # What the fixture tried before the policies were in force.
    site.admin.merge("/api/v1/nodes/gpu-1", {"metadata": {"annotations": {model.RECORD: None}}})
    site.start_controller()
    for name in NODES:
        site.until(site.is_in(name, State.TESTING))
        assert site.taints(name) == {model.PREFLIGHT_TAINT: "pending", "team": "a"}
    for name in NODES:
        site.preflight(name)
    for name in NODES:
        site.until(site.is_in(name, State.READY))
        assert site.taints(name) == {"team": "a"}
    assert site.leads()


def test_a_fault_is_repaired_although_the_controller_is_killed_in_the_middle(site: Site) -> None:
    """Cordon, a drain that a budget holds up, a reboot that is asked for once, a new boot, a preflight."""
    _pod(site, "gpu-1")
    site.event("gpu-1", "xid 79")
    took = site.until(lambda: model.REPAIR_TAINT in site.taints("gpu-1"))
    assert site.node("gpu-1")["spec"]["unschedulable"] is True
    print(f"\nfault to cordon: {took:.1f} s")
    site.until(site.is_in("gpu-1", State.DRAINING))
    time.sleep(5)
    held = "PodDisruptionBudget default/train allows no more"
    site.until(lambda: held in _told(site)["waiting"].get("gpu-1", ""))
    assert site.state("gpu-1") is State.DRAINING
    assert site.admin.find("/api/v1/namespaces/default/pods/train-0") is not None
    site.controllers[0].send_signal(signal.SIGKILL)
    site.controllers[0].wait()
    _budget(site, 1)
    time.sleep(2)
    assert site.state("gpu-1") is State.DRAINING
    killed = site.start_controller()
    site.until(site.is_in("gpu-1", State.REBOOTING))
    assert site.admin.find("/api/v1/namespaces/default/pods/train-0") is None
    asked = site.asked("gpu-1")
    assert asked["do"] == "reboot"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    site.start_controller()
    # An answer is no proof, and the one that follows does not ask again.
    site.annotate("gpu-1", gpu_action_done={"id": asked["id"], "ok": True})
    site.until(site.leads)
    time.sleep(5)
    assert site.state("gpu-1") is State.REBOOTING
    assert site.asked("gpu-1") == asked
    site.start_again("gpu-1")
    site.until(site.is_in("gpu-1", State.RETEST))
    site.preflight("gpu-1")
    site.until(site.is_in("gpu-1", State.READY))
    assert site.taints("gpu-1") == {"team": "a"}
    assert "unschedulable" not in site.node("gpu-1")["spec"]


def test_nothing_is_done_while_etcd_has_an_alarm(site: Site) -> None:
    """Its writes are refused, so the Lease is lost; what was due is done when the alarm is over."""
    site.event("gpu-2", "xid 95")
    site.until(lambda: site.state("gpu-2") in (State.SUSPECT, State.DRAINING))
    site.alarm("ACTIVATE")
    site.until(lambda: not site.leads())
    time.sleep(5)
    assert site.state("gpu-2") in (State.SUSPECT, State.DRAINING)
    before = site.node("gpu-2")["metadata"]["resourceVersion"]
    time.sleep(5)
    assert site.node("gpu-2")["metadata"]["resourceVersion"] == before
    site.alarm("DEACTIVATE")
    site.until(site.is_in("gpu-2", State.RESETTING))
    site.annotate("gpu-2", gpu_action_done={"id": site.asked("gpu-2")["id"], "ok": False, "detail": "busy"})
    site.until(lambda: len(_record(site, "gpu-2")["tries"]) == 2)
    assert [each["do"] for each in _record(site, "gpu-2")["tries"]] == ["reset", "reset"]
    # Half of three nodes is one: no other is taken out of service until this one is back.
    site.event("gpu-3", "xid 54")
    site.until(lambda: "gpu-3" in _told(site)["waiting"])
    assert "1 of 1 nodes are out of service" in _told(site)["waiting"]["gpu-3"]
    assert site.taints("gpu-3") == {"team": "a"}
    site.annotate("gpu-2", gpu_action_done={"id": site.asked("gpu-2")["id"], "ok": True})
    site.until(site.is_in("gpu-2", State.RETEST))
    site.preflight("gpu-2")
    site.until(site.is_in("gpu-2", State.READY))


def test_people_see_it_and_release_it_in_their_own_name(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands, with a personal kubeconfig; a node in triage passes its preflight again."""
    site.until(site.is_in("gpu-3", State.TRIAGE))
    config = _kubeconfig(site, "ann", "node-operators")
    assert command.main(["gpu", "status", "--kubeconfig", config]) == 0
    shown = capsys.readouterr().out
    assert "mode repair: 1 of at most 1 nodes out of service" in shown
    assert "gpu-3" in shown
    assert "rack-3" in shown
    assert "A4 xid 54" in shown
    assert command.main(["gpu", "why", "gpu-3", "--kubeconfig", config]) == 0
    assert "ironspan gpu release gpu-3" in capsys.readouterr().out
    file = site.control.folder / "gpu-3.md"
    assert command.main(["gpu", "dossier", "gpu-3", "--kubeconfig", config, "--output", str(file)]) == 0
    text = file.read_text()
    assert "S-gpu-3" in text
    assert "GpuRepairTriage" in text
    assert command.main(["gpu", "release", "gpu-1", "--reason", "x", "--kubeconfig", config]) == 2
    assert "only nodes in triage" in capsys.readouterr().err
    assert command.main(["gpu", "release", "gpu-3", "--reason", "reseated", "--kubeconfig", config]) == 0
    site.until(site.is_in("gpu-3", State.RETEST))
    assert _record(site, "gpu-3")["reason"] == "ann: reseated"
    assert command.main(["gpu", "storm", "--reason", "x", "--kubeconfig", config]) == 1
    assert "storm-release" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, "writes no labels"),
        ({"metadata": {"annotations": {"a": "b"}}}, "its own annotations and no others"),
        ({"metadata": {"annotations": {model.EVENTS: "[]"}}}, "its own annotations and no others"),
        ({"spec": {"taints": []}}, "its own taints and no others"),
        ({"spec": {"taints": [OTHER, {**OTHER, "key": "b"}]}}, "its own taints and no others"),
    ],
)
def test_the_controllers_certificate_is_good_for_its_own_marks_alone(
    site: Site, patch: Object, message: str
) -> None:
    """Nor for secrets, for pods, or for hosts that have no GPU."""
    stolen = site.user("ironspan:gpu-repair")
    with pytest.raises(ApiError, match=message):
        stolen.merge("/api/v1/nodes/gpu-1", patch)
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "az-1"}}
    if site.admin.find("/api/v1/nodes/az-1") is None:
        site.admin.request("POST", "/api/v1/nodes", body)
    with pytest.raises(ApiError, match="touches nodes with GPUs"):
        stolen.merge("/api/v1/nodes/az-1", {"spec": {"unschedulable": True}})
    for path in ("/api/v1/secrets", "/api/v1/namespaces/kube-system/configmaps", "/api/v1/nodes/az-1/proxy"):
        with pytest.raises(ApiError, match="403"):
            stolen.get(path)
    with pytest.raises(ApiError, match="403"):
        stolen.delete("/api/v1/nodes/gpu-1")


def test_a_node_neither_releases_itself_nor_writes_its_own_record(site: Site) -> None:
    """Nor does it remove its taint; a person releases in no other name."""
    kubelet = site.kubelets["gpu-2"]
    assert _refused(site, "gpu-2", {model.RECORD: "{}"})
    assert _refused(site, "gpu-2", {model.ACTION: "{}"})
    assert _refused(site, "gpu-2", {model.RELEASE: "{}", model.RELEASED_BY: "system:node:gpu-2"})
    with pytest.raises(ApiError):
        kubelet.merge("/api/v1/nodes/gpu-2", {"spec": {"taints": [OTHER]}})
    status = {"metadata": {"annotations": {model.RECORD: "{}"}}}
    with pytest.raises(ApiError, match="controller of repairs alone"):
        kubelet.merge("/api/v1/nodes/gpu-2/status", status)
    _operator(site)
    bob = site.user("bob", "node-operators")
    assert _refused(site, "gpu-2", {model.RELEASE: "{}", model.RELEASED_BY: "ann"}, bob)
    assert not _refused(site, "gpu-2", {model.RELEASE: "{}", model.RELEASED_BY: "bob"}, bob)


def _told(site: Site) -> Object:
    found = site.admin.get("/api/v1/namespaces/ironspan-gpu/configmaps/gpu-repair-status")
    return t.cast("Object", json.loads(found["data"]["status"]))


def _record(site: Site, name: str) -> Object:
    return t.cast("Object", json.loads(site.node(name)["metadata"]["annotations"][model.RECORD]))


def _pod(site: Site, node: str) -> None:
    """Let a pod of a job run on a node, with a budget that holds it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-0", "labels": {"app": "train"}, "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "x"}],
        },
    }
    site.admin.request("POST", "/api/v1/namespaces/default/pods", pod)
    path = "/api/v1/namespaces/default/pods/train-0/status"
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    site.kubelets[node].merge(path, {"status": ready})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "train"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}},
    }
    site.admin.request("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    _budget(site, 0)


def _budget(site: Site, allowed: int) -> None:
    """Say what the disruption controller would, which does not run here."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/train/status"
    counts = {"currentHealthy": 1, "desiredHealthy": 1 - allowed, "expectedPods": 1, "observedGeneration": 1}
    site.admin.merge(path, {"status": {**counts, "disruptionsAllowed": allowed}})


def _operator(site: Site) -> None:
    """Give the group node-operators what the role of that name has for nodes."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "node-operators"}}
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
        {"apiGroups": [""], "resources": ["events", "configmaps"], "verbs": ["get", "list"]},
    ]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "node-operators"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "node-operators"}
    made = [
        {**rbac, "kind": "ClusterRole", "rules": rules},
        {**rbac, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    ]
    apply_objects(site.admin, made)


def _kubeconfig(site: Site, name: str, group: str) -> str:
    _operator(site)
    certificate, key = site.issue(name, group)
    authority = site.control.store.ca("kubernetes").certificate_pem
    server = f"https://{site.control.address}:{site.control.api_port}"
    cluster = {
        "server": server,
        "tls-server-name": "api.test.internal",
        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
    }
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    file = site.control.folder / f"{name}.conf"
    file.write_text(json.dumps(config))
    return str(file)
