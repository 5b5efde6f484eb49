# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Networks that cannot be changed once the cluster exists, and what they were when it was made.

They are kept in a file beside the PKI store, together with the site's identity: a site that was reset has
another identity and may choose again.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import dual_stack
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

CNI = "site_cni"
MIGRATION = "site_cni_migration_cidr"
_LAST_STAGE = "cni_migrate_last_stage"
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
    return str(_known(store).get(CNI, "flannel"))


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
        _write(site.pki_store, content)


def last_stage_begun(store: str) -> bool:
    """Tell whether the last stage of moving the cluster to Cilium has begun, or is done.

    From then on no run may configure agents as they were beside flannel.
    """
    return bool(made_with(store)) and bool(_known(store).get(_LAST_STAGE))


def begin_last_stage(store: str) -> None:
    """Remember that the last stage of moving the cluster to Cilium has begun.

    Raises:
        OSError: the file cannot be written; without it another run could undo half of the stage.
    """
    _write(store, {**_known(store), _LAST_STAGE: True})


def moved(site: Site) -> None:
    """Remember that Cilium is a cluster's pod network now, with the network that pods were moved to.

    Raises:
        OSError: the file cannot be written.
    """
    _write(site.pki_store, {**_known(site.pki_store), CNI: "cilium", "site_pod_cidr": site.migration_cidr})


def _known(store: str) -> dict[str, t.Any]:
    return dict(json.loads(file_of(store).read_bytes()))


def _write(store: str, content: dict[str, t.Any]) -> None:
    write_file(file_of(store), json.dumps(content, indent=2).encode() + b"\n", 0o644)


def _identity(store: str) -> str:
    try:
        return str(json.loads((Path(store).expanduser() / "store.json").read_bytes())["site_uid"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
