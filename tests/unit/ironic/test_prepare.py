# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is done before Ironic starts, from whatever a former start left."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from ironspan.backup.crypto import FileKeys
from ironspan.ironic import backups, prepare
from ironspan.ironic.database import Sqlite
from ironspan.ironic.settings import Settings, load
from ironspan.program.errors import ProgramError
from ironspan.program.settings import SettingsError


class Host:
    """A host with a database in a file; ``dbsync`` does with it what Ironic's does, as far as it matters."""

    def __init__(self, folder: Path, version: str = "39.0.0") -> None:
        for name in ("keys", "backups", "state"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "keys" / "1.key").write_bytes(base64.b64encode(bytes(32)))
        self.settings = Settings(
            "root", "sqlite", folder / "state", folder / "ironic.conf", "ironspan", folder / "password",
            folder, folder / "keys", folder / "backups", 5, 3600,
        )  # fmt: skip
        self.version, self.ran, self.fails = version, [""][:0], ""

    @property
    def database(self) -> Sqlite:
        return Sqlite(self.settings.sqlite, "")

    def execute(self, *statements: str) -> None:
        with sqlite3.connect(self.settings.sqlite) as live:
            for statement in statements:
                live.execute(statement)
        live.close()

    def dbsync(self, arguments: Sequence[str]) -> None:
        (command,) = arguments
        self.ran.append(command)
        if command == "create_schema":
            self.execute("CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT)")
        elif command == "upgrade":
            self.execute("ALTER TABLE nodes ADD COLUMN shard TEXT")
        if command == self.fails:
            raise ProgramError("it was killed")
        if command == "create_schema":
            self.execute(
                "CREATE TABLE alembic_version (version_num TEXT)", "INSERT INTO alembic_version VALUES ('r')"
            )

    def start(self) -> list[str]:
        self.ran = []
        prepare.Preparation(self.settings, self.database, self.version, self.dbsync).run()
        return self.ran


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_first_start_makes_the_schema_and_the_next_one_does_nothing(host: Host) -> None:
    assert host.start() == ["create_schema"]
    assert host.start() == []
    assert not backups.found(host.settings.backups)


def test_a_first_start_that_was_cut_off_begins_again_with_nothing(host: Host) -> None:
    host.fails = "create_schema"
    with pytest.raises(ProgramError, match="killed"):
        host.start()
    host.fails = ""
    assert host.start() == ["create_schema"]  # would fail if the table were there
    assert host.database.revision() == "r"


def test_servers_are_never_thrown_away(host: Host) -> None:
    host.start()
    host.execute("INSERT INTO nodes VALUES (1, 'one')", "DROP TABLE alembic_version")
    with pytest.raises(ProgramError, match="has servers in it and no revision"):
        host.start()
    assert host.database.count("nodes") == 1


def test_another_version_is_upgraded_to_after_a_copy(host: Host) -> None:
    host.start()
    host.version = "40.0.0"
    assert host.start() == ["upgrade", "online_data_migrations"]
    (kept,) = backups.found(host.settings.backups)
    assert backups.read(kept).version == "39.0.0"
    assert host.start() == []


@pytest.mark.parametrize("cut", ["upgrade", "online_data_migrations"])
def test_an_upgrade_that_was_cut_off_is_taken_back_and_done_again(host: Host, cut: str) -> None:
    host.start()
    host.execute("INSERT INTO nodes VALUES (1, 'one')")
    host.version, host.fails = "40.0.0", cut
    with pytest.raises(ProgramError):
        host.start()
    host.fails = ""
    # Without the way back the column would be there already.
    assert host.start() == ["upgrade", "online_data_migrations"]
    assert (host.database.count("nodes"), host.start()) == (1, [])


def test_the_former_version_finds_its_own_schema_after_an_upgrade_that_was_cut_off(host: Host) -> None:
    host.start()
    host.version, host.fails = "40.0.0", "upgrade"
    with pytest.raises(ProgramError):
        host.start()
    (kept,) = backups.found(host.settings.backups)
    host.version, host.fails = "39.0.0", "upgrade"
    prepare.Preparation(host.settings, host.database, "39.0.0", host.dbsync).put(backups.read(kept))
    assert host.database.tables()["nodes"][0] == ["id", "name"]
    assert not (host.settings.state / prepare.CHANGING).exists()


def test_a_damaged_backup_does_not_touch_the_database(host: Host) -> None:
    host.start()
    host.execute("INSERT INTO nodes VALUES (1, 'one')")
    kept = backups.make(host.database, host.settings.backups, FileKeys(host.settings.keys), "39.0.0")
    kept.path.write_bytes(kept.path.read_bytes()[:-1])
    with pytest.raises(ProgramError, match="is not what was written"):
        prepare.Preparation(host.settings, host.database, "39.0.0", host.dbsync).put(kept)
    assert host.database.count("nodes") == 1


def test_a_backup_of_another_kind_of_database_is_refused(host: Host) -> None:
    host.start()
    kept = backups.make(host.database, host.settings.backups, FileKeys(host.settings.keys), "39.0.0")
    line = kept.path.read_bytes().replace(b'"sqlite"', b'"mariadb"', 1)
    kept.path.write_bytes(line)
    with pytest.raises(ProgramError, match="is of mariadb, and this host has sqlite"):
        prepare.Preparation(host.settings, host.database, "39.0.0", host.dbsync).put(backups.read(kept.path))


def test_the_login_is_written_for_one_life_of_the_service(host: Host) -> None:
    host.settings.password.write_text("of-this-test\n")
    prepare.login(host.settings, lambda user, password: f"{user}:{password.decode()[::-1]}\n")
    path = host.settings.runtime / "htpasswd"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("ironspan:tset-siht-fo\n", 0o600)
    host.settings.password.unlink()
    with pytest.raises(ProgramError, match="cannot be read: No such file"):
        prepare.login(host.settings, lambda user, password: "")


def test_settings_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    good = {
        "user": "ironspan-ironic", "database": "sqlite", "state": "/s", "config": "/c", "login": "ironspan",
        "password": "/p", "runtime": "/r", "keys": "/k", "backups": "/b", "keep": 3, "max_age_s": 600,
    }  # fmt: skip
    path.write_text(json.dumps(good))
    assert load(path).sqlite == Path("/s/database/ironic.sqlite")
    path.write_text(json.dumps({**good, "keep": 0, "database": "oracle", "colour": "red"}))
    with pytest.raises(SettingsError) as refused:
        load(path)
    assert len(refused.value.problems) == 3
