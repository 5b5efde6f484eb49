# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Good sites, drawn at random: hosts, groups, and variables of all layers."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import typing as t
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import (
    Option,
    load_specification,
)

from tests.unit.refuse.values import good

Values = dict[str, t.Any]
PER_HOST = frozenset({"site_address", "site_address_ipv6", "site_rack", "ansible_host", "ansible_port"})


@dataclasses.dataclass
class Site:
    """What somebody wants to write.

    Args:
        hosts: host -> its own variables.
        groups: group -> hosts that it lists.
        children: group -> groups that it lists.
        variables: group -> its variables.
    """

    hosts: dict[str, Values]
    groups: dict[str, list[str]]
    children: dict[str, list[str]]
    variables: dict[str, Values]

    def owners(self) -> list[str]:
        """Return the groups that may have variables, ``all`` first."""
        return ["all", *(name for name in (*self.groups, *self.children) if name != "all")]

    def members(self, group: str) -> list[str]:
        """Return the hosts of a group and of those below it."""
        found = dict.fromkeys(self.groups.get(group, ()))
        for child in self.children.get(group, ()):
            found.update(dict.fromkeys(self.members(child)))
        return list(self.hosts) if group == "all" else list(found)


SIGNERS = Path(__file__).absolute().with_name("signers")
"""Three people who may approve plans."""


def _ports(rng: Random) -> Values:
    names = [name for name, option in options().items() if name.endswith("_port") and option.type == "int"]
    names = [name for name in names if not name.startswith("cilium_")]
    numbers = rng.sample(range(20000, 60000), len(names))
    return {name: number for name, number in zip(names, numbers, strict=True) if rng.random() < 0.3}


def _backup(rng: Random) -> Values:
    store: Values = {"kind": "file", "path": "/srv/etcd-backup", "prefix": rng.choice(["", "example/"])}
    return {
        "etcd_backup_stores": [store],
        "etcd_backup_retention": good(options()["etcd_backup_retention"], rng),
    }


def _identity(rng: Random) -> Values:
    return {
        "identity_tenant_id": "72f988bf-86f1-41af-91ab-2d7cd011db47",
        "identity_audiences": ["72f988bf-86f1-41af-91ab-2d7cd011db48"],
    }


def _egress(rng: Random) -> Values:
    return {
        "egress_enabled": rng.choice([True, False]),
        "egress_resolvers": ["10.9.0.53"],
        "egress_allow": [
            {
                "destination": rng.choice(["203.0.113.0/28", "198.51.100.7"]),
                "ports": [rng.choice([443, "8000-8010"])],
                "owner": "platform team",
                "reason": "licences",
                "expires": (datetime.date.today() + datetime.timedelta(rng.randint(1, 390))).isoformat(),
            }
        ],
    }


def _labels(rng: Random) -> Values:
    return {
        "site_labels": {"example.com/row": rng.choice(["a", "Row_7.b"]), "tier": ""},
        "site_taints": [{"key": "example.com/gpu", "effect": rng.choice(["NoSchedule", "NoExecute"])}],
    }


def _cilium(rng: Random) -> Values:
    return {
        "site_cni": "cilium",
        "cilium_routing": rng.choice(["tunnel", "native"]),
        "cilium_hubble": rng.choice([True, False]),
        "cilium_max_unavailable": rng.choice(["2", "15%"]),
        "egress_pod_interfaces": ["lxc*"],
        "egress_overlay_interfaces": ["cilium_vxlan"],
    }


def _nodes(rng: Random) -> Values:
    """Return what nodes cannot do without, and more."""
    more = rng.choice([[], ["localhost:5000"], ["registry.example.com", "nvcr.io"]])
    return {
        "containerd_registries": ["registry.k8s.io", "ghcr.io", "quay.io", *more],
        "containerd_cni_plugins": [
            "bridge",
            "host-local",
            "loopback",
            "portmap",
            rng.choice(["vlan", "tuning"]),
        ],
        "node_prepull_images": [f"{name}/a/b:1" for name in more],
        "node_cgroup_versions": rng.choice([[2], [1, 2]]),
        "node_kubelet_fail_cgroup_v1": False,
        "node_kubelet_resolv_conf": rng.choice(["", "/etc/resolv.pods", "/run/systemd/resolve/resolv.conf"]),
    }


