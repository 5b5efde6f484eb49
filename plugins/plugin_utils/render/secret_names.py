# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which secrets a document names. A host is sent those that its own document names, and no others."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

FIELD, SUFFIX = "secret", "_secret"
"""A resource names a secret in its field ``secret``, or in one that ends so."""


def named_in(document: Mapping[str, t.Any]) -> list[str]:
    """Return the names of all secrets that a document's resources refer to, in order and each once."""
    found: dict[str, None] = {}
    for resource in document["resources"]:
        for field, value in resource.items():
            if (field == FIELD or field.endswith(SUFFIX)) and isinstance(value, str):
                found[value] = None
    return list(found)


def named_in_text(text: str) -> list[str]:
    """Return the same for a document as JSON. Most hosts have none, and their text is not parsed."""
    return named_in(json.loads(text)) if f'{FIELD}":' in text else []
