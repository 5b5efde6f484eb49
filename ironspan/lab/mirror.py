# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The mirror as the lab uses it: one nginx on both bridges, from the shared mirror folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironspan.lab.layout import MIRROR_PORT, Layout
from ironspan.lab.state import Resource

EMPTY = "the mirror is empty: run `ironspan artifacts build`, or `ironspan lab up --build-artifacts`"


def folder_path() -> Path:
    """The folder the mirror serves; `ironspan artifacts` fills it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ironspan" / "mirror"


def filled() -> bool:
    """Whether there is anything to serve."""
    return (folder_path() / "index.json").exists()


def resources() -> list[Resource]:
    """What `start` starts."""
    return [Resource("mirror", "nginx")]


def state_folder(lab: Path) -> Path:
    """Where the mirror's server keeps its own state."""
    return lab / "mirror"


def start(lab: Path, layout: Layout, progress: Callable[[str, str, str], None]) -> None:
    """Serve the mirror on both bridges."""
    if not filled():
        progress("mirror", "skip", EMPTY)
    listen = [f"{site.controller}:{MIRROR_PORT}" for site in layout.sites]
    state_folder(lab).mkdir(exist_ok=True)
    folder_path().mkdir(parents=True, exist_ok=True)
    _mirror().start(state_folder(lab), listen=listen)
    progress("mirror", "done", ", ".join(listen))


def stop(lab: Path) -> None:
    """Stop the server, if it was started."""
    if state_folder(lab).is_dir():
        _mirror().stop(state_folder(lab))


def _mirror() -> Any:
    from ironspan.artifacts.mirror import Mirror

    return Mirror(folder_path())
