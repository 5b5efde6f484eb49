# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the kubelet and kubeadm are told."""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Callable, Mapping

import pytest
import yaml

from tests.support.tpm_maker import Maker
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]


def at(tree: t.Any, *path: t.Any) -> t.Any:
    """Return what is at a path of keys."""
    for key in path:
        tree = tree[key]
    return tree


def kubeadm(rendered: Rendered, host: str, action: str) -> dict[str, dict[str, t.Any]]:
    """Return the documents of a kubeadm configuration by kind."""
    layer = "control_plane" if host.startswith("az") else "node"
    text = rendered.resources(host)[f"{layer}/{action}"]["config"]
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def arguments(component: Mapping[str, t.Any]) -> dict[str, str]:
    """Return the flags of a control plane component; kubeadm wants every value as text."""
    assert all(isinstance(argument["value"], str) for argument in component["extraArgs"])
    return {argument["name"]: argument["value"] for argument in component["extraArgs"]}


KUBELET = [
    ({}, ("serverTLSBootstrap",), True),
    ({}, ("rotateCertificates",), True),
    ({}, ("readOnlyPort",), 0),
    ({}, ("authentication", "anonymous", "enabled"), False),
    ({}, ("authorization", "mode"), "Webhook"),
    ({}, ("clusterDNS",), ["10.96.0.10"]),
    ({"site_service_cidr": "172.20.0.0/16"}, ("clusterDNS",), ["172.20.0.10"]),
    ({"site_cluster_domain": "cluster.test"}, ("clusterDomain",), "cluster.test"),
    ({}, ("failCgroupV1",), False),  # the lab's own setting
    ({"node_kubelet_fail_cgroup_v1": True}, ("failCgroupV1",), True),
    ({"node_kubelet_max_pods": 40}, ("maxPods",), 40),
    ({"node_kubelet_system_reserved": {"cpu": "1"}}, ("systemReserved",), {"cpu": "1"}),
    (
        {"node_kubelet_eviction_hard": {"memory.available": "1Gi"}},
        ("evictionHard",),
        {"memory.available": "1Gi"},
    ),
    ({"node_kubelet_parallel_image_pulls": 1}, ("serializeImagePulls",), True),
    ({"node_kubelet_resolv_conf": "/etc/resolv.real"}, ("resolvConf",), "/etc/resolv.real"),
    ({"node_kubelet_settings": {"podsPerCore": 7}}, ("podsPerCore",), 7),
    ({"node_kubelet_settings": {"shutdownGracePeriod": "30s"}}, ("shutdownGracePeriod",), "30s"),
]


@pytest.mark.parametrize(("variables", "path", "value"), KUBELET)
def test_kubelet(render: Render, variables: dict[str, t.Any], path: tuple[str, ...], value: t.Any) -> None:
    settings = yaml.safe_load(render(variables=variables).content("rack-1", "node/settings"))
    assert settings["kind"] == "KubeletConfiguration"
    assert at(settings, *path) == value


def test_an_empty_resolv_conf_is_left_to_kubeadm(render: Render) -> None:
    assert "resolvConf" not in yaml.safe_load(render().content("rack-1", "node/settings"))


@pytest.mark.parametrize(
    ("host", "images"),
    [
        ("rack-1", {"flannel", "kube-proxy", "pause"}),
        (
            "az-1",
            {
                "coredns",
                "flannel",
                "kube-apiserver",
                "kube-controller-manager",
                "kube-proxy",
                "kube-scheduler",
                "pause",
            },
        ),
        ("az-3", set()),
    ],
)
def test_a_host_gets_only_the_images_it_runs(render: Render, host: str, images: set[str]) -> None:
    references = [r["ref"] for r in render().document(host)["resources"] if r["kind"] == "container_image"]
    assert {reference.rsplit("/", 1)[-1].split(":")[0] for reference in references} == images


def test_a_worker_joins_by_a_file_and_as_itself(render: Render) -> None:
    resource = render().resources("rack-1")["node/join"]
    documents = kubeadm(render(), "rack-1", "join")
    assert list(documents) == ["JoinConfiguration"]
    join = documents["JoinConfiguration"]
    assert "discovery" not in join
    assert join["nodeRegistration"]["name"] == "rack-1"
    assert join["nodeRegistration"]["kubeletExtraArgs"] == [{"name": "node-ip", "value": "10.98.1.11"}]
    assert join["caCertPath"] == resource["ca_path"]
    assert resource["profile"] == "node-join"
    assert resource["csr"] == {
        "common_name": "system:node:rack-1",
        "organizations": ["system:nodes", "ironspan:joining"],
        "dns": [],
        "ips": [],
    }
    assert resource["endpoint"] == "api.lab.internal:8443"


