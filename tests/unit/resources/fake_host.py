# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host for tests of one kind: the engine's own, below a private root, with stand-ins for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.host import TEST_PROGRAMS, LocalHost
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal import History
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.store import State as KeptState
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change

RECORD = """#!/bin/sh
{ printf '%s\\037' "${0##*/}" "$@"; printf '\\036'; } >>"$IRONSPAN_ROOT/calls"
"""


class FakeHost(LocalHost):
    """Keeps what a kind did: programs run, paths backed up, requests offered."""

    def __init__(
        self,
        root: Path,
        secrets: Mapping[str, str] | None = None,
        certificates: Mapping[str, str] | None = None,
        changed: Iterable[str] = (),
        owned: Iterable[str] = (),
    ) -> None:
        super().__init__(
            root=str(root),
            mirror="",
            check_mode=False,
            secrets=secrets or {},
            certificates=certificates or {},
            kept=KeptState({}),
            history=History([]),
            crash=CrashPoints(str(root)),
        )
        self.folder = root
        self.changes = set(changed)
        self.owns = set(owned)
        self.backups: list[str] = []
        (root / TEST_PROGRAMS.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for name in ("proc", "run", "etc", "var/lib/ironspan"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def changed(self, resource_id: str) -> bool:
        return resource_id in self.changes

    def owned(self, path: str) -> bool:
        return path in self.owns

    def backup(self, path: str) -> None:
        self.backups.append(path)

    def program(self, name: str, shell: str = "") -> None:
        """Install a stand-in that records how it was called and then does ``shell``."""
        self._install(name, RECORD + shell + "\n")

    def python_program(self, name: str, source: str) -> None:
        """Install a stand-in written in Python; it finds the root in IRONSPAN_ROOT."""
        self._install(name + ".py", f"#!{sys.executable} -SE\n{source}")
        self.program(name, 'exec "$0.py" "$@"')

    def _install(self, name: str, text: str) -> None:
        path = self.folder / TEST_PROGRAMS.lstrip("/") / name
        path.write_text(text)
        path.chmod(0o755)

    def calls(self, name: str = "") -> list[list[str]]:
        """Return the argument vectors of the stand-ins' runs so far, of one program or of all."""
        path = self.folder / "calls"
        text = path.read_text() if path.exists() else ""
        calls = [record.split("\037")[:-1] for record in text.split("\036")[:-1]]
        return [call for call in calls if not name or call[0] == name]

    def forget_calls(self) -> None:
        """Start counting again."""
        (self.folder / "calls").unlink(missing_ok=True)

    def put(self, path: str, text: str, mode: int = 0o644) -> Path:
        """Write a file below the root."""
        real = Path(self.path(path))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text)
        real.chmod(mode)
        return real

    def text(self, path: str) -> str:
        """Return a file's text."""
        return Path(self.path(path)).read_text()


def filled(kind: Any, **values: Any) -> dict[str, Any]:
    """Return a specification with the kind's defaults filled in, as the engine does."""
    spec = {name: field.default for name, field in kind.fields.items() if not field.required}
    return {"kind": kind.name, **spec, **values}


def converge(kind: Any, spec: dict[str, Any], host: FakeHost) -> Change | None:
    """Compare and apply; then insist that nothing more is to do."""
    change: Change | None = kind.compare(spec, host)
    if change is not None:
        kind.apply(spec, change, host)
        host.forget_all_cached()
        assert kind.compare(spec, host) is None
    return change
