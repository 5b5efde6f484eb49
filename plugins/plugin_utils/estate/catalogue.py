# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Azure has: sizes of machines, regions, and what machines of a site get that names no size."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from collections.abc import Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sizes import profile_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.strict_reader import LOADER

SIZES_FILE = Path(__file__).absolute().with_name("sizes.yml")
REGIONS_FILE = Path(__file__).absolute().with_name("regions.yml")
ARM = frozenset({"Standard_ND128isr_NDR_GB200_v6", "Standard_ND128isr_GB300_v6"})
"""Sizes whose processors are no x86: Grace."""


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """One size of machines; see ``sizes.yml`` for the fields."""

    vcpus: int
    gib: int
    family: str
    nvme_gib: int = 0
    gpus: int = 0
    infiniband: bool = False
    trusted_launch: bool = True
    premium: bool = True
    controller: str = "scsi"


@dataclasses.dataclass(frozen=True, slots=True)
class Suggested:
    """What the control plane of a site gets where the site says nothing.

    Args:
        etcd: size of etcd's machines.
        control_plane: size of the API servers' machines; those with both get the larger one, which is this.
        gib: size of etcd's disk.
        iops: operations a second.
        mbps: MB/s.
    """

    etcd: str
    control_plane: str
    gib: int
    iops: int
    mbps: int


_SUGGESTED: tuple[tuple[int, Suggested], ...] = (
    # etcd, Hardware recommendations: 2 to 4 processors and 8 GB for 50 nodes, 4 and 16 for 250, 8 and 32 for
    # 1,000, 16 and 64 for 3,000, with 3,600 to 16,000 operations a second and 56 to 281 MB/s. Premium SSD v2
    # has 3,000 and 125 in its price. API servers: Kubernetes, Size of master on GCE: 4 processors for 100
    # nodes, 16 for 500, 32 above.
    (100, Suggested("Standard_D4s_v5", "Standard_D4s_v5", 64, 3000, 125)),
    (500, Suggested("Standard_D4s_v5", "Standard_D16s_v5", 64, 6000, 125)),
    (1000, Suggested("Standard_D8s_v5", "Standard_D32s_v5", 128, 8000, 250)),
    (7500, Suggested("Standard_D16s_v5", "Standard_D64s_v5", 256, 16000, 300)),
)


def suggested(nodes: int) -> Suggested:
    """Return what a site of this many nodes gets.

    Args:
        nodes: that it may grow to.
    """
    most = profile_for(nodes).nodes
    return next(wanted for limit, wanted in _SUGGESTED if most <= limit)


@functools.lru_cache(maxsize=1)
def sizes() -> Mapping[str, Size]:
    """Return all sizes that are known, by Azure's names."""
    rows = yaml.load(SIZES_FILE.read_text(encoding="utf-8"), Loader=LOADER)
    return {name: Size(**row) for name, row in rows.items()}


@functools.lru_cache(maxsize=1)
def regions() -> Mapping[str, bool]:
    """Return all regions that are known, and whether they have availability zones."""
    rows = _regions()
    return {name: key == "with_zones" for key in ("with_zones", "without_zones") for name in rows[key]}


def redundancies(region: str) -> tuple[str, ...]:
    """Return the kinds of copies that accounts of a region can have; all of those of an unknown one.

    Args:
        region: its short name.
    """
    zones, partner = regions().get(region) is not False, region not in _regions()["without_partner"]
    return tuple(
        name
        for name in ("LRS", "ZRS", "GRS", "RAGRS", "GZRS", "RAGZRS")
        if (zones or "Z" not in name) and (partner or "G" not in name)
    )


@functools.lru_cache(maxsize=1)
def _regions() -> Mapping[str, list[str]]:
    return t.cast(
        "Mapping[str, list[str]]", yaml.load(REGIONS_FILE.read_text(encoding="utf-8"), Loader=LOADER)
    )
