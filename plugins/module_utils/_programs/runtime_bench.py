#!/usr/bin/python3
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Measures on this host what sandboxes of each runtime class cost, compared with runc.

Written by ironspan and started by runtime_bench.yml only. It starts containers as the smoke job does.
Python 3.9 and its standard library only.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import typing as t
from importlib.machinery import SourceFileLoader
from pathlib import Path

TOLERANCE = 0.2
"""How far the declared overhead may be from the measured one."""

Settings = dict[str, t.Any]


def smoke_job() -> t.Any:
    """Return the smoke job's program as a module."""
    own = Path(__file__)
    path = own.with_name(own.name.replace("bench", "smoke"))
    loader = SourceFileLoader("ironspan_runtime_smoke", str(path))
    specification = importlib.util.spec_from_loader(loader.name, loader)
    if specification is None:
        raise RuntimeError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module


smoke = smoke_job()


def processes_of(name: str) -> set[str]:
    """Return the processes that have a container's name among their arguments, and all below them."""
    parents: dict[str, str] = {}
    found: set[str] = set()
    for entry in smoke.process_folders():
        try:
            parents[entry.name] = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            if name in (entry / "cmdline").read_text(errors="replace").split("\0"):
                found.add(entry.name)
        except OSError:
            continue
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def memory_of(pid: str) -> int:
    """Return the memory of a process in bytes; what it shares with others counts in part (Pss)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def measure(settings: Settings, one: Settings, number: int) -> tuple[float, int]:
    """Return the seconds that an idle container took to start, and the bytes of all its processes."""
    name = f"{one['name']}-bench{number}-{os.getpid()}"
    sleep = shutil.which("sleep", path="/usr/bin:/bin") or "/usr/bin/sleep"
    try:
        began = time.monotonic()
        status, text = smoke.run([*smoke.start_command(settings, one, name, "--detach"), sleep, "600"])
        seconds = time.monotonic() - began
        if status != 0:
            raise RuntimeError(f"{one['name']}: no container starts: {smoke.last_line(text)}")
        time.sleep(settings.get("settle_seconds", 3))
        return seconds, sum(map(memory_of, processes_of(name)))
    finally:
        smoke.end(settings, name)


def bench(settings: Settings, rounds: int = 5) -> Settings:
    """Compare every class with runc, in turn, so that what else runs on the host meets all of them."""
    with tempfile.TemporaryDirectory(prefix="ironspan-bench-") as folder:
        # runc cannot pivot into what is its root already.
        status, text = smoke.run(["mount", "--bind", "/", folder])
        if status != 0:
            raise RuntimeError(f"the host's root cannot be mounted a second time: {smoke.last_line(text)}")
        try:
            return measured({**settings, "root": folder}, rounds)
        finally:
            smoke.run(["umount", "--lazy", folder])


def measured(settings: Settings, rounds: int) -> Settings:
    """Return the figures of ``bench``, with a root folder that runc takes too."""
    runc = {"name": "runc", "runtime": "io.containerd.runc.v2"}
    classes = [runc, *settings["classes"]]
    found = {one["name"]: [measure(settings, one, number)] for number, one in enumerate(classes, 1000)}
    for number in range(rounds - 1):
        for one in classes:
            found[one["name"]].append(measure(settings, one, number))
    middle = {
        name: (statistics.median(s for s, _ in all_), statistics.median(m for _, m in all_))
        for name, all_ in found.items()
    }
    figures = [compared(one, middle[one["name"]], middle["runc"]) for one in settings["classes"]]
    return {"schema": 1, "time": time.time(), "rounds": rounds, "classes": figures}


def compared(one: Settings, own: tuple[float, float], runc: tuple[float, float]) -> Settings:
    """Return the figures of a class; ``remedy`` says what to declare, "" when what is declared is right.

    Args:
        one: the class.
        own: its seconds to start, and its bytes.
        runc: the same of runc.
    """
    overhead, declared, ratio = int(own[1] - runc[1]), one["declared_bytes"], own[0] / runc[0]
    mib = max(1, round(overhead / (1 << 20)))
    text = f"{one['name']}: starts in {own[0]:.2f} s, {ratio:.2f} times runc's; {mib} MiB more than runc"
    fits = abs(declared - overhead) <= TOLERANCE * overhead
    return {
        "name": one["name"],
        "start_seconds": round(own[0], 3),
        "runc_start_seconds": round(runc[0], 3),
        "start_ratio": round(ratio, 2),
        "overhead_bytes": overhead,
        "declared_bytes": declared,
        "text": text,
        "remedy": ""
        if fits
        else f"{one['name']} declares {declared >> 20} MiB, write overhead_memory: {mib}Mi",
    }


def main(config: str = smoke.CONFIG) -> int:
    """Measure every class and write the figures."""
    settings = json.loads(Path(config).read_text(encoding="utf-8"))
    folder = Path(settings["folder"])
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    smoke.remove_leftovers(settings)
    figures = json.dumps(bench(settings), indent=1) + "\n"
    smoke.write_file(folder / "bench.json", figures.encode())
    print(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
