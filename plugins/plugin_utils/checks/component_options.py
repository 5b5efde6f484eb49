# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Further fields of the kubelet and further flags of the control plane are ones that there are."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.releases import (
    ARGUMENTS,
    KUBERNETES,
    version_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import component_options

SETTINGS = "node_kubelet_settings"


def check_kubelet(draft: Draft) -> None:
    """Workers and control planes have the same variable."""
    _check(draft, "nodes", SETTINGS, component_options.KUBELET)
    _check(draft, "control_plane", SETTINGS, component_options.KUBELET)


def check_control_plane(draft: Draft) -> None:
    """Each of the three programs has its own flags."""
    for variable, component in ARGUMENTS.items():
        _check(draft, "control_plane", variable, component)


def _check(draft: Draft, group: str, variable: str, component: str) -> None:
    looked_at = set()
    for host in concerned(draft, group, variable):
        value, version = host.values.get(variable), version_of(host.values.get(KUBERNETES))
        # Nearly all hosts share one dictionary.
        if not isinstance(value, Mapping) or version is None or (id(value), version.line) in looked_at:
            continue
        looked_at.add((id(value), version.line))
        found = (
            component_options.in_kubelet_settings(value, version.line)
            if component == component_options.KUBELET
            else component_options.in_arguments(component, value, version.line)
        )
        for wrong in found:
            path = ".".join(map(str, (variable, *wrong.steps)))
            draft.problems.add(
                draft.inner_place(host, variable, *wrong.steps), path, wrong.message, wrong.remedy
            )


CHECKS = (check_kubelet, check_control_plane)
