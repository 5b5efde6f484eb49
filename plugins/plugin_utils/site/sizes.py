# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Size profiles: what has to be set differently in a cluster of 100 nodes and in one of 7,500.

Every figure of ``Profile`` has its source in ``SOURCES``; docs/sizes.md has both as a table. What equals the
default of Kubernetes is not written into any document, so small sites do not notice that there are profiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

DEFAULT_REQUESTS, DEFAULT_MUTATING_REQUESTS = 400, 200
"""kube-apiserver: --max-requests-inflight and --max-mutating-requests-inflight."""
KERNEL_NEIGHBOURS = (128, 512, 1024)
"""Linux, Documentation/networking/ip-sysctl: gc_thresh1 to gc_thresh3."""
NODES_PER_DNS_SERVER, CORES_PER_DNS_SERVER = 16, 256
NODES_PER_DNS_SERVER_WITH_CACHE = 128
JOIN_EVENTS_PER_SECOND = 50_000
MOST_JOINS = 50
SIZES = (100, 500, 1000, 2500, 5000, 7500)


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """What a cluster of at most ``nodes`` nodes needs.

    Args:
        nodes: most nodes.
        pod_prefix: prefix length of the pod network when each node gets a /24.
        endpoints_per_slice: most endpoints in one EndpointSlice.
        requests_inflight: reading requests that an API server works on at the same time.
        mutating_requests_inflight: the same for writing ones. API priority and fairness shares the sum.
        status_update_seconds: how often a kubelet looks at its own status.
        status_report_seconds: how often it reports a status that has not changed.
        kubelet_queries_per_second: requests of a kubelet to the API, with twice as many at once.
        neighbours: net.ipv4.neigh.default.gc_thresh1 to 3, entries of the whole host.
        etcd_quota_bytes: least quota of the store.
        events_apart: events belong into an etcd of their own.
    """

    nodes: int
    pod_prefix: int
    endpoints_per_slice: int
    requests_inflight: int
    mutating_requests_inflight: int
    status_update_seconds: int
    status_report_seconds: int
    kubelet_queries_per_second: int
    neighbours: tuple[int, int, int]
    etcd_quota_bytes: int
    events_apart: bool

    @property
    def api_server_args(self) -> dict[str, int]:
        """Flags of the API server that differ from its defaults."""
        if self.requests_inflight == DEFAULT_REQUESTS:
            return {}
        return {
            "max-requests-inflight": self.requests_inflight,
            "max-mutating-requests-inflight": self.mutating_requests_inflight,
        }

    @property
    def sysctls(self) -> dict[str, int]:
        """Kernel settings that differ from the kernel's defaults."""
        if self.neighbours == KERNEL_NEIGHBOURS:
            return {}
        return {
            f"net.ipv4.neigh.default.gc_thresh{number}": value
            for number, value in enumerate(self.neighbours, 1)
        }

    @property
    def joins_at_once(self) -> int:
        """Most hosts that join at the same time."""
        return max(1, min(MOST_JOINS, JOIN_EVENTS_PER_SECOND // self.nodes))

    def node_room(self, mask: int) -> int:
        """Return the prefix length of the smallest pod network that holds every node.

        Args:
            mask: prefix length of one node's part.
        """
        return mask - (self.nodes - 1).bit_length()


def _profile(
    nodes: int, requests: tuple[int, int], neighbours: tuple[int, int, int], *, events_apart: bool
) -> Profile:
    return Profile(
        nodes=nodes,
        pod_prefix=24 - (nodes - 1).bit_length(),
        endpoints_per_slice=100,
        requests_inflight=requests[0],
        mutating_requests_inflight=requests[1],
        status_update_seconds=10,
        status_report_seconds=300,
        kubelet_queries_per_second=50,
        neighbours=neighbours,
        etcd_quota_bytes=8 * 2**30,
        events_apart=events_apart,
    )


_SMALL = (DEFAULT_REQUESTS, DEFAULT_MUTATING_REQUESTS)
_AKS_NEIGHBOURS = (4096, 8192, 16_384)

PROFILES: tuple[Profile, ...] = (
    _profile(100, _SMALL, KERNEL_NEIGHBOURS, events_apart=False),
    _profile(500, _SMALL, KERNEL_NEIGHBOURS, events_apart=False),
    _profile(1000, (1500, 500), _AKS_NEIGHBOURS, events_apart=False),
    _profile(2500, (1500, 500), _AKS_NEIGHBOURS, events_apart=True),
    _profile(5000, (3000, 1000), _AKS_NEIGHBOURS, events_apart=True),
    _profile(7500, (3000, 1000), (80_000, 90_000, 100_000), events_apart=True),
)
LARGEST = PROFILES[-1].nodes

SOURCES: Mapping[str, str] = {
    "nodes": "Kubernetes, Considerations for large clusters: up to 5,000 nodes. 7,500: OpenAI, Scaling "
    "Kubernetes to 7,500 nodes (2021); beyond what Kubernetes itself tests",
    "pod_prefix": "arithmetic: a /24 a node, the controller manager's default (--node-cidr-mask-size)",
    "endpoints_per_slice": "kube-controller-manager, default of --max-endpoints-per-slice",
    "requests_inflight": "defaults of the API server; from 1,000 and from 3,000 nodes those of Kubernetes' "
    "own scale tests (test/kubemark/resources/start-kubemark-master.sh in v1.36.4)",
    "mutating_requests_inflight": "as requests_inflight",
    "status_update_seconds": "kubelet, default of nodeStatusUpdateFrequency",
    "status_report_seconds": "kubelet, default of nodeStatusReportFrequency; leases carry the heartbeat",
    "kubelet_queries_per_second": "kubelet, defaults of kubeAPIQPS and kubeAPIBurst since 1.27",
    "neighbours": "the kernel's defaults; then those of AKS nodes (Azure, Customize node configuration); for "
    "7,500 OpenAI's (Scaling Kubernetes to 2,500 nodes, 2018)",
    "etcd_quota_bytes": "etcd, System limits: 8 GiB is the largest that it suggests",
    "events_apart": "Kubernetes, Considerations for large clusters; OpenAI did it past 1,000 nodes (2018)",
    "joins_at_once": "our reckoning: a join writes its Node about ten times (seen with kwok) in ten seconds, "
    "and flannel on every node is told of each; 50,000 such messages a second; never more than the forks, 50",
}
"""Where each figure comes from."""


def profile_for(nodes: int) -> Profile:
    """Return the smallest profile with room for a number of nodes; the largest one for more than it holds."""
    return next((profile for profile in PROFILES if profile.nodes >= nodes), PROFILES[-1])


def dns_servers(nodes: int, cores: int = 0, *, node_cache: bool = False) -> int:
    """Return how many CoreDNS pods a cluster needs.

    Kubernetes' own rule (cluster/addons/dns-horizontal-autoscaler in v1.36.4): one for 16 nodes or 256 cores,
    whatever gives more, and never one alone. Where nodes have caches of their own, only what these lack gets
    there: one for 128 nodes, which is our choice and not measured at that size.

    Args:
        nodes: of the cluster.
        cores: of all nodes together; 0 when nobody said.
        node_cache: nodes have caches of their own.
    """
    by_nodes = NODES_PER_DNS_SERVER_WITH_CACHE if node_cache else NODES_PER_DNS_SERVER
    by_cores = CORES_PER_DNS_SERVER * (by_nodes // NODES_PER_DNS_SERVER)
    return max(2, math.ceil(nodes / by_nodes), math.ceil(cores / by_cores))
