# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fields of the kubelet and flags of the control plane that ironspan or kubeadm sets."""

from __future__ import annotations

from collections.abc import Mapping

OWN: Mapping[str, Mapping[str, str]] = {
    "kubelet": {
        "maxPods": "node_kubelet_max_pods",
        "systemReserved": "node_kubelet_system_reserved",
        "kubeReserved": "node_kubelet_kube_reserved",
        "evictionHard": "node_kubelet_eviction_hard",
        "maxParallelImagePulls": "node_kubelet_parallel_image_pulls",
        "serializeImagePulls": "node_kubelet_parallel_image_pulls",
        "resolvConf": "node_kubelet_resolv_conf",
        "failCgroupV1": "node_kubelet_fail_cgroup_v1",
        "topologyManagerPolicy": "node_kubelet_topology_manager_policy",
        "topologyManagerScope": "node_kubelet_topology_manager_scope",
        "cpuManagerPolicy": "node_kubelet_cpu_manager_policy",
        "reservedSystemCPUs": "node_kubelet_reserved_cpus",
        "clusterDomain": "site_cluster_domain",
        "clusterDNS": "site_service_cidr, or dns_node_cache",
        "registerWithTaints": "site_taints",
        "podCIDR": "site_pod_cidr",
        **dict.fromkeys(
            (
                "address", "apiVersion", "authentication", "authorization", "cgroupDriver",
                "containerRuntimeEndpoint", "enableServer", "healthzBindAddress", "healthzPort",
                "imageServiceEndpoint", "kind", "port", "providerID", "readOnlyPort", "registerNode",
                "rotateCertificates", "runOnce", "serverTLSBootstrap", "staticPodPath", "staticPodURL",
                "tlsCertFile", "tlsPrivateKeyFile",
            ),
            "",
        ),
    },
    "kube-apiserver": {
        "advertise-address": "site_address",
        "secure-port": "control_plane_port",
        "service-cluster-ip-range": "site_service_cidr",
        "audit-log-maxage": "control_plane_audit_max_age_days",
        "audit-log-maxbackup": "control_plane_audit_max_backup_count",
        "audit-log-maxsize": "control_plane_audit_max_size_mb",
        # None of them beside authentication-config: pkg/kubeapiserver/options/authentication.go, Validate.
        **dict.fromkeys(
            (
                "oidc-ca-file", "oidc-client-id", "oidc-groups-claim", "oidc-groups-prefix",
                "oidc-issuer-url", "oidc-required-claim", "oidc-signing-algs", "oidc-username-claim",
                "oidc-username-prefix",
            ),
            "identity_issuer",
        ),
        **dict.fromkeys(
            (
                "admission-control-config-file", "allow-privileged", "anonymous-auth", "audit-log-path",
                "audit-policy-file", "authentication-config", "client-ca-file", "etcd-cafile",
                "etcd-certfile", "etcd-keyfile", "etcd-servers", "kubelet-certificate-authority",
                "kubelet-client-certificate", "kubelet-client-key", "proxy-client-cert-file",
                "proxy-client-key-file", "requestheader-client-ca-file", "service-account-key-file",
                "service-account-signing-key-file", "tls-cert-file", "tls-private-key-file",
                "token-auth-file",
            ),
            "",
        ),
    },
    "kube-controller-manager": {
        "cluster-cidr": "site_pod_cidr",
        "cluster-name": "site_name",
        "node-cidr-mask-size": "site_node_cidr_mask",
        "node-cidr-mask-size-ipv4": "site_node_cidr_mask",
        "node-cidr-mask-size-ipv6": "site_node_cidr_mask_ipv6",
        "service-cluster-ip-range": "site_service_cidr",
        **dict.fromkeys(
            (
                "allocate-node-cidrs", "authentication-kubeconfig", "authorization-kubeconfig",
                "client-ca-file", "cluster-signing-cert-file", "cluster-signing-key-file", "kubeconfig",
                "leader-elect", "requestheader-client-ca-file", "root-ca-file", "secure-port",
                "service-account-private-key-file", "use-service-account-credentials",
            ),
            "",
        ),
    },
    "kube-scheduler": dict.fromkeys(
        (
            "authentication-kubeconfig", "authorization-kubeconfig", "kubeconfig", "leader-elect",
            "secure-port",
        ),
        "",
    ),
}  # fmt: skip
"""What ironspan or kubeadm sets, by component: the variable it follows from, "" where it never changes."""
