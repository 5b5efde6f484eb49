# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a program remembers in files of its own."""

from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file


def write_json(path: Path, data: object) -> None:
    """Write what JSON can say, readable by its owner only, as ``write_file`` does."""
    write_file(path, (json.dumps(data, indent=1) + "\n").encode(), 0o600)
