# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Registries and CNI plugins that nodes cannot do without, and names that no image has."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.day_zero import CNI, MIGRATION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft

MIRRORED, DIRECT = "containerd_registries", "containerd_direct_registries"
PLUGINS, PREPULL = "containerd_cni_plugins", "node_prepull_images"
_OF_DOCKER = ("index.docker.io", "registry-1.docker.io", "hub.docker.com", "registry.hub.docker.com")
"""What people call docker.io; containerd looks for settings under that name alone."""
_NEEDED = {"flannel": ("registry.k8s.io", "ghcr.io"), "cilium": ("registry.k8s.io", "quay.io")}
_PLUGINS_NEEDED = {"flannel": ("bridge", "host-local", "loopback", "portmap"), "cilium": ("loopback",)}
"""Pod network -> what every node uses of it."""


def _lists(draft: Draft, variable: str) -> Iterator[tuple[HostDraft, list[str]]]:
    """Return each list of hosts with a container runtime once, with a host that has it."""
    seen = set()
    for host in draft.hosts.values():
        value = host.values.get(variable)
        runs = "nodes" in host.groups or "control_plane" in host.groups
        # What is of another type has been named.
        if runs and isinstance(value, list) and None not in value and id(value) not in seen:
            seen.add(id(value))
            yield host, value


def check_names(draft: Draft) -> None:
    """A registry is written as images have it."""
    for variable in (MIRRORED, DIRECT):
        for host, names in _lists(draft, variable):
            for index, name in enumerate(names):
                if fault := _fault(name):
                    place = draft.inner_place(host, variable, index)
                    draft.problems.add(place, f"{variable}[{index}]", *fault)


def _fault(name: str) -> tuple[str, str] | None:
    host, _, port = name.partition(":")
    if host.lower() in _OF_DOCKER:
        return f"images of {name} are those of docker.io", "write docker.io"
    if name != name.lower():
        return f"{name} has capitals, and names of images have none", f"write {name.lower()}"
    if port and not 1 <= int(port) <= 65_535:
        return f"{port} is no port", "write NAME, or NAME:PORT"
    if "." not in name and ":" not in name and name != "localhost":
        return f"an image {name}/x is one of docker.io: without a dot or a port it is no registry", (
            f"write its full name, or {name}:443"
        )
    return None


def check_needed(draft: Draft) -> None:
    """Images of Kubernetes and of the pod network are of registries that hosts ask."""
    cni = str(draft.site_value(CNI))
    needed = list(_NEEDED.get(cni, ()))
    if draft.site_value(MIGRATION):
        needed = [name for names in _NEEDED.values() for name in names]
    for host, names in _lists(draft, MIRRORED):
        direct = host.values.get(DIRECT)
        asked = {*names, *(direct if isinstance(direct, list) else ())}
        lacking = [name for name in dict.fromkeys(needed) if name not in asked]
        if lacking and MIRRORED in host.settings:
            message = f"lacks {' and '.join(lacking)}, whose images every node runs"
            remedy = f"write {', '.join(lacking)} too"
            draft.problems.add(draft.place(host, MIRRORED), MIRRORED, message, remedy)
    for host, names in _lists(draft, PLUGINS):
        lacking = [name for name in _PLUGINS_NEEDED.get(cni, ()) if name not in names]
        is_known = set(names) <= set(draft.specification.options[PLUGINS].choices)
        if lacking and is_known and PLUGINS in host.settings:
            message = f"lacks {' and '.join(lacking)}, without which {cni} gives pods no network"
            remedy = f"write {', '.join(lacking)} too"
            draft.problems.add(draft.place(host, PLUGINS), PLUGINS, message, remedy)


def check_prepulled(draft: Draft) -> None:
    """An image that is to be there before a node joins is of a registry that hosts ask."""
    for host, images in _lists(draft, PREPULL):
        lists = [host.values.get(variable) for variable in (MIRRORED, DIRECT)]
        asked = {name for names in lists if isinstance(names, list) for name in names}
        for index, image in enumerate(images):
            registry = str(image).partition("/")[0]
            if registry not in asked:
                place = draft.inner_place(host, PREPULL, index)
                message = f"{registry} is no registry that hosts ask"
                remedy = f"write it into {MIRRORED}, or another image"
                draft.problems.add(place, f"{PREPULL}[{index}]", message, remedy)


CHECKS = (check_names, check_needed, check_prepulled)
