# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.support.simulation --nodes 1000``: simulates a cluster and says what it cost."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.support import kwok
from tests.support.simulation.outcome import Plan
from tests.support.simulation.report import text
from tests.support.simulation.scenario import simulate


def main() -> int:
    """Run one simulation; 0 when no node stopped being Ready, 1 when one did, 2 when it cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulation", description=__doc__)
    parser.add_argument("--nodes", type=int, default=Plan.nodes, help="how many join (%(default)s)")
    parser.add_argument("--planned", type=int, default=Plan.planned, help="size of the profile, if another")
    parser.add_argument("--without-profile", action="store_true", help="what a small site gets")
    parser.add_argument("--events-apart", action="store_true", help="events get an etcd of their own")
    parser.add_argument("--without-fsync", action="store_true", help="etcd does not wait for the disk")
    parser.add_argument("--pods-per-node", type=int, default=Plan.pods_per_node)
    parser.add_argument("--watchers", type=int, default=Plan.watchers, help="nodes that watch all nodes")
    parser.add_argument(
        "--pod-watches", type=int, default=Plan.pod_watches, help="nodes that watch their pods"
    )
    parser.add_argument("--seconds", type=float, default=Plan.seconds, help="of heartbeats alone")
    parser.add_argument("--at-once", type=int, default=Plan.at_once, help="joins; 0 for the profile's")
    parser.add_argument("--patience", type=float, default=Plan.patience, help="seconds for one node")
    parser.add_argument("--json", type=Path, help="also write everything that was measured here")
    given = vars(parser.parse_args())
    to_file: Path | None = given.pop("json")
    switches = {"with_profile": not given.pop("without_profile"), "fsync": not given.pop("without_fsync")}
    plan = Plan(**switches, **given)
    program = kwok.find()
    if program is None:
        print(f"kwok is not compiled: {kwok.BUILD}", file=sys.stderr)
        return 2
    start = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - start:6.1f}s] {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="ironspan-simulation-") as folder:
        try:
            outcome = simulate(plan, program, Path(folder), say)
        except (pytest.skip.Exception, pytest.fail.Exception) as problem:
            print(problem, file=sys.stderr)
            return 2
    if to_file:
        to_file.write_text(outcome.as_json() + "\n")
    print(text(outcome))
    return 1 if outcome.flaps else 0


if __name__ == "__main__":
    # Ended from outside, it ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
