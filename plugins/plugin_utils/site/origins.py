# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where a value of the inventory was written.

ansible-core tags what it reads from files with an ``Origin`` (path, line, column). That tag is private to
ansible-core, so this is the only file of the project that knows it. Seen with ansible-core 2.21: keys of
mappings and names of hosts and groups of YAML inventories are tagged, so are strings, numbers and containers;
``true``, ``false`` and ``null`` are not (their key is). INI inventories tag variables, not host names.
Where there is no tag, ``marks.py`` reads the files once more.
"""

from __future__ import annotations

import contextlib
import re
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:  # another ansible-core: everything still works, positions come from marks.py
    Origin = None

_NUMBER = re.compile(r"(?<![\w.])[0-9]+\.[0-9]+(?![\w.])", re.ASCII)


def place_of(value: t.Any) -> Place | None:
    """Return where a value or key was written, None when it carries no usable tag."""
    if Origin is None:
        return None
    origin = Origin.get_tag(value)
    if origin is None:
        return None
    if origin.path:
        return Place(str(origin.path), int(origin.line_num or 0))
    if origin.description:
        return Place(str(origin.description), 0)
    return None


def in_quotes(value: float | bool) -> str:
    """Return what to write in quotes where YAML has read a number or a switch, and a text was meant.

    Args:
        value: as the inventory has it, with its origin: 6.10 is a version that a number cannot tell from 6.1.
    """
    if isinstance(value, bool):
        return "as it stands there"  # no, off, False: nothing says which
    place, text = place_of(value), str(value)
    if isinstance(value, float) and place is not None:
        with contextlib.suppress(OSError, UnicodeError, IndexError):
            line = Path(place.file).read_text(encoding="utf-8").splitlines()[place.line - 1]
            written = [each for each in _NUMBER.findall(line.partition(" #")[0]) if float(each) == value]
            text = written[-1] if written else text
    return f'for example "{text}"'


def from_plugin(key: t.Any) -> bool:
    """Tell whether a variable came from an inventory plugin or script, not from a line somebody wrote.

    Args:
        key: the variable's name as a key of its dictionary; those that people write are tagged.
    """
    if Origin is None:
        return False
    place = place_of(key)
    return place is None or place.line == 0


def place_of_setting(key: t.Any, value: t.Any) -> Place | None:
    """Return where a variable was written.

    When dictionaries are merged Python keeps the first key and the last value, so the value decides which
    file it was, and the key gives the better line (that of the name) when both are in the same file.
    """
    of_key, of_value = place_of(key), place_of(value)
    if of_key is None:
        return of_value
    if of_value is None or of_value.file == of_key.file:
        return of_key
    return of_value
