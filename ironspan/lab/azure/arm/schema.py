# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Bodies checked against the models of the installed azure-mgmt libraries.

There are two generations of these: models with `rest_field` and annotations, and models with an
`_attribute_map` whose keys may be flattened ("properties.principalId"). Both are read into one shape.
"""

from __future__ import annotations

import datetime
import enum
import functools
import importlib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: Python type of an annotation -> its name in messages.
_SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (int, float),
    bool: (bool,),
    datetime.datetime: (str,),
    datetime.date: (str,),
    datetime.time: (str,),
    datetime.timedelta: (str,),
    bytes: (str,),
}
#: Values that the libraries list as examples only.
_OPEN = ("VirtualMachineSizeTypes",)
_MISSING = "MissingRequiredParameter"
_OLD_SCALARS: dict[str, Any] = {
    "str": str, "int": int, "long": int, "float": float, "bool": bool, "iso-8601": datetime.datetime,
    "duration": datetime.timedelta, "object": Any, "bytearray": bytes,
}  # fmt: skip


@dataclass
class Shape:
    """What an object may have."""

    name: str
    #: Field -> its annotation, or the shape of a nested object.
    fields: dict[str, Any] = field(default_factory=dict)
    readonly: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Problem:
    """Something wrong with a body."""

    path: str
    code: str
    message: str


@functools.cache
def shape(model: str) -> Shape:
    """Return the shape of the model "package:class"."""
    package, _, name = model.partition(":")
    return _shape_of(getattr(importlib.import_module(package), name))


@functools.cache
def _shape_of(model: type) -> Shape:
    if hasattr(model, "_attribute_map"):
        return _old_shape(model)
    package = importlib.import_module(model.__module__.rpartition(".")[0])
    hints = typing.get_type_hints(model, localns={"_models": package, "datetime": datetime})
    found = Shape(model.__name__)
    for base in reversed(model.__mro__):
        for name, value in vars(base).items():
            if hasattr(value, "_visibility") and hasattr(value, "_rest_name_input"):
                written = value._rest_name_input or name
                found.fields[written] = hints[name]
                if type(None) not in typing.get_args(hints[name]) and hints[name] is not Any:
                    found.required.add(written)
                if value._visibility == ["read"]:
                    found.readonly.add(written)
                else:
                    found.readonly.discard(written)
    return found


def _old_shape(model: Any) -> Shape:
    package = importlib.import_module(model.__module__.rpartition(".")[0])
    found = Shape(model.__name__)
    for attribute, about in model._attribute_map.items():
        *outer, last = about["key"].replace("\\.", "\0").split(".")
        here = found
        for part in outer:
            here = here.fields.setdefault(part, Shape(f"{model.__name__}.{part}"))
        last = last.replace("\0", ".")
        here.fields[last] = _old_type(about["type"], package)
        rules = model._validation.get(attribute, {})
        if rules.get("readonly"):
            here.readonly.add(last)
        if rules.get("required"):
            here.required.add(last)
    return found


def _old_type(text: str, package: types.ModuleType) -> Any:
    if text.startswith("["):
        return list[_old_type(text[1:-1], package)]  # type: ignore[misc]
    if text.startswith("{"):
        return dict[str, _old_type(text[1:-1], package)]  # type: ignore[misc]
    return _OLD_SCALARS[text] if text in _OLD_SCALARS else getattr(package, text)


def problems(model: str, body: dict[str, Any], partial: bool = False) -> list[Problem]:
    """Return what is wrong with a body.

    Args:
        model: "package:class".
        body: What was sent, without what only Azure writes at the top.
        partial: Fields may be missing, as in a PATCH.

    Returns:
        Fields that the model lacks or that are missing, wrong types, unknown values.
    """
    found = _object(shape(model), body, "")
    return [one for one in found if not (partial and one.code == _MISSING)]


def readonly(model: str) -> set[tuple[str, ...]]:
    """Return the paths that only Azure writes; "*" stands for each item of a list or dictionary."""
    return set(_readonly(shape(model), (), ()))


def _readonly(here: Shape, path: tuple[str, ...], seen: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, kind in here.fields.items():
        if name in here.readonly:
            yield (*path, name)
            continue
        below, steps = _inner(kind)
        if below is not None and below.name not in seen:
            yield from _readonly(below, (*path, name, *steps), (*seen, here.name))


def _inner(kind: Any) -> tuple[Shape | None, tuple[str, ...]]:
    """The shape of the objects that a value of this type consists of, and the way to them."""
    if isinstance(kind, Shape):
        return kind, ()
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        for one in arguments:
            found, steps = _inner(one)
            if found is not None:
                return found, steps
        return None, ()
    if origin in (list, dict):
        found, steps = _inner(arguments[-1])
        return found, ("*", *steps)
    return (_shape_of(kind), ()) if _is_model(kind) else (None, ())


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and (hasattr(kind, "_attribute_map") or hasattr(kind, "_is_model"))


def _object(here: Shape, value: dict[str, Any], path: str) -> Iterator[Problem]:
    reference = set(value) == {"id"}  # of another resource, whose whole model the library names
    for name in sorted(() if reference else here.required - here.readonly - set(value)):
        where = f"{path}.{name}" if path else name
        yield Problem(where, _MISSING, f"The required property '{name}' was not found. Path '{where}'.")
    for name, one in value.items():
        where = f"{path}.{name}" if path else name
        if name not in here.fields:
            yield Problem(
                where,
                "InvalidRequestContent",
                "The request content was invalid and could not be deserialized: 'Could not find member "
                f"'{name}' on object of type '{here.name}'. Path '{where}'.'",
            )
        elif one is not None and name not in here.readonly:
            yield from _value(here.fields[name], one, where)


def _value(kind: Any, value: Any, path: str) -> Iterator[Problem]:
    if kind is Any or kind is object:
        return
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        yield from _union([one for one in arguments if one is not type(None)], value, path)
    elif isinstance(kind, Shape) or _is_model(kind):
        if isinstance(value, dict):
            yield from _object(kind if isinstance(kind, Shape) else _shape_of(kind), value, path)
        else:
            yield _wrong(value, "object", path)
    elif origin is list:
        if isinstance(value, list):
            for number, one in enumerate(value):
                yield from _value(arguments[0], one, f"{path}[{number}]")
        else:
            yield _wrong(value, "array", path)
    elif origin is dict:
        if isinstance(value, dict):
            for name, one in value.items():
                yield from _value(arguments[1], one, f"{path}.{name}") if one is not None else ()
        else:
            yield _wrong(value, "object", path)
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        yield from _choice(kind, value, path)
    elif kind in _SCALARS:
        boolean = isinstance(value, bool)
        if not isinstance(value, _SCALARS[kind]) or (boolean and kind is not bool):
            yield _wrong(value, getattr(kind, "__name__", str(kind)), path)


def _union(kinds: list[Any], value: Any, path: str) -> Iterator[Problem]:
    choices = [one for one in kinds if isinstance(one, type) and issubclass(one, enum.Enum)]
    if choices:
        yield from _choice(choices[0], value, path)
        return
    tried = [list(_value(one, value, path)) for one in kinds]
    if all(tried):
        yield from tried[0]


def _choice(kind: type[enum.Enum], value: Any, path: str) -> Iterator[Problem]:
    values = [str(one.value) for one in kind]
    if not isinstance(value, str):
        yield _wrong(value, "string", path)
    elif kind.__name__ not in _OPEN and value.lower() not in (one.lower() for one in values):
        yield Problem(
            path,
            "InvalidParameter",
            f"The value '{value}' of parameter '{path}' is not allowed. Allowed values are: "
            f"{', '.join(values)}.",
        )


def _wrong(value: Any, wanted: str, path: str) -> Problem:
    return Problem(
        path,
        "InvalidRequestContent",
        "The request content was invalid and could not be deserialized: 'Error converting value "
        f"{value!r:.80} to type '{wanted}'. Path '{path}'.'",
    )
