# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Good and bad values of variables, drawn from their declarations."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterator
from random import Random

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limits import limit_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import Option

from tests.unit.site_model.test_formats import GOOD

Path = tuple[str | int, ...]
"""Steps from a variable's value to a value inside of it."""

POISON = (
    "a\nb",
    "a\0b",
    "a; reboot",
    "$(id)",
    "`id`",
    "-x",
    "/a/../../etc",
    "../x",
    "a b;c",
    "a|b",
    "\u0661\u0662",
    " a",
    "a\r",
    "a\u2028b",
    "a'b\"",
    "x" * 5000,
    "\t",
    "--",
    "a\x1bb",
    "\ufeffa",
)
"""Texts that a command line, a file, a unit or a URL would read otherwise than they were meant."""
EXPRESSIONS = (
    "{{ no_such_thing }}",
    "{{ 1 / 0 }}",
    "{{ site_name",
    "{% for a in [1] %}x",
    "{{ 'a' | no_such_filter }}",
    "{{ lookup('pipe', 'touch /nowhere') }}",
    "{{ lookup('file', '/nowhere/at/all') }}",
    "{{ [1][7] }}",
    "{{ lookup('no_such_lookup') }}",
    "{{ {}.a.b }}",
    "{{ 'a' + 1 }}",
    "{{ q('url', 'http://127.0.0.1:9') }}",
)


def good(option: Option, rng: Random) -> t.Any:
    """Return a value of the declared type, range, choices and grammar."""
    if option.type == "list":
        item = item_of(option)
        drawn = [good(item, rng) for _ in range(rng.randint(1, 3))]
        return [value for index, value in enumerate(drawn) if value not in drawn[:index]]
    if option.type == "dict":
        if option.options is not None:
            return {
                name: good(inner, rng)
                for name, inner in option.options.items()
                if inner.required or rng.random() < 0.6
            }
        keys = GOOD[option.keys] if option.keys else ["a", "b.example"]
        return {key: _text(option, rng) for key in rng.sample(keys, min(len(keys), rng.randint(1, 2)))}
    if option.choices:
        return rng.choice(option.choices)
    if option.type == "bool":
        return rng.choice([True, False])
    if option.type in ("int", "float"):
        limit = option.limit or limit_of(option.name)
        low, high = (int(limit.smallest), int(limit.largest)) if limit else (0, 1000)
        near = option.default if isinstance(option.default, int) else rng.randint(low, high)
        return rng.choice([low, high, rng.randint(low, high), min(max(near + rng.randint(-2, 2), low), high)])
    if option.type == "raw":
        return rng.choice([1, "80", "443"])
    return _text(option, rng)


def _text(option: Option, rng: Random) -> str:
    if not option.format:
        return rng.choice(["plain", "two words", "Größe: 5 %", 'it\'s "quoted"'])
    return rng.choice(
        [text for text in GOOD[option.format] if text] if option.required else GOOD[option.format]
    )


def item_of(option: Option) -> Option:
    """Return what is expected of the items of a list."""
    return dataclasses.replace(
        option, type=option.elements or "raw", elements=None, required=True, default=None
    )


def at(value: t.Any, path: Path) -> t.Any:
    """Return what is inside of a value at a path."""
    for step in path:
        value = value[step]
    return value


def put(value: t.Any, path: Path, new: t.Any) -> t.Any:
    """Return a copy of a value with another one inside."""
    if not path:
        return new
    step, *rest = path
    copy: t.Any = list(value) if isinstance(value, list) else dict(value)
    copy[step] = put(copy[step], tuple(rest), new)
    return copy


class Wrong(t.NamedTuple):
    """A mistake in a value.

    Args:
        kind: the class of mistakes.
        path: where in the value it is.
        value: the whole value with it.
    """

    kind: str
    path: Path
    value: t.Any


def spots(option: Option, value: t.Any, path: Path = ()) -> Iterator[tuple[Option, Path]]:
    """Yield a value and all that is inside of it, each with what is expected of it."""
    yield option, path
    if option.type == "list" and option.elements and isinstance(value, list):
        for index, item in enumerate(value):
            yield from spots(item_of(option), item, (*path, index))
    elif option.type == "dict" and option.options is not None and isinstance(value, dict):
        for name, inner in value.items():
            yield from spots(option.options[name], inner, (*path, name))


def wrong(option: Option, rng: Random) -> Wrong | None:
    """Return a value with one mistake somewhere, None where no value is one."""
    value = good(option, rng)
    within, path = rng.choice(list(spots(option, value)))
    found = list(_mistakes(within, at(value, path), not path, rng))
    if not found:
        return None
    kind = rng.choice(sorted({kind for kind, _path, _value in found}))
    _kind, inner, new = rng.choice([each for each in found if each[0] == kind])
    if inner:
        holder = dict(at(value, path))
        if kind == "missing key":
            del holder[inner]
            return Wrong(kind, path, put(value, path, holder))
        holder[inner] = new
        return Wrong(kind, (*path, inner), put(value, path, holder))
    return Wrong(kind, path, put(value, path, new))


def _mistakes(option: Option, value: t.Any, is_top: bool, rng: Random) -> Iterator[tuple[str, str, t.Any]]:
    """Yield kind, key in a dictionary ("" for the value itself), new value."""
    if option.type != "raw":
        yield "null", "", None
        yield from (("type", "", other) for other in _other_types(option))
    yield from (("expression", "", text) for text in EXPRESSIONS)
    limit = (option.limit or limit_of(option.name)) if option.type in ("int", "float") else None
    if limit is not None:
        far = rng.choice([1, 2, 10**6, 10**18])
        yield "range", "", int(limit.smallest) - far
        yield "range", "", int(limit.largest) + far
        yield "range", "", str(int(limit.largest) + far)
    if option.choices and option.type != "list":
        words = [f"{option.choices[0]}x", "none of them", "", str(option.choices[0]).upper() + "-"]
        yield from (("choice", "", word) for word in words if word not in option.choices)
    if option.type in ("str", "path") and option.format and not option.choices:
        bad = [text for text in POISON if fault_of(text, option.format)]
        yield from (("text", "", text) for text in bad)
        if (option.required or option.default) and fault_of("", option.format):
            yield "empty", "", ""
    if option.type == "dict" and option.options is None and isinstance(value, dict):
        if option.keys:
            yield from (
                ("key", text, "1") for text in POISON if fault_of(text, option.keys) and "\0" not in text
            )
        if option.format and value:
            key = rng.choice(sorted(value))
            yield from (("text", key, text) for text in POISON if fault_of(text, option.format))
    if option.type == "dict" and option.options is not None and isinstance(value, dict) and value:
        yield "unknown key", "no_such_key", 1
        yield "unknown key", rng.choice(sorted(option.options)) + "x", 1
        yield from (
            ("missing key", name, None)
            for name, inner in option.options.items()
            if inner.required and len(value) > 1
        )


def _other_types(option: Option) -> list[t.Any]:
    nested = [[1], {"a": 1}]
    if option.type in ("str", "path"):
        return [*nested, 7, 1.5, True]
    if option.type == "int":
        return [*nested, "twenty", 24.5, True, "1e3", "\u0661\u0662", "0x10", "", "1 0", "5 "]
    if option.type == "bool":
        return [*nested, "maybe", 7, 0.5, "", "tru"]
    if option.type == "list":
        return [{"a": 1}, "a,b", 7, True, ""]
    return [[1], "a=b", 7, True, ""]
