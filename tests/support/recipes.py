# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads the worked examples of docs/contributing.md, so that what the page says is what the tests run."""

from __future__ import annotations

import re

from tests.support.playbooks import ROOT

_FILE = re.compile(r"^`([^`\n]+)`:\n\n```[a-z0-9]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files_of(title: str) -> dict[str, str]:
    """Return the files that a recipe writes out.

    Args:
        title: the section, for example ``A new layer``.

    Returns:
        Path -> content, in the order of the page. A file is a line with its path in backquotes and a colon,
        then a fenced block.

    Raises:
        LookupError: there is no such section, or it writes no file.
    """
    page = (ROOT / "docs" / "contributing.md").read_text()
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if section is None:
        raise LookupError(f"docs/contributing.md has no section {title!r}")
    files = dict(_FILE.findall(section[1]))
    if not files:
        raise LookupError(f"the section {title!r} of docs/contributing.md writes out no file")
    return files
