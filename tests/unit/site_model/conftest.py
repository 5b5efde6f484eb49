# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A copy of the example inventory that a test may change."""

from __future__ import annotations

import base64
import re
import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem

EXAMPLE = Path(__file__).parents[3] / "inventories" / "example"
KEY = base64.b64encode(bytes(range(32))).decode()


class Example:
    """The copy, and what the site model says about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(EXAMPLE, folder)
        self.environment = {"IRONSPAN_PKI_KEY": KEY}

    def replace(self, file: str, old: str, new: str) -> None:
        """Replace the only occurrence of a text in a file of the inventory."""
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {file}"
        path.write_text(text.replace(old, new))

    def append(self, file: str, text: str) -> None:
        """Add lines at the end of a file, which is made when it is not there."""
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as stream:
            stream.write(text)

    def put(self, file: str, text: str) -> None:
        """Set variables in a file: the lines of those that are there go, the new ones are at its end."""
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        have = path.read_text() if path.exists() else ""
        for name in re.findall(r"(?m)^([A-Za-z_]\w*):", text):
            have = re.sub(rf"(?m)^{name}:.*\n(?:[ -].*\n)*", "", have)
        path.write_text(f"{have}{text.rstrip()}\n")

    def line(self, file: str, text: str) -> int:
        """Return the number of the only line of a file that has a text."""
        lines = (self.folder / file).read_text().splitlines()
        found = [number for number, line in enumerate(lines, 1) if text in line]
        assert len(found) == 1, f"{text!r} is on lines {found} of {file}"
        return found[0]

    def insist_refused(self, file: str, lines: str, says: str) -> None:
        """Add lines to a file, and insist that their last is refused with these words, and no other."""
        self.append(file, f"{lines}\n")
        every = self.problems()
        named = {(problem.file, problem.line) for problem in every if says in str(problem)}
        assert named == {(str(self.folder / file), self.line(file, lines.splitlines()[-1]))}, every

    def load(self, **options: t.Any) -> tuple[Site | None, list[Problem]]:
        """Read it."""
        return load_site([self.folder], environment=self.environment, **options)

    def problems(self, **options: t.Any) -> list[Problem]:
        """Read it and return what is wrong."""
        return self.load(**options)[1]

    def site(self, **options: t.Any) -> Site:
        """Read it; it must be right."""
        site, problems = self.load(**options)
        assert site is not None, "\n".join(map(str, problems))
        return site


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Example:
    """Return a copy of the example inventory; no mirror index is found by default."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Example(tmp_path / "inventory")
