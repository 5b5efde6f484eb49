# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The messages that docs/faults.md promises, for the tests that keep the page true."""

from __future__ import annotations

import functools
import re

from tests.support.playbooks import ROOT

PAGE = ROOT / "docs" / "faults.md"
ROW = re.compile(r'^\| <a id="([a-z0-9-]+)"></a>[^|]*\|(.*?)\|([^|]*)\|$', re.MULTILINE)
MESSAGE = re.compile(r"`([^`]+)`")


@functools.cache
def promised() -> dict[str, list[str]]:
    """Return the messages of the page by the fault's name; an ellipsis in one stands for anything."""
    return {name: MESSAGE.findall(seen) for name, seen, _ in ROW.findall(PAGE.read_text())}


def insist(name: str, said: str) -> None:
    """Insist that a message was said that the page promises for a fault; white space does not matter."""
    words = " ".join(said.split())
    patterns = [".*?".join(re.escape(part) for part in text.split("…")) for text in promised()[name]]
    assert any(re.search(pattern, words) for pattern in patterns), f"{name}: {patterns}: {said}"
