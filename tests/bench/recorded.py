# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a worker answers when it is as it should be, and when a file is to be changed, from a real one."""

from __future__ import annotations

import json
import pathlib
import typing as t

from tests.bench import worker
from tests.bench.fleet import Fleet
from tests.bench.replay import Replayed

Answers = dict[str, list[dict[str, t.Any]]]
"""Scene -> answers, in order."""
CHANGE = ("-e", "base_hosts_entries=endpoint")
"""Options that change one file on every host."""


def record(folder: pathlib.Path) -> Answers:
    """Install one simulated worker and return what it says in each scene.

    Args:
        folder: an empty folder with a short path.
    """
    with Fleet(folder, 1) as fleet:
        worker.make_root(fleet.root(fleet.names[0]))
        run = worker.prepare(fleet)
        worker.serve_mirror(fleet)
        answers: Answers = {"ping": [{"ping": "pong", "changed": False}]}
        for scene, options in (("install", ()), ("noop", ()), ("file", CHANGE)):
            said = folder / "answers" / scene
            said.mkdir(parents=True)
            cost = run(*options, environment={"IRONSPAN_BENCH_ANSWERS": str(said)})
            answers[scene] = [json.loads(path.read_text()) for path in sorted(said.iterdir())]
            assert len(answers[scene]) == {"install": 3, "noop": 1, "file": 2}[scene], cost.output
    return answers


def replayed(folder: pathlib.Path, count: int, answers: Answers) -> Replayed:
    """Return hosts that give these answers."""
    hosts = Replayed(folder, count)
    for scene, said in answers.items():
        hosts.tell(scene, said)
    return hosts
