# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What was launched, kept in a file: a restart forgets no cool-down and no failure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from ironspan.events.decide import Past
from ironspan.program.errors import ProgramError
from ironspan.program.state import write_json


def read(path: Path) -> dict[str, Past]:
    """Return what was launched last, by key.

    Raises:
        ProgramError: the file is not one of these; to take it for empty could launch everything again.
    """
    try:
        data = json.loads(path.read_bytes())
        return {
            str(key): Past(float(one["at"]), str(one["job"]), int(one["failures"]))
            for key, one in data.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ProgramError(
            f"{path} cannot be read: {type(error).__name__}.",
            "Look at it; without the file every alert that fires launches once.",
        ) from error


def write(path: Path, past: Mapping[str, Past]) -> None:
    """Write it, whole or not at all. Raises OSError."""
    write_json(path, {key: dataclasses.asdict(one) for key, one in sorted(past.items())})