@pytest.mark.parametrize(
    ("host", "changes", "gated"),
    [
        ("rack-1", {}, True),
        ("rack-1", {"gpu_repair_mode": "repair"}, True),
        ("rack-1", {"gpu_repair_mode": "watch"}, False),
        ("rack-1", {"nvidia_health_enabled": False, "gpu_repair_mode": "watch"}, False),
        ("rack-1", {"gpu_repair_enabled": False}, False),
        ("rack-2", {}, False),
    ],
)
def test_a_new_gpu_node_takes_no_pods_before_its_preflight_where_somebody_lets_it_in(
    render: Render, host: str, changes: dict[str, t.Any], gated: bool
) -> None:
    wanted = {"nvidia_health_enabled": True, "gpu_repair_enabled": True, "gpu_repair_mode": "gate", **changes}
    rendered = render(variables=wanted, more="all: {children: {gpu: {hosts: {rack-1: }}}}\n")
    found = kubeadm(rendered, host, "join")["JoinConfiguration"]["nodeRegistration"].get("taints")
    taint = {"key": "ironspan.io/gpu-preflight", "value": "pending", "effect": "NoSchedule"}
    assert found == ([taint] if gated else None)


@pytest.mark.parametrize("host", ["az-1", "az-2"])
def test_control_planes_can_start_the_cluster_and_join_it(render: Render, host: str) -> None:
    assert set(kubeadm(render(), host, "member")) == {
        "JoinConfiguration",
        "InitConfiguration",
        "ClusterConfiguration",
        "KubeletConfiguration",
        "KubeProxyConfiguration",
    }


def test_init_leaves_no_token_that_lets_anyone_in(render: Render) -> None:
    (token,) = kubeadm(render(), "az-1", "member")["InitConfiguration"]["bootstrapTokens"]
    assert token["groups"] == ["system:bootstrappers:unused"]
    assert token["ttl"] == "1m0s"
    assert "token" not in token


def test_the_api_server_takes_no_bootstrap_tokens(render: Render) -> None:
    flags = arguments(kubeadm(render(), "az-1", "member")["ClusterConfiguration"]["apiServer"])
    assert flags["enable-bootstrap-token-auth"] == "false"


def test_control_planes_ask_to_join_as_themselves_too(render: Render) -> None:
    for name in ("az-1", "az-2"):
        resource = render().resources(name)["control_plane/member"]
        assert (resource["profile"], resource["csr"]["common_name"]) == ("node-join", f"system:node:{name}")


def test_nobody_is_bound_to_what_kubeadm_lets_holders_of_tokens_do(render: Render) -> None:
    objects = render().renderer.objects("control_plane")
    assert {item["roleRef"]["name"] for item in objects} == {
        "kubeadm:get-nodes",
        "system:node-bootstrapper",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
    }
    assert [item["subjects"] for item in objects] == [[], [], []]


CLUSTER = [
    ({}, ("controlPlaneEndpoint",), "api.lab.internal:8443"),
    ({}, ("kubernetesVersion",), "v1.36.4"),
    ({}, ("clusterName",), "lab-default"),
    (
        {},
        ("networking",),
        {"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/16", "dnsDomain": "cluster.local"},
    ),
    ({}, ("dns", "imageTag"), "v1.14.7"),
    (
        {},
        ("etcd", "external", "endpoints"),
        ["https://10.98.0.11:2379", "https://10.98.0.12:2379", "https://10.98.0.13:2379"],
    ),
    ({"control_plane_certificate_days": 60}, ("certificateValidityPeriod",), "1440h0m0s"),
    ({}, ("apiServer", "certSANs"), ["api.lab.internal", "10.98.0.13", "az-1", "10.98.0.11"]),
    (
        {"control_plane_extra_names": ["k8s.example.com"]},
        ("apiServer", "certSANs", -1),
        "k8s.example.com",
    ),
]


@pytest.mark.parametrize(("variables", "path", "value"), CLUSTER)
def test_cluster(render: Render, variables: dict[str, t.Any], path: tuple[t.Any, ...], value: t.Any) -> None:
    assert at(kubeadm(render(variables=variables), "az-1", "member")["ClusterConfiguration"], *path) == value


