# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The generator of the reference pages."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

import pytest

from tools import option_tables, reference, role_pages


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ({"required": True}, "**required**"),
        ({}, ""),
        ({"default": "1.2"}, '`"1.2"`'),
        ({"default": ["a|b"]}, '`["a\\|b"]`'),
        ({"default": ["x" * 100]}, "see defaults/main.yml"),
    ],
)
def test_defaults_are_shown_as_json(option: dict[str, t.Any], shown: str) -> None:
    assert option_tables.default_of(option) == shown


def test_options_inside_options_get_rows_of_their_own() -> None:
    inner = {"key": {"type": "str", "required": True, "description": ["The key.", "In full."]}}
    rows = list(
        option_tables.option_rows(
            {"taints": {"type": "list", "elements": "dict", "default": [], "options": inner}}
        )
    )
    assert rows == [
        "| `taints` | list of dict | `[]` |  |",
        "| `taints.key` | str | **required** | The key. In full. |",
    ]


def test_choices_are_named() -> None:
    modes = {"choices": ["apply", "assess"], "description": "What to do."}
    (row,) = option_tables.option_rows({"mode": modes})
    assert "What to do. One of `apply`, `assess`." in row


def test_every_command_is_on_the_page_of_commands() -> None:
    parser = argparse.ArgumentParser(prog="tool", description="Does it.")
    nested = parser.add_subparsers().add_parser("deep", description="Deeper.")
    nested.add_argument("--size", metavar="N", help="how many (50 %% of it: %(default)s)", default=3)
    text = "\n".join(reference.command_sections(parser))
    assert "## tool deep" in text
    assert "| `--size N` | how many (50 % of it: 3) |" in text


def test_a_page_that_differs_or_is_missing_is_stale(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, old, missing = (tmp_path / name for name in ("fresh", "old", "missing"))
    fresh.write_text("a\n")
    old.write_text("b\n")
    monkeypatch.setattr(reference, "pages", lambda: dict.fromkeys((fresh, old, missing), "a\n"))
    assert reference.stale() == [old, missing]


SPECIFICATION = """\
argument_specs:
  main:
    options:
      role_needed: {type: str, required: true}
      role_version:
        type: str
        default: "1.2"
        description: In quotes.
      role_rows:
        type: list
        default:
          - {name: a}
          - name: b
            value: "1"
        description: In a block.
      role_flow: {type: dict, default: {a: [1, 2]}}
"""


def test_defaults_are_written_as_they_are_in_the_specification(tmp_path: pathlib.Path) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "argument_specs.yml").write_text(SPECIFICATION)
    head, text = role_pages.defaults_page(tmp_path).split("---\n")
    assert "make docs" in head
    assert text == (
        'role_version: "1.2"\nrole_rows:\n  - {name: a}\n  - name: b\n    value: "1"\nrole_flow: {a: [1, 2]}'
    )


def test_a_role_without_defaults_has_an_empty_dictionary(tmp_path: pathlib.Path) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "argument_specs.yml").write_text("argument_specs: {main: {options: {}}}")
    assert role_pages.defaults_page(tmp_path).endswith("---\n{}")
