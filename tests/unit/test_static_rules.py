# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Operations on paths have one home on the host: what root opens by itself may be where links lead it."""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SAFE = "plugins/module_utils/_system/paths.py"
FOLDERS = ("plugins/module_utils", "plugins/modules")
BANNED = {
    "chmod", "chown", "lchown", "link", "makedirs", "mkdir", "mkfifo", "mknod", "open", "remove",
    "removedirs", "rename", "renames", "replace", "rmdir", "symlink", "truncate", "unlink", "utime",
}  # fmt: skip
"""Of the module os. What only asks (stat, listdir) changes and shows nothing."""
MODULES = {"shutil", "pathlib", "tempfile", "fileinput"}
"""Modules that open, write or remove by path."""
ALLOWED = {
    ("_attest.py", "tempfile"): "a new folder that only root can open, for one question",
    ("_engine/backup.py", "os.utime"): "of a descriptor",
    ("_engine/facts.py", "open"): "/proc, /sys and /etc/os-release",
    ("_health/paths.py", "open"): "/proc and /sys",
    ("_kept.py", "os.open"): "by its name in a folder that is open, and held",
    ("_programs/_files.py", "*"): "of processes of their own, in folders of theirs",
    ("_programs/_settings.py", "*"): "one file, which root names",
    ("_programs/access_controller.py", "*"): "a process of its own, in folders of its own",
    ("_programs/audit_watch.py", "*"): "a process of its own, in folders of its own",
    ("_programs/kubelet_cpus.py", "*"): "a process of its own, one file of root's",
    ("_programs/nvidia_cdi.py", "*"): "a process of its own, in folders of root's",
    ("_programs/nvidia_mig.py", "open"): "a process of its own that reads one file of root's",
    ("_programs/nvidia_mps.py", "*"): "a process of its own, in folders of root's",
    ("_programs/runtime_bench.py", "*"): "a process of its own, in folders of root's",
    ("_programs/runtime_smoke.py", "*"): "a process of its own, in folders of root's",
    ("_programs/verify_image.py", "*"): "a process of its own that reads one file of root's",
}
"""(File below the folder, call) -> why it may."""


def violations(source: str) -> list[tuple[int, str]]:
    """Return line and name of each operation by path."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, item.name) for item in node.names if item.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            if str(node.module).split(".")[0] in MODULES:
                found.append((node.lineno, str(node.module)))
            elif node.module == "os":
                found += [(node.lineno, f"os.{item.name}") for item in node.names if item.name in BANNED]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("open", "io.open") or (name.startswith("os.") and name[3:] in BANNED):
                found.append((node.lineno, name))
    return found


def may(path: pathlib.Path, name: str) -> bool:
    return any(str(path).endswith("/" + file) and call in (name, "*") for file, call in ALLOWED)


@pytest.mark.parametrize("folder", FOLDERS)
def test_root_opens_nothing_by_its_path(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if str(path.relative_to(ROOT)) != SAFE
        for line, name in violations(path.read_text())
        if not may(path, name)
    ]
    assert not wrong, f"call {SAFE} instead: " + "; ".join(wrong)


def test_what_is_allowed_is_still_there() -> None:
    for file, call in ALLOWED:
        if call != "*":
            (path,) = [
                p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py") if str(p).endswith(f"/{file}")
            ]
            assert call in [name for _, name in violations(path.read_text())], f"{file}: {call} is gone"


PLANTED = """
import os, shutil
from os import rename
from pathlib import Path
def f(path):
    os.chown(path, 1, 1)
    with open(path, "w") as stream:
        stream.write("x")
    os.path.exists(path)
    os.stat(path)
"""


def test_the_rule_sees_what_is_planted() -> None:
    assert violations(PLANTED) == [
        (2, "shutil"), (3, "os.rename"), (4, "pathlib"), (6, "os.chown"), (7, "open"),
    ]  # fmt: skip
