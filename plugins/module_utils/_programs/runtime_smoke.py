#!/usr/bin/python3
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Proves on this host that each runtime class still starts sandboxes, and removes what none uses any more.

It asks containerd and nobody else, so it works when the API does not. Written and started by ironspan; Python
3.9 and its standard library only. Exit status 1 when a class does not work.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.module_utils._programs._files import write_file

CONFIG = "/etc/ironspan-runtime.json"
NAMESPACE = "ironspan-smoke"
PROOF = "Starting gVisor"
"""The first line of gVisor's own kernel log; no Linux kernel says so."""
SANDBOX = "io.kubernetes.cri.container-type=sandbox"
DRIVER = re.compile(r"\b[0-9]{3}\.[0-9]{1,3}(\.[0-9]{2})?\b")
LEFTOVER = re.compile(r"[a-z0-9-]+-([0-9]+)")
"""A container of this program or of the bench: the last number is the process that made it."""

START_SECONDS = 90
YOUNG_SECONDS = 3600
"""A release that was just unpacked may be one that converge is about to put into use."""

Settings = dict[str, t.Any]


def run(argv: t.Sequence[str], seconds: float = START_SECONDS) -> tuple[int, str]:
    """Return exit status and output of a program; 124 when it took too long, 127 when it cannot be run."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return 124, f"took more than {seconds:g} s"
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def ctr(settings: Settings, *arguments: str) -> list[str]:
    """Return a command for containerd, in a namespace of its own, which the kubelet does not look at."""
    return [settings["ctr"], "--address", settings["address"], "--namespace", NAMESPACE, *arguments]


def start_command(settings: Settings, one: Settings, name: str, mode: str) -> list[str]:
    """Return the command that starts a container of a class, its program to be added.

    The root is the host's own, read-only: there is always a program in it, and no image is needed.
    """
    argv = ctr(settings, "run", mode, "--read-only", "--runtime", one["runtime"])
    if one.get("config"):
        # Without the mark of a pod's first container the shim waits for an end of output that never comes.
        argv += ["--runtime-config-path", one["config"], "--annotation", SANDBOX]
        if one.get("systemd_cgroup"):
            argv += ["--cgroup", f"system.slice:ironspan:{name}"]
    return [*argv, "--rootfs", settings.get("root", "/"), name]


def end(settings: Settings, name: str) -> None:
    """Take a container away, as far as it is there."""
    run(ctr(settings, "task", "delete", "--force", name), 20)
    run(ctr(settings, "container", "delete", name), 20)


def remove_leftovers(settings: Settings) -> None:
    """Take away what a run left that was cut off, as by a restart of containerd: it keeps its release."""
    status, text = run(ctr(settings, "container", "list", "--quiet"), 20)
    for line in text.splitlines() if status == 0 else ():
        found = LEFTOVER.fullmatch(line.strip())
        if found and not is_running(found[1]):
            end(settings, line.strip())


def is_running(pid: str) -> bool:
    """Tell whether a process is one of this program or of the bench."""
    try:
        return "ironspan-runtime-" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return False


def start_sandbox(settings: Settings, one: Settings) -> str:
    """Start a sandbox whose program reads its kernel's log. Return what is wrong, "" if nothing is."""
    name = f"{one['name']}-{os.getpid()}"
    # One that ends at once may end before containerd has learnt that it runs, which gives an error then.
    status, text = run([*start_command(settings, one, name, "--rm"), "/bin/sh", "-c", "dmesg; sleep 1"])
    if status != 0:
        end(settings, name)
    if PROOF in text:
        return ""
    if status == 0:
        return "what was started does not run on gVisor's kernel"
    return f"no sandbox starts: {last_line(text)}"


def driver_problem(settings: Settings, one: Settings) -> str:
    """Return why the GPU driver of this host and runsc do not go together, "" if they do."""
    if not one.get("gpu"):
        return ""
    path = Path(settings.get("driver_file", "/proc/driver/nvidia/version"))
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            found = DRIVER.search(stream.readline())
    except OSError:
        return f"there is no NVIDIA driver on this host ({path} is missing)"
    if not found:
        return f"{path} names no version"
    status, text = run([one["runsc"], "nvproxy", "list-supported-drivers"], 20)
    if status != 0:
        return f"runsc does not say which drivers it knows: {last_line(text)}"
    driver, known = found.group(), [line for line in text.split() if DRIVER.fullmatch(line)]
    if driver in known:
        return ""
    if not known:
        return "runsc knows no driver at all"
    problem = f"runsc {settings['current']} does not know the driver {driver} of this host"
    return f"{problem}; the nearest one that it knows is {nearest(driver, known)}"


