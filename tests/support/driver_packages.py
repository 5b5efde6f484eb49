# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Packages with the names and relations of Ubuntu's server driver, and the tests' own libraries in them.

As there, the precompiled modules have the kernel's version and insist on one version of the driver. Modules
say what modinfo reads and cannot be loaded. Once they are installed, the libraries of another version than
the loaded one refuse to start, as NVML does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support import cuda, nvml
from tests.support.debian_packages import build, entry, module

KERNEL = "6.8.0-60-generic"
BRANCH = "580-server"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
COMPUTE = f"libnvidia-compute-{BRANCH}"
COMMON = f"nvidia-kernel-common-{BRANCH}"
MODULES = f"linux-modules-nvidia-{BRANCH}-open-{KERNEL}"
BESIDE = (f"nvidia-utils-{BRANCH}", f"nvidia-compute-utils-{BRANCH}", f"libnvidia-cfg1-{BRANCH}")
MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH."""


def version_of(driver: str) -> str:
    """Return the version of a driver's packages."""
    return f"{driver}-0ubuntu1"


def make(folder: Path, drivers: Sequence[str], gpus: str, computes: str) -> None:
    """Make the packages of several drivers and of the kernel, and apt's list of them.

    Args:
        folder: where to; an empty one.
        drivers: their versions, the oldest first.
        gpus: the file of a host that its NVML reads; it is there once a driver is loaded.
        computes: the file of a host that its CUDA reads.
    """
    work = folder / "work"
    work.mkdir()
    library, other = nvml.built(work / "nvml", gpus), cuda.built(work, computes)
    found = [build(folder, f"linux-{kind}-{KERNEL}", "6.8.0-60.63") for kind in ("image", "headers")]
    changed = f"ldconfig\nif [ -e {gpus} ]; then echo 'fail.nvmlInit {MISMATCH}' >>{gpus}; fi"
    for number, driver in enumerate(drivers, 1):
        version = version_of(driver)
        libraries = {
            f"{LIBRARIES}/libnvidia-ml.so.{driver}": library.read_bytes(),
            f"{LIBRARIES}/libcuda.so.{driver}": other.read_bytes(),
        }
        kernel = f"usr/lib/modules/{KERNEL}/kernel/nvidia-580srv-open/nvidia.ko"
        found += [
            build(folder, COMPUTE, version, files=libraries, after=changed),
            build(folder, COMMON, version),
            *(build(folder, name, version, needs=f"{COMPUTE} (= {version})") for name in BESIDE),
            build(
                folder,
                MODULES,
                f"6.8.0-60.63+{number}",
                needs=f"linux-image-{KERNEL}, {COMMON} (>= {driver}), {COMMON} (<= {driver}-1)",
                files={kernel: module(work, driver, "Dual MIT/GPL")},
                after=f"depmod {KERNEL}",
            ),
        ]
    (folder / "Packages").write_text("\n".join(map(entry, sorted(found))))
