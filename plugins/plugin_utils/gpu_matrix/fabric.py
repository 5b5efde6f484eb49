# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the switches between GPUs of a host need beside the driver."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import nvproxy


class Needs(t.NamedTuple):
    """What a host needs for its switches.

    Args:
        switches: which sort the host looks for.
        packages: name to version, all of the driver's own where that matters.
        units: which run where there are switches.
    """

    switches: str
    packages: dict[str, str]
    units: list[str]


def switches(model: str) -> str:
    """Return the sort of switches that boards of a GPU have; empty for GPUs whose boards have none."""
    found = (name for name, fabric in nvproxy.data()["fabrics"].items() if model in fabric["models"])
    return next(found, "")


def models() -> tuple[str, ...]:
    """Return the GPUs whose boards have switches."""
    return tuple(model for fabric in nvproxy.data()["fabrics"].values() for model in fabric["models"])


def alone() -> tuple[str, ...]:
    """Return the GPUs whose NVLink never leaves the host."""
    return tuple(nvproxy.data()["imex"]["never"])


def links(model: str) -> int | None:
    """Return how many NVLinks a GPU has at most; None where that is not known."""
    found = nvproxy.data()["nvlinks"].get(model)
    return None if found is None else int(found)


def needs(model: str, driver: str, between_hosts: bool) -> Needs:
    """Return what a host needs.

    Args:
        model: its GPUs, one of ``models``.
        driver: version of its driver.
        between_hosts: whether NVLink joins it with other hosts.
    """
    data = nvproxy.data()
    sort, branch = switches(model), driver.split(".")[0]
    wanted = dict(data["fabrics"][sort]["packages"]) | (data["imex"]["packages"] if between_hosts else {})
    versions = {"same": f"{driver}-*", "any": ""}
    packages = {name.replace("{}", branch): versions[version] for name, version in wanted.items()}
    units = [*data["fabric_units"], *(data["imex"]["units"] if between_hosts else ())]
    return Needs(sort, packages, units)
