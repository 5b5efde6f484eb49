# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where programs on hosts answer Prometheus: ``..._metrics_address`` of all roles."""

from __future__ import annotations

import ipaddress

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft


def check_metrics_addresses(draft: Draft) -> None:
    """An address is that of an interface, not a name; each place is told once."""
    seen: set[str] = set()
    for host in draft.hosts.values():
        for variable in host.settings:
            place = draft.place(host, variable)
            if not variable.endswith("_metrics_address") or str(place) in seen:
                continue
            seen.add(str(place))
            value = host.values.get(variable)
            try:
                ipaddress.ip_address(value or "")
            except ValueError:
                draft.problems.add(place, variable, f"{value!r} is no IP address", "write 127.0.0.1")


CHECKS = (check_metrics_addresses,)
