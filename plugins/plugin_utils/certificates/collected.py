# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What hosts answered, kept in the folder of this run of ansible-playbook until all have."""

from __future__ import annotations

import json
import shutil
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible import constants

KEPT = ("certificates", "unreadable", "written", "started", "public_keys")


def folder() -> Path:
    """Return the folder; see render/run_folder.py, which this does not import: it runs once a host."""
    return Path(constants.DEFAULT_LOCAL_TMP) / "ironspan" / "certificates"


def keep(host: str, answer: Mapping[str, t.Any]) -> None:
    """Keep the answer of one host."""
    place = folder()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    (place / f"{host}.json").write_text(json.dumps({name: answer[name] for name in KEPT}), encoding="utf-8")


def answers() -> dict[str, dict[str, t.Any]]:
    """Return the answers by host."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder().glob("*.json"))
    }


def forget() -> None:
    """Forget all answers, before hosts are asked again."""
    shutil.rmtree(folder(), ignore_errors=True)