def test_the_api_server_reaches_etcd_with_its_own_certificate(render: Render) -> None:
    external = kubeadm(render(), "az-1", "member")["ClusterConfiguration"]["etcd"]["external"]
    resources = render().resources("az-1")
    assert external["certFile"] == resources["control_plane/etcd-client"]["path"]
    assert external["keyFile"] == resources["control_plane/etcd-client-key"]["key_path"]
    assert external["caFile"] == resources["control_plane/etcd-ca"]["path"]
    assert resources["control_plane/etcd-client"]["profile"] == "apiserver-etcd-client"


FLAGS = [
    ("apiServer", {}, "profiling", "false"),
    ("apiServer", {}, "kubelet-certificate-authority", "/etc/kubernetes/pki/ca.crt"),
    ("apiServer", {}, "audit-log-maxage", "30"),
    ("apiServer", {"control_plane_audit_max_size_mb": 5}, "audit-log-maxsize", "5"),
    ("apiServer", {"control_plane_audit_max_backup_count": 2}, "audit-log-maxbackup", "2"),
    ("apiServer", {"control_plane_api_server_args": {"profiling": "true"}}, "profiling", "true"),
    (
        "apiServer",
        {"control_plane_api_server_args": {"max-requests-inflight": 9}},
        "max-requests-inflight",
        "9",
    ),
    ("controllerManager", {}, "profiling", "false"),
    ("controllerManager", {}, "node-cidr-mask-size", "24"),
    ("controllerManager", {"control_plane_controller_manager_args": {"v": 4}}, "v", "4"),
    ("scheduler", {}, "profiling", "false"),
    ("scheduler", {"control_plane_scheduler_args": {"v": 4}}, "v", "4"),
]


@pytest.mark.parametrize(("component", "variables", "flag", "value"), FLAGS)
def test_flags(render: Render, component: str, variables: dict[str, t.Any], flag: str, value: str) -> None:
    cluster = kubeadm(render(variables=variables), "az-1", "member")["ClusterConfiguration"]
    assert arguments(cluster[component])[flag] == value


@pytest.mark.parametrize("flag", ["audit-policy-file", "authentication-config", "audit-log-path"])
def test_files_of_the_api_server_are_mounted_and_declared(render: Render, flag: str) -> None:
    cluster = kubeadm(render(), "az-1", "member")["ClusterConfiguration"]
    path = arguments(cluster["apiServer"])[flag]
    volumes = {volume["mountPath"]: volume for volume in cluster["apiServer"]["extraVolumes"]}
    folder = path.rpartition("/")[0]
    assert volumes[folder]["hostPath"] == folder
    assert volumes[folder]["readOnly"] is (flag != "audit-log-path")
    declared = {resource.get("path") for resource in render().resources("az-1").values()}
    assert (folder if flag == "audit-log-path" else path) in declared


def test_anonymous_requests_are_answered_on_health_paths_only(render: Render) -> None:
    config = yaml.safe_load(render().content("az-1", "control_plane/authentication"))
    assert config["kind"] == "AuthenticationConfiguration"
    assert config["anonymous"]["enabled"] is True
    assert {condition["path"] for condition in config["anonymous"]["conditions"]} == {
        "/livez",
        "/readyz",
        "/healthz",
    }
    flags = arguments(kubeadm(render(), "az-1", "member")["ClusterConfiguration"]["apiServer"])
    assert "anonymous-auth" not in flags


def audit_level(
    rules: list[dict[str, t.Any]], verb: str, group: str, resource: str, of: str = "people"
) -> str:
    """Return the level of the first rule that matches a request of somebody, as the API server decides."""
    for rule in rules:
        if "nonResourceURLs" in rule or of not in rule.get("userGroups", [of]):
            continue
        if "verbs" in rule and verb not in rule["verbs"]:
            continue
        groups = rule.get("resources")
        if groups is None or any(
            entry["group"] == group and resource in entry.get("resources", [resource]) for entry in groups
        ):
            return str(rule["level"])
    return "None"


AUDIT = [
    ("Metadata", "create", "", "secrets", "Metadata"),
    ("Request", "create", "", "secrets", "Metadata"),
    ("Request", "update", "", "configmaps", "Metadata"),
    ("Request", "create", "", "serviceaccounts/token", "Metadata"),
    ("Metadata", "create", "", "pods/exec", "RequestResponse"),
    ("None", "get", "", "pods/portforward", "RequestResponse"),
    ("None", "patch", "", "pods/ephemeralcontainers", "Request"),
    ("Request", "create", "", "nodes/proxy", "Metadata"),
    ("Request", "create", "apps", "deployments", "Request"),
    ("None", "create", "apps", "deployments", "None"),
    ("Metadata", "get", "apps", "deployments", "Metadata"),
    ("Metadata", "create", "rbac.authorization.k8s.io", "clusterroles", "RequestResponse"),
    ("None", "delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", "RequestResponse"),
    ("None", "update", "access.ironspan.io", "accessrequests/status", "RequestResponse"),
    ("None", "get", "access.ironspan.io", "accessrequests", "Metadata"),
    ("Metadata", "create", "coordination.k8s.io", "leases", "None"),
    ("Metadata", "create", "", "events", "None"),
]


