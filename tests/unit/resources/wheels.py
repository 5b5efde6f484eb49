# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes wheels for tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping


def wheel(project: str, version: str, members: Mapping[str, str], entry_points: str = "") -> bytes:
    """Return a wheel as the packaging standard describes it.

    Args:
        project: its name, with underscores.
        version: its version.
        members: name -> text; a name that ends in ``!`` is executable.
        entry_points: the text of ``entry_points.txt``, left out if empty.
    """
    about = f"{project}-{version}.dist-info"
    texts = {
        **members,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    if entry_points:
        texts[f"{about}/entry_points.txt"] = entry_points
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in texts.items():
            info = zipfile.ZipInfo(name.rstrip("!"))
            info.external_attr = (0o755 if name.endswith("!") else 0o644) << 16
            archive.writestr(info, text)
    return buffer.getvalue()
