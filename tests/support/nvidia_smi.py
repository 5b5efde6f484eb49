# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for what nvidia-smi does about instances of GPUs (MIG), by NVIDIA's MIG user guide.

What it says of GPUs that are not divided, and how it takes places of instances, are those of nvidia-smi
580.159.04 on a real H200; what it says of instances has been seen in the guide only.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import mig

MODES = "--query-gpu=index,mig.mode.current,mig.mode.pending"
_WORDS = ("Disabled", "Enabled")


class Killed(Exception):
    """The program that asked was killed."""


class Refused(Exception):
    """nvidia-smi says no, with this status."""

    def __init__(self, text: str, status: int = 6) -> None:
        super().__init__(text)
        self.status = status


@dataclasses.dataclass
class Instance:
    """One instance; ``computes`` when it has a part to compute on."""

    profile: str
    start: int
    size: int
    computes: bool


@dataclasses.dataclass
class Gpu:
    """One GPU: its mode, the one after the next reset, and its instances by their IDs."""

    mode: bool = False
    pending: bool = False
    instances: dict[str, Instance] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Smi:
    """GPUs of one host.

    Args:
        gpus: as they are.
        card: model and card, which say what there is.
        reset: whether modes wait for a reset, as an A100's do in a virtual machine.
        half: whether instances get no part to compute on.
        dies: after how many calls the program that asks is killed, before the next one does anything.
    """

    gpus: list[Gpu]
    card: tuple[str, str] = ("H100", "80 GB")
    reset: bool = False
    half: bool = False
    dies: int | None = None
    calls: int = 0

    def run(self, argv: Sequence[str]) -> tuple[int, str, str]:
        """Answer like the program: status, output, errors."""
        assert argv[0] == "nvidia-smi"
        if self.dies is not None and self.calls >= self.dies:
            raise Killed
        self.calls += 1
        try:
            return 0, self._answer(list(argv[1:])), ""
        except Refused as refused:
            return refused.status, f"{refused}\n", ""

    def _answer(self, words: list[str]) -> str:
        options = dict(itertools.pairwise(words))
        gpu = self.gpus[int(options["-i"])] if "-i" in options else None
        if words == [MODES, "--format=csv,noheader"]:
            lines = [f"{_WORDS[each.mode]}, {_WORDS[each.pending]}" for each in self.gpus]
            return "".join(f"{index}, {line}\n" for index, line in enumerate(lines))
        if words in (["mig", "-lgi"], ["mig", "-lci"]):
            return self._listed(computes=words[1] == "-lci")
        assert gpu is not None, words
        if "-mig" in options:
            self._mode(gpu, wanted=options["-mig"] == "1")
        elif "-cgi" in options:
            self._create(gpu, options["-cgi"].split(","), computes="-C" in words)
        else:
            self._destroy(gpu, options["-gi"], computes="-dci" in words)
        return ""

    def _listed(self, computes: bool) -> str:
        if not any(gpu.mode for gpu in self.gpus):
            return "No MIG-enabled devices found.\n"
        rows = []
        for index, gpu in enumerate(self.gpus):
            for number, each in gpu.instances.items():
                name, at = f"MIG {each.profile}", f"{each.start}:{each.size}"
                if not computes:
                    rows.append(f"| {index:>3}  {name:<19}{9:>2} {number:>8} {at:>12}     |")
                elif each.computes:
                    rows.append(f"| {index:>3} {number:>6}       {name:<16}  0         0   {at:>12}     |")
        if not rows:
            raise Refused(f"No {'compute' if computes else 'GPU'} instances found: Not Found")
        line = "+" + "-" * 55 + "+"
        return "\n".join(
            [line, "| GPU   Name             Profile  Instance   Placement  |", line, *rows, line]
        )

    def _mode(self, gpu: Gpu, wanted: bool) -> None:
        if gpu.instances and not wanted:
            raise Refused("Unable to disable MIG Mode: In use by another client", 19)
        gpu.pending = wanted
        gpu.mode = gpu.mode if self.reset else wanted

    def _create(self, gpu: Gpu, wanted: list[str], computes: bool) -> None:
        if not gpu.mode:
            raise Refused("Unable to create a GPU instance: MIG is disabled")
        model, card = self.card
        for each in wanted:
            name, _, start = each.partition(":")
            profile = mig._cards()[model][card].get(name)
            if profile is None:
                raise Refused(f"Invalid GPU instance profile: {name}")
            slices = {s for i in gpu.instances.values() for s in range(i.start, i.start + i.size)}
            if slices & set(range(int(start), int(start) + profile.memory)):
                raise Refused("Unable to create a GPU instance: Insufficient Resources", 19)
            number = max((int(number) for number in gpu.instances), default=0) + 1
            made = Instance(name, int(start), profile.memory, computes and not self.half)
            gpu.instances[str(number)] = made

    def _destroy(self, gpu: Gpu, number: str, computes: bool) -> None:
        if number not in gpu.instances:
            raise Refused("Unable to find it: Not Found")
        if computes:
            gpu.instances[number].computes = False
        elif gpu.instances[number].computes:
            raise Refused("Unable to destroy GPU instance: In use by another client", 19)
        else:
            del gpu.instances[number]


def state(smi: Smi) -> list[t.Any]:
    """Return what the GPUs are, to be compared."""
    return [dataclasses.asdict(gpu) for gpu in smi.gpus]
