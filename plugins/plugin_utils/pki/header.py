# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""store.json: read, checked and compared with its copy, so that an older one is not taken for the store's.

The copy is written after store.json. A kill between the two leaves a copy that is one change behind; the next
change makes up for that. A copy that is ahead says that store.json was put back from somewhere.
"""

from __future__ import annotations

import json
import re
import secrets
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError

FILE, COPY = "store.json", "store.json.newest"
SCHEMA_VERSIONS = (1, 2, 3)
"""Format 2 has the generations of authorities, format 3 how secrets are encrypted; a store gets them when the
first authority is changed and when encryption begins."""
FROM_COPIES = "Restore the folder from a backup, or from its copy beside the backups (docs/backup.md)."
PEERS_NAMED = "peers_named"
"""Field: the certificates of all members of etcd have the name that members ask each other for."""
Header = dict[str, t.Any]


def read(folder: Path) -> Header:
    """Return the content of store.json, checked.

    Raises:
        PkiError: it is not there, damaged, of a later format, or older than the store.
    """
    try:
        content = (folder / FILE).read_bytes()
    except FileNotFoundError as error:
        raise PkiError(
            f"The PKI store {folder} has no {FILE}.",
            "Run playbooks/site.yml (it makes the store), or restore the folder from a backup.",
        ) from error
    except OSError as error:
        raise PkiError(f"{folder / FILE} cannot be read: {error.strerror}.") from error
    header = _checked(folder, content)
    newest = newest_of(folder)
    if newest and newest.get("changes", 0) > header.get("changes", 0):
        raise PkiError(
            f"{folder / FILE} is older than the store: it was put back from somewhere. The store has had "
            f"{newest['changes']} changes, and this file knows of {header.get('changes', 0)}. "
            "Nothing was changed.",
            f"Run: cp {folder / COPY} {folder / FILE}. "
            f"The store's key is the one with the id {newest['key_id']}.",
        )
    if not (folder / secrets_of(header)).is_dir():
        raise PkiError(
            f"{folder / FILE} says that the secrets are in {secrets_of(header)}, which is not there"
            f"{_elsewhere(folder)}. Nothing was changed.",
            f"Put back the {FILE} that was written last. {FROM_COPIES} "
            "Move what is there aside, and delete nothing.",
        )
    return header


def write(folder: Path, header: Header) -> None:
    """Replace store.json, and then its copy."""
    header = {**header, "changes": int(header.get("changes", 0)) + 1}
    content = json.dumps(header, indent=2).encode() + b"\n"
    write_file(folder / FILE, content, 0o644)
    write_file(folder / COPY, content, 0o644)


def follow(folder: Path) -> None:
    """Bring the copy to what store.json says: older versions made none, and a kill leaves it behind."""
    header, newest = read(folder), newest_of(folder)
    if newest is None or "changes" not in header:
        write(folder, header)
    elif newest != header:
        write_file(folder / COPY, (folder / FILE).read_bytes(), 0o644)


def newest_of(folder: Path) -> Header | None:
    """Return the copy, None when there is none that can be read."""
    try:
        return _checked(folder, (folder / COPY).read_bytes())
    except (OSError, PkiError):
        return None


def secrets_of(header: Header) -> str:
    """Return the name of the folder that the store's secrets are in."""
    return str(header.get("secrets", "secrets"))


def uid() -> str:
    """Return a new random identity of a site."""
    return secrets.token_hex(8)


def _checked(folder: Path, content: bytes) -> Header:
    try:
        header = json.loads(content)
        schema = header["schema"]
        if schema not in SCHEMA_VERSIONS:
            raise PkiError(
                f"The store {folder} has format {schema}; this version reads {SCHEMA_VERSIONS[-1]}.",
                "Use the version of ironspan that wrote it.",
            )
        well = [
            re.fullmatch(r"secrets(-[0-9]+)?", header.get("secrets", "secrets")),
            re.fullmatch(r"[0-9a-f]{16}", header["site_uid"]),
            isinstance(header["key_id"], str),
            type(header.get("changes", 0)) is int,
        ]
        if not all(well):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "Restore it from a backup."
        if (folder / COPY).exists() and content != (folder / COPY).read_bytes() and newest_of(folder):
            remedy = f"Run: cp {folder / COPY} {folder / FILE}"
        raise PkiError(f"{folder / FILE} is damaged.", remedy) from error
    return t.cast(Header, header)


def _elsewhere(folder: Path) -> str:
    others = sorted(path.name for path in folder.glob("secrets*") if path.is_dir())
    return f"; there is {', '.join(others)}" if others else ""
