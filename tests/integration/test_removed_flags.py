# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The table of removed flags against the programs themselves: what the older knows and the newer does not."""

from __future__ import annotations

import pathlib
import re
import subprocess
import tarfile

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import removed

from ironspan.artifacts import cache, index, lock

pytestmark = pytest.mark.lab
FLAG = re.compile(r"^ +(?:-\w, )?--([a-z0-9-]+)", re.MULTILINE)


def flags(name: str, version: str, folder: pathlib.Path) -> set[str]:
    """Return the flags of a program of the mirror."""
    place = cache.Cache()
    entry = index.load(place.index_path).artifacts.get(f"{name}/{version}/{lock.native_arch()}")
    if entry is None:
        pytest.skip(f"the mirror has no {name} {version}: ironspan artifacts build --set upgrade")
    program = place.below_mirror(entry.path)
    if program.name.endswith(".tar.gz"):
        with tarfile.open(program) as archive:
            member = next(one for one in archive.getmembers() if one.name.endswith(f"/{name}"))
            member.name = name
            archive.extract(member, folder, filter="data")
        program = folder / name
    copy = folder / f"{name}-{version}"
    copy.write_bytes(program.read_bytes())
    copy.chmod(0o755)
    done = subprocess.run([copy, "--help"], capture_output=True, text=True, check=False, timeout=60)
    return set(FLAG.findall(done.stdout + done.stderr))


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [("kubelet", "1.36.4", "1.37.1", (1, 37)), ("etcd", "3.6.14", "3.7.3", (3, 7))],
)
def test_the_table_has_what_is_gone_and_nothing_that_is_there(
    name: str, old: str, new: str, line: removed.Line, tmp_path: pathlib.Path
) -> None:
    before, after = flags(name, old, tmp_path), flags(name, new, tmp_path)
    assert len(after) > 50
    assert len(before - after) > 10
    assert [flag for flag in sorted(before - after) if removed.gone(name, "flag", flag, line) is None] == []
    assert [flag for flag in sorted(after) if removed.gone(name, "flag", flag, line)] == []
