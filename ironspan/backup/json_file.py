# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files of JSON that are there whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write_json(path: Path, data: object) -> None:
    """Write a file, in place of one that may be there; a kill leaves the old one or the new one.

    Args:
        path: the file, in a folder that is there.
        data: what JSON can say.
    """
    new = path.with_name(f".{path.name}.new")
    with new.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(data, indent=1) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)
