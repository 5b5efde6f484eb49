# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Networks that variables list, which are not those of pods and services, and where programs listen."""

from __future__ import annotations

import ipaddress

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import network_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed

OUTSIDE = ("admission_service_addresses", "egress_node_networks", "ironic_media_networks")
"""Of hosts, racks or the world outside; the cluster's own networks in them would be opened, or hidden."""
CLIENTS = "egress_proxy_clients"
OWN = ("site_pod_cidr", "site_service_cidr")
METRICS = (
    "control_plane_kms_metrics_address",
    "etcd_backup_metrics_address",
    "events_address",
    "events_metrics_address",
    "gpu_repair_metrics_address",
    "nvidia_health_metrics_address",
)


def check_listed(draft: Draft) -> None:
    """None overlaps what the cluster gives to pods and services; each is a network."""
    own = [(name, given) for name in OWN if (given := network_of(draft, name))]
    for variable in (*OUTSIDE, CLIENTS):
        value, host = draft.site_value(variable), draft.writer(variable)
        for index, text in enumerate(value if isinstance(value, list) and host else ()):
            place = draft.inner_place(host, variable, index) if host else draft.home()
            path = f"{variable}[{index}]"
            try:
                network = ipaddress.ip_network(str(text))
            except ValueError:
                if variable == CLIENTS:
                    remedy = "write ADDRESS/LENGTH without bits of a host, for example 10.20.0.0/20"
                    draft.problems.add(place, path, f"{text!r} is no network", remedy)
                continue
            for name, mine in own if variable != CLIENTS else ():
                if network.version == mine.version and network.overlaps(mine):
                    message = f"{text} overlaps {name}, which is {mine}"
                    draft.problems.add(place, path, message, "write networks outside of the cluster")


def check_metrics(draft: Draft) -> None:
    """A program listens at an address of its host."""
    once = Once(draft.problems)
    own = [(name, given) for name in OWN if (given := network_of(draft, name))]
    for host in draft.hosts.values():
        for variable in METRICS:
            address = parsed(str(host.values.get(variable) or "0.0.0.0"))
            if address is None:
                continue  # It has been named as none.
            is_wrong = address.is_multicast or address.is_link_local or str(address) == "255.255.255.255"
            inside = next((name for name, network in own if address in network), "")
            # A loopback address is right where pods have that network by mistake.
            inside = "" if address.is_loopback else inside
            if is_wrong or inside:
                remedy = "write 127.0.0.1, or an address of the host"
                why = f": it lies in {inside}" if inside else ""
                message = f"nothing can listen at {address}{why}"
                once.add(draft.place(host, variable), variable, message, remedy)


CHECKS = (check_listed, check_metrics)
