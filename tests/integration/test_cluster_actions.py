# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The actions and the lookup, run by ansible-playbook against a real API server without kubelets."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.always import KEEPERS, always
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import smoke
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from .loopback_cluster import VERSION, Control, address_on_loopback, find_programs, running
from .test_cluster_api import CSRS, send, signing_request, user_api

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parents[2]
ADDRESSES = {"az-1": "", "rack-1": "10.98.1.11", "rack-2": "10.98.1.12"}
SPACES = "/api/v1/namespaces"
SELECTOR = "app.kubernetes.io/name=ironspan-verify"


class Site(t.NamedTuple):
    control: Control
    inventory: Path
    addresses: dict[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose control plane runs on loopback, with Node objects and nobody behind them."""
    folder = tmp_path_factory.mktemp("site")
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    programs = find_programs()
    with (
        address_on_loopback() as network,
        running(Control(programs, store, folder, network=network)) as control,
    ):
        control.members = {"az-1": control.address}
        control.start_etcd("az-1")
        control.start_api()
        control.start_controllers()
        control.bind_administrators()
        addresses = {**ADDRESSES, "az-1": control.address}
        for name, address in addresses.items():
            make_node(control.api(), name, address)
        yield Site(control, inventory(folder, control, addresses), addresses)


def inventory(folder: Path, control: Control, addresses: dict[str, str]) -> Path:
    hosts = {name: {"ansible_host": address} for name, address in addresses.items()}
    hosts["rack-1"]["site_labels"] = {"gpu": "none"}  # type: ignore[assignment]
    hosts["rack-1"]["site_taints"] = [{"key": "tests", "effect": "NoSchedule"}]  # type: ignore[assignment]
    racks: Object = {name: {} for name in ("rack-1", "rack-2")}
    content = {
        "all": {
            "vars": {
                "site_name": "loopback",
                "site_api_endpoint": control.endpoint,
                "site_api_address": control.address,
                "site_pki_store": str(control.store.path),
                "site_pki_key_file": str(folder / "pki.key"),
                "site_mirror_url": "http://10.98.0.1:8080",
            },
            "children": {
                "azure": {"hosts": {"az-1": hosts["az-1"]}},
                "on_prem": {"hosts": {name: hosts[name] for name in racks}},
                "etcd": {"hosts": {"az-1": {}}},
                "control_plane": {"hosts": {"az-1": {}}},
                "nodes": {"hosts": racks},
                "gvisor": {"hosts": {"rack-1": {}}},
            },
        }
    }
    path = folder / "inventory" / "hosts.yml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(content))
    return path


def make_node(api: Api, name: str, address: str, ready: str = "True") -> None:
    if api.find(f"/api/v1/nodes/{name}") is None:
        api._json("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    info = dict.fromkeys(
        ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "operatingSystem", "architecture"),
        "x",
    )
    info |= {"kubeletVersion": f"v{VERSION}", "containerRuntimeVersion": "c", "kubeProxyVersion": ""}
    status = {
        "conditions": [{"type": "Ready", "status": ready, "message": "stopped by the test"}],
        "nodeInfo": info,
        "addresses": [{"type": "InternalIP", "address": address}],
    }
    api.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, "application/merge-patch+json")


def playbook(site: Site, tasks: list[Object], *options: str) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a playbook with these tasks on localhost."""
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    play["vars"] = {"ansible_python_interpreter": sys.executable}
    path = site.inventory.parent.parent / f"play-{time.monotonic_ns()}.yml"
    path.write_text(json.dumps([play]))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(site.inventory), str(path)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")}
    environment |= {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return [*command, *options], environment


def command(site: Site, inventories: Sequence[Path], *words: str, code: int = 0) -> str:
    """Run a command of ironspan; return what it says.

    Args:
        site: whose cluster it is.
        inventories: all that it gets.
        words: the command and its options.
        code: with which it has to end.
    """
    call = [str(Path(sys.executable).with_name("ironspan")), *words]
    for path in inventories:
        call += ["-i", str(path)]
    done = subprocess.run(
        call,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", "XDG_STATE_HOME": str(site.control.folder / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def run(site: Site, tasks: list[Object], *options: str, status: int = 0) -> str:
    command, environment = playbook(site, tasks, *options)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == status, text
    return text


def changed(text: str) -> int:
    return int(re.findall(r"changed=(\d+)", text)[-1])


# -- joining ---------------------------------------------------------------------------------------

READY: list[Object] = [{"ironspan.hybrid.join_ready": {"hosts": []}, "register": "ready"}]
APPROVE = "system:certificates.k8s.io:certificatesigningrequests"
OF_TOKENS = {
    "kubeadm:get-nodes": "kubeadm:get-nodes",
    "kubeadm:kubelet-bootstrap": "system:node-bootstrapper",
    "kubeadm:node-autoapprove-bootstrap": f"{APPROVE}:nodeclient",
}
"""What kubeadm binds to the group of its tokens."""
TOKENS = "system:bootstrappers:kubeadm:default-node-token"
RBAC = "rbac.authorization.k8s.io"


def test_ready_for_a_batch(site: Site) -> None:
    assert changed(run(site, READY, "--check")) == 0
    assert changed(run(site, READY)) == 1
    told: Object = {"ansible.builtin.assert": {"that": ["ready.at_once > 0"], "quiet": True}}
    assert changed(run(site, [*READY, told])) == 0


def test_unknown_argument_is_refused(site: Site) -> None:
    assert "minuets" in run(site, [{"ironspan.hybrid.join_ready": {"hosts": [], "minuets": 5}}], status=2)


def client_request(api: Api, node: str) -> str:
    signer = "kubernetes.io/kube-apiserver-client-kubelet"
    usages = ["digital signature", "client auth"]
    return send(api, signing_request(node, [], names=[], signer=signer, usages=usages))


def test_what_kubeadm_lets_holders_of_tokens_do_is_taken_away(site: Site) -> None:
    api = site.control.api()
    for name, role in OF_TOKENS.items():
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": TOKENS}],
        }
        # As kubeadm does it, who is another owner.
        api._json("POST", f"/apis/{RBAC}/v1/clusterrolebindings", binding)
    holder = user_api(site.control, "system:bootstrap:abcdef", [TOKENS])
    # The API server hears of the bindings a moment after it has answered.
    stolen = site.control.wait(lambda: client_request(holder, "rack-2"))
    # This is what an attacker on a host that was sent such a token could do.
    site.control.wait(lambda: bool(api.get(f"{CSRS}/{stolen}")["status"].get("certificate")))

    task: list[Object] = [{"ironspan.hybrid.cluster_objects": {"layers": ["control_plane"]}}]
    shown = run(site, task, "--check", "--diff")
    assert changed(shown) == 1
    assert "ClusterRoleBinding kubeadm:node-autoapprove-bootstrap" in shown
    assert f"-  name: {TOKENS}" in shown
    assert changed(run(site, task)) == 1
    assert changed(run(site, task)) == 0
    for name in OF_TOKENS:
        assert not api.get(f"/apis/{RBAC}/v1/clusterrolebindings/{name}").get("subjects")

    def refused() -> bool:
        try:
            api.delete(f"{CSRS}/{client_request(holder, 'rack-2')}")
        except ApiError as error:
            return error.status == 403
        return False

    site.control.wait(refused)
    api.delete(f"{CSRS}/{stolen}")


# -- serving certificates --------------------------------------------------------------------------


def test_requests_are_decided_by_the_inventory(site: Site) -> None:
    api = site.control.api()
    right = user_api(site.control, "system:node:rack-1", ["system:nodes"])
    wrong = user_api(site.control, "system:node:rack-2", ["system:nodes"])
    good = send(right, signing_request("rack-1", [ADDRESSES["rack-1"]]))
    task: list[Object] = [
        {"ironspan.hybrid.approve_kubelet_certificates": {"hosts": ["rack-1"], "timeout": 120}}
    ]
    assert changed(run(site, task, "--check")) == 1
    assert not api.get(f"{CSRS}/{good}")["status"].get("conditions")
    assert changed(run(site, task)) == 1
    assert api.get(f"{CSRS}/{good}")["status"]["conditions"][0]["type"] == "Approved"
    assert changed(run(site, task)) == 0
    bad = send(wrong, signing_request("rack-2", [ADDRESSES["rack-1"]]))
    task[0]["ironspan.hybrid.approve_kubelet_certificates"]["hosts"] = ["rack-2"]
    text = run(site, task, status=2)
    assert "The request of rack-2 was denied" in text
    assert "Make the inventory and the host agree" in text
    assert api.get(f"{CSRS}/{bad}")["status"]["conditions"][0]["type"] == "Denied"


def test_unknown_host_is_refused(site: Site) -> None:
    task: list[Object] = [{"ironspan.hybrid.approve_kubelet_certificates": {"hosts": ["rack-9"]}}]
    assert "hosts has rack-9; list hosts of the groups" in run(site, task, status=2)


# -- labels and taints -----------------------------------------------------------------------------


def test_labels_and_taints_of_the_inventory(site: Site) -> None:
    task: list[Object] = [{"ironspan.hybrid.node_metadata": None}]
    text = run(site, task, "--check", "--diff")
    assert changed(text) == 1
    assert '+    "gpu": "none"' in text
    api = site.control.api()
    assert "gpu" not in api.get("/api/v1/nodes/rack-1")["metadata"].get("labels", {})
    assert changed(run(site, task)) == 1
    node = api.get("/api/v1/nodes/rack-1")
    assert node["metadata"]["labels"]["gpu"] == "none"
    assert {"key": "tests", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert changed(run(site, task)) == 0


# -- kubeconfig ------------------------------------------------------------------------------------


def test_kubeconfig_works_for_kubernetes_core_and_is_never_shown(site: Site) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "by-kubernetes-core"}}
    tasks: list[Object] = [
        {
            "kubernetes.core.k8s": {
                "kubeconfig": "{{ lookup('ironspan.hybrid.kubeconfig') }}",
                "definition": space,
                "apply": True,
                "server_side_apply": {"field_manager": "ironspan", "force_conflicts": True},
            }
        }
    ]
    text = run(site, tasks, "-vvv", "--diff")
    assert changed(text) == 1
    for secret in ("client-key-data", "PRIVATE KEY", base64.b64encode(b"-----BEGIN PRIVATE").decode()[:20]):
        assert secret not in text
    path = re.findall(r"kubeconfig: (/\S+)", text)[0]
    assert not Path(path).exists(), "it goes with the run"


def test_objects_of_a_layer_are_applied_once(site: Site) -> None:
    path = "/apis/node.k8s.io/v1/runtimeclasses/gvisor"
    task: list[Object] = [{"ironspan.hybrid.cluster_objects": {"layers": ["gvisor"]}}]
    text = run(site, task, "--check", "--diff")
    assert changed(text) == 1
    assert "handler: runsc" in text
    assert site.control.api().find(path) is None
    assert changed(run(site, task)) == 1
    assert changed(run(site, task)) == 0
    assert changed(run(site, task, "--check")) == 0
    assert site.control.api().delete(path)


# -- verify ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def kubelets(api: Api, findings: dict[str, str] | None = None) -> Iterator[None]:
    """Stand in for the kubelets: give every smoke pod an address and a result, as probe.sh would write it."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.2):
            with contextlib.suppress(ClusterError):
                look()

    def look() -> None:
        for space in api.get(SPACES, labelSelector=SELECTOR)["items"]:
            path = f"{SPACES}/{space['metadata']['name']}/pods"
            for number, pod in enumerate(api.get(path)["items"]):
                if "podIP" not in pod["status"]:
                    answer(api, f"{path}/{pod['metadata']['name']}", pod, number, findings or {})

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def answer(api: Api, path: str, pod: Object, number: int, findings: dict[str, str]) -> None:
    probe = next(c for c in pod["spec"]["containers"] if c["name"] == "probe")
    environment = {entry["name"]: entry["value"] for entry in probe["env"]}
    sandboxed = pod["spec"].get("runtimeClassName") == "gvisor"
    peers = environment["PEERS"]
    found = {
        "sandbox": "[ 0.0] Starting gVisor..." if sandboxed else "",
        "kernel": "Linux version 6.18.0",
        "dns_cluster": "10.96.0.1",
        "dns_service": environment["SERVICE_ADDRESS"],
        "service": "runc-0000",
        "peers": f"{peers}/{peers}",
        "known": peers,
        "failed": "0",
        "unreached": "",
        **findings,
    }
    message = "\n".join(f"{name}={value}" for name, value in found.items())
    state = {"terminated": {"exitCode": 0, "message": message, "containerID": "containerd://x"}}
    container = {
        "name": "probe",
        "state": state,
        "image": "x",
        "imageID": "x",
        "ready": False,
        "restartCount": 0,
    }
    address = f"10.244.0.{number + 2}"
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "containerStatuses": [container],
    }
    with contextlib.suppress(Exception):
        api.request("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")


def spaces(site: Site) -> list[Object]:
    return [
        item
        for item in site.control.api().get(SPACES, labelSelector=SELECTOR)["items"]
        if "deletionTimestamp" not in item["metadata"]
    ]


def pods_of(site: Site) -> list[Object]:
    found: list[Object] = []
    for space in spaces(site):
        found += site.control.api().get(f"{SPACES}/{space['metadata']['name']}/pods")["items"]
    return found


@pytest.fixture
def gvisor_class(site: Site) -> Iterator[None]:
    path = "/apis/node.k8s.io/v1/runtimeclasses/gvisor"
    api = site.control.api()
    metadata = {"name": "gvisor"}
    api.apply(
        path,
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata, "handler": "runsc"},
    )
    yield
    api.delete(path)


@pytest.mark.usefixtures("gvisor_class")
def test_healthy_site(site: Site, tmp_path: Path) -> None:
    report = tmp_path / "verify.json"
    with kubelets(site.control.api()):
        text = run(site, [{"ironspan.hybrid.verify": {"report": str(report), "timeout": 120}}])
    assert changed(text) == 0
    content = json.loads(report.read_text())
    assert content["ok"] is True
    assert {check["name"]: check["ok"] for check in content["checks"]} == {
        "api": True,
        "etcd": True,
        "nodes": True,
        "network": True,
        "dns": True,
        "gvisor": True,
    }
    pods = next(check for check in content["checks"] if check["name"] == "network")["evidence"]
    assert [(pod["pod"], pod["node"]) for pod in pods] == [
        ("runc-0000", "az-1"),
        ("runc-0001", "rack-1"),
        ("gvisor-0002", "rack-1"),
        ("runc-0003", "rack-2"),
    ]
    assert "1 of 1 gVisor pods run on gVisor's kernel" in text
    assert spaces(site) == []


@pytest.mark.usefixtures("gvisor_class")
def test_pods_obey_admission(site: Site) -> None:
    """The namespace enforces the restricted Pod Security Standard: the real API server admitted every pod."""
    command, environment = playbook(site, [{"ironspan.hybrid.verify": {"timeout": 120}}])
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        # They stay until the kubelets answer, so that nobody looks too late.
        site.control.wait(lambda: bool(pods_of(site)))
        labels = [space["metadata"]["labels"] for space in spaces(site)]
        with kubelets(site.control.api()):
            process.wait()
    assert process.returncode == 0
    assert [each.get("pod-security.kubernetes.io/enforce") for each in labels] == ["restricted"]


@pytest.mark.usefixtures("gvisor_class")
def test_everything_wrong_is_named_at_once(site: Site) -> None:
    api = site.control.api()
    make_node(api, "rack-2", ADDRESSES["rack-2"], ready="False")
    make_node(api, "stranger", "10.98.1.99")
    try:
        with kubelets(api, {"unreached": "10.244.9.9", "failed": "1", "sandbox": ""}):
            text = run(site, [{"ironspan.hybrid.verify": {"timeout": 10}}], status=2)
    finally:
        make_node(api, "rack-2", ADDRESSES["rack-2"])
        api.delete("/api/v1/nodes/stranger")
    for part in (
        "waiting for rack-2 to be Ready",
        "rack-2 is not Ready: stopped by the test",
        "nodes that the inventory does not: stranger",
        "gvisor-0002 on rack-1: it does not run in gVisor but on Linux version 6.18.0",
        "it cannot reach 10.244.9.9",
    ):
        assert part in text
    assert "runc-0003" not in text, "no pod for a node that is not Ready"
    assert spaces(site) == []


@pytest.mark.usefixtures("gvisor_class")
def test_node_that_never_joined_is_not_waited_for(site: Site) -> None:
    api = site.control.api()
    assert api.delete("/api/v1/nodes/rack-2")
    try:
        begin = time.monotonic()
        with kubelets(api):
            text = run(site, [{"ironspan.hybrid.verify": {"timeout": 120}}], status=2)
    finally:
        make_node(api, "rack-2", ADDRESSES["rack-2"])
    assert "nodes: rack-2 is not in the cluster" in text
    assert "3 of 3 pods reach all peers" in text
    assert time.monotonic() - begin < 110


@pytest.mark.usefixtures("gvisor_class")
def test_check_mode_makes_nothing(site: Site) -> None:
    text = run(site, [{"ironspan.hybrid.verify": {"timeout": 10}}], "--check")
    assert "not run" in text
    assert "2 of" not in text
    assert spaces(site) == []


@pytest.mark.usefixtures("gvisor_class")
def test_dead_api_server_is_named_within_its_patience(site: Site) -> None:
    changed_inventory = yaml.safe_load(site.inventory.read_text())
    changed_inventory["all"]["vars"]["site_api_endpoint"] = "api.test.internal:1"
    path = site.inventory.parent.parent / "dead.yml"
    path.write_text(yaml.safe_dump(changed_inventory))
    text = run(site._replace(inventory=path), [{"ironspan.hybrid.node_metadata": None}], status=2)
    assert "cannot be reached" in text
    assert "Check the load balancer" in text


def begun(site: Site) -> tuple[subprocess.Popen[bytes], int]:
    """Start a verification; returns, once it has pods, its process and the one of its worker."""
    command, environment = playbook(site, [{"ironspan.hybrid.verify": {"timeout": 60}}])
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    site.control.wait(lambda: bool(pods_of(site)))
    (space,) = spaces(site)
    return process, int(space["metadata"]["annotations"]["ironspan/owner"].split("/")[1])


@pytest.mark.usefixtures("gvisor_class")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupt_takes_everything_away(site: Site, number: signal.Signals) -> None:
    process, _ = begun(site)
    os.killpg(process.pid, number)
    process.wait(120)
    site.control.wait(lambda: spaces(site) == [])


@pytest.mark.usefixtures("gvisor_class")
def test_next_run_takes_away_what_a_killed_one_left(site: Site) -> None:
    process, worker = begun(site)
    os.kill(worker, signal.SIGKILL)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(120)
    left = spaces(site)
    assert len(left) == 1
    foreign: Object = smoke.namespace(
        "ironspan-verify-other",
        {"ironspan/owner": "another-machine/1/1", "ironspan/deadline": "2099-01-01T00:00:00+00:00"},
    )
    api = site.control.api()
    api.apply(f"{SPACES}/ironspan-verify-other", foreign)
    with kubelets(api):
        run(site, [{"ironspan.hybrid.verify": {"timeout": 120}}])
    assert [item["metadata"]["name"] for item in spaces(site)] == ["ironspan-verify-other"]
    api.delete(f"{SPACES}/ironspan-verify-other")


# -- admission_policies ----------------------------------------------------------------------------

ADMISSION: list[Object] = [{"ironspan.hybrid.admission_policies": None}]


def test_admission_policies_are_tried_then_applied_and_go_with_the_file(site: Site, tmp_path: Path) -> None:
    api = site.control.api()
    bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    api.apply(f"{SPACES}/kube-system/serviceaccounts/default", account)
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dns", "namespace": "kube-system"},
        "spec": {"hostNetwork": True, "containers": [{"name": "dns", "image": "example.com/dns:1"}]},
    }
    api.request("POST", f"{SPACES}/kube-system/pods", pod)
    file = tmp_path / "admission.yml"
    option = f"-eadmission_policy_file={file}"
    narrow = "{namespace: kube-system, rules: [user_namespaces], owner: a, reason: b}"
    file.write_text(f"version: 1\nexemptions: [{narrow}]\n")
    text = run(site, ADMISSION, option, status=2)
    assert re.search(r"would lock out pods .*kube-system/dns: hostNetwork is refused", text, re.DOTALL), text
    # What every cluster refuses was there before anything was tried, and stays when the file goes.
    every = {
        item["metadata"]["name"]
        for item in always(KEEPERS, [], [], others=True)
        if item["kind"].endswith("Binding")
    }
    assert {item["metadata"]["name"] for item in api.get(bindings)["items"]} == every
    file.write_text("version: 1\n")
    assert changed(run(site, ADMISSION, option, "--diff")) == 1
    assert "ironspan-host-access" in [item["metadata"]["name"] for item in api.get(bindings)["items"]]
    assert changed(run(site, ADMISSION)) == 1
    assert {item["metadata"]["name"] for item in api.get(bindings)["items"]} == every
    api.delete(f"{SPACES}/kube-system/pods/dns", {"gracePeriodSeconds": 0})


# -- roles of people, access_review -----------------------------------------------------------------

PEOPLE = {
    "identity_tenant_id": "11111111-2222-3333-4444-555555555555",
    "identity_audiences": ["99999999-8888-7777-6666-555555555555"],
    "identity_bindings": [{"group": "Operators", "role": "node-operator"}],
}


def test_people_get_their_roles_which_a_review_tells_and_lose_them(site: Site) -> None:
    api, option = site.control.api(), f"-e{json.dumps(PEOPLE)}"
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/ironspan-node-operator:Operators"
    give: list[Object] = [{"ironspan.hybrid.cluster_objects": {"layers": ["identity"]}}]
    assert changed(run(site, give, option, "--check")) == 1
    assert api.find(path) is None
    assert changed(run(site, give, option, "--diff")) == 1
    assert api.find(path)
    assert changed(run(site, give, option)) == 0
    text = run(site, [{"ironspan.hybrid.access_review": {"can": ["create", "pods/eviction"]}}])
    assert "who can create pods/eviction:" in text
    assert "Group entra:Operators, by ClusterRoleBinding ironspan-node-operator:Operators" in text
    # Somebody loses access, so it is asked about first.
    refused = run(site, give, status=2)
    assert "ironspan-node-operator:Operators (access is lost)" in refused and api.find(path)
    assert changed(run(site, give, "-eironspan_allow_destructive=true")) == 1
    assert api.find(path) is None
    assert changed(run(site, give)) == 0
