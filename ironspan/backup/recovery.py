# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keeps what a recovery needs beside the backups: the PKI store as one text, sealed by who wrote it.

The text is opaque here. Its stamp tells whether the newest one in the store is the same; the member that
puts it there signs it, so that a bundle with the same stamp and nothing in it stands in nobody's way.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import time
import typing as t
from pathlib import Path, PurePosixPath

from ironspan.backup.catalogue import listed
from ironspan.backup.names import Names
from ironspan.backup.proof import WRITER, Proof, canonical
from ironspan.backup.store import Item, Store
from ironspan.program.errors import AlreadyThere, NotThere, ProgramError

if t.TYPE_CHECKING:
    from ironspan.backup.settings import Settings

PATH = Path("/etc/ironspan/etcd-backup/recovery.bundle")
FORMAT = "ironspan-recovery"
LARGEST_BYTES = 4 << 20
"""A bundle has some 20 kB."""
_KIND = "recovery"
_TRIES = 5


def add_commands(subparsers: t.Any) -> None:
    """Add ``put-recovery``."""
    command = subparsers.add_parser(
        "put-recovery", help="keep the PKI store's sealed copy beside the backups"
    )
    command.add_argument("file", type=Path, help="the bundle")
    command.set_defaults(func=_put)


def keep(store: Store, names: Names, bundle: Path = PATH, now: float | None = None) -> str:
    """Put a bundle into a store unless the newest one there is the same.

    Args:
        store: where it belongs.
        names: of the site.
        bundle: its file.
        now: seconds since 1970; the clock's by default.

    Returns:
        The name it was given, empty when it was there already.

    Raises:
        ProgramError: the file is no bundle.
        ServiceError: the store cannot be read or written.
    """
    try:
        data = bundle.read_bytes()
    except OSError as error:
        raise ProgramError(f"{bundle}: {error.strerror}.", "site.yml brings it to the members.") from error
    if not stamp_of(data):
        raise ProgramError(f"{bundle} is no recovery bundle.", "Let site.yml bring it again.")
    unix = int(time.time() if now is None else now)
    for later in range(_TRIES - 1):
        # The agent may keep a bundle within the same second, this one among others.
        with contextlib.suppress(AlreadyThere):
            return _kept(store, names, data, unix + later)
    return _kept(store, names, data, unix + _TRIES - 1)


def _kept(store: Store, names: Names, data: bytes, unix: int) -> str:
    items = sorted(listed(store, names.recoveries), key=lambda item: number_of(item.name), reverse=True)
    for item in items:
        if (newest := read_signed(store, item, names.proof)) is None:
            continue
        if stamp_of(newest) == stamp_of(data):
            return ""
        unix = max(unix, number_of(item.name) + 1)  # later in name too, whatever the clock says
        break
    taken = {number_of(item.name) for item in items}
    while unix in taken:
        unix += 1
    name = names.recovery(unix)
    store.put(name, [signed(data, name, names.proof)])
    return name


def signed(data: bytes, name: str, proof: Proof) -> bytes:
    """Return a bundle with a signature for its name in a store. Raises ProgramError without the key."""
    fields = json.loads(data) | {"signer": proof.signer(WRITER)}
    fields.pop("signature", None)
    signature = proof.sign(WRITER, _KIND, name, canonical(fields))
    return json.dumps(fields | {"signature": base64.b64encode(signature).decode()}).encode() + b"\n"


def read_signed(store: Store, item: Item, proof: Proof) -> bytes | None:
    """Return a bundle that the site put into a store; None for one that anybody may have put there."""
    if item.size > LARGEST_BYTES or number_of(item.name) < 0:
        return None
    try:
        data = b"".join(store.read(item.name, 0, LARGEST_BYTES))
        fields = json.loads(data)
        signature = base64.b64decode(fields.pop("signature"), validate=True)
        proven = proof.verifies(WRITER, fields["signer"], signature, _KIND, item.name, canonical(fields))
    except NotThere:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return data if proven else None


def stamp_of(data: bytes) -> str:
    """Return a bundle's stamp, empty for what is none."""
    try:
        content = json.loads(data)
        return str(content["stamp"]) if content["format"] == FORMAT else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def number_of(name: str) -> int:
    """Return the time in a bundle's name, seconds since 1970; -1 for another name."""
    stem = PurePosixPath(name).name.removesuffix(".bundle")
    return int(stem) if stem.isdecimal() else -1


def _put(settings: Settings, arguments: argparse.Namespace) -> None:
    from ironspan.backup.stores import names_of, open_store
    from ironspan.program.command import answer

    name = keep(open_store(settings.stores[0]), names_of(settings), arguments.file)
    answer(arguments, {"stored": bool(name), "name": name}, name or "the newest one is the same")
