# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A store in a folder, for a second copy on a mounted file system and for sites without object storage.

Several processes may use it at once. A crash leaves nothing half-written: whole objects appear by the
renaming of a synchronised file, appended ones have their acknowledged length in a file beside them. It
protects nothing from whoever may write to the folder; a retention policy needs an object store.
"""

from __future__ import annotations

import collections.abc
import contextlib
import errno
import fcntl
import json
import os
import pathlib
import secrets
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

from ironspan.backup.errors import PositionConflict
from ironspan.backup.store import APPEND_MAX, LEASE_SECONDS, Item
from ironspan.program.errors import AlreadyThere, Forbidden, LeaseLost, NotThere, ProgramError, ServiceError
from ironspan.program.leader import Lease

CHUNK = 1024 * 1024
HIDDEN = "."
"""What begins with it is the store's own and no object."""
_LENGTH, _LEASE, _LOCK = ".length", ".lease", ".lock"


class FileStore:
    """Objects as files below a folder.

    Args:
        path: the folder; made if its parent is there.
        prefix: what goes before every name, such as ``etcd/``.
        clock: seconds since 1970, for leases and tests.
    """

    def __init__(
        self, path: pathlib.Path, prefix: str = "", clock: collections.abc.Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self.root = path / prefix.strip("/")
        self._clock = clock

    @property
    def name(self) -> str:
        """What the store is called in messages."""
        return f"file:{self.root}"

    def put(self, name: str, data: collections.abc.Iterable[bytes]) -> None:
        """Make an object of these bytes, whole or not at all. Raises AlreadyThere; nothing is replaced."""
        with self._errors(name):
            target = self._made(name)
            if target.exists():
                raise AlreadyThere(f"{self.name} has {name} already.")
            self._publish(target, name, data, appendable=False)

    def create_append(self, name: str) -> None:
        """Make an empty object that ``append`` extends. Raises AlreadyThere."""
        with self._errors(name):
            self._publish(self._made(name), name, (), appendable=True)

    def append(self, name: str, data: bytes, position: int) -> int:
        """Extend an object at ``position``, whole or not at all, and return its new length."""
        if len(data) > APPEND_MAX:
            raise ServiceError(f"{name}: an append of {len(data)} bytes is more than {APPEND_MAX}.")
        with self._errors(name):
            target = self._path(name)
            if not target.is_file():
                raise NotThere(f"{self.name} has no {name}.")
            length_file = _beside(target, _LENGTH)
            with self._locked(target):
                actual = _read_length(length_file)
                if actual is None:
                    raise ServiceError(f"{name} in {self.name} was not made to be appended to.")
                if actual != position:
                    raise PositionConflict(
                        f"{name} in {self.name} is {actual} bytes long, not {position}.", actual
                    )
                with target.open("r+b") as file:
                    file.seek(position)
                    file.write(data)
                    # What a crash left behind the acknowledged length goes.
                    file.truncate()
                    _sync(file)
                _write_length(length_file, position + len(data))
                return position + len(data)

    def size(self, name: str) -> int:
        """Return an object's length in bytes. Raises NotThere."""
        with self._errors(name):
            target = self._path(name)
            if not target.is_file():
                raise NotThere(f"{self.name} has no {name}.")
            length = _read_length(_beside(target, _LENGTH))
            return target.stat().st_size if length is None else length

    def read(self, name: str, offset: int = 0, length: int | None = None) -> collections.abc.Iterator[bytes]:
        """Yield an object's bytes from ``offset`` on, ``length`` of them or all. Raises NotThere."""
        left = self.size(name) - offset
        left = left if length is None else min(left, length)
        with self._errors(name), self._path(name).open("rb") as file:
            file.seek(offset)
            while left > 0:
                chunk = file.read(min(left, CHUNK))
                if not chunk:
                    raise ServiceError(f"{name} in {self.name} ended {left} bytes early.", retryable=True)
                left -= len(chunk)
                yield chunk

    def list(self, prefix: str) -> collections.abc.Iterator[Item]:
        """Yield what begins with ``prefix``, sorted by name."""
        with self._errors(prefix):
            names = sorted(name for name in self._names(prefix) if name.startswith(prefix))
        for name in names:
            with contextlib.suppress(NotThere), self._errors(name):
                status = self._path(name).stat()
                # Linux tells no time of creation here; nothing that is kept was changed after it but logs.
                yield Item(name, self.size(name), status.st_mtime, status.st_mtime)

    def delete(self, name: str) -> None:
        """Delete an object. Raises NotThere, and Forbidden where the folder's rights say so."""
        with self._errors(name):
            target = self._path(name)
            with self._locked(target) if target.is_file() else contextlib.nullcontext():
                target.unlink()
                for suffix in (_LENGTH, _LEASE, _LOCK):
                    _beside(target, suffix).unlink(missing_ok=True)
            _sync_folder(target.parent)

    def acquire(self, name: str, seconds: int, holder: str) -> Lease:
        """Take the lease of an object, which is made if it is missing. Raises LeaseLost."""
        if not LEASE_SECONDS[0] <= seconds <= LEASE_SECONDS[1]:
            raise ServiceError(f"A lease of {seconds} s is not within {LEASE_SECONDS} s.")
        with self._errors(name):
            target = self._made(name)
            if not target.exists():
                with contextlib.suppress(AlreadyThere):
                    self._publish(target, name, (), appendable=False)
            lease = _FileLease(self, target, seconds, holder)
            lease.take()
            return lease

    def _path(self, name: str) -> pathlib.Path:
        parts = name.split("/")
        if any(not part or part.startswith(HIDDEN) for part in parts):
            raise ServiceError(f"{name!r} is no name for an object.")
        return self.root.joinpath(*parts)

    def _made(self, name: str) -> pathlib.Path:
        target = self._path(name)
        missing = [folder for folder in target.parents if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(folder.parent)
        return target

    def _names(self, prefix: str) -> collections.abc.Iterator[str]:
        top = self.root / prefix.rpartition("/")[0]
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
            for name in files:
                if not name.startswith(HIDDEN):
                    yield str((pathlib.Path(folder) / name).relative_to(self.root))

    def _publish(
        self, target: pathlib.Path, name: str, data: collections.abc.Iterable[bytes], *, appendable: bool
    ) -> None:
        temporary = _beside(target, f".{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb", opener=_private) as file:
                for chunk in data:
                    file.write(chunk)
                _sync(file)
            with self._locked(target):
                if target.exists():
                    raise AlreadyThere(f"{self.name} has {name} already.")
                # The length first: a file without one counts as a whole object.
                length_file = _beside(target, _LENGTH)
                if appendable:
                    _write_length(length_file, 0)
                else:
                    length_file.unlink(missing_ok=True)
                temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(target.parent)

    @contextlib.contextmanager
    def _locked(self, target: pathlib.Path) -> collections.abc.Iterator[None]:
        with open(_beside(target, _LOCK), "ab", opener=_private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _errors(self, name: str) -> collections.abc.Iterator[None]:
        try:
            yield
        except ProgramError:
            raise
        except FileNotFoundError as error:
            raise NotThere(f"{self.name} has no {name}.") from error
        except PermissionError as error:
            raise Forbidden(f"{self.name} does not allow this with {name}: {error.strerror}.") from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise ServiceError(
                f"{self.name}, {name}: {error.strerror}.",
                "Make room in that file system." if full else "",
                retryable=True,
            ) from error


class _FileLease:
    """A lease as a record beside the object: who, until when."""

    def __init__(self, store: FileStore, target: pathlib.Path, seconds: int, holder: str) -> None:
        self._id = secrets.token_hex(16)
        self._store = store
        self._target = target
        self._seconds = seconds
        self._holder = holder

    @property
    def id(self) -> str:
        """Identifies this lease among all that were ever held."""
        return self._id

    def take(self) -> None:
        """Take it where nobody has it. Raises LeaseLost."""
        with self._record() as record:
            if record and record["id"] != self._id and record["until"] > self._store._clock():
                raise LeaseLost(f"{self._store.name}: {record['holder']} has the lease.")
            self._write(self._seconds)

    def renew(self) -> None:
        """Hold it for its seconds again. Raises LeaseLost when another took it or it ran out."""
        with self._record() as record:
            if not record or record["id"] != self._id:
                raise LeaseLost(
                    f"{self._store.name}: {record['holder'] if record else 'nobody'} has the lease."
                )
            self._write(self._seconds)

    def release(self) -> None:
        """Give it up; a lease that is lost already is no error."""
        with self._record() as record:
            if record and record["id"] == self._id:
                self._write(0)

    @contextlib.contextmanager
    def _record(self) -> collections.abc.Iterator[dict[str, t.Any] | None]:
        with self._store._errors(self._target.name), self._store._locked(self._target):
            try:
                record = json.loads(_beside(self._target, _LEASE).read_text(encoding="utf-8"))
            except (FileNotFoundError, ValueError):
                record = None
            yield record

    def _write(self, seconds: int) -> None:
        record = {"id": self._id, "holder": self._holder, "until": self._store._clock() + seconds}
        write_file(_beside(self._target, _LEASE), json.dumps(record).encode(), 0o600)


def _beside(target: pathlib.Path, suffix: str) -> pathlib.Path:
    return target.with_name(f"{HIDDEN}{target.name}{suffix}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync(file: t.IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_length(path: pathlib.Path) -> int | None:
    try:
        return int(path.read_bytes())
    except FileNotFoundError:
        return None


def _write_length(path: pathlib.Path, length: int) -> None:
    """Overwrite in place: 20 bytes are within one sector, which a disk writes whole or not at all."""
    with open(path, "r+b" if path.exists() else "wb", opener=_private) as file:
        file.write(b"%020d" % length)
        _sync(file)