def _plans(rng: Random) -> Values:
    return {"site_plan_approvals": rng.randint(1, 3), "site_plan_allowed_signers": str(SIGNERS)}


def _timing(rng: Random) -> Values:
    beat = rng.randint(10, 300)
    return {"etcd_heartbeat_ms": beat, "etcd_election_ms": max(500, beat * rng.randint(5, 12))}


def _servers(rng: Random) -> Values:
    return {
        "control_plane_certificate_days": rng.randint(91, 400),
        "site_certificate_renew_days": rng.randint(5, 60),
        "site_tls_cipher_suites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
        "control_plane_extra_names": rng.choice([["api.example.com"], ["10.7.0.1", "*.example.com"]]),
    }


def _sizes(rng: Random) -> Values:
    return {
        "site_node_cidr_mask": 24,
        "node_kubelet_max_pods": rng.randint(10, 250),
        "site_planned_nodes": rng.choice([0, 40, 60]),
    }


def _gvisor(rng: Random) -> Values:
    return {
        "gvisor_overhead_cpu": rng.choice(["50m", "100m"]),
        "gvisor_overhead_memory": rng.choice(["64Mi", "1Gi"]),
        "gvisor_platform": rng.choice(["systrap", "kvm"]),
    }


def _policy(rng: Random) -> Values:
    return {"gpu_policy_overrides": [{"event": "xid 79", "class": "A3", "reason": "agreed with the vendor"}]}


_SSH = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHvTgzvdMMV0tNd2Y8n7ypp3I7ePEg4pGBt9ZbDEqk3y operator"


def estate(rng: Random) -> Values:
    """Return the variables of an estate in Azure without machines."""
    values: Values = {
        "azure_subscription": "72f988bf-86f1-41af-91ab-2d7cd011db47",
        "azure_tenant": "d0a8ad3f-3c1b-4b5e-9a39-0c8f1b1f4a11",
        "azure_region": rng.choice(["westeurope", "northeurope"]),
        "azure_address_space": "10.20.0.0/20",
        "azure_rack_networks": ["10.30.0.0/16"],
        "azure_authorized_keys": [_SSH],
        "azure_image": {"version": "24.04.202610140"},
    }
    if rng.random() < 0.5:
        values["azure_administrator_networks"] = ["10.31.0.0/24"]
    if rng.random() < 0.5:
        values["azure_dns_servers"] = ["10.9.0.53"]
    return values


def _controller(rng: Random) -> Values:
    values: Values = {
        "awx_host": "https://awx.example.internal",
        "awx_project_url": rng.choice(["https://git.example.com/site.git", "git@git.example.com:a/site.git"]),
        "awx_prefix": rng.choice(["example", "west-2"]),
        "awx_inventory_path": rng.choice(["inventories/west", "hosts.yml"]),
        "awx_answers": {"ironspan_entries": rng.randint(1, 100)},
    }
    if rng.random() < 0.5:
        hook = {"name": "hook", "type": "webhook", "url": "https://hook.example.internal/a?b=c"}
        values["awx_notifications"] = [hook]
    if rng.random() < 0.5:
        start = rng.choice(["DTSTART:20260101T020000Z", "DTSTART;TZID=Europe/Berlin:20260101T020000"])
        every = f"{start} RRULE:FREQ={rng.choice(['DAILY', 'WEEKLY'])};INTERVAL={rng.randint(1, 3)}"
        values["awx_schedules"] = [{"operation": "verify", "rrule": every}]
    return values


def _racked(rng: Random) -> Values:
    network = f"10.2.{rng.randint(1, 200)}"
    rack = {
        "network": f"{network}.0/24",
        "first": f"{network}.11",
        "gateway": f"{network}.1",
        "dns": ["10.2.0.53"],
    }
    return {
        "site_bare_metal_node": {
            "driver": "redfish",
            "driver_info": {"redfish_address": "https://{bmc_address}"},
        },
        "site_bare_metal_racks": {"rack-1": rack},
        "site_bare_metal_account": {"user": "ironspan", "authorized_keys": [_SSH]},
        "site_bare_metal_known_hosts": "/srv/known_hosts",
        "site_bare_metal_at_once": rng.randint(1, 100),
        "site_bare_metal_image": {
            "source": "http://10.2.0.5/server.raw",
            "sha256": "9f" * 32,
            "format": rng.choice(["raw", "qcow2"]),
        },
    }


