# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The cluster parts against a real kube-apiserver, kube-controller-manager and etcd on loopback."""

from __future__ import annotations

import base64
import concurrent.futures
import ipaddress
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import csr, joining, nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import objects
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    certificates,
    generate_key_file,
    open_store,
    profiles,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ironspan.kubernetes.lease import ClusterLeases
from ironspan.program.errors import Forbidden, LeaseLost
from ironspan.program.leader import SECONDS, Leadership
from tests.support.clock import Clock

from .loopback_cluster import VERSION, Control, find_programs, running

pytestmark = pytest.mark.lab
NODES = {"rack-1": ["10.98.1.11"], "rack-2": ["10.98.1.12"]}
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return find_programs()


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory, programs: dict[str, Path]) -> Iterator[Control]:
    """A control plane as kubeadm would leave it, without nodes."""
    folder = tmp_path_factory.mktemp("control")
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    with running(Control(programs, store, folder)) as started:
        started.start_etcd("etcd-1")
        started.start_api()
        started.start_controllers()
        started.bind_administrators()
        yield started


@pytest.fixture
def api(control: Control) -> Api:
    return control.api()


def user_api(control: Control, name: str, groups: Sequence[str]) -> Api:
    """Return a client with a certificate of its own, as a kubelet has one."""
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    certificate, key = control.issue(name.replace(":", "-"), certificates.Names(name, groups), usage)
    config = control.store.admin_kubeconfig(control.endpoint, 1, control.address)
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    return Api.from_kubeconfig(config, control.folder / "tmp", 5)


# -- client ----------------------------------------------------------------------------------------


def test_name_of_the_endpoint_is_checked_not_the_address(control: Control) -> None:
    config = control.store.admin_kubeconfig(control.endpoint, 1, control.address)
    del config["clusters"][0]["cluster"]["tls-server-name"]
    with pytest.raises(ClusterError, match="TLS with"):
        Api.from_kubeconfig(config).get("/version")


def test_another_site_is_not_trusted(control: Control, tmp_path: Path) -> None:
    other = open_store(tmp_path / "pki", generate_key_file(tmp_path / "key"))
    other.ensure_cas()
    config = other.admin_kubeconfig(control.endpoint, 1, control.address)
    with pytest.raises(ClusterError, match=r"TLS with .* It is not this site.s API server"):
        Api.from_kubeconfig(config).get("/version")


def test_a_lease_is_taken_by_one_of_many_kept_lost_and_taken_over(control: Control) -> None:
    clock = Clock()
    all_of_them = [
        Leadership(ClusterLeases(control.api(), "default", clock), "ironspan-test", f"host-{number}", clock)
        for number in range(8)
    ]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        # Nobody knows who had it before; one of them has made it by the end of the second round.
        assert not any(
            list(pool.map(Leadership.step, all_of_them)) + list(pool.map(Leadership.step, all_of_them))
        )
        clock.now += SECONDS
        assert list(pool.map(Leadership.step, all_of_them)).count(True) == 1
    (first,) = [one for one in all_of_them if one.held()]
    others = [one for one in all_of_them if one is not first]
    for _ in range(3):
        clock.now += SECONDS / 2
        assert first.step()
        assert not any(one.step() for one in others)
    clock.now += SECONDS
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(Leadership.step, others)).count(True) == 1
    assert not first.step()
    assert isinstance(first.problem, LeaseLost)
    (second,) = [one for one in others if one.held()]
    second.release(60)
    third = others[others.index(second) - 1]
    assert third.step()
    # Somebody deletes it: who never saw it waits as long as its holder may act.
    assert control.api().delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/ironspan-test")
    newcomer = Leadership(ClusterLeases(control.api(), "default", clock), "ironspan-test", "newcomer", clock)
    assert not newcomer.step()
    assert third.held()
    assert not third.step()
    clock.now += SECONDS
    assert newcomer.step()
    stranger = ClusterLeases(user_api(control, "stranger", ["nobody"]), "default")
    with pytest.raises(Forbidden, match="cannot get resource"):
        stranger.acquire("ironspan-test", SECONDS, "stranger")


