# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What resources read of files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths

from .fake_host import FakeHost


def test_a_process_that_ends_while_it_is_looked_at_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = FakeHost(tmp_path)
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        path = f"/proc/{process.pid}/cmdline"
        (tmp_path / "proc" / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        real = paths.opened

        def opened(name: str) -> int:
            descriptor = real(name)
            if name == host.path(path):
                process.kill()
                process.wait()
            return descriptor

        monkeypatch.setattr(paths, "opened", opened)
        assert read_text(host, path) is None
    assert process.returncode == -9, "it was not read"
