# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a verification measured, check by check."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ironspan.pages import parts
from ironspan.pages.markup import Content, element
from ironspan.pages.parts import Tone

EVIDENCE_ROWS = 200
"""Rows of one table of evidence; the JSON beside the page has all."""
LONGEST = 400
"""Characters of one problem or value."""


def evidence(report: Mapping[str, t.Any] | None, title: str, *, opened: bool = True) -> Content:
    """Return what a verification found, check by check; nothing without one.

    Args:
        report: as its JSON has it.
        title: of the section.
        opened: whether checks that failed are open; their problems may stand on the page already.
    """
    if not report:
        return None
    words: Mapping[bool | None, tuple[Tone, str]] = {
        True: ("ok", "ok"), False: ("bad", "failed"), None: ("idle", "not run"),
    }  # fmt: skip
    items = []
    for check in report["checks"]:
        tone, said = words[check["ok"]]
        head = [check["name"], parts.tag(said, tone), element("span", check["summary"], class_="reason")]
        rows = check["evidence"][:EVIDENCE_ROWS]
        inside: list[Content] = [
            parts.note("bad", parts.cut(problem, LONGEST)) for problem in check["problems"][:EVIDENCE_ROWS]
        ]
        if rows:
            more = (
                f", the first {EVIDENCE_ROWS} of {len(check['evidence']):,}"
                if len(rows) < len(check["evidence"])
                else ""
            )
            caption = f"What was measured ({check['name']}{more})"
            inside.append(
                parts.table(
                    caption,
                    list(rows[0]),
                    [[parts.cut(str(each), LONGEST) for each in row.values()] for row in rows],
                )
            )
        if not inside:
            inside = [element("p", check["summary"] or "Nothing more was measured.")]
        items.append(
            parts.folded(
                head, element("div", *inside, class_="inside"), opened=opened and check["ok"] is False
            )
        )
    return parts.section(title, *items, about="What the cluster answered, and what was measured.")
