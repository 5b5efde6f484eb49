# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the role ``ironic`` tells the program: where things are, and which database holds Ironic's own."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from ironspan.program import settings

DEFAULT_PATH = Path("/etc/ironspan-ironic/program.json")
SQLITE, MARIADB = "sqlite", "mariadb"
_PATH = re.compile(r"/[^\0]+")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Of one host.

    Args:
        user: account that Ironic runs as; the same one in MariaDB.
        database: SQLITE or MARIADB.
        state: folder of what Ironic keeps, with the file of SQLITE.
        config: Ironic's own configuration file.
        login: user of Ironic's API.
        password: file with its password.
        runtime: folder that lives as long as the service.
        keys: folder with the keys of backups.
        backups: folder of backups.
        keep: how many of them stay.
        max_age_s: how old the newest may be before a drill fails, seconds.
    """

    user: str
    database: str
    state: Path
    config: Path
    login: str
    password: Path
    runtime: Path
    keys: Path
    backups: Path
    keep: int
    max_age_s: int

    @property
    def sqlite(self) -> Path:
        """The file of the database where it is SQLite's."""
        return self.state / "database" / "ironic.sqlite"


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read the file that the role writes.

    Raises:
        SettingsError: it is not as the role writes it; all problems at once.
    """
    return settings.checked(settings.load(path, "ironic"), path, _read)


def _read(top: settings.Section) -> Settings:
    def path(name: str) -> Path:
        return Path(top.text(name, _PATH, "/PATH"))

    return Settings(
        user=top.text("user", _NAME, "NAME"),
        database=top.choice("database", (MARIADB, SQLITE)),
        state=path("state"),
        config=path("config"),
        login=top.text("login", _NAME, "NAME"),
        password=path("password"),
        runtime=path("runtime"),
        keys=path("keys"),
        backups=path("backups"),
        keep=top.number("keep", 48, 1, 100_000),
        max_age_s=top.number("max_age_s", 93_600, 60, 34_560_000),
    )
