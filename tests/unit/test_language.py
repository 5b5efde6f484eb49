# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The language of the pages: sentences that end in time, and no words that the field does not use."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.support.playbooks import ROOT

LONGEST = 45
"""Words between full stops, colons and semicolons (docs/contributing.md, Sentences)."""
COINAGES = (
    "anew", "betimes", "give it its vote", "gone on with", "heeded", "hereby", "henceforth", "leverage",
    "mend", "mended", "obviously", "seamless", "seamlessly", "simply", "taken off", "thereof", "utilize",
    "whereof", "whilst", "without a vote",
)  # fmt: skip
"""Each was found once, or is of the kind; docs/contributing.md says what to write instead."""
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("roles/*/README.md")),
    ROOT / "README.md",
]
_COINED = re.compile(rf"\b({'|'.join(COINAGES)})\b", re.IGNORECASE)
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_ITEM = re.compile(r"\s*(?:[*-]|\d+\.) ")


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs and items of a page; tables, headings and code are none."""
    found: list[str] = []
    open_one = False
    for line in _FENCE.sub("", text).splitlines():
        if not line.strip() or line.startswith(("|", "#", "    ", "<", "!")):
            open_one = False
        elif open_one and not _ITEM.match(line):
            found[-1] += f" {line.strip()}"
        else:
            found.append(_ITEM.sub("", line, count=1).strip())
            open_one = True
    return found


def sentences(paragraph: str) -> list[str]:
    """Return its sentences; a link counts as its text, and code as one word."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph))
    return [one for one in re.split(r"(?<=[.!?:;])\s+", plain) if one]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sentences_end_in_time_and_words_are_common(path: pathlib.Path) -> None:
    text = path.read_text()
    if path.parent.name != "reference":  # whose paragraphs are tables of options, with Ansible's marks
        long = [one for part in paragraphs(text) for one in sentences(part) if len(one.split()) > LONGEST]
        assert not long, "make several sentences of it, or a list"
    if path.name != "contributing.md":  # it shows what was written before
        assert not _COINED.findall(text), "docs/contributing.md says what to write instead"


def test_what_is_measured_is_what_is_read() -> None:
    page = (
        "# A title\n\nOne `code word` two [three](x.md). Four\nfive.\n\n"
        "* six\n  seven\n* eight\n\n| a | b |\n\n    x y\n"
    )
    assert paragraphs(page) == [
        "One `code word` two [three](x.md). Four five.",
        "six seven",
        "eight",
    ]
    assert sentences(paragraphs(page)[0]) == ["One code two three.", "Four five."]
    assert _COINED.search("It is Mended.") and not _COINED.search("a mendacious comment")


def test_twenty_examples_show_before_and_after() -> None:
    part = (ROOT / "docs" / "contributing.md").read_text().partition("\n## Sentences\n")[2]
    rows = [line for line in part.splitlines() if line.startswith("| ") and line.count(" | ") == 2]
    assert len(rows) - 1 == 20
