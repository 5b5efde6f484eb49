# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is asked for on GPU hosts, and does nothing: the switch that it is a part of was never written."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

_PARTS = {
    "nvidia_device_plugin_rdma": ("nvidia_device_plugin_enabled", "true"),
    "nvidia_health_actions_enabled": ("nvidia_health_enabled", "true"),
    "nvidia_driver_ofed_packages": ("nvidia_driver_rdma_stack", "ofed"),
    "nvidia_driver_ofed_version": ("nvidia_driver_rdma_stack", "ofed"),
}
"""Variable -> what it is a part of, and the value with which it does something."""


def check_parts(draft: Draft) -> None:
    """Where the switch is written, on whatever host and to whatever value, somebody has thought of it."""
    once = Once(draft.problems)
    for variable, (switch, on) in _PARTS.items():
        hosts = concerned(draft, "gpu", variable, switch)
        if not any(switch in host.settings for host in (*hosts, *draft.hosts.values())):
            for host in hosts:
                _add(draft, host, variable, f"{switch}: {on}", once)


def _add(draft: Draft, host: HostDraft, variable: str, needed: str, once: Once) -> None:
    if variable not in host.settings or not host.values.get(variable):
        return
    name = needed.partition(":")[0]
    message = f"does nothing without {name}, which nothing in the inventory says"
    once.add(draft.place(host, variable), variable, message, f"write {needed} beside it, or take it out")


CHECKS = (check_parts,)
