# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What has to be there before Ironic starts: its login, its database, and the schema of its version.

It runs before every start, and goes on from wherever a killed one ended. Before a schema is changed the
database is copied; a change that was cut off is taken back from that copy first: MariaDB cannot do it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import pwd
import subprocess
import sys
import typing as t
from collections.abc import Callable, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.backup.crypto import FileKeys
from ironspan.ironic import backups
from ironspan.ironic.database import Database
from ironspan.ironic.settings import Settings
from ironspan.program.errors import ProgramError, ServiceError

LOG = logging.getLogger(__name__)
DONE, CHANGING = "prepared.json", "changing.json"
"""In the folder of Ironic's state: the version that was prepared last; the copy to go back to meanwhile."""
Run = Callable[[Sequence[str]], None]


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Everything that preparing needs.

    Args:
        settings: of the program.
        database: Ironic's.
        version: of the Ironic that is about to start.
        dbsync: runs a command of ``ironic-dbsync`` as Ironic's account.
    """

    settings: Settings
    database: Database
    version: str
    dbsync: Run

    def run(self) -> None:
        """Bring the database to what this version needs.

        Raises:
            ProgramError: the database cannot be reached, or refuses; the next start tries again.
        """
        database, state = self.database, self.settings.state
        database.make()
        changing = _read(state / CHANGING)
        if changing:
            kept = backups.read(self.settings.backups / str(changing["backup"]))
            LOG.warning("a change of the schema was cut off; %s is put back first", kept.path)
            self.put(kept)
        if database.revision() is None:
            self._create()
        elif _read(state / DONE).get("version") != self.version:
            self._upgrade()
        if _read(state / DONE).get("version") != self.version:
            _write(state / DONE, version=self.version)

    def put(self, backup: backups.Backup) -> None:
        """Replace the database by a backup.

        Raises:
            ProgramError: it is of another kind of database, damaged, or there is no key for it.
        """
        if backup.database != self.database.kind:
            raise ProgramError(
                f"{backup.path} is of {backup.database}, and this host has {self.database.kind}.",
                f"Set ironic_database to {backup.database}.",
            )
        keys = FileKeys(self.settings.keys)
        # Proven whole before anything of the live database goes.
        for _ in backups.content(backup, keys):
            pass
        self.database.put(backups.content(backup, keys))
        (self.settings.state / CHANGING).unlink(missing_ok=True)
        (self.settings.state / DONE).unlink(missing_ok=True)

    def _create(self) -> None:
        # A first start that was cut off leaves tables and no revision: nothing was ever in them.
        if self.database.count("nodes"):
            raise ProgramError(
                "Ironic's database has servers in it and no revision of its schema.",
                f"Restore a backup: ironspan-ironic restore {self.settings.backups}/FILE",
            )
        LOG.info("the database is made")
        self.database.empty()
        self.dbsync(["create_schema"])

    def _upgrade(self) -> None:
        """Change the schema to this version's, after a copy was made; the copy is a backup like any other."""
        folder = self.settings.backups
        former = _read(self.settings.state / DONE).get("version", "unknown")
        kept = backups.make(self.database, folder, FileKeys(self.settings.keys), str(former))
        LOG.info("the schema is brought to Ironic %s; the way back is %s", self.version, kept.path)
        _write(self.settings.state / CHANGING, backup=kept.path.name)
        self.dbsync(["upgrade"])
        self.dbsync(["online_data_migrations"])
        (self.settings.state / CHANGING).unlink(missing_ok=True)


def login(settings: Settings, hashed: Callable[[str, bytes], str]) -> None:
    """Write the file of users that Ironic's API reads, for as long as the service runs.

    Args:
        settings: of the program.
        hashed: returns the line of a user and a password.

    Raises:
        ProgramError: there is no password.
    """
    try:
        password = settings.password.read_bytes().strip()
    except OSError as error:
        raise ProgramError(
            f"The password of Ironic's API, {settings.password}, cannot be read: {error.strerror}.",
            "Run playbooks/site.yml, which brings it.",
        ) from error
    path = settings.runtime / "htpasswd"
    write_file(path, hashed(settings.login, password).encode(), 0o600)
    if os.geteuid() == 0:
        account = pwd.getpwnam(settings.user)
        os.chown(path, account.pw_uid, account.pw_gid)


def dbsync_of(settings: Settings) -> Run:
    """Return what runs a command of ``ironic-dbsync`` with this program, as Ironic's account."""

    def run(arguments: Sequence[str]) -> None:
        argv = [sys.executable, sys.argv[0], "dbsync", "--config-file", str(settings.config), *arguments]
        account: dict[str, t.Any] = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam(settings.user)
            account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd="/", **account)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise ServiceError(
                f"ironic-dbsync {arguments[0]} failed: {said[-1] if said else 'no reason given'}."
            )

    return run


def _read(path: Path) -> dict[str, t.Any]:
    with contextlib.suppress(FileNotFoundError):
        try:
            known = json.loads(path.read_bytes())
            return known if isinstance(known, dict) else {}
        except ValueError as error:
            raise ProgramError(
                f"{path} is damaged.", "Restore a backup, or remove it if none was begun."
            ) from error
    return {}


def _write(path: Path, **said: str) -> None:
    write_file(path, json.dumps(said).encode() + b"\n", 0o600)