def test_without_the_binding_the_controller_has_no_rights(control: Control, api: Api) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:cluster-admins"
    assert api.delete(path)
    try:
        control.wait(lambda: _forbidden(api))
        assert control.api(break_glass=True).get("/api/v1/nodes")["items"] == []
    finally:
        control.bind_administrators()
    control.wait(lambda: not _forbidden(api))


def _forbidden(api: Api) -> bool:
    try:
        api.get("/api/v1/nodes")
    except ApiError as error:
        assert error.status == 403
        return True
    return False


def test_absent_objects(api: Api) -> None:
    assert api.find("/api/v1/namespaces/none") is None
    assert not api.delete("/api/v1/namespaces/none")
    with pytest.raises(ApiError, match=r"GET /api/v1/namespaces/none: .*not found \(HTTP 404\)"):
        api.get("/api/v1/namespaces/none")


def test_no_key_stays_on_disk(control: Control, api: Api) -> None:
    assert api.get("/version")["gitVersion"] == f"v{VERSION}"
    assert list((control.folder / "tmp").iterdir()) == []


# -- joining ---------------------------------------------------------------------------------------

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ROTATION = "kubeadm:node-autoapprove-certificate-rotation"


def client_request(node: str) -> Object:
    """Return what a kubelet sends for its client certificate."""
    signer = "kubernetes.io/kube-apiserver-client-kubelet"
    return signing_request(node, [], names=[], signer=signer, usages=["digital signature", "client auth"])


def joining_api(control: Control, node: str) -> Api:
    """Return what a host can do with the certificate that it joins with."""
    return user_api(control, f"system:node:{node}", ["system:nodes", profiles.JOINING_GROUP])


def decided(api: Api, name: str) -> bool:
    status = api.get(f"{CSRS}/{name}")["status"]
    return bool(status.get("conditions") or status.get("certificate"))


def test_who_joins_gets_a_certificate_for_its_node_and_for_no_other(control: Control, api: Api) -> None:
    joining.ensure_permissions(api)
    host = joining_api(control, "rack-1")
    foreign = [send(host, client_request(node)) for node in ("rack-2", "az-1", "rack-1.evil")]
    own = send(host, client_request("rack-1"))
    control.wait(lambda: bool(api.get(f"{CSRS}/{own}")["status"].get("certificate")))
    # They were sent before the one that has been signed.
    assert not [name for name in foreign if decided(api, name)]
    asked = api.get(f"{CSRS}/{own}")["spec"]
    assert asked["username"] == "system:node:rack-1"
    assert profiles.JOINING_GROUP in asked["groups"]
    assert csr.approve_pending(api, NODES).joining == ["rack-1"]
    for name in (*foreign, own):
        api.delete(f"{CSRS}/{name}")


def test_who_joins_reads_what_a_node_reads_and_no_secrets(control: Control) -> None:
    host = joining_api(control, "rack-1")
    assert host.find("/api/v1/nodes/rack-1") is None, "its own Node, which is not there yet"
    for path in ("/api/v1/secrets", "/api/v1/namespaces/kube-system/secrets", "/api/v1/nodes/rack-2"):
        with pytest.raises(ApiError) as refused:
            host.get(path)
        assert refused.value.status == 403, path


def test_tokens_of_an_earlier_release_are_deleted_and_nobody_elses(api: Api) -> None:
    secrets = "/api/v1/namespaces/kube-system/secrets"
    for identifier, labels in (("aaaaaa", {"app.kubernetes.io/managed-by": "ironspan"}), ("zzzzzz", {})):
        token = {"token-id": identifier, "token-secret": "z" * 16, "expiration": "2099-01-01T00:00:00Z"}
        name = f"bootstrap-token-{identifier}"
        api.apply(
            f"{secrets}/{name}",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": token,
            },
        )
    assert joining.delete_tokens(api) == ["aaaaaa"]
    assert joining.delete_tokens(api) == []
    assert api.delete(f"{secrets}/bootstrap-token-zzzzzz")


