# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads a page as a browser's parser would, and insists that it is well formed and loads nothing."""

from __future__ import annotations

import html.parser

VOID = {"meta", "br", "hr", "rect", "line", "path", "circle"}
LOADING = {"src", "srcset", "data", "action", "formaction", "poster", "xlink:href", "style"}
"""Attributes that load something, or that the policy of pages would refuse."""


class Reader(html.parser.HTMLParser):
    """Collects the elements and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        # The text of a style is none of the page's.
        if self.open[-1:] != ["style"]:
            self.text += data


def read(text: str) -> Reader:
    """Return what a page that is only read has."""
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert not reader.tags & {"script", "img", "iframe", "link", "object", "embed", "form", "input"}
    for name, value in reader.attributes:
        assert name not in LOADING and not name.startswith("on"), name
        assert name != "href" or (value or "").startswith("#"), value
    ids = [value for name, value in reader.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    return reader
