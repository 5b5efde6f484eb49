# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Elements of HTML and SVG: whatever is not an element already becomes text.

What hosts, files and services say is data. It can hold no markup, because ``element`` escapes everything but
what it made itself; and it cannot make a line look like another one, because characters that nobody sees
(controls, and those that change the direction of writing) are shown by their numbers.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable

import markupsafe
from markupsafe import Markup

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Controls but for tab and line feed, characters without width, changes of direction, halves of pairs."""
_EMPTY = frozenset({"meta", "br", "hr", "rect", "line", "path", "circle"})
Content = t.Any
"""Markup as it is; None and False as nothing; lists of them; anything else as text."""


def text(value: object) -> Markup:
    """Return a value as escaped text; markup stays what it is."""
    if isinstance(value, Markup):
        return value
    seen = _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(value).replace("\r\n", "\n"))
    return markupsafe.escape(seen)


def join(children: Iterable[Content], between: str = "") -> Markup:
    """Return children one after the other.

    Args:
        children: what ``element`` takes.
        between: text between two of them.
    """
    return text(between).join(text(child) for child in _flat(children))


def element(name: str, /, *children: Content, **attributes: object) -> Markup:
    """Return an element.

    Args:
        name: of the element; ours, never data.
        *children: what is in it.
        **attributes: ``class_`` and ``for_`` lose their underscore, other underscores become hyphens.
            None and False leave one out, True gives it no value.
    """
    head = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        head += f" {attribute}" if value is True else f' {attribute}="{text(value)}"'
    if name in _EMPTY:
        return Markup(f"<{head}>" if name in ("meta", "br", "hr") else f"<{head}/>")
    return Markup(f"<{head}>{join(children)}</{name}>")


def _flat(children: Iterable[Content]) -> Iterable[Content]:
    for child in children:
        if child is None or child is False:
            continue
        if isinstance(child, list | tuple) or (isinstance(child, Iterable) and not isinstance(child, str)):
            yield from _flat(child)
        else:
            yield child
