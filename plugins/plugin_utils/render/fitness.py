# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Adds up what the layers of a host ask of it."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping


def version_key(version: str) -> tuple[int, ...]:
    """Return a dotted version as numbers, for comparison."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def merge_fitness(parts: Iterable[Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """Return the strictest of all demands.

    Args:
        parts: the demands of single layers, as in the document's ``fitness``.

    Returns:
        Largest minimum, smallest maximum, common cgroup versions, all ports and foreign paths.
    """
    merged: dict[str, t.Any] = {}
    for part in parts:
        for name, value in part.items():
            merged[name] = _stricter(name, merged[name], value) if name in merged else value
    return merged


def _stricter(name: str, one: t.Any, other: t.Any) -> t.Any:
    if name == "min_kernel":
        return max(one, other, key=version_key)
    if name.startswith("min_"):
        return max(one, other)
    if name.startswith("max_"):
        return min(one, other)
    if name == "cgroup_versions":
        return [version for version in one if version in other]
    return [*one, *(item for item in other if item not in one)]
