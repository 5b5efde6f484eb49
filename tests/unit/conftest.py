# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A private root folder that the real engine converges, with a stand-in for systemctl and a small mirror."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import stat
import threading
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import systemd_unit

from tests.support.clock import Clock
from tests.support.stand_ins import SYSTEMCTL

ENGINE_FOLDER = "var/lib/ironspan"


class Sandbox:
    """One private root, and the documents converged in it."""

    def __init__(self, root: Path, mirror: str = "") -> None:
        self.root = root
        self.mirror = mirror
        self.put("usr/local/ironspan-test-bin/systemctl", SYSTEMCTL, 0o755)
        self.put("usr/local/ironspan-test-bin/journalctl", "#!/bin/sh\n", 0o755)
        for folder in ("etc/systemd/system", "run/units", "opt", "proc", "var/lib"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> Path:
        """Write a file below the root, with its folders."""
        real = self.root / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(content.encode() if isinstance(content, str) else content)
        real.chmod(mode)
        return real

    def read(self, path: str) -> str:
        """Return a file's text."""
        return (self.root / path.lstrip("/")).read_text()

    def document(self, *resources: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
        """Return a document with these resources; ids get the layer ``l``."""
        entries = [
            {**entry, "id": entry["id"] if "/" in entry["id"] else f"l/{entry['id']}"} for entry in resources
        ]
        return {"schema": 1, "site": "s", "host": "h", "layers": ["l"], "resources": entries, **more}

    def run(self, *resources: dict[str, t.Any], check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        """Run the engine on a document with these resources, with diffs."""
        document = params.pop("document", None) or self.document(*resources)
        given = {"document": document, "root": str(self.root), "mirror": self.mirror, **params}
        return run(given, check_mode=check, diff=True)

    def changed(self, *resources: dict[str, t.Any], **params: t.Any) -> list[str]:
        """Run, insist on success, and return the names of what changed."""
        result = self.run(*resources, **params)
        assert not result.get("failed"), result["msg"]
        return [entry["resource"].removeprefix("l/") for entry in result["changes"]]

    def calls(self) -> list[str]:
        """Return what was asked of systemctl, and forget it."""
        path = self.root / "run/calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def snapshot(self) -> dict[str, tuple[t.Any, ...]]:
        """Describe everything below the root but the engine's own folder and the stand-ins' notes."""
        seen: dict[str, tuple[t.Any, ...]] = {}
        for folder, folders, names in os.walk(self.root):
            base = Path(folder)
            if str(base.relative_to(self.root)) == ENGINE_FOLDER:
                folders.clear()
                continue
            for name in [*folders, *names]:
                path = base / name
                status = path.lstat()
                key = str(path.relative_to(self.root))
                if key in ("run/calls", ENGINE_FOLDER, "var/lib"):
                    continue
                content: bytes | str = b""
                if path.is_symlink():
                    content = str(path.readlink())
                elif path.is_file():
                    content = path.read_bytes()
                seen[key] = (stat.filemode(status.st_mode), status.st_uid, status.st_gid, content)
        return seen


class Mirror:
    """A mirror on the loopback interface, serving one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        handler = functools.partial(_Quiet, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def offer(self, path: str, data: bytes) -> dict[str, t.Any]:
        """Put a file on the mirror and return the parameters that an artifact needs to ask for it."""
        real = self.folder / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(data)
        return {"url_path": path, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    """A mirror with nothing on it yet."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    serving = Mirror(folder)
    yield serving
    serving.close()


@pytest.fixture
def sandbox(tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """An empty host, whose units run, or do not, at once."""
    monkeypatch.setattr(systemd_unit, "SETTLE_SECONDS", 0)
    return Sandbox(tmp_path / "root", mirror.url)


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: a killed process loses nothing by it, and these tests run the engine hundreds of times."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands at 1000 s."""
    return Clock()