def _gpus(rng: Random) -> Values:
    return {
        "nvidia_driver_version": "580.159.03",
        "nvidia_driver_kernel": "6.8.0-60-generic",
        "nvidia_driver_model": "H100",
        "nvidia_toolkit_enabled": True,
        "nvidia_device_plugin_enabled": rng.choice([True, False]),
        "nvidia_health_checks": rng.choice([{}, {"H18": {"off": True}}, {"H08": {"rows": 256}}]),
        "nvidia_mig_layouts": [{"name": "halves", "instances": ["3g.40gb", "3g.40gb"]}],
        "nvidia_mig_layout": rng.choice(["", "halves"]),
        "gpu_repair_windows": ["mon,tue 22:00-04:00"],
    }


BUNDLES: tuple[Callable[[Random], Values], ...] = (
    _ports,
    _backup,
    _identity,
    _egress,
    _labels,
    _cilium,
    _nodes,
    _plans,
    _timing,
    _servers,
    _sizes,
    _gvisor,
    _policy,
    estate,
    _controller,
    _racked,
    _gpus,
)
"""Variables that mean something only together."""
NOT_ALONE = (
    "access_",
    "awx_",
    "azure_",
    "etcd_quota_bytes",
    "etcd_events_quota_bytes",
    "base_min_kernel",
    "admission_",
    "base_sysctls",
    "base_security_sysctls",
    "base_sshd_settings",
    "cilium_",
    "containerd_cni_plugins",
    "containerd_direct_registries",
    "containerd_image_policy",
    "containerd_registries",
    "control_plane_conntrack_",
    "control_plane_extra_names",
    "control_plane_secrets_encryption",
    "control_plane_key_vault",
    "control_plane_kube_proxy_mode",
    "control_plane_api_server_args",
    "control_plane_certificate_days",
    "control_plane_controller_manager_args",
    "control_plane_scheduler_args",
    "flannel_",
    "site_certificate_renew_days",
    "dns_",
    "egress_",
    "etcd_heartbeat_ms",
    "etcd_election_ms",
    "etcd_backup_stores",
    "etcd_backup_keys",
    "etcd_backup_management",
    "etcd_backup_containers",
    "etcd_backup_gc_identity",
    "etcd_backup_snapshot_seconds",
    "etcd_backup_drill_max_age_seconds",
    "gpu_",
    "gvisor_",
    "identity_",
    "ironic_",
    "node_kubelet_cpu_manager_policy",
    "node_attestation",
    "node_cgroup_versions",
    "node_kubelet_fail_cgroup_v1",
    "node_kubelet_resolv_conf",
    "node_prepull_images",
    "node_ignore_preflight",
    "node_kubelet_eviction_hard",
    "node_kubelet_kube_reserved",
    "node_kubelet_settings",
    "node_kubelet_system_reserved",
    "node_kubelet_max_pods",
    "node_kubelet_reserved_cpus",
    "nvidia_",
    "site_",
)
"""Variables whose values depend on other ones, or are read by a grammar of their own."""
OF_SITE = (
    "site_wan_mtu",
    "site_lab",
    "site_cis_benchmark",
    "site_plan_expires_hours",
    "site_bare_metal_inspect",
    "site_drain_timeout_seconds",
    "site_ready_timeout_seconds",
    "site_drain_empty_dir_data",
)
OF_GPU = (
    "nvidia_health_every_seconds",
    "nvidia_health_hang_seconds",
    "nvidia_driver_modules",
    "gpu_repair_mode",
    "gpu_repair_drain_hours",
    "gpu_repair_most_out",
    "gpu_repair_retest_days",
    "gpu_repair_power_cycle",
)


@functools.lru_cache(maxsize=1)
def options() -> Mapping[str, Option]:
    """Return all variables."""
    return load_specification().options


@functools.lru_cache(maxsize=1)
def alone() -> tuple[str, ...]:
    """Return the variables of which any value of the declared kind is right."""
    names = [name for name in options() if not name.startswith(NOT_ALONE)]
    return tuple(
        name for name in (*names, *OF_SITE, *OF_GPU) if not name.endswith(("_port", "_version", "_address"))
    )


