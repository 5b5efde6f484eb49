# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An etcd of their own for events: its ports are free, and nobody else says where events go."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

ENABLED, ARGUMENTS, FLAG = "etcd_events_enabled", "control_plane_api_server_args", "etcd-servers-overrides"
_OTHERS = ("etcd_client_port", "etcd_peer_port", "etcd_metrics_port")
_PORTS = ("etcd_events_client_port", "etcd_events_peer_port", "etcd_events_metrics_port")


def check_ports(draft: Draft) -> None:
    """Both stores of a host listen at ports of their own; API servers find all members at one."""
    if not draft.site_value(ENABLED):
        return
    for host in draft.members("etcd"):
        taken = {host.values.get(name): name for name in _OTHERS}
        for name in _PORTS:
            port = host.values.get(name)
            if port in taken:
                draft.problems.add(
                    draft.place(host, name if name in host.settings else taken[port]),
                    name,
                    f"port {port} of host {host.name} is that of {taken[port]}",
                    "write another port, or leave both out: the defaults differ",
                )
            taken[port] = name


def check_flag(draft: Draft) -> None:
    """The flag of the API servers is written here or by the site, not by both."""
    if not draft.site_value(ENABLED):
        return
    for host in draft.members("control_plane"):
        if FLAG in (host.values.get(ARGUMENTS) or {}):
            draft.problems.add(
                draft.inner_place(host, ARGUMENTS, FLAG),
                f"{ARGUMENTS}.{FLAG}",
                f"says where events go, and so does {ENABLED}",
                f"take it out, or write {ENABLED}: false",
            )
            return


CHECKS = (check_ports, check_flag)
