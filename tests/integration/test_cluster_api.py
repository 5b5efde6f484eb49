# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The cluster parts against a real kube-apiserver, kube-controller-manager and etcd on loopback."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import ssl
import time
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import (
    bootstrap,
    csr,
    nodes,
    objects,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    certificates,
    generate_key_file,
    open_store,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .loopback_cluster import VERSION, Control, find_programs, running

pytestmark = pytest.mark.lab
NODES = {"rack-1": ["10.98.1.11"], "rack-2": ["10.98.1.12"]}
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return find_programs(tmp_path_factory.mktemp("programs"))


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


def test_without_the_binding_the_controller_has_no_rights(control: Control, api: Api) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:cluster-admins"
    assert api.delete(path)
    try:
        control.wait(lambda: _forbidden(api), 10)
        assert control.api(break_glass=True).get("/api/v1/nodes")["items"] == []
    finally:
        control.bind_administrators()
    control.wait(lambda: not _forbidden(api), 10)


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


# -- join tokens -----------------------------------------------------------------------------------


def test_token_lets_a_kubelet_ask_and_nothing_more(control: Control, api: Api) -> None:
    bootstrap.ensure_permissions(api)
    token = bootstrap.create_token(api, 10)
    assert token.secret not in repr(token)
    # The token instead of a certificate.
    context = ssl.create_default_context(cadata=control.store.ca("kubernetes").certificate_pem)
    joining = Api(f"https://{control.address}:{control.api_port}", context, "api.test.internal", 2)
    headers = {"Authorization": f"Bearer {token.secret}"}

    def status(path: str) -> int:
        return int(joining._pool.request("GET", f"{joining.server}{path}", headers=headers).status)

    # A token is known once the API server's informer has its secret.
    control.wait(lambda: status("/api/v1/nodes") != 401, 30)
    assert status("/api/v1/nodes") == 403, "it may read its own node, not list all"
    body = signing_request("rack-9", ["10.98.1.19"], signer="kubernetes.io/kube-apiserver-client-kubelet")
    body["spec"]["usages"] = ["digital signature", "client auth"]
    answer = joining._pool.request("POST", f"{joining.server}{CSRS}", headers=headers, json=body)
    assert answer.status == 201
    assert answer.json()["spec"]["username"] == f"system:bootstrap:{token.identifier}"
    assert bootstrap.GROUP in answer.json()["spec"]["groups"]
    assert status("/api/v1/secrets") == 403
    assert bootstrap.delete_token(api, token.identifier)
    assert not bootstrap.delete_token(api, token.identifier)
    control.wait(lambda: status("/api/v1/nodes") == 401, 30)


def test_token_secret_in_the_cluster(api: Api) -> None:
    now = datetime.datetime.now(datetime.UTC)
    token = bootstrap.create_token(api, 30)
    secret = api.get(f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token.identifier}")
    data = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert f"{data['token-id']}.{data['token-secret']}" == token.secret
    assert data["usage-bootstrap-authentication"] == "true"
    assert "usage-bootstrap-signing" not in data
    left = datetime.datetime.fromisoformat(data["expiration"]) - now
    assert datetime.timedelta(minutes=29) < left <= datetime.timedelta(minutes=30)
    bootstrap.delete_token(api, token.identifier)


def test_only_expired_tokens_of_ours_are_deleted(api: Api) -> None:
    now = datetime.datetime.now(datetime.UTC)
    fresh, later = bootstrap.create_token(api, 5), bootstrap.create_token(api, 50)
    foreign = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-zzzzzz"
    api.apply(
        foreign,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "bootstrap-token-zzzzzz", "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": "zzzzzz",
                "token-secret": "z" * 16,
                "expiration": "2099-01-01T00:00:00Z",
            },
        },
    )
    assert bootstrap.delete_expired(api, now) == []
    assert bootstrap.delete_expired(api, now + datetime.timedelta(minutes=10)) == [fresh.identifier]
    assert bootstrap.delete_expired(api, now + datetime.timedelta(minutes=60)) == [later.identifier]
    assert api.delete(foreign)


def test_missing_permissions_are_put_back(api: Api) -> None:
    bootstrap.ensure_permissions(api)
    assert bootstrap.ensure_permissions(api) == []
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:kubelet-bootstrap"
    assert api.delete(path)
    assert [body["metadata"]["name"] for body in bootstrap.missing_permissions(api)] == [
        "kubeadm:kubelet-bootstrap"
    ]
    assert api.find(path) is None
    assert bootstrap.ensure_permissions(api) == ["ClusterRoleBinding kubeadm:kubelet-bootstrap"]
    assert api.find(path) is not None


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
    control.wait(lambda: bool(api.get(f"{CSRS}/{name}")["status"].get("certificate")), 20)
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
    outcome = csr.approve_until_all_serve(api, NODES, list(NODES), 10, told.append)
    assert [verdict.node for verdict in outcome.approved] == ["rack-2"]
    assert told[-1] == "2 of 2 kubelets have a serving certificate"


def test_request_of_a_former_life_does_not_count(control: Control, api: Api, kubelet: Api) -> None:
    send(kubelet, signing_request("rack-1", ["10.98.1.11"]))
    assert csr.approve_pending(api, NODES).waiting == ["rack-2"]
    # It is reset and joins again: a client certificate is asked for with a bootstrap token.
    time.sleep(1.1)
    bootstrap.ensure_permissions(api)
    token = bootstrap.create_token(api, 5)
    body = signing_request("rack-1", [], names=[], signer="kubernetes.io/kube-apiserver-client-kubelet")
    body["spec"]["usages"] = ["digital signature", "client auth"]
    context = ssl.create_default_context(cadata=control.store.ca("kubernetes").certificate_pem)
    joining = Api(f"https://{control.address}:{control.api_port}", context, "api.test.internal", 2)
    headers = {"Authorization": f"Bearer {token.secret}"}
    assert joining._pool.request("POST", f"{joining.server}{CSRS}", headers=headers, json=body).status == 201
    assert csr.approve_pending(api, NODES).waiting == ["rack-1", "rack-2"]
    send(kubelet, signing_request("rack-1", ["10.98.1.11"]))
    outcome = csr.approve_pending(api, NODES)
    assert ([verdict.node for verdict in outcome.approved], outcome.waiting) == (["rack-1"], ["rack-2"])
    bootstrap.delete_token(api, token.identifier)


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
