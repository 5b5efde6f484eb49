# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Imports keep the order of packages, and the tool that says so sees every one of them."""

from __future__ import annotations

import pathlib

import pytest

from tools import imports
from tools.imports import Graph

OF_COLLECTION = f"{imports.PREFIX}plugins.plugin_utils"
ORDER = ("plugin_utils.low", "plugin_utils.high", "ironspan.cli")


def tree(root: pathlib.Path, **files: str) -> Graph:
    """Write files, whose names have two underscores for each slash, and return their graph."""
    for name, text in {"plugins__plugin_utils__high__a": "", "ironspan__cli__b": "", **files}.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Graph(root)


def test_every_import_keeps_the_order() -> None:
    assert imports.problems(Graph()) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"from {OF_COLLECTION}.high import a\n", 1),
        (f"from {OF_COLLECTION}.high.a import name\n", 1),
        (f"import {OF_COLLECTION}.high.a\n", 1),
        (f"def late():\n    from {OF_COLLECTION}.high import a\n", 2),
        (f"if TYPE_CHECKING:\n    x = 1\n    from {OF_COLLECTION}.high.a import Name\n", 3),
        (f"import os\nfrom {OF_COLLECTION} import (\n    other,\n)\nfrom {OF_COLLECTION}.high import a\n", 5),
    ],
    ids=["module", "name", "plain", "in a function", "for types", "behind others"],
)
def test_an_upward_import_is_found_wherever_it_stands(tmp_path: pathlib.Path, text: str, line: int) -> None:
    graph = tree(tmp_path, plugins__plugin_utils__low__c=text)
    (problem,) = imports.problems(graph, ORDER, (), ())
    assert problem.startswith(f"plugins/plugin_utils/low/c.py:{line}: plugin_utils.low stands below ")
    assert "plugins.plugin_utils.high.a" in problem
    known = ("plugins.plugin_utils.low.c", "plugins.plugin_utils.high.a")
    assert imports.problems(graph, ORDER, [known], ()) == []


def test_between_the_trees_too_and_downward_imports_are_fine(tmp_path: pathlib.Path) -> None:
    down = f"from {OF_COLLECTION}.low import c\n"
    graph = tree(tmp_path, plugins__plugin_utils__low__c="", ironspan__cli__b=down)
    assert imports.problems(graph, ORDER, (), ()) == []
    graph = tree(tmp_path, plugins__plugin_utils__low__c="import ironspan.cli.b\n", ironspan__cli__b="")
    assert [text.partition(" ")[0] for text in imports.problems(graph, ORDER, (), ())] == [
        "plugins/plugin_utils/low/c.py:1:"
    ]


def test_files_that_import_each_other_are_named_with_their_lines(tmp_path: pathlib.Path) -> None:
    graph = tree(
        tmp_path,
        plugins__plugin_utils__low__c=f"import os\nfrom {OF_COLLECTION}.low import d\n",
        plugins__plugin_utils__low__d=f"from {OF_COLLECTION}.low.e import x\n",
        plugins__plugin_utils__low__e=f"def late():\n    from {OF_COLLECTION}.low import c\n",
    )
    (problem,) = imports.problems(graph, ORDER, (), ())
    places = ["low/c.py:2 imports plugins.plugin_utils.low.d", "low/d.py:1 imports", "low/e.py:2 imports"]
    assert all(place in problem for place in places)
    known = frozenset(f"plugins.plugin_utils.low.{name}" for name in "cde")
    assert imports.problems(graph, ORDER, (), [known]) == []


def test_two_knots_are_two_problems(tmp_path: pathlib.Path) -> None:
    pairs = {"c": "d", "d": "c", "e": "f", "f": "e", "g": "c"}
    files = {
        f"plugins__plugin_utils__low__{name}": f"from {OF_COLLECTION}.low import {other}\n"
        for name, other in pairs.items()
    }
    assert len(imports.problems(tree(tmp_path, **files), ORDER, (), ())) == 2


def test_exceptions_that_are_not_needed_are_refused(tmp_path: pathlib.Path) -> None:
    graph = tree(tmp_path, plugins__plugin_utils__low__c="")
    found = imports.problems(graph, ORDER, [("low.c", "high.a")], [frozenset({"low.c", "low.d"})])
    assert found == [
        "low.c -> high.a: it is gone; take it out of KNOWN_ARROWS",
        "low.c, low.d: they are untied; take them out of KNOWN_CYCLES",
    ]


def test_a_package_has_its_place_in_the_order(tmp_path: pathlib.Path) -> None:
    graph = tree(tmp_path, plugins__plugin_utils__low__c="")
    assert imports.problems(graph, (*ORDER[:2], "ironspan.gone"), (), ()) == [
        "ironspan.cli: write this package into ORDER, behind all that it imports",
        "ironspan.gone: there is no such package; take it out of ORDER",
    ]
