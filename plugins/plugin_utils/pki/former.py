# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a store has put aside: secrets under a former key, keys of authorities that nobody trusts any more.

It is renamed into the folder ``former`` and stays there until somebody says that it may go. Even then only
that is deleted which the store itself has put aside, or has under the same name with the same content: a
store.json from somewhere else may call the newest secrets old.
"""

from __future__ import annotations

import hashlib
import typing as t
from collections.abc import Callable, Iterable
from pathlib import Path

FOLDER = "former"
FIELD = "forgettable"
"""SHA-256 of sealed files that this store has put aside, in store.json."""


def digests(files: Iterable[Path]) -> list[str]:
    """Return what store.json says of files that are about to be put aside."""
    return [_digest(file) for file in sorted(files)]


def put_aside(store: Path, path: Path) -> None:
    """Rename a file or folder of a store into its folder of former ones."""
    former = store / FOLDER
    former.mkdir(mode=0o700, exist_ok=True)
    target, number = former / path.name, 1
    while target.exists():
        number += 1
        target = former / f"{path.name}.{number}"
    path.rename(target)


def forget(
    store: Path, known: t.Collection[str], same: Callable[[str, bytes], bool]
) -> tuple[list[str], list[str]]:
    """Delete what was put aside and may go.

    Args:
        store: the store's folder.
        known: what ``digests`` returned when it was put aside.
        same: called with the name and content of a sealed file; tells whether the store has the same secret.

    Returns:
        What was deleted, and what stays because the store may not have it; both relative to the folder.
    """
    gone: list[str] = []
    left: list[str] = []
    for path in sorted((store / FOLDER).rglob("*.sealed*")):
        name = path.name.partition(".sealed")[0]
        may_go = _digest(path) in known or same(name, path.read_bytes())
        (gone if may_go else left).append(path.relative_to(store).as_posix())
        if may_go:
            path.unlink()
    for folder in (store / FOLDER).glob("*"):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return gone, left


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
