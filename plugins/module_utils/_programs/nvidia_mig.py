#!/usr/bin/python3
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Divides the GPUs of this host as its layout says (Multi-Instance GPU, MIG), with nvidia-smi.

Instances do not outlive a boot, so this runs at each one, before GPUs are described to containerd. The kind
mig_layout does the same with the same functions while the host runs. Written and started by ironspan; Python
3.9 and its standard library only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t

DRIVER = "/proc/driver/nvidia/version"
SETTINGS = "/etc/ironspan/nvidia-mig.json"
SECONDS = 120
OTHERS = "others"
"""In a layout: all GPUs that it does not name."""
_MODES = "--query-gpu=index,mig.mode.current,mig.mode.pending"
_INSTANCE = re.compile(r"^\|\s+(\d+)\s+MIG\s+(\S+)\s+\d+\s+(\d+)\s+(\d+):\d+\s+\|$", re.MULTILINE)
_COMPUTE = re.compile(r"^\|\s+(\d+)\s+(\d+)\s+MIG\s+\S+\s+\d+\s+\d+\s+\d+:\d+\s+\|$", re.MULTILINE)
_NOTHING = re.compile(r"no .*(instances|devices) found", re.IGNORECASE)

Run = t.Callable[[t.Sequence[str]], t.Tuple[int, str, str]]
"""Runs a program, returns its status, output and errors."""
Layout = t.Mapping[str, t.Optional[t.Sequence[str]]]
"""GPU's index, or OTHERS -> its instances as PROFILE:START; none for a GPU that is not divided."""


class Failed(Exception):
    """The GPUs could not be divided: why."""


class Gpu(t.NamedTuple):
    """One GPU as it is.

    Args:
        divided: whether it is in MIG mode.
        will_be: whether it is after its next reset.
        instances: ID -> PROFILE:START. Those that nothing can compute on have an empty text.
    """

    divided: bool
    will_be: bool
    instances: t.Mapping[str, str]

    @property
    def layout(self) -> t.Optional[t.List[str]]:
        """Its instances in the order of their places, None when it is not divided."""
        return sorted(self.instances.values(), key=place) if self.divided else None


def place(instance: str) -> t.Tuple[int, str]:
    """Return where an instance begins, and its profile."""
    profile, _, start = instance.rpartition(":")
    return (int(start) if start.isdigit() else -1, profile)


def read(run: Run) -> t.Dict[str, Gpu]:
    """Return the GPUs by their indexes.

    Raises:
        Failed: nvidia-smi did not say it.
    """
    modes = [line.split(",") for line in _asked(run, [_MODES, "--format=csv,noheader"]).splitlines() if line]
    if not all(len(mode) == 3 for mode in modes):
        raise Failed("nvidia-smi did not say which GPUs are in MIG mode")
    instances: t.Dict[str, t.Dict[str, str]] = {}
    if any(mode[1].strip() == "Enabled" for mode in modes):
        computing = set(_COMPUTE.findall(_asked(run, ["mig", "-lci"])))
        for index, profile, number, start in _INSTANCE.findall(_asked(run, ["mig", "-lgi"])):
            whole = f"{profile}:{start}" if (index, number) in computing else ""
            instances.setdefault(index, {})[number] = whole
    return {
        index.strip(): Gpu(
            current.strip() == "Enabled", pending.strip() == "Enabled", instances.get(index.strip(), {})
        )
        for index, current, pending in modes
    }


def wanted(layout: Layout, gpus: t.Iterable[str]) -> t.Dict[str, t.Optional[t.List[str]]]:
    """Return what each GPU shall be.

    Raises:
        Failed: the layout is about a GPU that the host does not have.
    """
    there = list(gpus)
    missing = [index for index in layout if index not in (OTHERS, *there)]
    if missing:
        raise Failed(
            f"the layout divides GPU {', '.join(missing)}, and there are {', '.join(there) or 'none'}"
        )
    found: t.Dict[str, t.Optional[t.List[str]]] = {}
    for index in there:
        instances = layout[index] if index in layout else layout.get(OTHERS)
        found[index] = sorted(instances, key=place) if instances else None
    return found


def differing(layout: Layout, gpus: t.Mapping[str, Gpu]) -> t.Dict[str, t.Optional[t.List[str]]]:
    """Return the GPUs to change, and what they shall be; one whose mode waits for a reset is none.

    Raises:
        Failed: as ``wanted``.
    """
    return {
        index: instances
        for index, instances in wanted(layout, gpus).items()
        if gpus[index].layout != instances and not waits(gpus[index], instances)
    }


def waits(gpu: Gpu, instances: t.Optional[t.Sequence[str]]) -> bool:
    """Tell whether a GPU takes its mode with the next reset only."""
    return gpu.divided != gpu.will_be and gpu.will_be == (instances is not None)


def divide(run: Run, layout: Layout) -> t.List[str]:
    """Make the GPUs as they shall be; return those that must be reset first. It may be repeated.

    Raises:
        Failed: nvidia-smi refused something, or a GPU is not as it shall be after it.
    """
    for index, instances in differing(layout, read(run)).items():
        gpu = read(run)[index]
        kept = set(instances or ())
        for number, instance in gpu.instances.items():
            if instance not in kept:
                if instance:
                    _asked(run, ["mig", "-dci", "-gi", number, "-i", index])
                _asked(run, ["mig", "-dgi", "-gi", number, "-i", index])
        if gpu.will_be != (instances is not None):
            _asked(run, ["-i", index, "-mig", "0" if instances is None else "1"])
            gpu = read(run)[index]
        missing = sorted(set(instances or ()) - set(gpu.instances.values()), key=place)
        if gpu.divided and missing:
            _asked(run, ["mig", "-cgi", ",".join(missing), "-C", "-i", index])
    gpus = read(run)
    left = differing(layout, gpus)
    if left:
        index = next(iter(left))
        raise Failed(f"GPU {index} is {text(gpus[index].layout)} after it, and shall be {text(left[index])}")
    return [index for index, instances in wanted(layout, gpus).items() if waits(gpus[index], instances)]


def text(instances: t.Optional[t.Sequence[str]]) -> str:
    """Return what a GPU is, for people."""
    return "not divided" if instances is None else ", ".join(instances) or "divided, without instances"


def _asked(run: Run, arguments: t.Sequence[str]) -> str:
    status, output, errors = run(["nvidia-smi", *arguments])
    if status and not (arguments[-1] in ("-lgi", "-lci") and _NOTHING.search(output + errors)):
        reason = (errors.strip() or output.strip() or f"status {status}").splitlines()[-1]
        raise Failed(f"nvidia-smi {' '.join(arguments)}: {reason}")
    return output


def run_program(argv: t.Sequence[str]) -> t.Tuple[int, str, str]:
    """Run a program; one that hangs has failed."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"took more than {SECONDS} s: a GPU may hang"
    except OSError as error:
        return 127, "", str(error.strerror)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def main() -> int:
    """Divide the GPUs; without a driver there are none."""
    if not os.path.exists(DRIVER):
        print("no driver is loaded, so there are no GPUs to divide")
        return 0
    try:
        with open(SETTINGS, encoding="utf-8") as stream:
            layout = json.load(stream)["layout"]
        waiting = divide(run_program, layout)
        for index, gpu in read(run_program).items():
            print(f"GPU {index}: {text(gpu.layout)}{', waits for a reset' if index in waiting else ''}")
    except (Failed, OSError, ValueError, KeyError, TypeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
