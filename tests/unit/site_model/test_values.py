# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Types of single values."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.names import (
    corrected,
    is_label,
    is_subdomain,
    key_problem,
    value_problem,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import Option
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import check_value
from hypothesis import given
from hypothesis import strategies as st

TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict, "path": str}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def checked(value: t.Any, option: Option) -> tuple[t.Any, list[str]]:
    """Return what becomes of a value and what is said about it."""
    said: list[str] = []

    def report(_key: t.Any, _value: t.Any, path: str, message: str, remedy: str) -> None:
        said.append(f"{path}: {message}; {remedy}")

    return check_value("x", value, option, "x", report), said


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("str", "a", "a"),
        ("int", 3, 3),
        ("int", "3", 3),
        ("int", "-3", -3),
        ("float", "1.5", 1.5),
        ("float", 2, 2.0),
        ("bool", True, True),
        ("bool", "Yes", True),
        ("bool", "off", False),
        ("list", ("a", 1), ["a", 1]),
        ("dict", {"a": [1]}, {"a": [1]}),
        ("path", "/a/b", "/a/b"),
        ("path", "", ""),
        ("raw", {"a": (1,)}, {"a": [1]}),
        ("str", None, None),
    ],
)
def test_accepted(kind: str, value: t.Any, result: t.Any) -> None:
    assert checked(value, Option("x", "r", type=kind)) == (result, [])


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("str", 3, 'write it in quotes, for example "3"'),
        ("str", 3.1, 'write it in quotes, for example "3.1"'),
        ("str", True, "is a boolean"),
        ("str", ["a"], "is a list"),
        ("int", True, "is a boolean (True)"),
        ("int", 3.5, "is a decimal number"),
        ("int", "3.5", "is text ('3.5')"),
        ("int", None, "is nothing"),
        ("float", "x", "must be a number"),
        ("bool", 1, "must be true or false"),
        ("bool", "perhaps", "must be true or false"),
        ("list", "a,b", "must be a list, is text"),
        ("dict", [1], "must be a dictionary, is a list"),
        ("path", 1, "must be text"),
    ],
)
def test_rejected(kind: str, value: t.Any, says: str) -> None:
    result, said = checked(value, Option("x", "r", type=kind, required=True))
    assert result is None
    assert len(said) == 1 and says in said[0]


def test_a_secret_is_not_shown() -> None:
    _result, said = checked("hunter2", Option("x", "r", type="int", no_log=True))
    assert "hunter2" not in said[0] and "(secret)" in said[0]


def test_a_long_value_is_cut() -> None:
    _result, said = checked("v" * 500, Option("x", "r", type="int"))
    assert len(said[0]) < 200


def test_inside_a_list_of_dictionaries() -> None:
    inner = {"name": Option("name", "r", required=True), "size": Option("size", "r", type="int", default=1)}
    option = Option("x", "r", type="list", elements="dict", options=inner)
    result, said = checked([{"name": "a"}, {"size": "b", "nam": "c"}, 3], option)
    assert result[0] == {"name": "a", "size": 1}
    assert said == [
        "x[1].size: must be a whole number, is text ('b'); write digits without quotes",
        "x[1].nam: unknown key; write name",
        "x[1].name: is missing; write 'name: ...' here",
        "x[2]: must be a dictionary, is a whole number; write 'key: value' lines below it",
    ]


@given(JSON, st.sampled_from(sorted(TYPES)))
def test_a_value_is_typed_or_complained_about(value: t.Any, kind: str) -> None:
    result, said = checked(value, Option("x", "r", type=kind, required=True))
    assert (result is None) == bool(said)
    assert said or type(result) is TYPES[kind]


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("app", True),
        ("example.com/app_1.x", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("example.com/", False),
        ("/app", False),
        ("a/b/c", False),
        ("Example.com/app", False),
        ("-app", False),
        ("app-", False),
        ("ap p", False),
        ("x" * 254 + "/app", False),
    ],
)
def test_keys_of_labels(key: str, right: bool) -> None:
    assert (key_problem(key) == "") == right


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("", True),
        ("a", True),
        ("A-b_c.9", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-a", False),
        ("ä", False),
    ],
)
def test_values_of_labels(value: str, right: bool) -> None:
    assert (value_problem(value) == "") == right


@pytest.mark.parametrize(
    ("name", "right"),
    [("a", True), ("a-1.b", True), ("a..b", False), ("", False), ("a_b", False), ("a.", False), ("A", False)],
)
def test_dns_names(name: str, right: bool) -> None:
    assert is_subdomain(name) == right


@given(st.text(max_size=100))
def test_a_corrected_name_is_right(name: str) -> None:
    assert is_label(corrected(name))
