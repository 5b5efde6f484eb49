# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Flags and fields of the right type with which a program of Kubernetes does not start."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL

API, MANAGER = "control_plane_api_server_args", "control_plane_controller_manager_args"
SCHEDULER, KUBELET = "control_plane_scheduler_args", "node_kubelet_settings"
WRONG = (
    (API, "enable-admission-plugins: NodeRestricton", "write NodeRestriction"),
    (
        API,
        "enable-admission-plugins: 'NodeRestriction,PodSecurityPolicy'",
        "plugin PodSecurityPolicy",
    ),
    (API, "enable-admission-plugins: AlwaysPullImages", "write NodeRestriction,AlwaysPullImages"),
    (API, "disable-admission-plugins: NodeRestriction", "turns NodeRestriction off, which keeps nodes apart"),
    (API, "disable-admission-plugins: Prioriti", "write Priority"),
    (API, "authorization-mode: AlwaysAllow", "lets everybody do everything"),
    (API, "authorization-mode: RBAC", "lacks Node or RBAC"),
    (API, "authorization-mode: 'Node,RBAC,RBCA'", "is no mode"),
    (API, "authorization-mode: 'Node,RBAC,Webhook'", "Webhook needs authorization-webhook-config-file"),
    (API, "service-node-port-range: 32767-30000", "is no range of ports"),
    (API, "service-node-port-range: '30000:32767'", "is no range of ports"),
    (API, "service-node-port-range: 30000-70000", "is no range of ports"),
    (API, "max-requests-inflight: -5", "-5 is less than nothing"),
    (API, "goaway-chance: 2", "is no chance that is taken"),
    (API, "tls-min-version: TLS13", "write VersionTLS12 or VersionTLS13"),
    (
        API,
        "tls-cipher-suites: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA25",
        "write TLS_ECDHE_RSA_WITH",
    ),
    (API, "tls-cipher-suites: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "lacks what HTTP/2 wants"),
    (API, "audit-log-format: yaml", "write json or legacy"),
    (MANAGER, "controllers: '*,-nodeipm'", "there is no controller nodeipm"),
    (MANAGER, "concurrent-deployment-syncs: 0", "0 works on nothing"),
    (MANAGER, "leader-elect-lease-duration: 5s", "a lease of 5 s is renewed for 10 s"),
    (MANAGER, "leader-elect-renew-deadline: 20s", "a lease of 15 s is renewed for 20 s"),
    (SCHEDULER, "leader-elect-retry-period: 9s", "are too few for retries each 9 s"),
    (KUBELET, "shutdownGracePeriodCriticalPods: 20s", "are more than the 0 s that all pods have"),
    (KUBELET, "shutdownGracePeriod: 500ms", "are less than a second"),
    (KUBELET, "imageMaximumGCAge: 1m", "is no longer than imageMinimumGCAge"),
    (KUBELET, "containerLogMaxSize: lots", "is no size"),
    (KUBELET, "containerLogMonitorInterval: 1s", "is shorter than 3s"),
    (KUBELET, "memoryManagerPolicy: Static", "what to keep of each NUMA node"),
    (KUBELET, "allowedUnsafeSysctls: [vm.swappiness]", "kernels have one for the whole host"),
    (KUBELET, "enforceNodeAllocatable: [pod]", "write pods"),
    (KUBELET, "enforceNodeAllocatable: [none, pods]", "write it once, or none alone"),
    (KUBELET, "enforceNodeAllocatable: [pods, system-reserved]", "needs systemReservedCgroup"),
    (KUBELET, "cgroupsPerQOS: false", "is false, and enforceNodeAllocatable has pods"),
    (KUBELET, "crashLoopBackOff: {maxContainerRestartPeriod: 10m}", "is outside 1s to 300s"),
    (KUBELET, "cpuCFSQuotaPeriod: 2s", "is outside 1ms to 1s"),
    (
        KUBELET,
        "topologyManagerPolicyOptions: {prefer-closest-numa-node: 'true'}",
        "write prefer-closest",
    ),
)
RIGHT = (
    (API, "enable-admission-plugins: 'NodeRestriction,AlwaysPullImages,PodNodeSelector'"),
    (API, "disable-admission-plugins: DefaultStorageClass"),
    (API, "authorization-mode: 'Node,RBAC,Webhook', authorization-webhook-config-file: /etc/kubernetes/hook"),
    (API, "service-node-port-range: 30000+2767"),
    (API, "service-node-port-range: 20000-22000, max-requests-inflight: 0, goaway-chance: '0.001'"),
    (API, "tls-cipher-suites: TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (API, "tls-min-version: VersionTLS13, tls-cipher-suites: TLS_AES_256_GCM_SHA384"),
    (MANAGER, "controllers: '*,-ttl,bootstrapsigner,-node-ipam-controller', concurrent-deployment-syncs: 20"),
    (
        MANAGER,
        "leader-elect-lease-duration: 1m, leader-elect-renew-deadline: 40s, leader-elect-retry-period: 5s",
    ),
    (KUBELET, "shutdownGracePeriod: 1m, shutdownGracePeriodCriticalPods: 20s, imageMaximumGCAge: 48h"),
    (KUBELET, "containerLogMaxSize: 50Mi, containerLogMonitorInterval: 10s, cpuCFSQuotaPeriod: 20ms"),
    (
        KUBELET,
        "allowedUnsafeSysctls: ['net.*', net.core.somaxconn, 'kernel.shm*', fs.mqueue.msg_max]",
    ),
    (KUBELET, "enforceNodeAllocatable: [pods, kube-reserved], kubeReservedCgroup: /kube.slice"),
    (KUBELET, "cgroupsPerQOS: false, enforceNodeAllocatable: [none]"),
    (KUBELET, "memoryManagerPolicy: Static, reservedMemory: [{numaNode: 0, limits: {memory: 612Mi}}]"),
    (KUBELET, "crashLoopBackOff: {maxContainerRestartPeriod: 1m}"),
)


@pytest.mark.parametrize(("variable", "value", "says"), WRONG)
def test_what_would_not_start(example: Example, variable: str, value: str, says: str) -> None:
    example.append(ALL, f"{variable}: {{{value}}}\n")
    problems = example.problems()
    assert [says in str(problem) for problem in problems] == [True], problems
    assert problems[0].line == example.line(ALL, variable)


@pytest.mark.parametrize(("variable", "value"), RIGHT)
def test_what_starts(example: Example, variable: str, value: str) -> None:
    example.append(ALL, f"{variable}: {{{value}}}\n")
    assert example.problems() == []


@pytest.mark.parametrize("suites", ["[TLS_AES_128_GCM_SHA256]", "[TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]"])
def test_suites_without_what_http_2_wants(example: Example, suites: str) -> None:
    example.append(ALL, f"site_tls_cipher_suites: {suites}\n")
    (problem,) = example.problems()
    assert "has none of those that HTTP/2 wants" in problem.message
