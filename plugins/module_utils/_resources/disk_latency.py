# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``disk_latency``: a disk is fast enough before something is installed that depends on it.

Measured once, by writing as etcd's log does: one block after the other into room that was allocated before,
each made durable (fdatasync) before the next. A disk that is too slow fails the run.
"""

from __future__ import annotations

import math
import os
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)

BLOCK_BYTES = 2300
"""Size of one write (etcd, FAQ and hardware recommendations: fio with --bs=2300 --fdatasync=1)."""
MOST_SAMPLES = 2000
LONGEST_SECONDS = 15.0
"""Whichever comes first; 2,000 writes at 7 ms take as long."""
_NAME = ".ironspan-latency"


class DiskLatencyKind:
    """Measures the p99 of fdatasync where ``folder`` is or will be, unless the folder ``unless`` is there."""

    name = "disk_latency"
    stays = "nothing is left of a measurement"
    fields: t.Mapping[str, Field] = {
        "folder": Field((str,), required=True),
        "limit_ms": Field((int,), required=True),
        "unless": Field((str,), required=True),
        "variable": Field((str,), required=True),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """A limit is a number of milliseconds."""
        return [] if spec["limit_ms"] > 0 else ["limit_ms must be above 0"]

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Tell whether this disk was measured, or is in use already."""
        if paths.is_folder(host.path(spec["unless"])):
            return None
        known = host.note(spec["id"])
        anew = any(host.changed(name) for name in spec.get("requires") or ())
        if not anew and known.get("device") == _device(spec, host) and known["p99_ms"] <= spec["limit_ms"]:
            return None
        after = {"p99_ms": f"<= {spec['limit_ms']}", "folder": spec["folder"]}
        return Change("run", {"p99_ms": "not measured"}, after, "fdatasync of this disk is not measured yet")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Measure.

        Raises:
            ResourceError: the disk is too slow.
        """
        samples = measure(_there(host.path(spec["folder"])))
        p99 = percentile(samples, 99)
        if p99 > spec["limit_ms"]:
            raise ResourceError(
                f"the disk of {spec['folder']} is too slow for etcd: fdatasync takes {p99:.1f} ms at the "
                f"99th percentile (median {percentile(samples, 50):.1f} ms, slowest {max(samples):.1f} ms, "
                f"{len(samples)} writes of {BLOCK_BYTES} bytes), allowed are {spec['limit_ms']} ms",
                "Give etcd a faster disk, or find out what else writes to this one. "
                f"To accept it, raise {spec['variable']}: above 100 ms leaders get lost.",
            )
        host.remember(spec["id"], {"device": _device(spec, host), "p99_ms": round(p99, 2)})

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the file that was written has no name any more."""


def measure(folder: str, samples: int = MOST_SAMPLES, seconds: float = LONGEST_SECONDS) -> t.List[float]:
    """Return how long writes take until they are on the disk, in milliseconds.

    Args:
        folder: where to write.
        samples: how many writes.
        seconds: after which no more are made.
    """
    path = os.path.join(folder, _NAME)
    # Of a run that was killed between the next two lines.
    if paths.status(path):
        paths.remove(path)
    descriptor = paths.create(path)
    try:
        paths.remove(path)
        os.posix_fallocate(descriptor, 0, samples * BLOCK_BYTES)
        os.fsync(descriptor)
        block = b"\xa5" * BLOCK_BYTES
        taken: t.List[float] = []
        end = time.monotonic() + seconds
        while len(taken) < samples and (not taken or time.monotonic() < end):
            os.write(descriptor, block)
            began = time.monotonic()
            os.fdatasync(descriptor)
            taken.append((time.monotonic() - began) * 1000)
        return taken
    finally:
        os.close(descriptor)


def percentile(samples: t.Sequence[float], percent: int) -> float:
    """Return the smallest sample that so many percent of all are not above (nearest rank)."""
    return sorted(samples)[max(0, math.ceil(len(samples) * percent / 100) - 1)]


def _there(path: str) -> str:
    """Return a folder, or the nearest one above it that is there."""
    while not paths.is_folder(path):
        path = os.path.dirname(path)
    return path


def _device(spec: Spec, host: Host) -> int:
    return paths.there(_there(host.path(spec["folder"]))).st_dev


KIND = DiskLatencyKind()
