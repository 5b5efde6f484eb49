# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the tasks of one doctor's run hand to each other: workers are separate processes."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder

Content = dict[str, t.Any]


class Notebook:
    """Files in the run's private folder.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._path = folder.path / "doctor"

    def _file(self, name: str) -> Path:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._path / name

    def prepare(self, probes: Mapping[str, Content], head: Mapping[str, t.Any]) -> None:
        """Keep what each host is to be asked, and what the controller found out by itself."""
        for host, wanted in probes.items():
            self._file(f"{host}.probes").write_text(json.dumps(wanted), encoding="utf-8")
        self._file("head").write_text(json.dumps(head), encoding="utf-8")

    def head(self) -> Content:
        """Return what was found out before the hosts were asked; empty when nothing was."""
        return self._read("head")

    def probes(self, host: str) -> Content:
        """Return what a host is to ask the network."""
        return self._read(f"{host}.probes")

    def document(self, host: str) -> str:
        """Return a host's document as JSON, empty when documents could not be made."""
        try:
            return self._folder.read(host)[0]
        except KeyError:
            return ""

    def put(self, host: str, answer: Mapping[str, t.Any]) -> None:
        """Keep a host's answer."""
        self._file(f"{host}.answer").write_text(json.dumps(answer), encoding="utf-8")

    def answers(self) -> dict[str, Content]:
        """Return all answers, by host."""
        found = sorted(self._path.glob("*.answer")) if self._path.is_dir() else []
        return {file.name.removesuffix(".answer"): json.loads(file.read_text("utf-8")) for file in found}

    def _read(self, name: str) -> Content:
        try:
            return t.cast("Content", json.loads((self._path / name).read_text("utf-8")))
        except FileNotFoundError:
            return {}
