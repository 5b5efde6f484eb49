# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What pages are made of: numbers, notes, folded things, differences, tables."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from ironspan.pages.markup import Content, element, join

Tone = t.Literal["ok", "new", "bad", "warn", "idle"]
MARKS: Mapping[str, str] = {"ok": "✓", "new": "●", "bad": "✗", "warn": "!", "idle": "·"}
"""A mark for each tone: nobody has to tell colours apart."""
_LINES = {"+": "plus", "-": "minus", "@": "place", "!": "minus"}


def badge(tone: Tone, words: str) -> Markup:
    """Return a verdict beside a heading."""
    return element("span", _mark(tone), words, class_=f"badge {tone}")


def tag(words: str, tone: Tone = "idle") -> Markup:
    """Return a few words in a frame."""
    return element("span", words, class_=f"tag {tone}{' long' if len(words) > 40 else ''}")


def cell(tone: Tone, words: str, detail: str = "") -> Markup:
    """Return one thing of many, in its colour; its mark is in the style, for there are thousands of them."""
    return element("li", words, f" {detail}" if detail else None, class_=tone)


def _mark(tone: Tone) -> Markup:
    return element("span", f"{MARKS[tone]} ", aria_hidden="true")


def facts(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Return numbers in large type.

    Args:
        pairs: what it is, and its value.
    """
    rows = [element("div", element("dt", what), element("dd", value)) for what, value in pairs]
    return element("dl", *rows, class_="facts")


def note(tone: Tone, *words: Content) -> Markup:
    """Return something that is not to be overlooked."""
    return element("div", *(element("p", each) for each in words), class_=f"note {tone}")


def section(title: str, *content: Content, about: str = "") -> Markup:
    """Return a section with its heading."""
    lead = element("p", about, class_="soft") if about else None
    return element("section", element("h2", title), lead, *content)


def folded(summary: Content, *content: Content, opened: bool = False, class_: str = "card") -> Markup:
    """Return something that opens by a click or a key, and on paper."""
    return element("details", element("summary", summary), *content, class_=class_, open=opened)


def difference(lines: Iterable[tuple[str, str]]) -> Markup:
    """Return lines of a difference.

    Args:
        lines: sign (``+``, ``-``, ``@``, ``!`` or a space) and text.
    """
    shown = [element("span", f"{sign} {words}", class_=_LINES.get(sign)) for sign, words in lines]
    return element("pre", *shown, class_="diff")


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Content]],
    numbers: frozenset[int] = frozenset(),
) -> Markup:
    """Return a table; the first cell of a row names it.

    Args:
        caption: what it shows.
        heads: of the columns.
        rows: their cells.
        numbers: columns that are flush right.
    """

    def cells(row: Sequence[Content], kind: str) -> Iterable[Markup]:
        first = {"scope": "row"} if kind == "td" else {"scope": "col"}
        for column, each in enumerate(row):
            flush = "number" if column in numbers else None
            head = kind == "th" or not column
            yield element("th", each, class_=flush, **first) if head else element("td", each, class_=flush)

    head = element("tr", *cells(heads, "th"))
    body = [element("tr", *cells(row, "td")) for row in rows]
    made = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", head),
        element("tbody", *body),
    )
    # What may be wider than the screen can be scrolled by keys, too.
    return element("div", made, class_="wide", role="region", aria_label=caption, tabindex="0")


def names(hosts: Sequence[str], most: int = 12) -> str:
    """Return names in one line, not all of many."""
    more = f" and {len(hosts) - most:,} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more


def named(summary: str, hosts: Sequence[str], most: int = 12) -> Content:
    """Return names of hosts; those of many fold."""
    if len(hosts) <= most:
        return element("p", f"{summary}: {', '.join(hosts)}", class_="small soft")
    return folded(f"{summary}: {names(hosts, 6)}", element("p", ", ".join(hosts)), class_="item small")


def cut(words: str, most: int) -> str:
    """Return a text that is not longer than this; what is left out, the JSON beside a page has."""
    return words if len(words) <= most else f"{words[:most]} … ({len(words) - most:,} more characters)"


def lines_of(words: str) -> Markup:
    """Return text with its lines."""
    return join(words.splitlines(), "\n")
