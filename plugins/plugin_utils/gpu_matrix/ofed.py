# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether the vendor's drivers of network adapters (OFED) go together with what else a GPU host has."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import nvproxy

META, MODULES = "doca-ofed", "mlnx-ofed-kernel-dkms"


class Finding(t.NamedTuple):
    """What does not go together: ``version``, ``packages`` or ``rdma``, why, and what to write instead."""

    field: str
    message: str
    remedy: str


def findings(version: str, packages: Mapping[str, str], rdma: str, build: str) -> Iterator[Finding]:
    """Yield everything that does not go together.

    Args:
        version: of the kernel modules, such as ``25.10-1.7.1``.
        packages: name to exact version.
        rdma: ``dma-buf`` or ``peermem``.
        build: how the GPU driver's modules come, ``precompiled`` or ``dkms``.
    """
    if not version:
        yield Finding("version", "is not set", 'write what modinfo says of mlx5_core, such as "25.10-1.7.1"')
    for name, wanted in packages.items():
        if not wanted or wanted.endswith("*"):
            yield Finding(
                "packages", f"{name} has no exact version", "write the one that the mirror has, all of it"
            )
    doca = packages.get(META, "")
    if not doca:
        yield Finding(
            "packages", f"{META} is not among them", f'write its version, such as {{{META}: "3.2.1-044000"}}'
        )
    releases: Mapping[str, str] = nvproxy.data()["ofed"]["releases"]
    release = ".".join(doca.split("-")[0].split(".")[:2])
    built = packages.get(MODULES, "")
    if doca and version and release in releases and not version.startswith(f"{releases[release]}-"):
        others = [other for other, brings in releases.items() if version.startswith(f"{brings}-")]
        instead = f"; or {META} {others[0]}, which brings {releases[others[0]]}" if others else ""
        yield Finding(
            "version",
            f"is {version}, and DOCA {release} brings {releases[release]}",
            f"write that of the package mlnx-ofed-kernel-dkms, {releases[release]}-...{instead}",
        )
    elif built and version and not built.startswith(version.split("-")[0]):
        yield Finding(
            "packages",
            f"{MODULES} is {built}, and the version of OFED is {version}",
            f"write that of OFED {version.split('-')[0]}, as the mirror has it",
        )
    if rdma == "peermem" and build == "precompiled":
        yield Finding(
            "rdma",
            "is peermem, and compiled modules have it for the kernel's own drivers of adapters",
            "write dma-buf, or nvidia_driver_build: dkms, which builds it for OFED",
        )
