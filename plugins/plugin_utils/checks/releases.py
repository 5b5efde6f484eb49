# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the versions of an inventory need of each other, and settings that they no longer know."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import removed, skew

ARGUMENTS = {
    "control_plane_api_server_args": "kube-apiserver",
    "control_plane_controller_manager_args": "kube-controller-manager",
    "control_plane_scheduler_args": "kube-scheduler",
}
KUBERNETES = "site_kubernetes_version"
_Beside = Callable[[skew.Version, skew.Version], str]
_NEEDS: tuple[tuple[str, str, _Beside], ...] = (
    ("etcd_version", "etcd", skew.etcd_for_kubernetes),
    ("containerd_version", "nodes", skew.containerd_for_kubernetes),
    ("containerd_version", "control_plane", skew.containerd_for_kubernetes),
)


def check_needs(draft: Draft) -> None:
    """Kubernetes needs a store and a runtime of a certain age."""
    server = version_of(draft.site_value(KUBERNETES))
    said: set[tuple[str, str]] = set()
    for variable, group, beside in _NEEDS:
        for host in draft.members(group):
            version = version_of(host.values.get(variable))
            problem = beside(version, server) if version and server else ""
            if problem and (variable, problem) not in said:
                said.add((variable, problem))
                draft.problems.add(draft.place(host, variable), variable, problem, "write a later version")


def check_removed(draft: Draft) -> None:
    """Flags, feature gates and settings that the version does not know stop a component from starting."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        for variable, name, removal in _found(host):
            place = draft.inner_place(host, variable, name)
            since = ".".join(map(str, removal.since))
            once.add(
                place,
                variable,
                f"{name}{f': {removal.name}' if removal.name != name else ''} is gone since {since} "
                f"({removal.source})",
                f"write {removal.instead} instead" if removal.instead else "leave it out",
                what=removal.name,
            )


def _found(host: HostDraft) -> Iterator[tuple[str, str, removed.Removal]]:
    version = version_of(host.values.get(KUBERNETES))
    if version is None:
        return
    if "control_plane" in host.groups:
        for variable, component in ARGUMENTS.items():
            for name, removal in removed.in_arguments(component, _mapping(host, variable), version.line):
                yield variable, name, removal
    if "control_plane" in host.groups or "nodes" in host.groups:
        settings = _mapping(host, "node_kubelet_settings")
        for name, removal in removed.in_kubelet_settings(settings, version.line):
            yield "node_kubelet_settings", name, removal


def _mapping(host: HostDraft, variable: str) -> Mapping[str, t.Any]:
    value = host.values.get(variable)
    return value if isinstance(value, Mapping) else {}


def version_of(text: object) -> skew.Version | None:
    """Read a version; None for what is none, which is named elsewhere."""
    try:
        return skew.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


CHECKS = (check_needs, check_removed)
