# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands of ``ironspan-ironic`` that look after the database of a host with the role ``ironic``."""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from ironspan.backup.crypto import FileKeys
from ironspan.ironic import backups, database, drill, prepare
from ironspan.ironic.login import hashed
from ironspan.ironic.settings import DEFAULT_PATH, Settings, load
from ironspan.program import command
from ironspan.program.errors import ProgramError, ServiceError

UNIT = "ironspan-ironic.service"
SHOWN = 10
"""How many rows that differ are named."""


class DrillFailed(ServiceError):
    """A drill found that the newest backup is not what it should be."""


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="ironspan-ironic",
        description="Look after the database of this host's Ironic.",
        epilog="Exit codes: 0 done, 1 failed, 2 refused: nothing was changed.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, run, text in (
        ("prepare", _prepare, "make or upgrade the database, before Ironic starts (its unit does)"),
        ("backup", _backup, "copy the database into an encrypted file, and delete the oldest ones"),
        ("backups", _backups, "list the backups, and how the last one and the last drill went"),
        (
            "drill",
            _drill,
            "restore the newest backup into a scratch database and compare it with the live one",
        ),
        ("restore", _restore, "replace the database by a backup; Ironic has to be stopped"),
    ):
        commands.add_parser(name, help=text, description=text).set_defaults(func=run)
    commands.choices["restore"].add_argument("backup", type=Path, metavar="FILE")
    command.add_common(commands, DEFAULT_PATH)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    return command.run(build_parser(), load, arguments, (ServiceError,))


def _prepare(settings: Settings, _: argparse.Namespace) -> None:
    prepare.login(settings, hashed)
    _preparation(settings).run()


def _preparation(settings: Settings) -> prepare.Preparation:
    version = importlib.metadata.version("ironic")
    return prepare.Preparation(settings, database.opened(settings), version, prepare.dbsync_of(settings))


def _backup(settings: Settings, arguments: argparse.Namespace) -> None:
    try:
        version = importlib.metadata.version("ironic")
        made = backups.make(database.opened(settings), settings.backups, FileKeys(settings.keys), version)
        gone = backups.prune(settings.backups, settings.keep)
    except (OSError, ProgramError) as error:
        _failed(settings, "backup", error)
        raise _named(error, settings.backups) from error
    size = made.path.stat().st_size
    backups.note(settings.backups, "backup", ok=True, file=made.path.name, bytes=size)
    data = {"file": str(made.path), "bytes": size, "deleted": [path.name for path in gone]}
    command.answer(arguments, data, f"{made.path}, {size} bytes; {len(gone)} older ones were deleted")


def _backups(settings: Settings, arguments: argparse.Namespace) -> None:
    found = [backups.read(path) for path in backups.found(settings.backups)]
    data = {
        "backups": [
            {
                "file": one.path.name,
                "created": int(one.created),
                "version": one.version,
                "database": one.database,
            }
            for one in found
        ],
        **backups.status(settings.backups),
    }
    lines = [f"{one.path}  {_age(one.created)} old, Ironic {one.version}, {one.database}" for one in found]
    for what, said in backups.status(settings.backups).items():
        lines.append(f"last {what}: {_age(said['time'])} ago, {'ok' if said['ok'] else said['reason']}")
    command.answer(arguments, data, "\n".join(lines) or f"no backups in {settings.backups}")


def _drill(settings: Settings, arguments: argparse.Namespace) -> None:
    try:
        newest, verdict = _drilled(settings)
    except (OSError, ProgramError) as error:
        _failed(settings, "drill", error)
        raise _named(error, settings.backups) from error
    said = {"file": newest.path.name, "tables": verdict.tables, "rows": verdict.rows, "moved": verdict.moved}
    backups.note(settings.backups, "drill", ok=True, **said)
    same = f"{verdict.rows} rows of {verdict.tables} tables are the same"
    command.answer(arguments, said, f"{newest.path}: {same}, {verdict.moved} moved since")


def _drilled(settings: Settings) -> tuple[backups.Backup, drill.Verdict]:
    paths = backups.found(settings.backups)
    if not paths:
        raise DrillFailed(f"There is no backup in {settings.backups}.", "Run: ironspan-ironic backup")
    newest = backups.read(paths[0])
    if newest.database != settings.database:
        raise DrillFailed(f"{newest.path} is of {newest.database}.", "Run: ironspan-ironic backup")
    age = time.time() - newest.created
    if age > settings.max_age_s:
        raise DrillFailed(
            f"The newest backup, {newest.path}, is {_age(newest.created)} old.",
            "Look at: journalctl -u ironspan-ironic-backup",
        )
    # Two drills at once would have one scratch database.
    with backups.alone(settings.backups), database.scratch(settings) as restored:
        restored.put(backups.content(newest, FileKeys(settings.keys)))
        verdict = drill.compare(restored, database.opened(settings), newest.created)
    if verdict.wrong:
        more = f", and {len(verdict.wrong) - SHOWN} more" if len(verdict.wrong) > SHOWN else ""
        raise DrillFailed(
            f"{newest.path} is not the live database: {'; '.join(verdict.wrong[:SHOWN])}{more}.",
            "Make another backup and drill again; compare with the log of Ironic if it stays.",
        )
    return newest, verdict


def _restore(settings: Settings, arguments: argparse.Namespace) -> None:
    active = subprocess.run(["systemctl", "is-active", "--quiet", UNIT], check=False).returncode == 0
    if active:
        raise ProgramError(
            "Ironic runs, and would write into what is restored.", f"Run: systemctl stop {UNIT}"
        )
    _preparation(settings).put(backups.read(arguments.backup))
    command.answer(arguments, {"file": str(arguments.backup)}, f"restored; start it: systemctl start {UNIT}")


def _failed(settings: Settings, what: str, error: Exception) -> None:
    try:
        backups.note(settings.backups, what, ok=False, reason=str(error))
    except OSError:  # the disk is full: the unit fails all the same
        return


def _named(error: Exception, folder: Path) -> ProgramError:
    """Return an error of the operating system with what to do about it."""
    if isinstance(error, ProgramError):
        return error if isinstance(error, ServiceError) else DrillFailed(error.message, error.remedy)
    assert isinstance(error, OSError)
    return ServiceError(
        f"{error.filename or folder}: {error.strerror}.", f"Free or add space below {folder}."
    )


def _age(created: float) -> str:
    minutes = max(0, int(time.time() - created)) // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
