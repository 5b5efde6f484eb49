# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""File systems that are full, fill up, or went read-only: real small ones below a private root."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import subprocess
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files

from tests.support.faults import insist

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root"),
    # Threads of other tests touch nothing that the forked engine uses.
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning"),
]
SIZE = 1 << 20


class SmallHost:
    """A private root on which some folders are small file systems."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.mirror = folder / "mirror"
        for name in ("etc", "opt", "var/lib/ironspan", "proc", "usr/local/ironspan-test-bin"):
            (self.root / name).mkdir(parents=True)
        self.mirror.mkdir()
        (self.root / "etc/app.conf").write_text("old\n")

    @contextlib.contextmanager
    def small(self, path: str, inodes: int = 0) -> Iterator[Path]:
        """Mount a file system of 1 MiB, or one with few inodes, at a folder."""
        target = self.root / path
        options = f"size={SIZE}" + (f",nr_inodes={inodes}" if inodes else "")
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(target)], check=True)
        try:
            yield target
        finally:
            subprocess.run(["umount", str(target)], check=True)

    def converge(self, *resources: dict[str, t.Any], mirror: str = "") -> dict[str, t.Any]:
        """Run the engine in a process of its own, as on a host: what it leaves open ends with it."""
        document = {"schema": 1, "layers": ["l"], "resources": list(resources)}
        given = {"document": document, "root": str(self.root), "mirror": mirror}
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.apply(run, (given,))

    def files(self) -> dict[str, bytes]:
        """Return all files but the engine's own."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and "var/lib/ironspan" not in str(path) and path.name != "ballast"
        }


@pytest.fixture
def host(tmp_path: Path) -> SmallHost:
    return SmallHost(tmp_path)


def fill(folder: Path, leave: int = 0) -> Path:
    """Fill a file system until that many bytes are left; return what fills it."""
    ballast = folder / "ballast"
    status = os.statvfs(folder)
    ballast.write_bytes(b"x" * (status.f_bavail * status.f_frsize - leave))
    return ballast


def file(name: str, path: str, content: str) -> dict[str, t.Any]:
    return {"kind": "file", "id": f"l/{name}", "path": path, "content": content}


CONFIGURATION = file("app", "/etc/app.conf", "new\n")
LARGE = file("large", "/opt/large", "y" * (2 * SIZE))


def test_what_cannot_fit_is_refused_before_it_is_fetched(host: SmallHost) -> None:
    data = b"z" * (2 * SIZE)
    artifact = {
        "kind": "artifact",
        "id": "l/tool",
        "path": "/opt/tool",
        "url_path": "/tool",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
    }
    before = host.files()
    with host.small("opt"):
        # Nobody listens there: it is not asked at all.
        result = host.converge(CONFIGURATION, artifact, mirror="http://127.0.0.1:9")
        insist("disk-full", result["msg"])
        assert "l/app" in result["rolled_back"]
        assert host.files() == before


@pytest.mark.parametrize("inodes", [0, 1])
def test_a_file_system_that_fills_up_and_then_has_room(host: SmallHost, inodes: int) -> None:
    before = host.files()
    with host.small("opt", inodes):
        result = host.converge(CONFIGURATION, LARGE)
        insist("disk-fills", result["msg"])
        assert result["failed_resource"] == "l/large"
        assert host.files() == before
    assert not host.converge(CONFIGURATION, LARGE).get("failed")
    assert host.files()["etc/app.conf"] == b"new\n"


def test_a_failed_write_gives_its_room_back_at_once(host: SmallHost) -> None:
    """The rollback of the same process may need it."""
    with host.small("opt") as target:
        (target / "source").write_bytes(b"s" * (SIZE * 3 // 4))
        free = os.statvfs(target).f_bavail
        with pytest.raises(OSError, match="No space"):
            files.write_atomically(str(target / "x"), b"y" * SIZE, 0o644)
        with pytest.raises(OSError, match="No space"):
            files.copy_file(str(target / "source"), str(target / "x"))
        assert os.statvfs(target).f_bavail == free


def test_the_rollback_has_the_room_that_the_failed_write_took(host: SmallHost) -> None:
    """Files, their backups and the journal are on the file system that is filled to the last byte."""
    (host.root / "var/lib/ironspan").rmdir()
    with host.small("var/lib") as target:
        for number in range(5):
            (target / f"f{number}").write_text("old\n" * 4096)
        before = host.files()
        small = [file(f"f{number}", f"/var/lib/f{number}", "new\n" * 4096) for number in range(5)]
        result = host.converge(*small, file("large", "/var/lib/large", "y" * (2 * SIZE)))
        insist("disk-fills", result["msg"])
        assert "l/f0" in result["rolled_back"]
        assert host.files() == before
        assert not (target / "ironspan/journal/open.jsonl").exists(), "the rollback was finished"


@pytest.mark.parametrize("leave", [0, 4096, 8192, 12288, 20480])
def test_no_room_for_the_journal(host: SmallHost, leave: int) -> None:
    """Whatever is missing, the host is either as before or as wanted when there is room again."""
    before = host.files()
    many = [file(f"f{number}", f"/opt/f{number}", f"{number}\n" * 100) for number in range(20)]
    with host.small("var/lib/ironspan") as notes:
        ballast = fill(notes, leave)
        result = host.converge(CONFIGURATION, *many)
        if result.get("failed"):
            insist("journal-full", result["msg"])
        ballast.unlink()
        if result.get("failed"):
            wrong = file("wrong", "/no/such/folder/x", "")
            assert host.converge(CONFIGURATION, *many, wrong)["failed"], "what was begun goes back"
            assert host.files() == before
        assert not host.converge(CONFIGURATION, *many).get("failed")
        again = host.converge(CONFIGURATION, *many)
        assert (again["changed"], again["resumed"]) == (False, False)
    assert len(host.files()) == 21


def test_a_file_system_that_went_read_only(host: SmallHost) -> None:
    before = host.files()
    with host.small("opt") as target:
        subprocess.run(["mount", "-o", "remount,ro", str(target)], check=True)
        result = host.converge(CONFIGURATION, file("small", "/opt/small", "s"))
        insist("disk-read-only", result["msg"])
        assert host.files() == before
