# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Versions that exist in the lock file and on the mirror, and that Kubernetes allows beside each other."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.artifacts_index import (
    ArtifactsIndex,
    ArtifactsIndexError,
    load_index,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.day_zero import MIGRATION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers, layers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.mirror import (
    default_index_path,
    message_and_remedy,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml

LOCK_FILE = Path(__file__).absolute().parents[3] / "artifacts.lock.yml"

ARCHIVE = {"gvisor_version": ("gvisor",)}
"""Which files a variable chooses where ``gvisor_layout`` is ``archive``."""

# Kubernetes documentation, "Version Skew Policy": a kubelet may be up to three minor versions older than the
# API server and must not be newer.
OLDEST_KUBELET = 3
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@functools.lru_cache(maxsize=4)
def locked(lock_file: Path = LOCK_FILE) -> tuple[frozenset[str], frozenset[str]]:
    """Return the files (``name/version``) and images (references) of the lock file; empty without one."""
    content = read_yaml(lock_file)
    return frozenset(content.get("files", {})), frozenset(content.get("images", {}))


def _wanted(draft: Draft) -> Iterator[tuple[HostDraft, str, str]]:
    seen: set[tuple[str, str]] = set()
    known, versions = draft.specification.options, all_layers().versions
    options = {name: known[name] for name in versions if name in known}
    for host in draft.hosts.values():
        moving = bool(draft.site_value(MIGRATION))
        layers = layers_of(host.groups, draft.site_value("site_cni"), moving)
        for variable, option in options.items():
            value = host.values.get(variable)
            if not isinstance(value, str) or (variable, value) in seen:
                continue
            if not host.values.get(versions[variable].only_with or variable):
                continue
            if option.role == "site" or option.role in layers:
                seen.add((variable, value))
                yield host, variable, value


def check_locked(draft: Draft) -> None:
    """Every version must be in the lock file, and on the mirror when its index is here."""
    files, images = locked()
    index = _index(draft)
    for host, variable, version in _wanted(draft):
        names = all_layers().versions[variable].files
        if host.values.get("gvisor_layout") == "archive":
            names = ARCHIVE.get(variable, names)
        problem = _lock_problem(variable, version, names, files, images) or _index_problem(
            variable, version, names, index
        )
        if problem:
            message, remedy = problem
            if variable not in host.settings:
                message = f"{message}; this is the role's default"
            draft.problems.add(draft.place(host, variable), variable, message, remedy)


def _lock_problem(
    variable: str, version: str, names: tuple[str, ...], files: frozenset[str], images: frozenset[str]
) -> tuple[str, str] | None:
    if not files:
        return None
    for name in names:
        if f"{name}/{version}" not in files:
            have = sorted(entry.rpartition("/")[2] for entry in files if entry.rpartition("/")[0] == name)
            return _not_locked(name, version, have)
    for pattern in all_layers().versions[variable].images:
        if pattern.format(version) not in images:
            head = pattern.partition("{")[0]
            have = sorted(ref.removeprefix(head) for ref in images if ref.startswith(head))
            return _not_locked(head.rpartition(":")[0], version, have)
    return None


def _not_locked(name: str, version: str, have: list[str]) -> tuple[str, str]:
    message = f"{name} {version} is not in artifacts.lock.yml (it has {', '.join(have) or 'no version'})"
    better = nearest(version, have) or (have[-1] if have else "")
    return message, f'write "{better}"' if better else f"add {name} to artifacts.lock.yml"


def _index(draft: Draft) -> ArtifactsIndex | None:
    path = draft.site_value("site_artifacts_index")
    if not path and not default_index_path().exists():
        return None  # a site can be checked before there is a mirror; rendering then says what is missing
    try:
        return load_index(path or default_index_path())
    except ArtifactsIndexError as error:
        place = draft.site_place("site_artifacts_index")
        draft.problems.add(place, "site_artifacts_index", *message_and_remedy(error))
        return None


def _index_problem(
    variable: str, version: str, names: tuple[str, ...], index: ArtifactsIndex | None
) -> tuple[str, str] | None:
    if index is None:
        return None
    try:
        for name in names:
            index.artifact(name, version)
        for pattern in all_layers().versions[variable].images:
            index.image(pattern.format(version))
    except ArtifactsIndexError as error:
        return message_and_remedy(error)
    return None


def check_skew(draft: Draft) -> None:
    """Control planes run one version, kubelets none newer and none more than three minor versions older."""
    variable = "site_kubernetes_version"
    servers = [host for host in draft.members("control_plane") if _minor(host.values.get(variable))]
    if not servers:
        return
    server = servers[0].values[variable]
    for host in servers[1:]:
        if host.values[variable] != server:
            draft.problems.add(
                draft.place(host, variable),
                variable,
                f"{host.values[variable]} on control plane {host.name}, {server} on {servers[0].name}",
                "write one version for all control planes",
            )
    server_minor = _minor(server) or (0, 0, 0)
    once = Once(draft.problems)
    for host in draft.members("nodes"):
        minor = _minor(host.values.get(variable))
        if minor is None:
            continue
        newer = minor > server_minor
        if newer or minor[0] != server_minor[0] or minor[1] < server_minor[1] - OLDEST_KUBELET:
            span = f"from {server_minor[0]}.{server_minor[1] - OLDEST_KUBELET} to {server}"
            once.add(
                draft.place(host, variable),
                variable,
                f"kubelet {host.values[variable]} on {host.name} does not go with API server {server}",
                f"write a version {span}",
            )


def _minor(version: object) -> tuple[int, int, int] | None:
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


CHECKS = (check_locked, check_skew)
