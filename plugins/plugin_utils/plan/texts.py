# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Texts that differ on a host, as a plan shows them: without the private keys that may lie in a file."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping

_PRIVATE_KEY = re.compile(
    r"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
)
HIDDEN = "(a private key, not shown)"


def without_private_keys(text: str) -> str:
    """Return a text as it may be shown: files that somebody else wrote on a host may hold anything."""
    return _PRIVATE_KEY.sub(HIDDEN, text)


def texts_of(diffs: Iterable[Mapping[str, t.Any]]) -> dict[str, dict[str, str]]:
    """Return the texts that differ by resource id, which ends the header of a diff.

    Args:
        diffs: the module's ``diff``.

    Returns:
        Resource id -> ``before`` and ``after``.
    """
    texts = {}
    for entry in diffs:
        header = str(entry.get("before_header"))
        match = re.search(r"\(([^()]*)\)\Z", header)
        # Attributes have another header on their other side; they are among the changes already.
        if match and entry.get("after_header") == header:
            texts[match[1]] = {
                side: without_private_keys(str(entry.get(side) or "")) for side in ("before", "after")
            }
    return texts
