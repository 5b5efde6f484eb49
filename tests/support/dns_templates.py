# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The files of the layer dns, rendered from its own templates without a whole site."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.environment import Templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

ADDRESS, CLUSTER_DNS, RESOLVER = "169.254.20.10", "10.96.0.10", "10.99.0.53"
_TEMPLATES = Templates(ROLES_FOLDER)


def rendered(template: str, **variables: t.Any) -> str:
    """Return a file as a host gets it, whose cache asks ``RESOLVER`` for names outside the cluster."""
    settings = {
        "site": types.SimpleNamespace(cluster_domain="cluster.local", dns_address=CLUSTER_DNS),
        "dns_node_cache_address": ADDRESS,
        "dns_resolvers": [RESOLVER],
        "egress_enabled": False,
        "egress_resolvers": [],
        "node_kubelet_resolv_conf": "",
        "containerd_oom_score_adjust": 0,
    }
    return _TEMPLATES.get(f"dns/templates/{template}").render({**settings, **variables})
