# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes the typed site from a draft that has no problems."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission import part as admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.endpoints import split_endpoint
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import address_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.computed import expressions_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress import (
    Egress,
    allowed_of,
    collapsed,
    merged,
    proxied_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import Namespace
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import layers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.mirror import default_index_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import (
    DrainPolicy,
    Host,
    Part,
    PlanPolicy,
    Site,
    Taint,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.runtime import (
    RuntimeClass,
    Runtimes,
    classes_of,
)


def build_site(draft: Draft, is_slice: bool = False) -> Site:
    """Return the site.

    Args:
        draft: a draft that passed every check.
        is_slice: its hosts are a part of the site's, and there may be no control plane among them.
    """
    value = draft.site_value
    migration = value("site_cni_migration_cidr") or ""
    classes = classes_of(value("gvisor_classes") or ())
    shared: dict[tuple[str, ...], _OfGroups] = {}
    for host in draft.hosts.values():
        if host.groups not in shared:
            served = tuple(each for each in classes if each.serves(host.groups))
            shared[host.groups] = _OfGroups(
                tuple(sorted(host.groups)), layers_of(host.groups, value("site_cni"), bool(migration)), served
            )
    hosts = {name: _host(host, shared[host.groups]) for name, host in draft.hosts.items()}
    offered = {each.name for groups in shared.values() for each in groups.classes}
    leaders = draft.members("control_plane") or list(draft.hosts.values())
    return Site(
        name=value("site_name"),
        expressions=expressions_of(draft),
        api_endpoint=value("site_api_endpoint"),
        api_address=_api_address(draft),
        pod_cidr=value("site_pod_cidr"),
        service_cidr=value("site_service_cidr"),
        node_cidr_mask=value("site_node_cidr_mask"),
        planned_nodes=value("site_planned_nodes"),
        cluster_domain=value("site_cluster_domain"),
        kubernetes_version=leaders[0].values["site_kubernetes_version"],
        wan_mtu=value("site_wan_mtu"),
        pki_store=value("site_pki_store") or "",
        pki_key_file=value("site_pki_key_file") or "",
        artifacts_index=value("site_artifacts_index") or str(default_index_path()),
        hosts=hosts,
        cni=value("site_cni"),
        migration_cidr=migration,
        is_slice=is_slice,
        plan=PlanPolicy(
            approvals=value("site_plan_approvals"),
            allowed_signers=value("site_plan_allowed_signers") or "",
            expires_hours=value("site_plan_expires_hours"),
            unapproved_kinds=tuple(value("site_plan_unapproved_kinds")),
        ),
        drain=DrainPolicy(
            max_unavailable=value("site_max_unavailable"),
            timeout_seconds=value("site_drain_timeout_seconds"),
            empty_dir_data=value("site_drain_empty_dir_data"),
        ),
        declared=_declared(draft),
        runtime=Runtimes(classes, tuple(each for each in classes if each.name in offered)),
        # A slice applies what a plan says, so it has no names to look up.
        egress=Egress()
        if is_slice or not (value("egress_enabled") or value("site_cni") == "cilium")
        else _egress(draft),
    )


def _declared(draft: Draft) -> dict[str, Part | None]:
    """Ask each domain for its part."""
    identity: Part | None = None
    if draft.site_value("identity_tenant_id"):
        # Only sites that have it pay for what makes it.
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.declared import identity_of

        identity = identity_of(draft)
    return {"admission": admission.declared(draft), "identity": identity}


def _egress(draft: Draft) -> Egress:
    value = draft.site_value
    return Egress(
        # Only the hosts' tables need addresses; Cilium follows names by itself.
        allowed=allowed_of(value("egress_allow"), resolve=value("egress_enabled")),
        node_networks=collapsed(value("egress_node_networks")),
        node_ports=merged(value("egress_node_ports")),
        proxied=proxied_of(value("egress_allow")),
        namespaces=tuple(
            Namespace(entry["name"], bool(entry.get("within")), bool(entry.get("api")))
            for entry in value("egress_namespaces")
        ),
    )


def _api_address(draft: Draft) -> str:
    address = draft.site_value("site_api_address")
    if address:
        return str(address)
    host, _port = split_endpoint(draft.site_value("site_api_endpoint")) or ("", 0)
    balancers = draft.members("haproxy")
    if len(balancers) == 1 and not host.replace(".", "").isdigit():
        return str(address_of(balancers[0]))
    return host


class _OfGroups(t.NamedTuple):
    """What hosts of the same groups share."""

    names: tuple[str, ...]
    layers: tuple[str, ...]
    classes: tuple[RuntimeClass, ...]


def _host(host: HostDraft, shared: _OfGroups) -> Host:
    values = host.values
    groups = shared.names
    racks = [group.removeprefix("rack_") for group in groups if group.startswith("rack_")]
    return Host(
        name=host.name,
        address=str(address_of(host)),
        ansible_host=str(values.get("ansible_host") or host.name),
        groups=groups,
        rack=values.get("site_rack") or (racks[0] if racks else ""),
        labels={
            **(values.get("site_measured_labels") or {}),
            # What the runtime classes select nodes by.
            **{each.label: "true" for each in shared.classes},
            **(values.get("site_labels") or {}),
        },
        taints=tuple(
            Taint(key=taint["key"], value=taint.get("value") or "", effect=taint["effect"])
            for taint in [
                *(values.get("site_taints") or ()),
                *({"key": each.label, "effect": "NoSchedule"} for each in shared.classes if each.dedicated),
            ]
        ),
        site_group="azure" if "azure" in groups else "on_prem",
        mirror_url=values["site_mirror_url"],
        kubernetes_version=values["site_kubernetes_version"],
        layers=shared.layers,
        variables=values,
    )
