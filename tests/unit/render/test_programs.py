# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Programs that are a single file: whole with the parts that they share, and started as hosts start them."""

from __future__ import annotations

import ast
import collections
import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render import programs

FOLDER = Path(programs.__file__).parents[2] / "module_utils" / "_programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
SETTINGS: dict[str, t.Any] = {
    "server": "https://127.0.0.1:1",
    "ca": "/ca",
    "certificate": "/crt",
    "key": "/key",
    "roles": {"view": 1},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_whole_and_says_each_name_once(name: str) -> None:
    text = programs.program(name)
    tree = ast.parse(text, feature_version=(3, 9))
    assert "ansible_collections" not in text
    assert isinstance(tree.body[0], ast.Expr), "it begins with what it is for"
    made: collections.Counter[str] = collections.Counter()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            made[node.name] += 1
        elif isinstance(node, ast.Assign):
            made.update(target.id for target in node.targets if isinstance(target, ast.Name))
    assert not [name for name, count in made.items() if count > 1], "a part would be another program's"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({**SETTINGS, "wait_second": 5}, "wait_second is not known; write wait_seconds"),
        ({**SETTINGS, "wait_seconds": "5"}, "wait_seconds is '5'; write a whole number"),
        ({**SETTINGS, "roles": {"view": 0}}, "roles.view is 0; write a whole number from 1 to 16"),
        ({**SETTINGS, "roles": ["view"]}, "roles is ['view']; write a mapping"),
        ({**SETTINGS, "server": "http://x:1"}, "server is 'http://x:1'; write https://ADDRESS:PORT"),
        ({**SETTINGS, "alive": "x"}, "alive is 'x'; write an absolute path"),
        ({name: value for name, value in SETTINGS.items() if name != "key"}, "key is missing"),
        (None, "No such file or directory"),
        ("{", "it is not JSON"),
    ],
)
def test_other_settings_are_refused_by_file_and_key(tmp_path: Path, settings: object, problem: str) -> None:
    file, program = tmp_path / "access.json", tmp_path / "controller.py"
    program.write_text(programs.program("access_controller"))
    if settings is not None:
        file.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-IS", program, file, "--once"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith(f"<3>{file}: {problem}")
    assert not done.stderr
