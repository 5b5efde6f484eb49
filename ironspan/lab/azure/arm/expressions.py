# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The one expression that templates may have: `[reference('ID', 'VERSION').a.b]`, inside properties only.

Real templates have a language; the estate's are literal but for what only Azure knows. Anything else that
begins with a bracket is refused as an invalid template,
so that nothing depends on a function that is not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ironspan.lab.azure.arm.errors import ArmError

_REFERENCE = re.compile(
    r"\[reference\('(?P<id>/subscriptions/[^'\[\]]+)',\s*'(?P<version>\d{4}-\d\d-\d\d(?:-preview)?)'\)"
    r"(?P<path>(?:\.[A-Za-z][A-Za-z0-9_]*)+)\]\Z"
)
#: Resource id -> its properties, None when it is not there.
Look = Callable[[str], "dict[str, Any] | None"]


@dataclass(frozen=True)
class Reference:
    """A value that another resource has."""

    id: str
    version: str
    path: tuple[str, ...]


def invalid(message: str) -> ArmError:
    """Return the refusal of a template."""
    return ArmError(400, "InvalidTemplate", f"Deployment template validation failed: '{message}'.")


def is_expression(value: object) -> bool:
    """Whether a text is an expression; two brackets stand for one as text."""
    return (
        isinstance(value, str)
        and value.startswith("[")
        and value.endswith("]")
        and not value.startswith("[[")
    )


def understand(text: str, where: str) -> Reference:
    """Return what an expression refers to. Raises ArmError."""
    found = _REFERENCE.match(text)
    if found is None:
        raise invalid(f"The template language expression at '{where}' is not valid: '{text[:120]}'")
    return Reference(found["id"], found["version"], tuple(found["path"][1:].split(".")))


def references(value: Any, where: str = "properties") -> Iterator[Reference]:
    """Yield the expressions within a value. Raises ArmError."""
    if is_expression(value):
        yield understand(value, where)
    elif isinstance(value, dict):
        for name, one in value.items():
            if is_expression(name):
                raise invalid(f"The name '{name[:120]}' at '{where}' must not be an expression")
            yield from references(one, f"{where}.{name}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from references(one, f"{where}[{number}]")


def literal(value: Any, where: str) -> None:
    """Refuse expressions outside of properties. Raises ArmError."""
    if is_expression(value):
        raise invalid(f"The template language expression at '{where}' is not allowed there: '{value[:120]}'")
    if isinstance(value, dict):
        for name, one in value.items():
            literal(name, where)
            literal(one, f"{where}.{name}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            literal(one, f"{where}[{number}]")


def evaluate(value: Any, look: Look, strict: bool = True) -> Any:
    """Return a value with its expressions replaced.

    Args:
        value: JSON.
        look: Finds the properties of a resource.
        strict: Refuse what cannot be found; else it stays as it is, as in what-if.

    Raises:
        ArmError: A resource or one of its properties is not there.
    """
    if isinstance(value, dict):
        return {name: evaluate(one, look, strict) for name, one in value.items()}
    if isinstance(value, list):
        return [evaluate(one, look, strict) for one in value]
    if not is_expression(value):
        return value[1:] if isinstance(value, str) and value.startswith("[[") else value
    wanted = understand(value, "properties")
    here: Any = look(wanted.id)
    if here is None:
        if not strict:
            return value
        raise ArmError(
            404, "ResourceNotFound", f"The Resource '{wanted.id}' referenced by the template was not found."
        )
    for name in wanted.path:
        if not isinstance(here, dict) or name not in here:
            raise ArmError(
                400,
                "InvalidTemplate",
                "Unable to process template language expressions: the language expression property "
                f"'{name}' doesn't exist, available properties are "
                f"'{', '.join(here) if isinstance(here, dict) else ''}'.",
            )
        here = here[name]
    return here
