# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Networks that cannot be changed once the cluster exists, and what they were when it was made.

They are kept in a file beside the PKI store, together with the site's identity: a site that was reset has
another identity and may choose anew.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import dual_stack
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

CNI = "site_cni"
MIGRATION = "site_cni_migration_cidr"
FIXED = ("site_pod_cidr", "site_service_cidr", "site_node_cidr_mask")


def file_of(store: str) -> Path:
    """Return where the networks of the site with this PKI store are remembered."""
    path = Path(store).expanduser()
    return path.with_name(f"{path.name}.networks.json")


def made_with(store: str) -> dict[str, str | int]:
    """Return the variables that the cluster was made with; nothing where there is none, or nobody knows.

    Args:
        store: folder of the site's PKI store.
    """
    try:
        known = json.loads(file_of(store).read_bytes())
        if known["site_uid"] != _identity(store):
            return {}
        names = (*FIXED, dual_stack.PODS, dual_stack.SERVICES, dual_stack.MASK)
        found = {name: known[name] for name in names if isinstance(known.get(name), str | int)}
        # A cluster that was made without IPv6 does not get it later.
        return {dual_stack.PODS: "", dual_stack.SERVICES: "", **found} if found else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def carried_by(store: str) -> str:
    """Return the pod network that the cluster was made with, "" where nobody knows of a cluster."""
    if not made_with(store):
        return ""
    # Clusters older than the choice have flannel.
    return str(json.loads(file_of(store).read_bytes()).get(CNI, "flannel"))


def remember(site: Site) -> None:
    """Keep the networks of a site whose cluster exists, unless they are known already."""
    if made_with(site.pki_store):
        return
    values = (site.pod_cidr, site.service_cidr, site.node_cidr_mask)
    content = {"site_uid": _identity(site.pki_store), CNI: site.cni, **dict(zip(FIXED, values, strict=True))}
    content |= dual_stack.fixed(site)
    if not content["site_uid"]:
        return
    # A folder that cannot be written costs the later refusal, not this run.
    with contextlib.suppress(OSError):
        write_file(file_of(site.pki_store), json.dumps(content, indent=2).encode() + b"\n", 0o644)


def _identity(store: str) -> str:
    try:
        return str(json.loads((Path(store).expanduser() / "store.json").read_bytes())["site_uid"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