def is_site_wide(name: str) -> bool:
    """Tell whether a variable has one value for the whole site."""
    return all_layers().is_site_wide(name)


def draw(rng: Random) -> Site:
    """Return a good site."""
    dotted = rng.choice(["", "", ".example.internal"])
    servers = [f"az-{number}{dotted}" for number in range(1, rng.choice([1, 3, 3, 5]) + 1)]
    racks = {
        f"rack_{letter}": [f"w-{letter}-{number:02d}{dotted}" for number in range(1, rng.randint(1, 4) + 1)]
        for letter in "abc"[: rng.randint(1, 3)]
    }
    workers = [name for names in racks.values() for name in names]
    hosts: dict[str, Values] = {name: {"ansible_host": f"10.20.0.{i}"} for i, name in enumerate(servers, 11)}
    for rack, names in enumerate(racks.values(), 1):
        for number, name in enumerate(names, 11):
            hosts[name] = {"ansible_host": f"10.30.{rack}.{number}"}
            if rng.random() < 0.2:
                hosts[name] |= {
                    "site_address": f"10.30.{rack}.{number}",
                    "ansible_host": f"192.168.{50 + rack}.{number}",
                }
    groups = {"azure": servers, "etcd": servers, "control_plane": list(servers), **racks}
    children: dict[str, list[str]] = {"on_prem": list(racks), "nodes": list(racks)}
    if rng.random() < 0.4:
        groups["gvisor"] = rng.sample(workers, rng.randint(1, len(workers)))
    if rng.random() < 0.4:
        children["gpu"] = [next(iter(racks))]
    if rng.random() < 0.3:
        groups[f"user_{rng.choice(['spare', 'night'])}"] = rng.sample(list(hosts), 1)
    if rng.random() < 0.3:
        groups[rng.choice(["haproxy", "kata_gpu", "user_empty"])] = []
    site = Site(hosts, groups, children, {"all": _of_all(rng)})
    for host in hosts.values():
        if rng.random() < 0.1:
            host["site_labels"] = {"example.com/slot": str(rng.randint(1, 40))}
    _more(site, rng)
    return site


def _of_all(rng: Random) -> Values:
    values: Values = {
        "site_name": rng.choice(["example", "west-2", "a"]),
        "site_api_endpoint": rng.choice(["api.example.internal:6443", "10.20.0.10:8443"]),
        "site_api_address": "10.20.0.10",
        "site_pod_cidr": rng.choice(["10.244.0.0/16", "172.16.0.0/16", "100.64.0.0/16"]),
        "site_service_cidr": rng.choice(["10.96.0.0/16", "172.30.0.0/20"]),
        "site_mirror_url": rng.choice(["http://mirror.example.internal:8080", "https://10.20.0.9"]),
        "site_pki_store": rng.choice(["~/pki", "/srv/Keys of us/pki"]),
        "ansible_user": "ironspan",
        "ansible_become": True,
    }
    if rng.random() < 0.3:
        values["site_kubernetes_version"] = "1.36.4"
    return values


def _more(site: Site, rng: Random) -> None:
    """Add variables of layers, each for the whole site, for a group or for a host."""
    for bundle in rng.sample(BUNDLES, rng.choice([0, 1, 1, 2, 3])):
        site.variables["all"].update(bundle(rng))
    if site.variables["all"].get("site_cni") == "cilium":
        site.variables["all"].pop("flannel_port", None)
    for name in rng.sample(alone(), rng.randint(0, 8)):
        value = good(options()[name], rng)
        if is_site_wide(name) or rng.random() < 0.5:
            site.variables["all"][name] = value
        elif rng.random() < 0.7:
            site.variables.setdefault(rng.choice(site.owners()), {})[name] = value
        else:
            rng.choice(list(site.hosts.values()))[name] = value
    if rng.random() < 0.3:
        text = rng.choice(
            ["{{ site_name }} of {{ inventory_hostname }}", "{{ groups['nodes'] | length }}", "a\nb; $(c)"]
        )
        site.variables.setdefault(rng.choice(site.owners()), {})["user_note"] = text
    if rng.random() < 0.2:
        site.variables["all"]["site_wan_mtu"] = "{{ 1500 - 100 }}"
