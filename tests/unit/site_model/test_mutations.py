# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every mistake is named with its file and line, and nothing else is."""

from __future__ import annotations

import pytest

from .backup_mutations import AZURE, BACKUP, FILE, KEY_FILES, VAULT
from .conftest import Example
from .mutations import ALL, Mutation
from .mutations import MUTATIONS as OTHERS

MUTATIONS = (*OTHERS, *BACKUP)


def test_there_are_enough() -> None:
    assert len(MUTATIONS) >= 60
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_the_example_itself_is_right(example: Example) -> None:
    assert example.problems() == []


@pytest.mark.parametrize("stores", [AZURE, FILE])
@pytest.mark.parametrize("keys", ["", KEY_FILES, VAULT])
def test_what_says_where_backups_go_rightly(example: Example, stores: str, keys: str) -> None:
    example.append(ALL, stores + keys)
    assert example.problems() == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation(example: Example, mutation: Mutation) -> None:
    for file, old, new in mutation.changes:
        if old:
            example.replace(file, old, new)
        else:
            example.append(file, new)
    problems = example.problems()
    found = [problem for problem in problems if mutation.says in str(problem)]
    everything = "\n".join(map(str, problems))
    assert found, f"nothing says {mutation.says!r}:\n{everything}"
    places = [(problem.file, problem.line) for problem in found]
    wanted = (str(example.folder / mutation.file), example.line(mutation.file, mutation.at))
    assert wanted in places, f"expected {wanted}:\n{everything}"
    assert len(problems) == mutation.problems, everything
    assert all(problem.remedy for problem in problems)
