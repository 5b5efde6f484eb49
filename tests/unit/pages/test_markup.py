# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whatever is not an element already becomes text, and what nobody sees is shown."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.pages.markup import element, join, text
from ironspan.pages.words import age, count, took
from tests.support.pages import Reader


@given(st.text(), st.text())
def test_a_text_comes_back_as_it_was_and_makes_no_element(words: str, value: str) -> None:
    reader = Reader()
    reader.feed(element("p", words, class_=value))
    reader.close()
    assert reader.tags == {"p"} and [name for name, _ in reader.attributes] == ["class"]
    assert reader.text == html.unescape(text(words)) and reader.attributes[0][1] == html.unescape(text(value))


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("a\x00b", "a⟨U+0000⟩b"),
        ("\x1b[2J", "⟨U+001B⟩[2J"),
        ("etc/\u202egpj.sh", "etc/⟨U+202E⟩gpj.sh"),
        ("zero\u200bwidth", "zero⟨U+200B⟩width"),
        ("half \ud800", "half ⟨U+D800⟩"),
        ("two\r\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Grüße, 世界", "Grüße, 世界"),
    ],
)
def test_what_nobody_sees_is_shown_by_its_number(given: str, seen: str) -> None:
    assert text(given) == seen


def test_children_are_flattened_and_nothing_is_left_out_but_nothing() -> None:
    made = element("p", [None, False, "a", (element("b", 0), iter(["&"]))], title=None, hidden=True, id="x")
    assert made == '<p hidden id="x">a<b>0</b>&amp;</p>'
    assert join(["a", element("b")], " & ") == "a &amp; <b></b>"


def test_numbers_and_times_in_words() -> None:
    assert [count(1, "host"), count(1000, "host"), count(2, "entry", "entries")] == [
        "1 host", "1,000 hosts", "2 entries",
    ]  # fmt: skip
    assert [took(each) for each in (0.04, 61, 120, 3599.8, 3700, 7200)] == [
        "0.0 s", "61 s", "2 min", "1 h", "1 h 1 min", "2 h",
    ]  # fmt: skip
    assert [age(each) for each in (5, 60, 7199, 7200, 200_000, 9 * 365 * 86400)] == [
        "less than a minute", "1 minute", "119 minutes", "2 hours", "2 days", "9 years",
    ]  # fmt: skip
