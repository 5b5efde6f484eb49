# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Checks a value of the inventory against its option and returns it in the option's type."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import re
import typing as t
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limits import limit_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.origins import in_quotes, place_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import Option

Report = Callable[[t.Any, t.Any, str, str, str], None]
"""Called with (key, value, path, message, remedy); key and value carry the position."""


def plain(value: t.Any) -> t.Any:
    """Return a value without Ansible's tags, in Python's own types, also inside containers."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(inner) for inner in value]
    return value


_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


class Rejected(Exception):
    """The value has another type; arguments are (what is wrong, what to write)."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def kind_of(value: t.Any) -> str:
    """Return how people call the type of a value."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a decimal number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Mapping):
        return "a dictionary"
    if isinstance(value, Sequence):
        return "a list"
    return type(value).__name__


def _shown(value: t.Any, option: Option) -> str:
    if option.no_log:
        return "(secret)"
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _to_text(value: t.Any, option: Option) -> str:
    if isinstance(value, str):
        return str(value)
    if value is False and "off" in option.choices:
        return "off"  # YAML's own reading of the word without quotes; Ansible takes it so, too
    known = f"write one of {', '.join(map(str, option.choices))}" if option.choices else ""
    if isinstance(value, bool | int | float):
        found = f"must be text, is {kind_of(value)} ({_shown(value, option)})"
        raise Rejected(found, known or f"write it in quotes, {in_quotes(value)}")
    if isinstance(value, datetime.date):  # YAML's own reading of what looks like one
        raise Rejected(f"must be text, is a date ({value})", f'write it in quotes: "{value}"')
    raise Rejected(f"must be text, is {kind_of(value)}", known or "write one text in quotes")


def _to_int(value: t.Any, option: Option) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    # int() also takes spaces, underscores and the digits of other scripts.
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value, 10)
    found = f"must be a whole number, is {kind_of(value)} ({_shown(value, option)})"
    raise Rejected(found, "write digits without quotes")


def _to_float(value: t.Any, option: Option) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool) and str(value).isascii():
        with contextlib.suppress(ValueError):
            if math.isfinite(number := float(value)):
                return number
    raise Rejected(f"must be a number, is {kind_of(value)} ({_shown(value, option)})", "write a number")


def _to_bool(value: t.Any, option: Option) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    found = f"must be true or false, is {kind_of(value)} ({_shown(value, option)})"
    raise Rejected(found, "write true or false without quotes")


def _to_list(value: t.Any, option: Option) -> list[t.Any]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    raise Rejected(f"must be a list, is {kind_of(value)}", "write one '- item' line for each")


def _to_dict(value: t.Any, option: Option) -> dict[t.Any, t.Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise Rejected(f"must be a dictionary, is {kind_of(value)}", "write 'key: value' lines below it")


def _to_path(value: t.Any, option: Option) -> str:
    text = _to_text(value, option)
    if not text.isprintable() or re.search(r"\$[\w{]", text):
        found = f"holds characters that no path has, or $NAME of a shell ({_shown(value, option)})"
        raise Rejected(found, "write the path without them, with ~ for your home")
    try:
        return str(Path(text).expanduser()) if text else ""
    except RuntimeError:
        raise Rejected(
            f"{_shown(text, option)} begins with nobody's home", "write the path from / on"
        ) from None


def without_value(option: Option) -> str:
    """Return what to write where a key has no value.

    Args:
        option: what is expected.
    """
    if option.default is None or option.no_log:
        return "write a value, or remove the line"
    shown = json.dumps(option.default) if not isinstance(option.default, str) else f'"{option.default}"'
    return f"write a value, or remove the line: the default is {shown}"


REPEATS = frozenset({"instances"})
"""Lists in which the same may be there several times: parts of one GPU."""
Convert = Callable[[t.Any, Option], t.Any]

_CONVERTERS: dict[str, Convert] = {
    "str": _to_text,
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "list": _to_list,
    "dict": _to_dict,
    "path": _to_path,
    "raw": lambda value, option: plain(value),
}


def check_value(key: t.Any, value: t.Any, option: Option, path: str, report: Report) -> t.Any:
    """Check one value and everything inside it.

    Args:
        key: the key object it was written under (carries the position).
        value: what the inventory says.
        option: what is expected.
        path: how to call it, for example ``site_taints[0].effect``.
        report: called for every problem.

    Returns:
        The value in the option's type; None when it has another type.
    """
    if value is None and not option.required:
        return None
    try:
        convert: Convert = _CONVERTERS.get(option.type, _to_text)
        converted = convert(value, option)
    except Rejected as rejected:
        report(key, value, path, rejected.message, rejected.remedy)
        return None
    # A converted text does not say where it stands.
    if not _has_format(key, value if value == converted else converted, option, path, report):
        return None
    _check_choices(key, converted, option, path, report)
    _check_range(key, converted, option, path, report)
    if isinstance(converted, list) and option.elements is not None:
        return _check_items(key, converted, option, path, report)
    if isinstance(converted, dict) and option.options is not None:
        return _check_keys(key, converted, option, path, report)
    return plain(converted) if isinstance(converted, list | dict) else converted


def _has_format(key: t.Any, value: t.Any, option: Option, path: str, report: Report) -> bool:
    """Tell whether texts have their grammar; what has not is reported, and judged no further."""
    if isinstance(value, dict) and option.options is None and (option.format or option.keys):
        return _all_have_formats(key, value, option, path, report)
    if not isinstance(value, str) or not option.format:
        return True
    if not value and not option.required and not option.default:
        return True
    if not value and option.required and path == option.name:
        return True  # "is empty" is said once for all hosts, by the check of required variables
    fault = fault_of(value, option.format, option.no_log)
    if fault is None:
        return True
    message, remedy = fault
    report(key, value, path, f"{_shown(value, option)} {message}", remedy)
    return False


def _all_have_formats(
    key: t.Any, value: dict[t.Any, t.Any], option: Option, path: str, report: Report
) -> bool:
    """Tell the same of a dictionary whose keys are not declared: of its keys, and of all texts inside."""
    right = True
    for name, inner in value.items():
        place, inner_path = (name if place_of(name) else key), f"{path}.{name}"
        fault = fault_of(str(name), option.keys) if option.keys else None
        if fault is not None:
            report(place, inner, path, f"the key {_shown(str(name), option)} {fault[0]}", fault[1])
            right = False
            continue
        one = dataclasses.replace(option, default=None, required=False, options=None, keys="")
        for item in inner if isinstance(inner, list) else [inner]:
            # Falsy texts say "nothing" in many a flag and setting.
            right = _has_format(place, item, one, inner_path, report) and right
    return right


def _check_choices(key: t.Any, value: t.Any, option: Option, path: str, report: Report) -> None:
    if not option.choices or option.type == "list" or value in option.choices:
        return
    words = ", ".join(str(choice) for choice in option.choices)
    near = nearest(str(value), [str(choice) for choice in option.choices])
    report(
        key,
        value,
        path,
        f"{_shown(value, option)} is not one of {words}",
        f"write {near or option.choices[0]}",
    )


def _check_range(key: t.Any, value: t.Any, option: Option, path: str, report: Report) -> None:
    if option.type not in ("int", "float"):
        return
    limit = option.limit or limit_of(option.name)
    if limit is None or limit.smallest <= value <= limit.largest:
        return
    span = f"{limit.smallest:.0f} to {limit.largest:.0f}"
    nearest_allowed = min(max(value, limit.smallest), limit.largest)
    report(
        key,
        value,
        path,
        f"{value} is outside {span} ({limit.reason})",
        f"write a number from {span}, for example {nearest_allowed:.0f}",
    )


def _check_items(key: t.Any, items: list[t.Any], option: Option, path: str, report: Report) -> list[t.Any]:
    item_option = Option(
        name=option.name,
        role=option.role,
        type=option.elements or "raw",
        choices=option.choices,
        options=option.options,
        required=True,
        no_log=option.no_log,
        limit=option.limit,
        format=option.format,
        keys=option.keys,
    )
    if option.elements != "dict" and option.name not in REPEATS:
        _check_repeats(key, items, option, path, report)
    return [
        # An item that knows its own line is better than the line of the list.
        check_value(item if place_of(item) else key, item, item_option, f"{path}[{index}]", report)
        for index, item in enumerate(items)
    ]


def _check_repeats(key: t.Any, items: list[t.Any], option: Option, path: str, report: Report) -> None:
    """A thing that is listed twice was meant to be another one, or not to be there."""
    seen: list[t.Any] = []
    for index, item in enumerate(items):
        if item in seen:
            place = item if place_of(item) else key
            report(place, item, f"{path}[{index}]", f"{_shown(item, option)} is there twice", "write it once")
        seen.append(item)


def _check_keys(
    key: t.Any, value: dict[t.Any, t.Any], option: Option, path: str, report: Report
) -> dict[str, t.Any]:
    known = option.options or {}
    checked: dict[str, t.Any] = {}
    for inner_key, inner in value.items():
        name = str(inner_key)
        # JSON's keys, numbers and nulls have no place of their own.
        at = inner_key if place_of(inner_key) or place_of(inner) else key
        if name not in known:
            near = nearest(name, known)
            remedy = f"write {near}" if near else f"use only {', '.join(sorted(known))}"
            report(at, inner, f"{path}.{name}", "unknown key", remedy)
        elif inner is None:
            report(at, inner, f"{path}.{name}", "has no value", without_value(known[name]))
            checked[name] = None
        else:
            checked[name] = check_value(inner_key, inner, known[name], f"{path}.{name}", report)
    for name, inner_option in [(name, each) for name, each in known.items() if name not in checked]:
        if inner_option.required:
            report(key, value, f"{path}.{name}", "is missing", f"write '{name}: ...' here")
        elif inner_option.default is not None:
            checked[name] = inner_option.default
    return checked
