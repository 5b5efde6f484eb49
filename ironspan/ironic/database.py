# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ironic's database from outside of Ironic: made, copied out in one transaction, put back, read."""

from __future__ import annotations

import contextlib
import importlib
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
import typing as t
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ironspan.ironic.settings import MARIADB, SQLITE, Settings
from ironspan.program.errors import ServiceError

NAME, SCRATCH = "ironic", "ironspan_ironic_drill"
"""Of Ironic's database in MariaDB, and of the one that a drill makes and drops."""
SOCKET = "/run/mysqld/mysqld.sock"
_PIECE = 1 << 20
_WHOLE = b"-- Dump completed"
"""The last line that mariadb-dump writes, when nothing went wrong."""
Row = tuple[t.Any, ...]
Tables = Mapping[str, tuple[list[str], list[str]]]
"""Table -> its columns, and those of them that are its primary key."""


class Database(t.Protocol):
    """One database."""

    kind: str

    def make(self) -> None:
        """Make it, empty, where there is none, with the right of Ironic's account to use it."""

    def empty(self) -> None:
        """Throw all of it away and make it again."""

    def revision(self) -> str | None:
        """Return the revision of its schema, None when it was never finished."""

    def count(self, table: str) -> int:
        """Return how many rows a table has, 0 without the table."""

    def copied(self) -> Iterator[bytes]:
        """Yield all of it as it is at one moment, in the form that ``put`` reads."""

    def put(self, copy: Iterable[bytes]) -> None:
        """Replace all of it by what ``copied`` gave."""

    def tables(self) -> Tables:
        """Return its tables."""

    def rows(self, table: str) -> Iterator[Row]:
        """Yield a table's rows, columns in the order of ``tables``."""

    def drop(self) -> None:
        """Remove it."""


def opened(settings: Settings) -> Database:
    """Return Ironic's database."""
    if settings.database == MARIADB:
        return Mariadb(NAME, settings.user)
    return Sqlite(settings.sqlite, settings.user)


@contextlib.contextmanager
def scratch(settings: Settings) -> Iterator[Database]:
    """Make an empty database of the same kind that is gone when the block ends; a former one goes first."""
    if settings.database == MARIADB:
        made: Database = Mariadb(SCRATCH, "")
        try:
            made.empty()
            yield made
        finally:
            made.drop()
        return
    with tempfile.TemporaryDirectory(dir=settings.backups, prefix=".drill-") as folder:
        yield Sqlite(Path(folder) / "drill.sqlite", "")


