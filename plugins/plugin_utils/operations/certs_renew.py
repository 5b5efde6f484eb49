# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Renewing what ends within ``site_certificate_renew_days``.

Every run of site.yml does that too; this one is for doing it now, with other days. Which these are
is seen in the comparison with the documents.
"""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import Step

_SECONDS_A_CONTROL_PLANE = 30
"""Renewing all seven of kubeadm's and restarting two programs took 8 s in the lab; and some."""


def steps(context: Context) -> list[Step]:
    """Return the one step."""
    hosts = list(context.site.hosts.values())
    days = int(hosts[0].variables["site_certificate_renew_days"]) if hosts else 0
    return [
        Step(
            action="renew-certificates",
            target="",
            what=f"renew certificates that end within {days} days",
            disruption="where theirs is renewed, kubelets (pods run on), controller managers and schedulers "
            "restart; control planes one after the other",
            seconds=len(context.site.group("control_plane")) * _SECONDS_A_CONTROL_PLANE,
        )
    ]
