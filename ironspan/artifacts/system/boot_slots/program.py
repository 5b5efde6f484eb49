# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""`ironspan-slot`: judges the system that runs, and tells how the slots stand.

`watch` runs from the beginning of each start: a system that is not known to be good has to pass all checks,
and then it is. One that is on trial and does not pass in time starts the server again; the boot loader counts
the tries, and goes to the other slot.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

from ironspan.artifacts.system.boot_slots.checks import Machine, deadline_of, examined
from ironspan.artifacts.system.boot_slots.state import (
    BLOCK,
    SLOTS,
    TRIES,
    SlotError,
    State,
    failed,
    passed,
    read,
    rendered,
    told,
    tried,
)

EVERY_S = 5
REPORT = pathlib.Path("/run/ironspan/slots.json")
"""What `ironspan doctor` reads."""
MOUNTED = pathlib.Path("/run/ironspan/efi")


@contextlib.contextmanager
def efi(machine: Machine) -> t.Iterator[t.BinaryIO]:
    """Give the block on the EFI partition, which is mounted only meanwhile; one process at a time.

    Raises:
        SlotError: it cannot be mounted.
    """
    device = machine.parts().get("efi", "")
    if not device:
        raise SlotError("the disk of the root has no partition called efi")
    MOUNTED.mkdir(parents=True, exist_ok=True)
    with MOUNTED.with_suffix(".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["mount", "-t", "vfat", "-o", "umask=0077", device, str(MOUNTED)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SlotError(f"{device} cannot be mounted: {done.stderr.strip()}")
        try:
            with (MOUNTED / BLOCK).open("r+b") as stream:
                yield stream
        except FileNotFoundError as error:
            raise SlotError(f"{BLOCK} is not on the EFI partition; deploy the server again") from error
        finally:
            subprocess.run(["umount", str(MOUNTED)], check=False)


def current(machine: Machine) -> State:
    """Return what the EFI partition says."""
    with efi(machine) as stream:
        return read(stream.read())


def change(machine: Machine, how: t.Callable[[State], State]) -> State:
    """Change what the EFI partition says, in place and on disk when this returns; return it."""
    with efi(machine) as stream:
        state = how(read(stream.read()))
        stream.seek(0)
        stream.write(rendered(state).encode("ascii"))
        stream.flush()
        os.fsync(stream.fileno())
        return state


def report(state: State, slot: str, problems: t.Mapping[str, str]) -> None:
    """Write what other programs of the host read."""
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    made = REPORT.with_suffix(".new")
    made.write_text(json.dumps({"slot": slot, **dataclasses.asdict(state), "problems": dict(problems)}))
    made.replace(REPORT)


def say(text: str) -> None:
    """Print a line at once: it goes to the console."""
    print(f"ironspan-slot: {text}", flush=True)


def watch(machine: Machine) -> int:
    """Judge the system that runs; return the exit code."""
    slot = machine.slot()
    state = current(machine)
    say(told(state, slot))
    report(state, slot, {})
    if state.good == slot and state.trial != slot:
        return 0
    said: dict[str, str] = {}
    while True:
        problems = examined(machine)
        if not problems:
            state = change(machine, functools.partial(passed, slot=slot))
            report(state, slot, {})
            say(told(state, slot))
            return 0
        if problems != said:
            say(f"slot {slot} is not good yet: {'; '.join(f'{n}: {p}' for n, p in problems.items())}")
            report(state, slot, problems)
            said = problems
        late = time.clock_gettime(time.CLOCK_BOOTTIME) > deadline_of(machine)
        if late and not state.bad[slot]:
            state = change(machine, functools.partial(failed, slot=slot, problems=problems))
            report(state, slot, problems)
        if late and state.trial == slot:
            say(f"slot {slot} has not passed in time; the server starts again")
            # Not in the usual way: what is wrong may also keep services from ending.
            subprocess.run(["systemctl", "reboot", "--force"], check=False)
            return 0
        time.sleep(EVERY_S)


def main() -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(prog="ironspan-slot", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    status = verbs.add_parser("status", help="which slot runs, which one is good, what failed")
    status.add_argument("--json", action="store_true", help="print JSON")
    verbs.add_parser("check", help="run all checks now, and change nothing; exit 1 where one fails")
    verbs.add_parser("watch", help="judge the system that runs; its unit calls this at each start")
    trial = verbs.add_parser("try", help="try a slot at the next start")
    trial.add_argument("slot", choices=SLOTS)
    trial.add_argument("--tries", type=int, choices=range(1, TRIES + 1), default=TRIES)
    arguments, machine = parser.parse_args(), Machine()
    try:
        if arguments.verb == "watch":
            return watch(machine)
        if arguments.verb == "check":
            problems = examined(machine)
            for name, problem in problems.items():
                print(f"{name}: {problem}")
            return 1 if problems else 0
        slot = machine.slot()
        if arguments.verb == "try":
            state = change(machine, lambda found: tried(found, arguments.slot, slot, arguments.tries))
            report(state, slot, {})
        else:
            state = current(machine)
        plain_state = {"slot": slot, **dataclasses.asdict(state)}
        print(json.dumps(plain_state) if arguments.verb == "status" and arguments.json else told(state, slot))
        return 0
    except (SlotError, OSError) as error:
        print(f"ironspan-slot: {error}", file=sys.stderr)
        return 1
