#!/usr/bin/python3
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs the MPS daemon of this host (Multi-Process Service) and gives each pod its share of a GPU.

The device plugin names the folders: it looks for the daemon in /mps/RESOURCE/pipe, which containers get too
(k8s-device-plugin v0.19.0, cmd/mps-control-daemon/mps). Written and started by ironspan; Python 3.9 and its
standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import typing as t

DRIVER = "/proc/driver/nvidia/version"
SETTINGS = "/etc/ironspan/nvidia-mps.json"
ROOT = "/mps"
RESOURCE = "nvidia.com/gpu.shared"
READY = "/mps/.ready"
"""There while the daemon takes clients: the device plugin waits for it."""
CONTROL = "nvidia-cuda-mps-control"
SECONDS = 60
_QUERY = ("--query-gpu=index,memory.total,mig.mode.current", "--format=csv,noheader,nounits")


class Failed(Exception):
    """The GPUs could not be shared: why."""


def gpus(text: str) -> t.Dict[str, int]:
    """Return MiB of memory of each GPU, by its index, from what nvidia-smi answers.

    Raises:
        Failed: it is no such answer, or a GPU is divided.
    """
    found: t.Dict[str, int] = {}
    for line in filter(None, text.splitlines()):
        index, memory, mode = ([each.strip() for each in line.split(",")] + ["", "", ""])[:3]
        if not index.isdigit() or not memory.isdigit():
            raise Failed(f"nvidia-smi did not say how much memory a GPU has: {line[:80]!r}")
        if mode == "Enabled":
            raise Failed(f"GPU {index} is divided (MIG): whole GPUs are shared only")
        found[index] = int(memory)
    if not found:
        raise Failed("nvidia-smi names no GPU")
    return found


def commands(settings: t.Mapping[str, t.Any], memory: t.Mapping[str, int]) -> t.List[str]:
    """Return what the daemon is told: the share of each pod, of threads and of each GPU's memory.

    Args:
        settings: of the role: pods, threads_percent, memory_mib; 0 is an equal share.
        memory: MiB of each GPU, by its index.

    Raises:
        Failed: a limit is more than a GPU has.
    """
    pods, limit = int(settings["pods"]), int(settings["memory_mib"])
    lines = []
    for index, there in sorted(memory.items(), key=lambda each: int(each[0])):
        if limit > there:
            raise Failed(f"GPU {index} has {there} MiB, and one pod would get {limit}")
        lines.append(f"set_default_device_pinned_mem_limit {index} {limit or there // pods}M")
    lines.append(f"set_default_active_thread_percentage {int(settings['threads_percent']) or 100 // pods}")
    return lines


def environment() -> t.Dict[str, str]:
    """Return that of daemon, servers and questions; containers get the same pipe."""
    folder = f"{ROOT}/{RESOURCE}"
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
    }


def asked(argv: t.Sequence[str], line: str = "") -> str:
    """Run a program that reads a line; return what it wrote.

    Raises:
        Failed: it failed, hangs, or is not there.
    """
    try:
        done = subprocess.run(
            argv,
            input=line.encode() + b"\n",
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env=environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{argv[0]} took more than {SECONDS} s: a GPU may hang") from error
    except OSError as error:
        raise Failed(f"{argv[0]}: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise Failed(f"{argv[0]} {line}: {said[-1] if said else f'status {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")


def share(lines: t.Sequence[str], daemon: subprocess.Popen[bytes]) -> None:
    """Tell the daemon all limits, the first as soon as it answers.

    Raises:
        Failed: it ended, or does not answer in time.
    """
    end = time.monotonic() + SECONDS
    while True:
        if daemon.poll() is not None:
            raise Failed(f"{CONTROL} ended with {daemon.returncode}")
        try:
            asked([CONTROL], "get_default_active_thread_percentage")
            break
        except Failed:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
    for line in lines:
        asked([CONTROL], line)
        print(line, flush=True)


def withdrawn() -> None:
    """Let nobody begin to use the daemon."""
    try:
        os.unlink(READY)
    except FileNotFoundError:
        pass


def main() -> int:
    """Share the GPUs until told to end; wait for a driver where there is none yet."""
    withdrawn()
    while not os.path.exists(DRIVER):
        time.sleep(5)
    told: t.List[int] = []
    running: t.List[subprocess.Popen[bytes]] = []

    def end(number: int, _: t.Any) -> None:
        told.append(number)
        for each in running:
            each.terminate()

    signal.signal(signal.SIGTERM, end)
    try:
        with open(SETTINGS, encoding="utf-8") as stream:
            settings = json.load(stream)
        lines = commands(settings, gpus(asked(["nvidia-smi", *_QUERY])))
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            os.makedirs(environment()[name], mode=0o755, exist_ok=True)
        daemon = subprocess.Popen([CONTROL, "-f"], env=environment(), stdin=subprocess.DEVNULL)
        running.append(daemon)
        try:
            if told:
                daemon.terminate()
            share(lines, daemon)
            with open(READY, "w", encoding="utf-8"):
                pass
            print("pods may share the GPUs", flush=True)
            status = daemon.wait()
        finally:
            withdrawn()
            daemon.terminate()
        if not told:
            raise Failed(f"{CONTROL} ended with {status}")
        return 0
    except (Failed, OSError, ValueError, KeyError, TypeError) as error:
        if told:
            return 0  # before all limits were set; a unit that is stopped then has not failed
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
