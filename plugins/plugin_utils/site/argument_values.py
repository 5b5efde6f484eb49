# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values of arguments of operations, each held against what is declared of it."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible.module_utils.parsing.convert_bool import BOOLEANS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

LISTS = ("list", "hosts", "files")
_TIME = re.compile(r"([0-9]{1,6})([smh]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


class Wrong(t.NamedTuple):
    """What is wrong with a value, and what to write instead."""

    message: str
    remedy: str


def says_nothing(argument: Argument, value: t.Any) -> bool:
    """Tell whether a value leaves an argument to its default."""
    # Where a word has to be chosen, an empty one is a mistake.
    return value is None or value == [] or (value == "" and not (argument.choices and argument.type == "str"))


def wrong_value(argument: Argument, value: t.Any) -> Wrong | None:
    """Return what is wrong with a value of an argument, None when it is well or says nothing.

    Expressions are left to Ansible, which knows what they come to.
    """
    expression = isinstance(value, str) and ("{{" in value or "{%" in value)
    if expression or says_nothing(argument, value):
        return None
    shown = "" if argument.secret else f"{str(value)!r} is "
    kind = argument.type
    if kind == "bool":
        # The names that Ansible takes for yes and no.
        word = value.lower() if isinstance(value, str) else value
        right = isinstance(word, (str, int, float)) and word in BOOLEANS
        return None if right else Wrong(f"{shown}neither true nor false", "write true or false")
    if kind == "int":
        return _wrong_number(argument, value, shown)
    if kind == "time":
        return _wrong_time(argument, value, shown)
    if kind in LISTS:
        if isinstance(value, bytes) or not isinstance(value, Sequence):
            return Wrong(f"{shown}no list", "write a list, or texts with commas between")
        if argument.words and value and len(parts_of(value)) != len(argument.words):
            return Wrong(f"{shown}not of its form", f"write {' and '.join(argument.words)}")
        items = parts_of(value) if argument.choices else []
        return next((_wrong_choice(argument, text) for text in items if text not in argument.choices), None)
    if isinstance(value, (Mapping, list, tuple, bool)):
        return Wrong(f"{shown}no text", "write one text")
    text = str(value).strip()
    if argument.choices and text not in argument.choices:
        return _wrong_choice(argument, text)
    if argument.pattern and not re.fullmatch(argument.pattern, text):
        return Wrong(f"{shown}not of its form", f"write {argument.example or argument.what}")
    return None


def _wrong_choice(argument: Argument, text: str) -> Wrong:
    shown = "" if argument.secret else f"{text!r} is "
    near, known = nearest(text, argument.choices), ", ".join(argument.choices)
    return Wrong(
        f"{shown}none of its values", f"write {near}; one of {known}" if near else f"write one of {known}"
    )


def _wrong_time(argument: Argument, value: t.Any, shown: str) -> Wrong | None:
    match = _TIME.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if not match:
        return Wrong(f"{shown}no time", "write seconds, or a time such as 90s or 5m")
    seconds = int(match[1]) * _UNITS[match[2]]
    if argument.least is not None and seconds < argument.least:
        return Wrong(f"{shown}too short", f"write {argument.least}s or more")
    if argument.most is not None and seconds > argument.most:
        return Wrong(f"{shown}too long", f"write {argument.most}s or less")
    return None


def _wrong_number(argument: Argument, value: t.Any, shown: str) -> Wrong | None:
    try:
        # Python reads digits of other scripts, and 1_000, too.
        if isinstance(value, (bool, float)) or not re.fullmatch(r"\s*[+-]?[0-9]+\s*", str(value)):
            raise ValueError
        number = int(value)
    except (TypeError, ValueError):
        return Wrong(f"{shown}no whole number", "write one in digits")
    if argument.least is not None and number < argument.least:
        return Wrong(f"{number} is too small", f"write {argument.least} or more")
    if argument.most is not None and number > argument.most:
        return Wrong(f"{number} is too large", f"write {argument.most} or less")
    return None


def parts_of(value: Sequence[t.Any]) -> list[str]:
    """Return the items of a list, or of a text with commas."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    return [text for part in parts if (text := str(part).strip())]