def test_missing_permissions_are_put_back(api: Api) -> None:
    joining.ensure_permissions(api)
    assert joining.ensure_permissions(api) == []
    assert api.delete(f"{BINDINGS}/{ROTATION}")
    assert [body["metadata"]["name"] for body in joining.missing_permissions(api)] == [ROTATION]
    assert joining.ensure_permissions(api) == [f"ClusterRoleBinding {ROTATION}"]
    assert api.find(f"{BINDINGS}/{ROTATION}") is not None


# -- serving certificates --------------------------------------------------------------------------


def signing_request(
    node: str,
    addresses: Sequence[str],
    names: Sequence[str] | None = None,
    signer: str = csr.SIGNER,
    usages: Sequence[str] = ("digital signature", "server auth"),
    common_name: str | None = None,
) -> Object:
    """Return what a kubelet sends."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name or f"system:node:{node}"),
        ]
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName(n) for n in ([node] if names is None else names)]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = builder.sign(certificates.new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": list(usages)},
    }


def send(api: Api, body: Object) -> str:
    return str(api._json("POST", CSRS, body)["metadata"]["name"])


@pytest.fixture
def kubelet(control: Control, api: Api) -> Iterator[Api]:
    """The kubelet of rack-1; whatever it asked for is removed afterwards."""
    yield user_api(control, "system:node:rack-1", ["system:nodes"])
    for item in api.get(CSRS)["items"]:
        api.delete(f"{CSRS}/{item['metadata']['name']}")


def test_right_request_is_approved_and_issued(control: Control, api: Api, kubelet: Api) -> None:
    name = send(kubelet, signing_request("rack-1", ["10.98.1.11"]))
    before = csr.approve_pending(api, NODES, dry_run=True)
    assert [verdict.request for verdict in before.approved] == [name]
    assert not api.get(f"{CSRS}/{name}")["status"].get("conditions")
    outcome = csr.approve_pending(api, NODES)
    assert outcome.approved == [csr.Verdict(name, "rack-1", "")]
    assert outcome.denied == []
    assert outcome.waiting == ["rack-2"]
    control.wait(lambda: bool(api.get(f"{CSRS}/{name}")["status"].get("certificate")))
    pem = base64.b64decode(api.get(f"{CSRS}/{name}")["status"]["certificate"])
    made = x509.load_pem_x509_certificate(pem)
    made.verify_directly_issued_by(
        x509.load_pem_x509_certificate(control.store.ca("kubernetes").certificate_pem.encode())
    )
    again = csr.approve_pending(api, NODES)
    assert (again.approved, again.denied, again.waiting) == ([], [], ["rack-2"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"addresses": ["10.98.1.12"]}, "subject alternative names found"),
        ({"addresses": ["10.98.1.11", "10.98.1.12"]}, "subject alternative names found"),
        ({"addresses": []}, "subject alternative names found"),
        ({"names": ["rack-1", "rack-2"]}, "subject alternative names found"),
        ({"names": ["api.test.internal"]}, "subject alternative names found"),
        ({"names": []}, "subject alternative names found"),
    ],
)
def test_other_names_are_denied(api: Api, kubelet: Api, change: t.Any, reason: str) -> None:
    name = send(kubelet, signing_request(**{"node": "rack-1", "addresses": ["10.98.1.11"], **change}))
    outcome = csr.approve_pending(api, NODES)
    assert [verdict.request for verdict in outcome.denied] == [name]
    assert reason in outcome.denied[0].reason
    condition = api.get(f"{CSRS}/{name}")["status"]["conditions"][0]
    assert condition["type"] == "Denied"
    assert condition["reason"] == "DiffersFromInventory"
    assert reason in condition["message"]
    assert "rack-1" in outcome.waiting


def test_node_outside_the_inventory_is_denied(control: Control, api: Api, kubelet: Api) -> None:
    stranger = user_api(control, "system:node:rack-7", ["system:nodes"])
    send(stranger, signing_request("rack-7", ["10.98.1.17"]))
    outcome = csr.approve_pending(api, NODES)
    assert "no host 'rack-7' is in the inventory" in outcome.denied[0].reason


def test_a_person_cannot_ask_in_the_name_of_a_node(api: Api, kubelet: Api) -> None:
    send(api, signing_request("rack-1", ["10.98.1.11"]))
    outcome = csr.approve_pending(api, NODES)
    assert "the requestor 'ironspan:controller' is not a node" in outcome.denied[0].reason


def test_other_signers_are_not_touched(api: Api, kubelet: Api) -> None:
    body = signing_request("rack-1", ["10.98.1.11"], signer="example.com/other")
    name = send(kubelet, body)
    outcome = csr.approve_pending(api, NODES)
    assert (outcome.approved, outcome.denied) == ([], [])
    assert not api.get(f"{CSRS}/{name}")["status"].get("conditions")


def test_waits_for_all_and_names_who_is_missing(control: Control, api: Api, kubelet: Api) -> None:
    send(kubelet, signing_request("rack-1", ["10.98.1.11"]))
    with pytest.raises(ClusterError, match=r"After 1 s no request .* came from rack-2"):
        csr.approve_until_all_serve(api, NODES, list(NODES), 1)
    second = user_api(control, "system:node:rack-2", ["system:nodes"])
    send(second, signing_request("rack-2", ["10.98.1.12"]))
    told: list[str] = []
    outcome = csr.approve_until_all_serve(api, NODES, list(NODES), 120, told.append)
    assert [verdict.node for verdict in outcome.approved] == ["rack-2"]
    assert told[-1] == "2 of 2 kubelets have a serving certificate"


def test_request_of_a_former_life_does_not_count(control: Control, api: Api, kubelet: Api) -> None:
    send(kubelet, signing_request("rack-1", ["10.98.1.11"]))
    assert csr.approve_pending(api, NODES).waiting == ["rack-2"]
    # It is reset and joins again: a client certificate is asked for with the certificate of a join.
    time.sleep(1.1)
    send(joining_api(control, "rack-1"), client_request("rack-1"))
    assert csr.approve_pending(api, NODES).waiting == ["rack-1", "rack-2"]
    send(kubelet, signing_request("rack-1", ["10.98.1.11"]))
    outcome = csr.approve_pending(api, NODES)
    assert ([verdict.node for verdict in outcome.approved], outcome.waiting) == (["rack-1"], ["rack-2"])


def test_denied_request_ends_the_wait_at_once(api: Api, kubelet: Api) -> None:
    send(kubelet, signing_request("rack-1", ["10.98.1.99"]))
    with pytest.raises(ClusterError, match=r"The request of rack-1 was denied: .*10\.98\.1\.99"):
        csr.approve_until_all_serve(api, NODES, ["rack-1"], 60)


# -- nodes -----------------------------------------------------------------------------------------


@pytest.fixture
def two_nodes(api: Api) -> Iterator[None]:
    for name in NODES:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kept": "yes"}}}
        api._json("POST", "/api/v1/nodes", body)
    yield
    for name in NODES:
        api.delete(f"/api/v1/nodes/{name}")


def test_labels_and_taints_are_those_declared_and_others_stay(api: Api, two_nodes: None) -> None:
    other = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    path = "/api/v1/nodes/rack-1"
    api.merge(path, {"spec": {"taints": [other]}})
    ours = {"key": "gpu", "value": "h200", "effect": "NoSchedule"}
    wanted = {
        "rack-1": nodes.Declared({"topology.kubernetes.io/zone": "rack", "a": "1"}, [ours]),
        "rack-2": nodes.Declared({"a": "2"}),
        "not-joined": nodes.Declared({"a": "3"}),
    }
    planned = nodes.declare(api, wanted, dry_run=True)
    assert [change.node for change in planned] == ["rack-1", "rack-2"]
    assert "a" not in api.get(path)["metadata"]["labels"]
    assert nodes.declare(api, wanted) == planned
    node = api.get(path)
    assert node["metadata"]["labels"]["kept"] == "yes"
    assert node["metadata"]["labels"]["a"] == "1"
    assert sorted(taint["key"] for taint in node["spec"]["taints"]) == ["gpu", "node.kubernetes.io/not-ready"]
    assert nodes.declare(api, wanted) == []
    fewer = {"rack-1": nodes.Declared({"a": "1"}, []), "rack-2": nodes.Declared({})}
    assert len(nodes.declare(api, fewer)) == 2
    node = api.get(path)
    assert "topology.kubernetes.io/zone" not in node["metadata"]["labels"]
    assert node["metadata"]["labels"]["kept"] == "yes"
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["node.kubernetes.io/not-ready"]
    assert "a" not in api.get("/api/v1/nodes/rack-2")["metadata"]["labels"]
    assert nodes.declare(api, fewer) == []


def test_label_taken_over_from_someone_else(api: Api, two_nodes: None) -> None:
    wanted = {"rack-1": nodes.Declared({"kept": "no"})}
    change = nodes.declare(api, wanted)[0]
    assert change.before["labels"] == {"kept": "yes"}
    assert change.after["labels"] == {"kept": "no"}
    assert api.get("/api/v1/nodes/rack-1")["metadata"]["labels"]["kept"] == "no"
    assert nodes.declare(api, wanted) == []


# -- objects ---------------------------------------------------------------------------------------

BATCH: list[Object] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "batch"}},
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "batch"},
        "data": {"word": "swordfish"},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "batch"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "agent", "image": "example.com/agent:1"}]},
            },
        },
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "batch"},
        "handler": "runsc",
    },
]


def test_objects_change_once_and_only_what_is_declared(api: Api) -> None:
    names = ["Namespace batch", "ConfigMap batch/settings", "DaemonSet batch/agent", "RuntimeClass batch"]
    planned = objects.apply_objects(api, BATCH, dry_run=True)
    assert [change.name for change in planned] == names
    assert api.find("/api/v1/namespaces/batch") is None
    made = objects.apply_objects(api, BATCH)
    assert [change.name for change in made] == names
    assert objects.apply_objects(api, BATCH) == []
    assert objects.apply_objects(api, BATCH, dry_run=True) == []
    path = "/apis/apps/v1/namespaces/batch/daemonsets/agent"
    api.merge(path, {"metadata": {"labels": {"by": "someone"}}})
    assert objects.apply_objects(api, BATCH) == [], "a field of someone else is no drift"
    container = {"name": "agent", "image": "example.com/agent:2"}
    drifted = {"spec": {"template": {"spec": {"containers": [container]}}}}
    api.merge(path, drifted)
    planned = objects.apply_objects(api, BATCH, dry_run=True)
    assert [change.name for change in planned] == ["DaemonSet batch/agent"]
    assert objects.apply_objects(api, BATCH) == planned
    assert api.get(path)["metadata"]["labels"] == {"by": "someone"}
    for item in ("/api/v1/namespaces/batch", "/apis/node.k8s.io/v1/runtimeclasses/batch"):
        api.delete(item)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "x"}}, "does not know Nothing of v1"),
        ({"apiVersion": "example.com/v1", "kind": "X", "metadata": {"name": "x"}}, "does not know X of"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}, "has no namespace"),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "no"}, "spec": {}},
            "HTTP 404",
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "x", "namespace": "default"},
                "date": 1,
            },
            "field not declared in schema",
        ),
    ],
)
def test_malformed_objects(api: Api, body: Object, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        objects.apply_objects(api, [body])
