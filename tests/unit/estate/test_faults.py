# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Data of an estate with one mistake each: refused before anybody is asked, with file, line and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.site_model.conftest import Example
from tests.unit.site_model.mutations import ALL, HOSTS

from .mistakes import MISTAKES, Mistake


@pytest.fixture
def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Example:
    """Return a copy of the example inventory whose estate is not commented out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    example = Example(tmp_path / "inventory")
    text = (example.folder / ALL).read_text()
    lines, inside = [], False
    for line in text.splitlines():
        inside = inside or line.startswith("# azure_subscription")
        lines.append(line.removeprefix("# ") if inside else line)
    (example.folder / ALL).write_text("\n".join(lines) + "\n")
    return example


def test_the_estate_of_the_example_is_right(estate: Example) -> None:
    assert estate.problems() == []


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(MISTAKES) >= 60
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake(estate: Example, mistake: Mistake) -> None:
    for old, new in mistake.changes:
        if old:
            estate.replace(ALL, old, new)
        else:
            estate.append(ALL, new + "\n")
    problems = estate.problems()
    assert len(problems) == 1, "\n".join(map(str, problems))
    (problem,) = problems
    assert mistake.says in f"{problem.path}: {problem.message}", str(problem)
    assert problem.remedy
    assert Path(problem.file) == estate.folder / ALL
    assert problem.line == estate.line(ALL, mistake.at), str(problem)


def test_a_host_with_another_address_than_its_machine(estate: Example) -> None:
    estate.replace(HOSTS, "ansible_host: 10.20.0.12", "ansible_host: 10.20.0.22")
    (problem,) = estate.problems()
    assert "az-2 gets 10.20.0.12, and the inventory says 10.20.0.22" in problem.message


def test_a_rack_that_security_groups_would_keep_out(estate: Example) -> None:
    estate.replace(HOSTS, "ansible_host: 10.30.1.11", "ansible_host: 10.40.1.11")
    (problem,) = estate.problems()
    assert "host gpu-a-01 (10.40.1.11) is in none of them" in problem.message
    assert problem.line == estate.line(ALL, "azure_rack_networks:")
