# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`make lab AZURE=estate`: from an empty subscription to a verified cluster, with the time of each stage.

    python -m tools.lab_estate [--name LAB] [--size tiny]

Nothing is edited between the stages, which are commands that anybody can type. It ends at the first one that
fails, with its exit code, and can be run again: what is done is not done twice.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ironspan.lab.layout import state_root

_COMMAND = (sys.executable, "-m", "ironspan.cli.main")


@dataclass(frozen=True)
class Stage:
    """One of them: what it is about, and the words of its command behind `ironspan`."""

    name: str
    words: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """The command to run."""
        return [*_COMMAND, *self.words]


def inventory(lab: str) -> Path:
    """Return the folder of the inventory of a lab with an estate."""
    return state_root() / lab / "inventory"


def stages(lab: str, size: str = "", rack: int = 0) -> list[Stage]:
    """Return the stages in order.

    Args:
        lab: Name of the lab.
        size: Of `ironspan lab up`; "" is its default.
        rack: Rack hosts; 0 is the default of the size.
    """
    more = (*(("--size", size) if size else ()), *(("--rack", str(rack)) if rack else ()))
    there = ("-i", str(inventory(lab)))
    return [
        Stage("lab", ("lab", "up", "--name", lab, "--azure", "estate", "--etcd-backup", *more)),
        Stage("estate", ("azure", *there)),
        Stage("cluster", ("apply", *there)),
        Stage("verify", ("verify", *there)),
    ]


def run(wanted: Sequence[Stage]) -> tuple[int, list[tuple[str, float]]]:
    """Run stages until one fails.

    Returns:
        The exit code of the last one that ran, and each with the seconds that it took.
    """
    took: list[tuple[str, float]] = []
    for stage in wanted:
        print(f"== {stage.name}: ironspan {' '.join(stage.words)}", flush=True)
        began = time.monotonic()
        code = subprocess.run(stage.command, check=False).returncode
        took.append((stage.name, time.monotonic() - began))
        if code:
            return code, took
    return 0, took


def table(took: Sequence[tuple[str, float]]) -> str:
    """Return stages and seconds for people."""
    rows = [*took, ("together", sum(seconds for _, seconds in took))]
    return "\n".join(f"{name:<10} {seconds:7.1f} s" for name, seconds in rows)


def main() -> int:
    """Run all stages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="default", metavar="LAB", help="which lab (default: default)")
    parser.add_argument("--size", default="", choices=("small", "tiny"), help="as for ironspan lab up")
    arguments = parser.parse_args()
    code, took = run(stages(arguments.name, arguments.size))
    print(f"\n{table(took)}")
    if code:
        print(f"stage {took[-1][0]} failed with exit code {code}; the same command goes on from there")
    return code


if __name__ == "__main__":
    sys.exit(main())