@pytest.mark.parametrize(("setting", "verb", "group", "resource", "level"), AUDIT)
def test_audit(render: Render, setting: str, verb: str, group: str, resource: str, level: str) -> None:
    text = render(variables={"control_plane_audit_level": setting}).content(
        "az-1", "control_plane/audit-policy"
    )
    assert audit_level(yaml.safe_load(text)["rules"], verb, group, resource) == level


@pytest.mark.parametrize(
    ("verb", "resource", "level"),
    [
        ("get", "secrets", "Metadata"),
        ("list", "secrets", "Metadata"),
        ("watch", "secrets", "Metadata"),
        ("get", "configmaps", "None"),
        ("watch", "pods", "None"),
        ("create", "serviceaccounts/token", "Metadata"),
    ],
)
def test_secrets_that_nodes_read_are_in_the_audit_log(
    render: Render, verb: str, resource: str, level: str
) -> None:
    for setting in ("None", "Metadata"):
        text = render(variables={"control_plane_audit_level": setting}).content(
            "az-1", "control_plane/audit-policy"
        )
        assert audit_level(yaml.safe_load(text)["rules"], verb, "", resource, "system:nodes") == level


def test_another_audit_policy_restarts_the_api_server(render: Render) -> None:
    seen = set()
    for level in ("Metadata", "Request"):
        rendered = render(variables={"control_plane_audit_level": level})
        entries = kubeadm(rendered, "az-1", "member")["ClusterConfiguration"]["apiServer"]["extraEnvs"]
        values = {entry["name"]: entry["value"] for entry in entries}
        text = rendered.content("az-1", "control_plane/audit-policy")
        assert values["IRONSPAN_AUDIT_POLICY"] == hashlib.sha256(text.encode()).hexdigest()
        seen.add(values["IRONSPAN_AUDIT_POLICY"])
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"maxPerCore": 0, "min": 0}),  # the lab's own setting
        (
            {"control_plane_conntrack_max_per_core": 1, "control_plane_conntrack_min": 2},
            {"maxPerCore": 1, "min": 2},
        ),
    ],
)
def test_kube_proxy(render: Render, variables: dict[str, t.Any], expected: dict[str, int]) -> None:
    proxy = kubeadm(render(variables=variables), "az-1", "member")["KubeProxyConfiguration"]
    assert proxy["mode"] == "nftables"
    assert proxy["conntrack"] == expected
    assert proxy["clusterCIDR"] == "10.244.0.0/16"


def test_a_worker_s_certificates_wait_for_its_tpm_where_the_inventory_says_so(render: Render) -> None:
    """Off by default, and never for a control plane, which has the keys of authorities anyway."""
    asks = ("node/join", "node/kubelet-client", "node/kubelet-serving")
    plain = render().resources("rack-1")
    assert "node/tpm2-tools" not in plain and not any("attestation" in plain[name] for name in asks)
    group = "nodes: {vars: {node_attestation: require, node_attestation_pcrs: [0, 7]}}"
    rendered = render(more=f"all: {{children: {{{group}}}}}\n")
    wanted = {"mode": "require", "pcrs": [0, 7], "tcti": "device:/dev/tpmrm0"}
    found = rendered.resources("rack-1")
    assert [found[name]["attestation"] for name in asks] == [wanted] * 3
    assert "node/tpm2-tools" in found["node/join"]["requires"]
    assert found["node/tpm2-tools"]["name"] == "tpm2-tools"
    assert not any("attestation" in resource for resource in rendered.resources("az-1").values())


def test_who_vouches_for_a_tpm_stands_in_the_document_as_the_inventory_has_it(render: Render) -> None:
    pem = Maker("a maker").pem
    said = {"node_attestation": "require", "node_attestation_ek_authorities": [pem]}
    own = {"rack-1": {"node_attestation_ek_sha256": "a1" * 32}}
    rendered = render(more=json.dumps({"all": {"hosts": own, "children": {"nodes": {"vars": said}}}}))
    attestation = rendered.resources("rack-1")["node/join"]["attestation"]
    assert (attestation["authorities"], attestation["endorsement"]) == ([pem], "a1" * 32)
