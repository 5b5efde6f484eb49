# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPUs are offered to the kubelet only where containers can have them."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned

ENABLED, TOOLKIT = "nvidia_device_plugin_enabled", "nvidia_toolkit_enabled"


def check_device_plugin(draft: Draft) -> None:
    """The device plugin names GPUs in the form that containerd learns from the toolkit."""
    said = set()
    for host in concerned(draft, "gpu", ENABLED):
        place = draft.place(host, ENABLED)
        if host.values.get(ENABLED) and not host.values.get(TOOLKIT) and str(place) not in said:
            said.add(str(place))
            draft.problems.add(
                place,
                ENABLED,
                f"offers GPUs, and containers cannot have them without {TOOLKIT} ({host.name})",
                f"write {TOOLKIT}: true beside it",
            )


CHECKS = (check_device_plugin,)