def nearest(driver: str, known: t.Sequence[str]) -> str:
    """Return the driver that is nearest to another one: of the same branch first, the newer of two."""

    def number(text: str) -> int:
        major, minor, patch = [int(part) for part in (text + ".0").split(".")[:3]]
        return (major * 1000 + minor) * 1000 + patch

    wanted = number(driver)
    return min(sorted(known, key=number, reverse=True), key=lambda one: abs(number(one) - wanted))


def try_class(settings: Settings, one: Settings) -> Settings:
    """Return what became of one class: name, ok, seconds, message."""
    began = time.monotonic()
    problem = driver_problem(settings, one) or start_sandbox(settings, one)
    seconds = round(time.monotonic() - began, 3)
    return {"name": one["name"], "ok": not problem, "seconds": seconds, "message": problem}


def process_folders() -> list[Path]:
    """Return the folder of every process of the host."""
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def programs_in_use() -> set[tuple[int, int]]:
    """Return device and inode of the program of every process of the host."""
    found = set()
    for entry in process_folders():
        try:
            status = (entry / "exe").stat()
        except OSError:
            continue
        found.add((status.st_dev, status.st_ino))
    return found


def is_used(folder: Path, programs: set[tuple[int, int]]) -> bool:
    """Tell whether a process runs a program of this folder."""
    files = (path.lstat() for path in folder.rglob("*"))
    return any((status.st_dev, status.st_ino) in programs for status in files)


def remove_unused(settings: Settings, now: float) -> list[str]:
    """Remove releases that are neither current nor used by a sandbox that was started with them.

    Args:
        settings: of this host.
        now: Unix time in seconds.

    Returns:
        Their names.
    """
    removed = []
    programs = programs_in_use()
    for path in sorted(Path(settings["releases"]).glob("*")):
        if path.name == settings["current"] or path.is_symlink() or not path.is_dir():
            continue
        if now - path.stat().st_mtime < YOUNG_SECONDS or is_used(path, programs):
            continue
        shutil.rmtree(path)
        removed.append(path.name)
    return removed


def metrics(report: Settings) -> str:
    """Return a report as text for Prometheus."""
    lines = []
    for metric, field, help_text in (
        ("ironspan_runtime_class_ok", "ok", "Whether the last sandbox of the class started."),
        ("ironspan_runtime_class_start_seconds", "seconds", "How long the last sandbox took, start to end."),
    ):
        lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge"]
        lines += [
            metric + '{class="' + one["name"] + '"} ' + f"{float(one[field]):g}" for one in report["classes"]
        ]
    last = "ironspan_runtime_smoke_last_timestamp_seconds"
    lines += [f"# HELP {last} When the classes were last tried.", f"# TYPE {last} gauge"]
    lines.append(f"{last} {report['time']:.0f}")
    return "\n".join(lines) + "\n"


def main(config: str = CONFIG) -> int:
    """Try every class, write the report, tidy up."""
    settings = json.loads(Path(config).read_text(encoding="utf-8"))
    folder = Path(settings["folder"])
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    remove_leftovers(settings)
    classes = [try_class(settings, one) for one in settings["classes"]]
    failed = [one for one in classes if not one["ok"]]
    report: Settings = {
        "schema": 1,
        "time": time.time(),
        "release": settings["current"],
        "ok": not failed,
        "classes": classes,
        # What does not work yet may have to go back to what was there before.
        "removed": [] if failed else remove_unused(settings, time.time()),
    }
    write_file(folder / "report.json", (json.dumps(report, indent=1) + "\n").encode())
    write_file(folder / "ironspan_runtime.prom", metrics(report).encode())
    for one in classes:
        print(f"{one['name']}: {'works' if one['ok'] else one['message']} ({one['seconds']:.1f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
