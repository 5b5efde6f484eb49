# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPUs are offered to the kubelet only where containers can have them."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

ENABLED, TOOLKIT = "nvidia_device_plugin_enabled", "nvidia_toolkit_enabled"


def check_device_plugin(draft: Draft) -> None:
    """The device plugin names GPUs in the form that containerd learns from the toolkit."""
    once = Once(draft.problems)
    for host in concerned(draft, "gpu", ENABLED):
        if host.values.get(ENABLED) and not host.values.get(TOOLKIT):
            once.add(
                draft.place(host, ENABLED),
                ENABLED,
                f"offers GPUs, and containers cannot have them without {TOOLKIT} ({host.name})",
                f"write {TOOLKIT}: true beside it",
            )


CHECKS = (check_device_plugin,)
