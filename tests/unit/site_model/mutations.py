# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Inventories with one mistake each: what is changed in the example, and what must be said about it."""

from __future__ import annotations

import dataclasses

HOSTS = "hosts.yml"
ALL = "group_vars/all.yml"
AZURE = "group_vars/azure.yml"
ON_PREM = "group_vars/on_prem.yml"
GPU = "group_vars/gpu.yml"


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One mistake.

    Args:
        name: what the mistake is.
        changes: (file, old text, new text); without an old text the new one is appended.
        file: the file that must be named.
        at: a text that is only on the line that must be named.
        says: a part of the message.
        problems: how many problems there must be altogether.
    """

    name: str
    changes: tuple[tuple[str, str, str], ...]
    file: str
    at: str
    says: str
    problems: int = 1


def edit(
    name: str, file: str, old: str, new: str, says: str, at: str = "", where: str = "", problems: int = 1
) -> Mutation:
    """Return a mistake made by one replacement; by default it is expected on the replaced line."""
    return Mutation(name, ((file, old, new),), where or file, at or new.splitlines()[0], says, problems)


ENCRYPTED = b"\n".join(part.hex().encode() for part in (b"salt", b"signature", b"secret")).hex()
"""What ansible-vault would write; no password opens it."""
_NAME = "site_name: example"
_PODS = "site_pod_cidr: 10.244.0.0/16"
_SERVICES = "site_service_cidr: 10.96.0.0/16"
_MASK = "site_node_cidr_mask: 24"
_VERSION = 'site_kubernetes_version: "1.36.4"'
_ENDPOINT = "site_api_endpoint: api.example.internal:6443"
_API = "site_api_address: 10.20.0.10"
_STORE = "site_pki_store: ~/.local/share/ironspan/example/pki"
_MTU = "site_wan_mtu: 1400"
_MIRROR = "site_mirror_url: http://mirror.azure.example.internal:8080"
_LABEL = 'example.com/gpu: "true"'
_GPU_1 = "gpu-a-01: {ansible_host: 10.30.1.11}"
_AZ_2 = "az-2: {ansible_host: 10.20.0.12}"
_ETCD = "    etcd:\n      hosts:\n        az-1:\n        az-2:\n        az-3:\n"
_PLANES = "    control_plane:\n      hosts:\n        az-1:\n        az-2:\n        az-3:\n"
_NODES = "    nodes:\n      children:\n        rack_a:\n        rack_b:\n        rack_c:\n"
_GVISOR = "    gvisor:\n      children:\n        rack_c:\n"
_HAPROXY = "    haproxy: {}\n"
_BALANCED = "    haproxy:\n      hosts:\n        az-1:\n"

NAMES = (
    edit("unknown variable", ALL, _MTU, "site_wan_mut: 1400", "unknown variable; write site_wan_mtu"),
    edit(
        "unknown variable of a role", ALL, _MTU, "etcd_verison: '3'", "unknown variable; write etcd_version"
    ),
    edit(
        "unknown variable of a host",
        HOSTS,
        _GPU_1,
        "gpu-a-01: {ansible_host: 10.30.1.11, site_rak: a}",
        "site_rak: unknown variable; write site_rack",
    ),
    edit("unknown variable like none", ALL, _MTU, "zzqx: 1", "remove it, or begin the names of your own"),
    edit(
        "unknown variable in an empty group",
        HOSTS,
        _HAPROXY,
        "    haproxy:\n      vars:\n        haproxy_maxcon: 1\n",
        "write haproxy_maxconn",
        at="haproxy_maxcon",
    ),
    edit(
        "unknown group",
        HOSTS,
        _HAPROXY,
        "    gvizor:\n      hosts:\n        cpu-c-01:\n",
        "groups.gvizor: unknown group; write gvisor",
    ),
    edit(
        "unknown group like none",
        HOSTS,
        _HAPROXY,
        "    warehouse: {}\n",
        "begin the names of your own groups",
    ),
    edit(
        "host name in capitals",
        HOSTS,
        _GPU_1,
        "GPU_A_01: {ansible_host: 10.30.1.11}",
        "hosts.GPU_A_01: is no valid node name",
        at="GPU_A_01",
    ),
    edit("host name too long", HOSTS, "gpu-a-01:", f"{'g' * 64}:", "at most 63 characters"),
    edit("host name of digits", HOSTS, "gpu-a-01:", '"1001":', "is an address to every resolver"),
    edit(
        "host name that ends in a hexadecimal number",
        HOSTS,
        "gpu-a-01:",
        "gpu.0xa1:",
        "write a name with letters there, for example gpu.node-0xa1",
    ),
    edit("host name with a trailing hyphen", HOSTS, "gpu-a-01:", "gpu-a-:", "write gpu-a"),
    edit(
        "host names equal to DNS",
        HOSTS,
        "gpu-a-01:",
        "GPU-A-02:",
        "is the same name as",
        at="gpu-a-02:",
        problems=2,
    ),
    edit(
        "host named like a group", HOSTS, "gpu-a-01:", "gpu:", "a group has the same name", at="gpu: {ansible"
    ),
    edit(
        "host twice in a mapping",
        HOSTS,
        "gpu-a-02: {ansible_host: 10.30.1.12}",
        "gpu-a-01: {ansible_host: 10.30.1.12}",
        "is there twice, first on line",
    ),
    edit(
        "variable twice in a file",
        ALL,
        _MTU,
        "site_wan_mtu: 1400\nsite_wan_mtu: 1300",
        "is there twice",
        at="site_wan_mtu: 1300",
    ),
    edit("site name with a space", ALL, _NAME, 'site_name: "My Site"', "write my-site"),
    edit(
        "cluster domain with an underscore",
        ALL,
        _MTU,
        "site_cluster_domain: my_cluster.local",
        "is not a DNS domain",
    ),
)

TYPES = (
    edit("text for a number", ALL, _MASK, "site_node_cidr_mask: twenty", "must be a whole number, is text"),
    edit("decimal for a number", ALL, _MASK, "site_node_cidr_mask: 24.5", "is a decimal number (24.5)"),
    edit("boolean for a number", ALL, _MASK, "site_node_cidr_mask: yes", "is a boolean"),
    edit("list for a text", ALL, _NAME, "site_name: [example]", "must be text, is a list"),
    edit(
        "unquoted version",
        ALL,
        _VERSION,
        "site_kubernetes_version: 1.36",
        "must be text, is a decimal number (1.36); write it in quotes",
    ),
    edit("text for a boolean", ALL, _MTU, "site_lab: maybe", "must be true or false"),
    edit(
        "text for a dictionary",
        HOSTS,
        _GPU_1,
        "gpu-a-01: {ansible_host: 10.30.1.11, site_labels: gpu}",
        "must be a dictionary, is text",
    ),
    edit(
        "dictionary for a list",
        GPU,
        "site_taints:\n  - key: nvidia.com/gpu\n    value: present\n    effect: NoSchedule",
        "site_taints:\n  key: nvidia.com/gpu",
        "must be a list, is a dictionary",
        at="site_taints:",
    ),
    edit(
        "unknown key in a list",
        GPU,
        "value: present",
        "val: present",
        "site_taints[0].val: unknown key; write value",
    ),
    edit(
        "missing key in a list",
        GPU,
        "    effect: NoSchedule\n",
        "",
        "site_taints[0].effect: is missing",
        at="- key: nvidia",
    ),
    edit(
        "choice",
        GPU,
        "effect: NoSchedule",
        "effect: NoShedule",
        "'NoShedule' is not one of NoSchedule, PreferNoSchedule, NoExecute; write NoSchedule",
    ),
    edit(
        "choice of a role",
        ALL,
        _MTU,
        "base_hosts_entries: sites",
        "is not one of servers, site, endpoint, none; write site",
    ),
    edit(
        "none may be out of service", ALL, _MTU, "site_max_unavailable: 0", "is neither a number from 1 nor a"
    ),
    edit("more than all", ALL, _MTU, "site_max_unavailable: 110%", "is not 1% to 100%"),
    edit("no time to drain", ALL, _MTU, "site_drain_timeout_seconds: 1", "1 is outside 10 to 86400"),
    edit(
        "data neither kept nor lost",
        ALL,
        _MTU,
        "site_drain_empty_dir_data: keep",
        "is not one of refuse, delete",
    ),
    edit("number below its range", ALL, _MTU, "site_wan_mtu: 500", "500 is outside 1280 to 9216"),
    edit("number above its range", ALL, _MASK, "site_node_cidr_mask: 30", "write a number from 16 to 28"),
    edit(
        "quota above etcd's maximum",
        ALL,
        _MTU,
        "etcd_quota_bytes: 17179869184",
        "etcd suggests at most 8 GiB",
    ),
    edit("port out of range", ALL, _MTU, "flannel_port: 70000", "is outside 1 to 65535"),
    edit(
        "expression that fails",
        ALL,
        _MTU,
        'site_wan_mtu: "{{ no_such_thing }}"',
        "cannot be resolved",
    ),
    edit(
        "expression of another type", ALL, _MTU, "site_wan_mtu: \"{{ 'a' + 'b' }}\"", "must be a whole number"
    ),
    edit(
        "broken YAML in the inventory",
        HOSTS,
        _GPU_1,
        "gpu-a-01: {ansible_host: 10.30.1.11",
        "is not valid YAML",
        at="gpu-a-01: {",
    ),
)

NETWORKS = (
    edit(
        "pods and services overlap",
        ALL,
        _SERVICES,
        "site_service_cidr: 10.244.128.0/20",
        "overlaps the pod network 10.244.0.0/16",
    ),
    edit("pod network with host bits", ALL, _PODS, "site_pod_cidr: 10.244.0.1/16", "write 10.244.0.0/16"),
    edit("pod network without prefix", ALL, _PODS, "site_pod_cidr: ten", "is not a network in CIDR notation"),
    edit(
        "pod network too small",
        ALL,
        _PODS,
        "site_pod_cidr: 10.244.0.0/21",
        "has room for 8 nodes with a /24 each (site_node_cidr_mask), the site has 13; write a network of /20",
    ),
    edit(
        "pod network smaller than a node's part",
        ALL,
        _PODS,
        "site_pod_cidr: 10.244.0.0/25",
        "has room for 0 nodes",
    ),
    edit(
        "pod network too large for kubeadm",
        ALL,
        _PODS,
        "site_pod_cidr: 10.0.0.0/7",
        "kubeadm refuses",
        problems=17,
    ),
    edit("pod network is public", ALL, _PODS, "site_pod_cidr: 8.8.0.0/16", "is not a private network"),
    edit("pod network is IPv6", ALL, _PODS, "site_pod_cidr: fd00::/48", "is IPv6"),
    edit(
        "service network too small", ALL, _SERVICES, "site_service_cidr: 10.96.0.0/29", "outside /12 to /28"
    ),
    edit(
        "service network too large",
        ALL,
        _SERVICES,
        "site_service_cidr: 172.0.0.0/8",
        "outside /12 to /28",
        problems=2,
    ),
    edit(
        "hosts inside the pod network",
        ALL,
        _PODS,
        "site_pod_cidr: 10.30.0.0/16",
        "10.30.1.11 lies in site_pod_cidr (10.30.0.0/16)",
        at="gpu-a-01:",
        where=HOSTS,
        problems=10,
    ),
    edit(
        "host inside the service network",
        HOSTS,
        _GPU_1,
        "gpu-a-01: {ansible_host: 10.96.7.7}",
        "lies in site_service_cidr",
    ),
    edit(
        "duplicate address",
        HOSTS,
        "gpu-a-02: {ansible_host: 10.30.1.12}",
        "gpu-a-02: {ansible_host: 10.30.1.11}",
        "10.30.1.11 is the address of host gpu-a-01 too",
        problems=2,
    ),
    edit(
        "duplicate site_address",
        HOSTS,
        "site_address: 10.30.3.12",
        "site_address: 10.30.1.14",
        "10.30.1.14 is the address of host gpu-a-04 too",
    ),
    edit(
        "duplicate connection",
        HOSTS,
        "ansible_host: 192.168.50.32",
        "ansible_host: 192.168.50.31  # same",
        "is where host cpu-c-01 is reached too",
        at="# same",
    ),
    edit(
        "address is a name",
        HOSTS,
        _GPU_1,
        "gpu-a-01: {ansible_host: gpu-a-01.example.com}",
        "'gpu-a-01.example.com' is not an IP address; write site_address:",
    ),
    edit(
        "no address at all", HOSTS, _GPU_1, "gpu-a-01: {}", "hosts.gpu-a-01.site_address: 'gpu-a-01' is not"
    ),
    edit(
        "address with a typing mistake",
        HOSTS,
        "site_address: 10.30.3.11",
        "site_address: 10.30.3.511",
        "'10.30.3.511' is not an IP address",
    ),
    edit("loopback address", HOSTS, _GPU_1, "gpu-a-01: {ansible_host: 127.0.0.5}", "is a loopback address"),
    edit("multicast address", HOSTS, _GPU_1, "gpu-a-01: {ansible_host: 224.0.0.5}", "is a multicast address"),
    edit(
        "link-local address",
        HOSTS,
        _GPU_1,
        "gpu-a-01: {ansible_host: 169.254.1.5}",
        "is a link-local address",
    ),
)

GROUPS = (
    edit(
        "even number of etcd members",
        HOSTS,
        _ETCD,
        "    etcd:  # two\n      hosts:\n        az-1:\n        az-2:\n",
        "groups.etcd: 2 etcd members; an even number survives no more failures than 1; list 1 or 3",
        at="# two",
    ),
    edit("no etcd members", HOSTS, _ETCD, "    etcd: {}\n", "the site has no etcd member", at="etcd: {}"),
    edit(
        "no control plane",
        HOSTS,
        _PLANES,
        "    control_plane: {}\n",
        "the site has no control plane",
        at="control_plane: {}",
    ),
    edit(
        "no workers",
        HOSTS,
        _NODES,
        "    nodes: {}\n",
        "the site has no worker",
        at="    nodes: {}",
        problems=11,
    ),
    edit("group missing", HOSTS, _ETCD, "", "the site has no etcd member", at="site_name", where=ALL),
    edit(
        "etcd on premises",
        HOSTS,
        "        az-3:\n\n    # Hosts with an API",
        "        gpu-a-01:  # here\n\n    # Hosts with an API",
        "host gpu-a-01 is on premises, on the other side of the WAN",
        at="# here",
    ),
    edit(
        "host without purpose",
        HOSTS,
        _AZ_2,
        "az-2: {ansible_host: 10.20.0.12}\n        az-9: {ansible_host: 10.20.0.19}",
        "hosts.az-9: is in none of the groups",
        at="az-9",
    ),
    edit(
        "host on no side",
        HOSTS,
        _HAPROXY,
        "    haproxy:\n      hosts:\n        lb-1: {ansible_host: 10.20.0.30, site_mirror_url: 'http://m:80'}\n",
        "is in neither azure nor on_prem",
        at="lb-1",
    ),
    edit(
        "host on both sides",
        HOSTS,
        "rack_a:\n          hosts:\n",
        "rack_a:\n          hosts:\n            az-1:  # both\n",
        "is in both azure and on_prem",
        at="# both",
        problems=4,
    ),
    edit(
        "worker and control plane",
        HOSTS,
        _NODES,
        _NODES + "      hosts:\n        az-3:  # both\n",
        "is in control_plane too, and a host joins the cluster only once",
        at="# both",
    ),
    Mutation(
        "gVisor on a host that is no node",
        (
            (HOSTS, _GVISOR, _GVISOR + "      hosts:\n        az-3:  # new\n"),
            (HOSTS, _PLANES, "    control_plane:\n      hosts:\n        az-1:\n"),
        ),
        HOSTS,
        "# new",
        "groups.gvisor: host az-3 is not in the group nodes or control_plane",
    ),
    edit(
        "GPU on a control plane",
        HOSTS,
        "    gpu:\n      children:\n",
        "    gpu:\n      hosts:\n        az-3:  # gpu\n      children:\n",
        "groups.gpu: host az-3 is not in the group nodes; list it in nodes too",
        at="# gpu",
    ),
    edit(
        "host in two racks",
        HOSTS,
        "rack_b:\n          hosts:\n",
        "rack_b:\n          hosts:\n            gpu-a-01:  # again\n",
        "groups.rack_b: host gpu-a-01 is in rack_a too",
        at="# again",
    ),
    edit(
        "election timeout below five heartbeats",
        ALL,
        _MTU,
        "etcd_heartbeat_ms: 500\netcd_election_ms: 2000",
        "less than five heartbeats of 500 ms; write etcd_election_ms: 5000",
        at="etcd_election_ms",
    ),
)

ENDPOINTS = (
    edit(
        "endpoint without port", ALL, _ENDPOINT, "site_api_endpoint: api.example.internal", "is not NAME:PORT"
    ),
    edit(
        "endpoint is a URL",
        ALL,
        _ENDPOINT,
        "site_api_endpoint: https://api.example.internal:6443",
        "without https://",
    ),
    edit(
        "endpoint port too large",
        ALL,
        _ENDPOINT,
        "site_api_endpoint: api.example.internal:66000",
        "is not NAME:PORT",
    ),
    edit(
        "endpoint of another address",
        ALL,
        _ENDPOINT,
        "site_api_endpoint: 10.20.0.99:6443",
        "is not the address in site_api_endpoint (10.20.0.99)",
        at="site_api_address",
    ),
    edit(
        "API address missing",
        ALL,
        _API + "\n",
        "",
        "nothing says which address api.example.internal has",
        at="site_name",
    ),
    edit("API address is a name", ALL, _API, "site_api_address: balancer", "is not an IP address"),
    edit(
        "API address of a worker",
        ALL,
        _API,
        "site_api_address: 10.30.1.11",
        "is the address of host gpu-a-01, which has no API server",
    ),
    edit("API address among the pods", ALL, _API, "site_api_address: 10.244.3.3", "lies in site_pod_cidr"),
    Mutation(
        "API address is not haproxy's",
        (
            (HOSTS, _HAPROXY, "    haproxy:\n      hosts:\n        az-1:\n"),
            (ALL, _API, "site_api_address: 10.20.0.12"),
            (ALL, _ENDPOINT, "site_api_endpoint: api.example.internal:8443"),
        ),
        ALL,
        "site_api_address",
        "is the address of host az-2, which is not in the group haproxy",
    ),
    Mutation(
        "haproxy on the API server's port",
        ((HOSTS, _HAPROXY, _BALANCED), (ALL, _API, "site_api_address: 10.20.0.11")),
        ALL,
        "site_api_endpoint:",
        "port 6443 of host az-1 is that of API server (control_plane_port, by default)",
    ),
    edit(
        "mirror is no URL",
        AZURE,
        _MIRROR,
        "site_mirror_url: mirror.azure.example.internal",
        "does not begin with http://",
    ),
    edit(
        "mirror with a slash",
        AZURE,
        _MIRROR,
        "site_mirror_url: http://mirror.azure:8080/",
        "ends with a slash",
    ),
    edit(
        "mirror with a password",
        AZURE,
        _MIRROR,
        "site_mirror_url: http://user:hunter2@mirror.azure:8080",
        "'http://***@mirror.azure:8080' carries credentials",
    ),
    edit(
        "mirror with a bad port", AZURE, _MIRROR, "site_mirror_url: http://mirror.azure:port", "is not a URL"
    ),
    edit(
        "mirror missing for one side",
        AZURE,
        _MIRROR,
        "{}",
        "is not set for host az-1",
        at="az-1: {ansible",
        where=HOSTS,
        problems=3,
    ),
    edit(
        "two site names",
        AZURE,
        _MIRROR,
        _MIRROR + "\nsite_name: other",
        "write it once, in group_vars/all.yml",
        at="site_name",
    ),
)

MEMBERS = (
    edit("label value not quoted", GPU, _LABEL, "example.com/gpu: true", "the value True is not text"),
    edit(
        "label with a bad prefix",
        GPU,
        _LABEL,
        'Example_Com/gpu: "true"',
        "the prefix 'Example_Com' is not a DNS name",
    ),
    edit("label with a bad name", GPU, _LABEL, '"example.com/gpu type": "a"', "the name 'gpu type' is not"),
    edit(
        "label value too long",
        GPU,
        _LABEL,
        f'example.com/gpu: "{"x" * 64}"',
        "write a shorter or simpler value",
    ),
    edit("label of the kubelet", GPU, _LABEL, 'kubernetes.io/hostname: "a"', "belongs to the kubelet"),
    edit("taint with a bad key", GPU, "key: nvidia.com/gpu", "key: nvidia.com/gpu/0", "the prefix"),
    edit(
        "taint twice",
        GPU,
        "    effect: NoSchedule\n",
        "    effect: NoSchedule\n  - {key: nvidia.com/gpu, effect: NoSchedule}\n",
        "is there twice",
        at="- {key",
    ),
)

VERSIONS = (
    edit(
        "version not in the lock file",
        ALL,
        _VERSION,
        'site_kubernetes_version: "1.36.99"',
        'kubelet 1.36.99 is not in artifacts.lock.yml (it has 1.36.4, 1.37.1); write "1.36.4"',
    ),
    edit(
        "etcd version not in the lock file",
        ALL,
        _MTU,
        'etcd_version: "3.6.99"',
        "etcd 3.6.99 is not in artifacts.lock.yml",
    ),
    edit(
        "pause version not in the lock file",
        ALL,
        _MTU,
        'containerd_pause_version: "3.9"',
        "registry.k8s.io/pause 3.9 is not",
    ),
    edit(
        "kubelet newer than the API server",
        ON_PREM,
        "---\n",
        '---\nsite_kubernetes_version: "1.37.0"\n',
        "does not go with API server 1.36.4",
        at="site_kubernetes_version",
        problems=2,
    ),
    edit(
        "kubelet too old",
        GPU,
        "---\n",
        '---\nsite_kubernetes_version: "1.32.4"\n',
        "write a version from 1.33 to 1.36.4",
        at="site_kubernetes_version",
        problems=2,
    ),
    edit(
        "control planes of two versions",
        HOSTS,
        _AZ_2,
        'az-2: {ansible_host: 10.20.0.12, site_kubernetes_version: "1.36.3"}',
        "write one version for all control planes",
        problems=2,
    ),
    edit(
        "API server older than its flags need",
        AZURE,
        "---\n",
        '---\ncontrol_plane_api_server_args: {feature-gates: "GangScheduling=true"}\n'
        'site_kubernetes_version: "1.37.1"\n',
        "feature-gates: GangScheduling is gone since 1.37 (CHANGELOG-1.37.md, #139520); "
        "write GenericWorkload",
        at="control_plane_api_server_args",
    ),
    edit(
        "flag of a controller manager to come",
        AZURE,
        "---\n",
        '---\ncontrol_plane_controller_manager_args:\n  concurrent-service-syncs: "5"\n'
        'site_kubernetes_version: "1.37.1"\n',
        "concurrent-service-syncs is gone since 1.37 (CHANGELOG-1.37.md, #138002); leave it out",
        at="concurrent-service-syncs",
    ),
    edit(
        "feature gate that a kubelet does not know any more",
        ALL,
        _VERSION,
        'site_kubernetes_version: "1.37.1"\n'
        "node_kubelet_settings:\n  featureGates: {SidecarContainers: true}",
        "featureGates: SidecarContainers is gone since 1.37",
        at="featureGates",
    ),
    edit(
        "mirror index missing",
        ALL,
        _MTU,
        "site_artifacts_index: /nonexistent/index.json",
        "there is no mirror index",
    ),
)

SECRETS = (
    edit("PKI store missing", ALL, _STORE + "\n", "", "site_pki_store: is not set", at="site_name"),
    edit(
        "PKI key file missing",
        ALL,
        _STORE,
        _STORE + "\nsite_pki_key_file: /nonexistent/key",
        "does not exist",
        at="site_pki_key_file:",
    ),
    edit("PKI store is a file", ALL, _STORE, "site_pki_store: /etc/hostname", "is no folder; write a folder"),
    edit("site name missing", ALL, _NAME + "\n", "", "site_name: is not set", at="site_api_endpoint"),
)

FILES = (
    Mutation(
        "variables of a group that is not there",
        (("group_vars/gvizor.yml", "", "base_min_cpus: 2\n"),),
        "group_vars/gvizor.yml",
        "base_min_cpus",
        "group_vars/gvizor: there is no group gvizor, so nobody reads this file; name it after gvisor",
    ),
    Mutation(
        "variables of a host that is not there",
        (("host_vars/gpu-a-1.yml", "", "base_min_cpus: 2\n"),),
        "host_vars/gpu-a-1.yml",
        "base_min_cpus",
        "there is no host gpu-a-1, so nobody reads this file; name it after gpu-a-01",
    ),
    Mutation(
        "vaulted value without a password",
        (
            (
                ALL,
                _MTU,
                f"site_wan_mtu: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  {ENCRYPTED}\n",
            ),
        ),
        ALL,
        "site_wan_mtu",
        "cannot be resolved",
    ),
)

EMPTY = (
    edit(
        "a key without a value",
        ALL,
        _MTU,
        "site_wan_mtu:",
        "has no value; write a value, or remove the line: the default is 1500",
    ),
    edit("an empty list's key", ALL, _MTU, "egress_allow:", "has no value"),
    edit("an empty text where a value is needed", ALL, _NAME, 'site_name: ""', "site_name: is empty"),
    edit("no time to become Ready", ALL, _MTU, "site_ready_timeout_seconds: 1", "1 is outside 30 to 86400"),
    edit(
        "a key inside without a value",
        GPU,
        "effect: NoSchedule",
        "effect:",
        "site_taints[0].effect: has no value",
    ),
)

REACHED = (
    *(
        edit(
            f"a {kind} network for pods", ALL, _PODS, f"site_pod_cidr: {network}", "is not a private network"
        )
        for kind, network in (
            ("loopback", "127.0.0.0/12"),
            ("link-local", "169.254.0.0/16"),
            ("multicast", "224.0.0.0/12"),
            ("reserved", "240.0.0.0/12"),
            ("documentation", "198.18.0.0/15"),
        )
    ),
    edit("a netmask", ALL, _SERVICES, "site_service_cidr: 10.96.0.0/255.255.0.0", "write 10.96.0.0/16"),
    edit("a reserved address", HOSTS, _GPU_1, "gpu-a-01: {ansible_host: 240.0.0.1}", "is a reserved address"),
    edit(
        "reached inside the pods",
        HOSTS,
        _GPU_1,
        "gpu-a-01: {ansible_host: 10.244.0.9, site_address: 10.30.1.11}",
        "10.244.0.9 lies in site_pod_cidr",
    ),
    edit(
        "an API on each host",
        ALL,
        _ENDPOINT,
        "site_api_endpoint: localhost:6443",
        "another host on each host",
    ),
    edit("an API on a worker", ALL, _ENDPOINT, "site_api_endpoint: gpu-a-01:6443", "without an API server"),
    edit("an API's address of many", ALL, _API, "site_api_address: 224.0.0.1", "is a multicast address"),
    edit(
        "digits of another script",
        ALL,
        _ENDPOINT,
        "site_api_endpoint: api.example.internal:\u0666\u0664\u0664\u0663",
        "is not NAME:PORT",
    ),
    edit(
        "a number of another script",
        ALL,
        _MTU,
        'site_wan_mtu: "\u0661\u0664\u0660\u0660"',
        "must be a whole number",
    ),
    edit(
        "a mirror inside the services",
        AZURE,
        _MIRROR,
        "site_mirror_url: http://10.96.0.7:8080",
        "lies in site_service_cidr",
    ),
    edit(
        "another rack than the group's",
        HOSTS,
        _GPU_1,
        "gpu-a-01: {ansible_host: 10.30.1.11, site_rack: b}",
        "is in the group rack_a",
    ),
    edit("the controller as a host", HOSTS, "gpu-a-01:", "localhost:", "is the machine that Ansible runs on"),
)

MUTATIONS = (
    *EMPTY,
    *REACHED,
    *FILES,
    *NAMES,
    *TYPES,
    *NETWORKS,
    *GROUPS,
    *ENDPOINTS,
    *MEMBERS,
    *VERSIONS,
    *SECRETS,
)
