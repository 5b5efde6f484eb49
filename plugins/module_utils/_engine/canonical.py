# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One spelling for every document, so that equal documents have equal digests."""

from __future__ import annotations

import hashlib
import json
import typing as t

ENGINE_SCHEMA = 1
"""Raised when the same document would be applied differently, so that its digest changes too."""


def canonical_json(value: t.Any) -> str:
    """Write a value as JSON with sorted keys, no white space, and every non-ASCII character escaped.

    Args:
        value: what JSON can hold; no floats that JSON cannot (NaN, infinity).

    Raises:
        ValueError: NaN or infinity.
        TypeError: something else than JSON knows.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: t.Any) -> str:
    """Return the SHA-256 (hexadecimal) of a value's canonical JSON together with the engine's schema."""
    text = f"ironspan {ENGINE_SCHEMA}\n{canonical_json(value)}"
    return hashlib.sha256(text.encode("ascii")).hexdigest()
