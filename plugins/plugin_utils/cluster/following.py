# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether controllers and kubelets follow the store that the API serves: their leases say so.

Each of them renews a Lease through the API every 10 s or oftener. One that is renewed again after it was
first read belongs to a program that reads and writes what is served now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api

CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
_CONTROL = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_NODES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PAUSE_SECONDS = 1.0
PATIENCE_WITH_NODES_SECONDS = 25.0
"""How long kubelets are waited for after the controllers follow: two renewals and some."""


def renewals(api: Api) -> dict[str, str]:
    """Return when each controller and each node has last renewed its lease, by name."""
    found = {}
    for path, names in ((_CONTROL, CONTROLLERS), (_NODES, None)):
        for lease in api.get(path)["items"]:
            name = str(lease["metadata"]["name"])
            if names is None or name in names:
                found[name] = str(lease["spec"].get("renewTime") or "")
    return found


def wait_for_followers(
    api: Api, seconds: float, progress: Callable[[str], None] = lambda _: None
) -> tuple[list[str], list[str]]:
    """Wait until every lease was renewed.

    Args:
        api: of the cluster.
        seconds: how long all together are waited for.
        progress: is told who is waited for, now and then.

    Returns:
        Names of those that follow, and of those that do not.
    """
    first = renewals(api)
    begun = told = time.monotonic()
    controllers_since: float | None = None
    while True:
        time.sleep(PAUSE_SECONDS)
        present = renewals(api)
        # A controller that never ran has no lease to begin with.
        silent = sorted(
            name for name in {*present, *CONTROLLERS} if present.get(name, "") == first.get(name, "")
        )
        now = time.monotonic()
        if controllers_since is None and not _controllers(silent):
            controllers_since = now
        enough = controllers_since is not None and now - controllers_since > PATIENCE_WITH_NODES_SECONDS
        if not silent or enough or now - begun > seconds:
            return sorted(set(present) - set(silent)), silent
        if now - told > 10:
            told = now
            progress(f"waiting for {', '.join(silent)}")


def _controllers(names: Collection[str]) -> list[str]:
    return [name for name in CONTROLLERS if name in names]
