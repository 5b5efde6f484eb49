# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The host as a restore sees it: its programs, its files, and the record of an unfinished restore."""

from __future__ import annotations

import json
import os
import subprocess
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._restore import backup_program
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths

Record = t.Dict[str, t.Any]
RECORD = "/var/lib/ironspan/etcd-restore.json"
PROGRAMS = "/usr/local/bin"
"""Where the role puts etcd's programs; root's PATH over ssh need not have it."""
LOCK_WAIT_SECONDS = 300.0
TIMEOUT_SECONDS = 1800
"""For one program. Restoring 8 GiB, the largest store, takes minutes on a slow disk."""


class RestoreError(Exception):
    """A step cannot be taken.

    Args:
        message: what is wrong.
        remedy: what to do about it.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")


class Machine:
    """One host.

    Args:
        root: "/" on a host; tests have a folder of their own.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.crash = CrashPoints(root)
        self._lock = -1

    def path(self, path: str) -> str:
        """Return where an absolute path is on this machine."""
        return self.root.rstrip("/") + path

    def run(self, *argv: str, environment: t.Optional[t.Mapping[str, str]] = None) -> str:
        """Run a program and return its output.

        Args:
            argv: the program and its arguments, never a secret.
            environment: variables besides those of this process.

        Raises:
            RestoreError: it failed, or did not end in time.
        """
        done = self._ended(argv, environment or {}, TIMEOUT_SECONDS)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            reason = lines[-1] if lines else f"it ended with status {done.returncode}"
            raise RestoreError(f"{' '.join(argv[:3])} failed: {reason}.", "Fix that, and run this again.")
        return done.stdout

    def has_backup_program(self) -> bool:
        """Tell whether backups of this host's store are made, so that there is something to ask."""
        return os.access(self.path(backup_program.PROGRAM), os.X_OK)

    def ask_backup(self, verb: str, *arguments: str) -> t.Any:
        """Return what a command of the backup program answers.

        Args:
            verb: the command.
            arguments: what follows it, never a secret.

        Raises:
            ProgramError: it refused, or failed.
            RestoreError: it cannot be run.
        """
        argv = backup_program.command(self.path(backup_program.PROGRAM), verb, arguments)
        # Without an end: what is fetched may be large and the line slow. It gives up a silent store itself.
        done = self._ended(argv, {}, None)
        return backup_program.answer_of(verb, done.returncode, done.stdout, done.stderr)

    def _ended(
        self, argv: t.Sequence[str], environment: t.Mapping[str, str], seconds: t.Optional[float]
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        path = f"{self.path(PROGRAMS)}:{os.environ.get('PATH', '')}"
        try:
            return subprocess.run(
                argv,
                env={**os.environ, "PATH": path, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=seconds,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RestoreError(f"{argv[0]} failed: {error}.", "Fix that, and run this again.") from error

    def record(self) -> Record:
        """Return what is known of a restore on this host; empty when there was none."""
        try:
            return dict(json.loads(paths.read(self.path(RECORD))))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise RestoreError(f"{RECORD} is damaged: {error}.", "Look at it, and remove it.") from error

    def lock(self) -> None:
        """Wait for a step that a killed run left behind, and be alone until this process ends.

        Raises:
            RestoreError: it does not end.
        """
        import fcntl

        path = f"{self.path(RECORD)}.lock"
        paths.make_folders(os.path.dirname(path), 0o700)
        self._lock = paths.lasting(path)
        until = time.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RestoreError(
                        "Another step of a restore is at work on this host.",
                        "Wait for it, and run this again.",
                    ) from None
                time.sleep(0.1)

    def remember(self, **values: t.Any) -> Record:
        """Change the record, durably, before the next step is taken."""
        return self.replace({**self.record(), **values})

    def replace(self, record: Record) -> Record:
        """Write the whole record, durably."""
        paths.make_folders(os.path.dirname(self.path(RECORD)), 0o700)
        text = json.dumps(record, indent=1, sort_keys=True) + "\n"
        self.crash.reach()
        files.write_atomically(self.path(RECORD), text.encode(), 0o600)
        self.crash.reach()
        return record

    def forget(self) -> None:
        """Give up the record of an earlier restore."""
        self.remove(RECORD)

    def remove(self, path: str) -> None:
        """Delete a file or a folder that a restore works with, if it is there."""
        self.crash.reach()
        if paths.status(self.path(path)) is not None:
            paths.remove_tree(self.path(path))

    def rename(self, old: str, new: str) -> None:
        """Rename within one file system, durably."""
        self.crash.reach()
        paths.rename(self.path(old), self.path(new))
        for folder in {os.path.dirname(old), os.path.dirname(new)}:
            files.sync_folder(self.path(folder))
        self.crash.reach()
