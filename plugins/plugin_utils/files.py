# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.module_utils._programs._files import (
    TEMPORARY_PREFIX,
    write_file,
)

__all__ = ["TEMPORARY_PREFIX", "write_file", "write_report"]


def write_report(file: str, report: t.Any) -> None:
    """Write a report as JSON where somebody asked for it; ``~`` is their home.

    Args:
        file: where; empty when nobody asked.
        report: anything that JSON can say.
    """
    if file:
        write_file(Path(file).expanduser(), json.dumps(report, indent=2).encode() + b"\n")
