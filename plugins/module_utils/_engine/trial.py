# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Trials: a transaction that undoes itself unless it is confirmed in time.

A trial is a transaction that stays open: its journal and backups are kept until somebody confirms, which
commits it, or until its timer runs out, which rolls it back. The timer is systemd's own and starts the engine
that an earlier step has kept on the host, so neither the controller nor the network is needed.

The timer is set before the first change, and again when all is applied. Each setting has a number; a timer
that comes too late, because the trial was set again or is over, finds a higher number in the journal, or no
trial, and does nothing.
"""

from __future__ import annotations

import os
import sys
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils import _kept, _resources
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.errors import EngineError, Problem
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.host import LocalHost
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import FOLDER
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.files import (
    remove_if_there,
    sync_folder,
    write_atomically,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

Trial = t.Dict[str, t.Any]

UNITS = "/etc/systemd/system"
SERVICE = "ironspan-revert.service"
TIMER = "ironspan-revert.timer"
WANTED = f"timers.target.wants/{TIMER}"
PROGRAM = "revert.py"
"""In the engine's folder: the engine as one program, which the timer starts."""
BALLAST_BYTES = 8 << 20
"""Set free when a trial ends: a full disk must not keep the host from going back (copies are below 4 MiB)."""

SERVICE_LINES = (
    "[Unit]",
    "Description=Undo the changes of ironspan that were on trial and were not confirmed",
    "[Service]",
    "Type=oneshot",
    "ExecStart={program} -I {script} {id} {arm}",
    "Restart=on-failure",
    "RestartSec=15",
)
# Whichever comes first: a clock that is set back does not prolong the trial, nor does a reboot.
TIMER_LINES = (
    "[Unit]",
    "Description=Wait until {until} for the changes of ironspan to be confirmed",
    "[Timer]",
    "Unit={service}",
    "OnActiveSec={seconds}",
    "OnCalendar={until}",
    "Persistent=true",
    "AccuracySec=1s",
)


def next_trial(history: History, wanted: t.Mapping[str, t.Any]) -> Trial:
    """Return the trial to set the timer for.

    Args:
        history: of the open transaction.
        wanted: ``id`` and ``seconds``.
    """
    arm = int(history.trial.get("arm", 0)) + 1
    seconds = int(wanted["seconds"])
    return {"id": str(wanted["id"]), "seconds": seconds, "arm": arm, "until": int(time.time()) + seconds}


def arm(host: LocalHost, trial: Trial, folder: str) -> None:
    """Set the timer; one that is set already is replaced.

    Args:
        host: the host.
        trial: from ``next_trial``.
        folder: the engine's folder on this machine.

    """
    script = os.path.join(folder, PROGRAM)
    if _kept.code:
        # A copy of its own: whatever becomes of the engine's, this one stays until the trial is over.
        write_atomically(script, _kept.program_text("_unattended", _kept.code).encode("ascii"), 0o600)
    values = {
        "program": sys.executable or "/usr/bin/python3",
        "script": script,
        "service": SERVICE,
        **trial,
        "until": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(trial["until"])),
    }
    _reserve(os.path.join(folder, "ballast"))
    units = host.path(UNITS)
    paths.make_folders(os.path.join(units, os.path.dirname(WANTED)))
    for name, lines in ((SERVICE, SERVICE_LINES), (TIMER, TIMER_LINES)):
        text = "".join(f"{line}\n" for line in lines).format(**values)
        write_atomically(os.path.join(units, name), text.encode("ascii"), 0o644)
    link = os.path.join(units, WANTED)
    if not os.path.islink(link):
        paths.make_link(f"../{TIMER}", link)
        sync_folder(os.path.dirname(link))
    host.crash.reach()
    try:
        host.run(["systemctl", "daemon-reload"])
        host.run(["systemctl", "restart", TIMER])
    except ResourceError as error:
        text = f"the timer of the trial cannot be set: {error.message}"
        raise EngineError([Problem("", text, error.remedy)]) from error
    host.crash.reach()


def disarm(host: LocalHost) -> None:
    """Take the timer away; nothing happens if there is none."""
    units = host.path(UNITS)
    if not os.path.lexists(os.path.join(units, TIMER)):
        return
    host.run(["systemctl", "stop", TIMER], check=False)
    host.crash.reach()
    # The timer's own file goes last: as long as it is there, the rest is still to be done.
    gone = [os.path.join(units, name) for name in (WANTED, SERVICE)]
    for path in (*gone, host.path(f"{FOLDER}/{PROGRAM}"), os.path.join(units, TIMER)):
        remove_if_there(path)
    sync_folder(units)
    host.run(["systemctl", "daemon-reload"], check=False)
    host.crash.reach()


def make_room(folder: str) -> None:
    """Set the reserved space free: the trial ends, one way or the other."""
    remove_if_there(os.path.join(folder, "ballast"))


def _reserve(path: str) -> None:
    descriptor = paths.lasting(path)
    try:
        os.posix_fallocate(descriptor, 0, BALLAST_BYTES)
    finally:
        os.close(descriptor)


def describe(trial: t.Mapping[str, t.Any]) -> str:
    """Say that a trial is open, and until when."""
    until = time.strftime("%H:%M:%S UTC", time.gmtime(trial["until"]))
    return f"changes are on trial on this host, until {until}"


ALONE = "changes that this host alone can take back"
INSTEAD = "Apply this without --try."
REMEDY = "Confirm them (ironspan confirm) or wait until they go back by themselves."


def insist_on_none(history: History, name: t.Optional[str]) -> None:
    """Refuse to change a host while another trial is open there than that of this run.

    Raises:
        EngineError: there is one.
    """
    over = history.commit is not None or history.rollback is not None
    if history.trial and not over and history.trial["id"] != name:
        raise EngineError([Problem("", describe(history.trial), REMEDY)])


def verdicts(
    history: History, wanted: t.Mapping[str, t.Any], result: t.Mapping[str, t.Any]
) -> t.List[t.Dict[str, t.Any]]:
    """Judge whether the host may be changed, and on trial if that is wanted."""
    found: t.List[t.Dict[str, t.Any]] = []
    try:
        insist_on_none(history, wanted.get("id"))
    except EngineError as error:
        problem = error.problems[0]
        found.append(_verdict(problem.message, "no trial", problem.remedy))
    refused = untriable((entry["resource"], entry["kind"]) for entry in result["changes"]) if wanted else []
    if refused:
        found.append(_verdict(", ".join(refused), ALONE, INSTEAD))
    return found


def insist_on_triable(changes: t.Iterable[t.Tuple[str, str]]) -> None:
    """Refuse to try what cannot be tried; see ``untriable``.

    Raises:
        EngineError: with the resources.
    """
    refused = untriable(changes)
    if refused:
        raise EngineError([Problem(name, f"only {ALONE} can be tried", INSTEAD) for name in refused])


def untriable(changes: t.Iterable[t.Tuple[str, str]]) -> t.List[str]:
    """Return the ids among (id, kind) that cannot be tried."""
    return [name for name, kind in changes if not getattr(_resources.load(kind), "triable", True)]


def _verdict(found: str, wanted: str, remedy: str) -> t.Dict[str, t.Any]:
    return {"check": "trial", "ok": False, "found": found, "wanted": wanted, "remedy": remedy}
