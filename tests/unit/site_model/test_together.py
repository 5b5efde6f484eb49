# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values that are right each by itself and do not go together: two fields, two variables, two hosts."""

from __future__ import annotations

import pytest

from .backup_mutations import AZURE, FILE
from .conftest import Example
from .mutations import _HAPROXY, ALL, HOSTS

ID, OTHER = "72f988bf-86f1-41af-91ab-2d7cd011db47", "72f988bf-86f1-41af-91ab-2d7cd011db48"
NAMED = AZURE.replace("managed_identity", f"managed_identity, client_id: {ID}")
MANAGER = "control_plane_controller_manager_args"
CONTAINER = f"subscription: {OTHER}, resource_group: rg, account: backups, container: etcd, retention_days: 9"
WRONG = (
    (AZURE.replace("managed_identity", "managed_identity, token_file: /x"), "means nothing for managed_id"),
    (AZURE.replace("managed_identity", f"arc, tenant_id: {ID}"), "means nothing for arc"),
    (f"{FILE.rstrip()}\n  - {{kind: file, path: /srv/etcd-backup/copy}}", "are one inside of the other"),
    (f"{FILE.rstrip()}\n  - {{kind: file, path: /srv/etcd-backup, prefix: a/}}", "are one inside"),
    ("etcd_backup_stores: [{kind: file, path: /tmp/backup}]", "is no place for backups"),
    ("etcd_backup_stores: [{kind: file, path: /var/tmp/backup}]", "is no place for backups"),
    (
        f"{FILE}etcd_backup_drill_max_age_seconds: 1800",
        "would come between any two snapshots (3600 s); write 7200",
    ),
    (f"{FILE}etcd_backup_snapshot_seconds: 604800", "write less than 90000"),
    (f"etcd_backup_management: {{kind: azure_cli, client_id: {ID}}}", "which does not read it"),
    ("etcd_backup_management: {kind: managed_identity, token_file: /x}", "which does not read it"),
    ("etcd_backup_management: {url: 'http://management.azure.com'}", "would send tokens unencrypted"),
    (
        f"etcd_backup_containers:\n  - {{{CONTAINER}}}\n  - {{{CONTAINER.replace('days: 9', 'days: 30')}}}",
        "is that of etcd_backup_containers[0] too",
    ),
    (f"etcd_backup_containers: [{{{CONTAINER}, writers: [{ID}], collectors: [{ID}]}}]", "is a writer too"),
    ("base_security_sysctls: [{name: fs.nr_open, value: '65536'}]", "less than containerd_limit_nofile"),
    ("base_sysctls: [{name: net.netfilter.nf_conntrack_max, value: '65536'}]", "write 131072 or more"),
    ("base_sysctls: [{name: kernel.hostname, value: node}]", "each host has a name of its own"),
    ("base_sysctls: [{name: kernel.pid_max, value: '1000'}]", "less than the kernel's own default"),
    ("base_sysctls: [{name: fs.inotify.max_user_instances, value: '8'}]", "less than the kernel's own"),
    ("base_sysctls: [{name: net.ipv4.ping_group_range, value: '0'}]", "write 2 numbers"),
    ("base_sysctls: [{name: kernel.threads-max, value: '10'}]", "write 20 or more"),
    ("control_plane_api_server_args: {runtime-config: 'api/all=yes'}", "write api/all=true or api/all=false"),
    ("control_plane_api_server_args: {request-timeout: 0s}", "ends each request when it begins"),
    ("control_plane_api_server_args: {oidc-username-prefix: '-'}", "is set by the site's other variables"),
    (f"{MANAGER}: {{cluster-signing-duration: 0s}}", "is shorter than any certificate"),
    (
        f"{MANAGER}: {{controllers: '-nodelifecycle'}}",
        "turns on no controller at all; write *,-nodelifecycle",
    ),
    (f"{MANAGER}: {{controllers: ''}}", "turns on no controller at all; write *"),
    (f"{MANAGER}: {{node-monitor-grace-period: 10s}}", "are gone after 10 s; write 50s"),
    (
        "node_kubelet_settings: {nodeLeaseDurationSeconds: 200}",
        "each 50 s, and are gone after 50 s; write less",
    ),
    (f"{MANAGER}: {{bind-address: 10.20.0.11}}", "is the address of host az-1, and that of az-2"),
    ("control_plane_scheduler_args: {bind-address: 10.30.1.11}", "is the address of host gpu-a-01"),
    ("control_plane_api_server_args: {etcd-compaction-interval: 0s}", "never compacts the store"),
    ("control_plane_api_server_args: {service-account-max-token-expiration: 5m}", "is shorter than 1h"),
    ("control_plane_api_server_args: {audit-log-mode: async}", "is no value of this flag; write batch"),
    ("node_kubelet_settings: {evictionMinimumReclaim: {memory.available: lots}}", "'lots' is no amount"),
    ("node_kubelet_settings: {userNamespaces: {idsPerPod: 1000}}", "is no multiple of 65536"),
    (
        "node_kubelet_settings: {shutdownGracePeriod: 30s, "
        "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 10}]}",
        "take shutdownGracePeriod out",
    ),
    (
        "node_kubelet_settings: {memoryManagerPolicy: Static, "
        "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]}",
        "write memory of 612Mi, of all NUMA nodes together",
    ),
    ("node_kubelet_settings: {registryBurst: 0}", "so that no image is ever pulled"),
    ("node_kubelet_settings: {evictionSoftGracePeriod: {memory.available: 1m}}", "that there is not"),
    (
        "node_kubelet_settings: {memorySwap: {swapBehavior: LimitedSwap}}",
        "hosts have no swap (base_swap_off)",
    ),
    (
        "base_swap_off: false\nnode_kubelet_settings: {memorySwap: {swapBehavior: LimitedSwap}}",
        "does not start where there is swap; write 'failSwapOn: false'",
    ),
)
RIGHT = (
    f"{FILE.rstrip()}\n  - {{kind: file, path: /srv/etcd-backup-2}}\n",
    f"{FILE}    prefix: a/\n  - {{kind: file, path: /srv/etcd-backup, prefix: b/}}\n",
    f"{FILE}etcd_backup_snapshot_seconds: 86400\n",
    "etcd_backup_snapshot_seconds: 604800\n",
    "etcd_backup_management: {kind: azure_cli, url: 'https://management.usgovcloudapi.net'}\n",
    f"etcd_backup_containers: [{{{CONTAINER}, writers: [{ID}], collectors: [{OTHER}]}}]\n",
    "base_sysctls: [{name: fs.nr_open, value: '2097152'}, {name: kernel.pid_max, value: '65536'}]\n",
    "base_sysctls: [{name: net.netfilter.nf_conntrack_max, value: '1048576'}]\n",
    "base_sysctls: [{name: net.netfilter.nf_conntrack_max, value: '65536'}]\n"
    "control_plane_conntrack_max_per_core: 0\n",
    "site_cni: cilium\nbase_sysctls: [{name: net.netfilter.nf_conntrack_max, value: '65536'}]\n",
    "control_plane_api_server_args: {runtime-config: 'api/alpha=false,batch/v1', request-timeout: 5m}\n",
    f"{MANAGER}: {{controllers: '*', cluster-signing-duration: 24h, bind-address: 0.0.0.0}}\n",
    f"{MANAGER}: {{node-monitor-grace-period: 90s}}\n"
    "node_kubelet_settings: {nodeLeaseDurationSeconds: 240}\n",
    f"{MANAGER}: {{node-monitor-grace-period: 16s}}\n",
    "control_plane_extra_names: [127.0.0.1, '::1', 192.0.2.10, '*.k8s.example.internal', 2001:db8::1]\n",
    "base_swap_off: false\n"
    "node_kubelet_settings: {failSwapOn: false, memorySwap: {swapBehavior: LimitedSwap}}\n",
    "node_kubelet_settings: {registryPullQPS: 0, registryBurst: 0}\n",
    "node_kubelet_eviction_hard: {memory.available: 5%}\n"
    "node_kubelet_settings: {memoryManagerPolicy: Static, "
    "reservedMemory: [{numaNode: 0, limits: {memory: 9Gi}}]}\n",
    "node_kubelet_system_reserved: {memory: 1Gi}\nnode_kubelet_settings: {memoryManagerPolicy: Static, "
    "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 356Mi}}]}\n",
    "node_kubelet_settings: {evictionMinimumReclaim: {memory.available: 1Gi, nodefs.available: 5%}, "
    "shutdownGracePeriod: 0s, userNamespaces: {idsPerPod: 131072}, "
    "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 10}]}\n",
    "control_plane_api_server_args: {service-account-max-token-expiration: 24h, audit-log-mode: blocking}\n",
)


@pytest.mark.parametrize(("lines", "says"), WRONG)
def test_what_does_not_go_together(example: Example, lines: str, says: str) -> None:
    example.append(ALL, f"{lines.rstrip()}\n")
    (problem,) = example.problems()
    assert says in str(problem)
    last = lines.rstrip().splitlines()[-1]
    assert (problem.file, problem.line) == (str(example.folder / ALL), example.line(ALL, last))


@pytest.mark.parametrize("lines", RIGHT)
def test_what_does(example: Example, lines: str) -> None:
    example.append(ALL, lines)
    assert example.problems() == []


def test_who_deletes_is_not_who_writes(example: Example) -> None:
    """Azure refuses it each night, as the writer's identity may delete nothing."""
    example.replace(HOSTS, _HAPROXY, f"{_HAPROXY}    etcd_collector:\n      hosts:\n        cpu-c-01:\n")
    example.append(ALL, NAMED)
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "etcd_backup_stores:")
    assert f"{ID} is the identity that writes" in problem.message
    example.append(ALL, f"etcd_backup_gc_identity: {ID}\n")
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "etcd_backup_gc_identity")
    example.put(ALL, f"etcd_backup_gc_identity: {OTHER}\n")
    assert example.problems() == []
