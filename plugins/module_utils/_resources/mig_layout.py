# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``mig_layout``: GPUs are divided into instances (Multi-Instance GPU, MIG) as a layout says.

What a running host is compared with and changed by; after a boot the program nvidia_mig does the same.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import nvidia_mig
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import reboot_request
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import holders
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)

COMPUTES = "/dev/nvidia-uvm"
"""What every process that computes on a GPU has open."""
_INSTANCE = re.compile(r"[1-7]g\.[0-9]+gb(\+[a-z.]+)?:[0-7]")


class MigLayoutKind:
    """Changes only GPUs that differ, and none while somebody computes on one of the host."""

    name = "mig_layout"
    stays = "the GPUs stay divided as they are until the next boot"
    fields: t.Mapping[str, Field] = {"layout": Field((dict,), required=True)}

    def check(self, spec: Spec) -> t.List[str]:
        """Indexes and instances have the form that nvidia-smi takes."""
        mistakes = []
        for index, instances in spec["layout"].items():
            if index != nvidia_mig.OTHERS and not index.isdigit():
                mistakes.append(f"{index!r} is no index of a GPU")
            for instance in instances or ():
                if not isinstance(instance, str) or not _INSTANCE.fullmatch(instance):
                    mistakes.append(f"{instance!r} is no instance; write for example '3g.40gb:0'")
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare with what nvidia-smi says. Without a driver there is no GPU to divide yet."""
        if not os.path.exists(host.path(nvidia_mig.DRIVER)):
            return None
        try:
            gpus = nvidia_mig.read(_runs(host))
            differing = nvidia_mig.differing(spec["layout"], gpus)
        except nvidia_mig.Failed as failed:
            raise ResourceError(str(failed), "Run nvidia-smi on the host.") from failed
        if not differing:
            return None
        before = {index: gpus[index].layout for index in differing}
        return Change("update", before, dict(differing), f"{len(differing)} GPUs are divided differently")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Divide them; what a reset must come before is asked for and done by the next boot."""
        users = holders.holders(host, [COMPUTES])
        if users:
            raise ResourceError(
                f"the GPUs are in use: {', '.join(users)} have {COMPUTES} open",
                "Drain the node and wait until these processes have ended, then run again.",
            )
        self._divide(spec, change.after, host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Divide them as they were."""
        if os.path.exists(host.path(nvidia_mig.DRIVER)):
            self._divide(spec, change.before, host)

    def _divide(self, spec: Spec, layout: nvidia_mig.Layout, host: Host) -> None:
        runs = _runs(host)
        try:
            # Those that a change is not about are to stay as they are.
            others = {index: gpu.layout for index, gpu in nvidia_mig.read(runs).items()}
            waiting = nvidia_mig.divide(runs, {**others, **layout})
        except nvidia_mig.Failed as failed:
            raise ResourceError(str(failed), "Run nvidia-smi on the host.") from failed
        if waiting:
            reboot_request.ask(
                host, spec["id"], f"GPU {', '.join(waiting)} takes its MIG mode with the next boot"
            )


def _runs(host: Host) -> nvidia_mig.Run:
    return lambda argv: host.run(argv, check=False, timeout=nvidia_mig.SECONDS, env={"LC_ALL": "C"})


KIND = MigLayoutKind()