class Mariadb:
    """A database of this host's MariaDB, by its socket, as its root.

    Args:
        name: of the database.
        user: account of this host that may do everything in it, by the socket and without a password; "" for
            nobody but root.
    """

    kind = MARIADB

    def __init__(self, name: str, user: str) -> None:
        self._name = name
        self._user = user

    def make(self) -> None:
        """Make the database and the account; what is there stays."""
        create = f"CREATE DATABASE IF NOT EXISTS `{self._name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        # Ironic compares names without case, as the general collation does.
        self._do(create.replace("utf8mb4_bin", "utf8mb4_general_ci"))
        if self._user:
            account = f"'{self._user}'@'localhost'"
            self._do(f"CREATE USER IF NOT EXISTS {account} IDENTIFIED VIA unix_socket")
            self._do(f"GRANT ALL PRIVILEGES ON `{self._name}`.* TO {account}")

    def empty(self) -> None:
        """Drop the database and make it."""
        self.drop()
        self.make()

    def drop(self) -> None:
        """Drop the database, if there is one."""
        self._do(f"DROP DATABASE IF EXISTS `{self._name}`")

    def revision(self) -> str | None:
        """Return the revision of its schema."""
        found = self._ask("SELECT version_num FROM alembic_version") if self._has("alembic_version") else []
        return str(found[0][0]) if found else None

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return int(self._ask(f"SELECT COUNT(*) FROM `{table}`")[0][0]) if self._has(table) else 0

    def copied(self) -> Iterator[bytes]:
        """Yield what mariadb-dump writes of it."""
        argv = [
            "mariadb-dump", f"--socket={SOCKET}", "--user=root", "--single-transaction", "--quick",
            "--hex-blob", "--default-character-set=utf8mb4", "--skip-dump-date", self._name,
        ]  # fmt: skip
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dump:
            assert dump.stdout and dump.stderr
            end = b""
            while piece := dump.stdout.read(_PIECE):
                end = (end + piece)[-256:]
                yield piece
            said = dump.stderr.read().decode(errors="replace").strip()
        if dump.returncode or _WHOLE not in end:
            raise ServiceError(
                f"mariadb-dump did not copy {self._name}: {said or 'its end is missing'}.",
                "Look at `systemctl status mariadb`.",
            )

    def put(self, copy: Iterable[bytes]) -> None:
        """Read a dump into an empty database."""
        self.empty()
        argv = ["mariadb", f"--socket={SOCKET}", "--user=root", "--default-character-set=utf8mb4", self._name]
        with tempfile.TemporaryFile() as said:
            with subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said
            ) as client:
                assert client.stdin
                with contextlib.suppress(BrokenPipeError):  # it says why
                    for piece in copy:
                        client.stdin.write(piece)
                    client.stdin.close()
            said.seek(0)
            reason = said.read().decode(errors="replace").strip()
        if client.returncode:
            raise ServiceError(f"MariaDB did not take the backup: {reason}.", "Try an older one.")

    def tables(self) -> Tables:
        """Return its tables as MariaDB's catalogue has them."""
        found: dict[str, tuple[list[str], list[str]]] = {}
        columns = self._ask(
            "SELECT table_name, column_name, column_key FROM information_schema.columns "
            "WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position"
        )
        for table, column, key in columns:
            names, keys = found.setdefault(table, ([], []))
            names.append(column)
            keys += [column] if key == "PRI" else []
        return found

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the rows of a table."""
        names = ", ".join(f"`{name}`" for name in self.tables()[table][0])
        yield from self._ask(f"SELECT {names} FROM `{table}`")

    def _has(self, table: str) -> bool:
        sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        return bool(self._ask(sql, (self._name, table), database=None))

    def _do(self, sql: str) -> None:
        self._ask(sql, database=None)

    def _ask(self, sql: str, values: Row = (), database: str | None = "") -> list[Row]:
        pymysql = importlib.import_module("pymysql")
        name = self._name if database == "" else database
        try:
            with (
                contextlib.closing(
                    pymysql.connect(unix_socket=SOCKET, user="root", database=name, charset="utf8mb4")
                ) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(sql, values or None)
                found = list(cursor.fetchall())
                connection.commit()
                return found
        except pymysql.MySQLError as error:
            said = error.args[-1] if error.args else error
            raise ServiceError(
                f"MariaDB of this host refused: {said}.",
                "Look at `systemctl status mariadb`.",
                retryable=True,
            ) from error


class Sqlite:
    """A database in a file.

    Args:
        path: of the file.
        user: account that it belongs to; "" for whoever makes it.
    """

    kind = SQLITE

    def __init__(self, path: Path, user: str) -> None:
        self._path = path
        self._user = user

    def make(self) -> None:
        """Make the file's folder; the file comes with its first table."""
        if not self._path.parent.is_dir():
            self._path.parent.mkdir(mode=0o700)
            self._own(self._path.parent)

    def empty(self) -> None:
        """Remove the file."""
        self.drop()
        self.make()

    def drop(self) -> None:
        """Remove the file, and what SQLite keeps beside it."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def revision(self) -> str | None:
        """Return the revision of its schema."""
        if "alembic_version" not in self.tables():
            return None
        found = [row[0] for row in self.rows("alembic_version")]
        return str(found[0]) if found else None

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return sum(1 for _ in self.rows(table)) if table in self.tables() else 0

    def copied(self) -> Iterator[bytes]:
        """Yield the bytes of a copy that SQLite makes while others write."""
        with tempfile.TemporaryDirectory(dir=self._path.parent, prefix=".copy-") as folder:
            copy = Path(folder) / "copy.sqlite"
            with self._open() as live, contextlib.closing(sqlite3.connect(copy)) as target:
                live.backup(target)
            with copy.open("rb") as stream:
                while piece := stream.read(_PIECE):
                    yield piece

    def put(self, copy: Iterable[bytes]) -> None:
        """Replace the file, once all of it was read and SQLite finds it whole."""
        self.make()
        with tempfile.TemporaryDirectory(dir=self._path.parent, prefix=".put-") as folder:
            new = Path(folder) / self._path.name
            with new.open("wb") as stream:
                for piece in copy:
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
            try:
                with contextlib.closing(sqlite3.connect(new)) as found:
                    (said,) = found.execute("PRAGMA integrity_check").fetchone()
            except sqlite3.DatabaseError as error:
                said = str(error)
            if said != "ok":
                raise ServiceError(f"SQLite did not take the backup: {said}.", "Try an older one.")
            self.drop()
            self._own(new)
            new.replace(self._path)

    def tables(self) -> Tables:
        """Return its tables as SQLite's catalogue has them."""
        if not self._path.exists():
            return {}
        found = {}
        with self._open() as live:
            named = live.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            for (table,) in named:
                columns = live.execute(f'PRAGMA table_info("{table}")').fetchall()
                found[str(table)] = ([c[1] for c in columns], [c[1] for c in columns if c[5]])
        return found

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the rows of a table."""
        names = ", ".join(f'"{name}"' for name in self.tables()[table][0])
        with self._open() as live:
            yield from live.execute(f'SELECT {names} FROM "{table}"').fetchall()

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as live:
                yield live
        except sqlite3.Error as error:
            raise ServiceError(
                f"{self._path} cannot be read: {error}.", "Look at the disk, or restore a backup."
            ) from error

    def _own(self, path: Path) -> None:
        if self._user and os.geteuid() == 0:
            account = pwd.getpwnam(self._user)
            shutil.chown(path, account.pw_uid, account.pw_gid)
