# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Kinds of remote things, one file each, named as the kind.

A file has ``VARIABLES`` (what it reads of the inventory), ``declared`` (the things that the inventory wants,
by name), and ``opened`` (the kind for one run, see ``remote.thing.Kind``).
"""

from __future__ import annotations

import importlib
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Kind, RemoteError, State


class KindFile(t.Protocol):
    """What the file of a kind has."""

    VARIABLES: tuple[str, ...]

    def declared(
        self, variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]
    ) -> dict[str, State | None]:
        """Return what is wanted, by name. Raises RemoteError."""

    def opened(self, variables: Mapping[str, t.Any]) -> Kind:
        """Return the kind. Raises RemoteError when its service cannot be spoken to."""


def names() -> list[str]:
    """Return the names of all kinds."""
    files = Path(__file__).parent.glob("[a-z]*.py")
    return sorted(file.stem for file in files)


def kind_file(name: str) -> KindFile:
    """Return the file of a kind.

    Raises:
        RemoteError: there is no such kind.
    """
    if name not in names():
        raise RemoteError(f"there is no kind {name!r} of remote things", f"write one of {', '.join(names())}")
    return t.cast(KindFile, importlib.import_module(f"{__name__}.{name}"))
