# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Many cases, one after the other, with a report; `make refuse` runs it. What was done is not done again.

Each case is its number, so a finding is repeated with ``--from NUMBER --cases 1``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ironspan.cli import environment

MOST_SHOWN = 200
EVERY = 200
"""Cases between two reports."""


def main() -> int:
    """Run the cases; return 1 where one was answered wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tests.unit.refuse", description=__doc__)
    parser.add_argument("--cases", type=int, default=50_000, help="with a mistake")
    parser.add_argument("--good", type=int, default=5_000, help="sites without one")
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first case")
    parser.add_argument("--seed", default="0")
    parser.add_argument(
        "--report", type=Path, default=Path("build/refuse.json"), help="kept, and taken up again"
    )
    chosen = parser.parse_args()
    environment.settle()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        os.environ["HOME"] = folder
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        return _run(chosen, Path(folder))


def _run(chosen: argparse.Namespace, folder: Path) -> int:
    # Ansible reads HOME when it is imported.
    from tests.unit.refuse.case import Watch, run

    watch = Watch()
    state = _taken_up(chosen)
    began, last = time.process_time(), time.monotonic()
    for side, count in (("good", chosen.good), ("wrong", chosen.cases)):
        for number in range(max(chosen.first, state["next"][side]), chosen.first + count):
            verdict = run(number, chosen.seed, folder, watch, side == "good")
            kind = state["kinds"].setdefault(verdict.kind, {"cases": 0, "faults": 0})
            kind["cases"] += 1
            state["slowest_s"] = max(state["slowest_s"], round(verdict.seconds, 2))
            if verdict.fault:
                kind["faults"] += 1
                state["faults"].append(dataclasses.asdict(verdict))
            state["next"][side] = number + 1
            if (number + 1) % EVERY == 0:
                state["cpu_s"] += time.process_time() - began
                began = time.process_time()
                _write(state, chosen.report)
            if time.monotonic() - last > 5:
                last = time.monotonic()
                print(
                    f"{side} {number + 1 - chosen.first}/{count}, {len(state['faults'])} faults",
                    file=sys.stderr,
                )
    state["cpu_s"] += time.process_time() - began
    _write(state, chosen.report)
    for fault in state["faults"][:MOST_SHOWN]:
        print(f"{fault['number']} {fault['kind']}: {fault['what']}: {fault['fault']}")
    cases = sum(kind["cases"] for kind in state["kinds"].values())
    seconds = f"{state['cpu_s']:.0f} s of CPU, the slowest {state['slowest_s']} s"
    print(f"{cases} cases, {len(state['faults'])} faults, {seconds}")
    for name, kind in sorted(state["kinds"].items()):
        print(f"  {name}: {kind['cases']} cases, {kind['faults']} faults")
    print(
        "most of one kind:", Counter(fault["fault"].split(":")[0] for fault in state["faults"]).most_common(5)
    )
    return 1 if state["faults"] else 0


def _taken_up(chosen: argparse.Namespace) -> dict:  # type: ignore[type-arg]
    """Return what an earlier run of the same cases came to, or the beginning."""
    new = {
        "seed": chosen.seed,
        "first": chosen.first,
        "next": {"good": 0, "wrong": 0},
        "kinds": {},
        "faults": [],
        "cpu_s": 0.0,
        "slowest_s": 0.0,
    }
    if not chosen.report.is_file():
        return new
    kept = json.loads(chosen.report.read_text())
    return kept if (kept["seed"], kept["first"]) == (chosen.seed, chosen.first) else new


def _write(state: object, report: Path) -> None:
    report.parent.mkdir(parents=True, exist_ok=True)
    half = report.with_suffix(".new")
    half.write_text(json.dumps(state, indent=1) + "\n")
    half.rename(report)


if __name__ == "__main__":
    sys.exit(main())
