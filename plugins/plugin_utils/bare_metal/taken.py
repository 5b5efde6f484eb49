# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values out of what a machine said of itself: taken one by one, bounded, never more than asked for."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

LONGEST = 256
"""Characters of one text."""
MOST_NOTES = 20


class Taker:
    """Takes values out of an answer and notes what could not be read.

    Attributes:
        unreadable: where something stood that is not what should stand there.
    """

    def __init__(self) -> None:
        self.unreadable: list[str] = []

    def note(self, path: str) -> None:
        """Note that something could not be read."""
        if len(self.unreadable) < MOST_NOTES and path not in self.unreadable:
            self.unreadable.append(path)

    def part(self, holder: Mapping[str, t.Any], key: str, path: str) -> Mapping[str, t.Any]:
        """Return the mapping under a key, an empty one when there is none."""
        value = holder.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.note(path)
            return {}
        return value

    def items(
        self, holder: Mapping[str, t.Any], key: str, path: str, most: int
    ) -> list[Mapping[str, t.Any]] | None:
        """Return the mappings in a list, None when there is no list.

        Args:
            holder: where the list is.
            key: what it is called.
            path: how a note calls it.
            most: how many are taken; more are noted.
        """
        value = holder.get(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            self.note(path)
            return None
        if len(value) > most:
            self.note(f"{path} (more than {most})")
        taken = []
        for item in value[:most]:
            if isinstance(item, Mapping):
                taken.append(item)
            else:
                self.note(path)
        return taken

    def text(self, holder: Mapping[str, t.Any], key: str, path: str) -> str:
        """Return a text of one line, "" when there is none."""
        value = holder.get(key)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > LONGEST or not value.strip().isprintable():
            self.note(path)
            return ""
        return value.strip()

    def number(self, holder: Mapping[str, t.Any], key: str, path: str) -> int | None:
        """Return a whole number from 0, None when there is none."""
        value = holder.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 63:
            self.note(path)
            return None
        return int(value)

    def flag(self, holder: Mapping[str, t.Any], key: str, path: str) -> bool | None:
        """Return true or false, None when nothing is said."""
        value = holder.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.note(path)
        return None
