# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How kube-proxy carries services: with nftables or iptables."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

MODE = "control_plane_kube_proxy_mode"
MODES = ("nftables", "iptables")
DEPRECATED = {
    # KEP-5495, "Deprecate ipvs mode in kube-proxy": deprecated in Kubernetes 1.35.
    "ipvs": "is deprecated since Kubernetes 1.35 and will be taken out",
    "userspace": "was taken out of Kubernetes in 1.26",
    "kernelspace": "is for Windows",
}


def check_mode(draft: Draft) -> None:
    """Modes without a future are refused before a cluster depends on them."""
    mode = draft.site_value(MODE)
    if not isinstance(mode, str) or mode in MODES:
        return
    why = DEPRECATED.get(mode, f"is not one of {', '.join(MODES)}")
    draft.problems.add(
        draft.site_place(MODE),
        MODE,
        f"{mode!r} {why}",
        "write nftables, which is as fast with many services and needs nothing but a kernel of 5.13",
    )


CHECKS = (check_mode,)
