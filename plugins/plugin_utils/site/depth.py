# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How many levels a YAML text may have: libyaml's composer ends the process at some ten thousands."""

from __future__ import annotations

import typing as t

import yaml

DEEPEST = 100
"""Levels; what people write has ten."""


def too_deep(text: str, loader: type[t.Any]) -> t.Any:
    """Return the mark of the first place below ``DEEPEST`` levels, None when there is none.

    A mark is of one of two types, as yaml is with libyaml or without. Reading events needs no stack.

    Args:
        text: YAML.
        loader: of yaml.

    Raises:
        yaml.YAMLError: it is no YAML up to such a place.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                return event.start_mark
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None
