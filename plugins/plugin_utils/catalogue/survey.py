# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Surveys of AWX's job templates, made of operations' declarations.

A survey knows no patterns and no times, and what is launched past it is not checked by it: the operation's
playbook checks every answer again, as it does on the command line.
"""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import EVERYWHERE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import (
    PREFIX,
    Argument,
    Operation,
)

Content = dict[str, t.Any]
YES_OR_NO = ("false", "true")
_HOW = {
    "time": "seconds, or a time such as 90s or 5m",
    "file": "a path on the controller",
    "files": "paths on the controller, with commas between",
    "list": "several with commas between",
    "hosts": "names as in the inventory, with commas between",
}


def survey_of(operation: Operation) -> Content:
    """Return an operation's survey as AWX's ``survey_spec`` takes it.

    Args:
        operation: what is asked about. What AWX knows by itself is not asked.

    Returns:
        ``name``, ``description`` and ``spec``; empty when there is nothing to ask, because AWX refuses a
        survey without questions.
    """
    spec = [_question(argument) for argument in operation.arguments if argument not in EVERYWHERE]
    summary = f"{operation.summary[:1].upper()}{operation.summary[1:]}."
    return {"name": operation.name, "description": summary, "spec": spec} if spec else {}


def _question(argument: Argument) -> Content:
    words = argument.name.removeprefix(PREFIX).replace("_", " ")
    number = argument.type == "int"
    text = not number and not _choices(argument)
    return {
        "question_name": f"{words[:1].upper()}{words[1:]}",
        "question_description": _described(argument),
        "variable": argument.name,
        "type": _type(argument),
        "required": argument.required,
        "default": _default(argument),
        "choices": list(_choices(argument)),
        # Of a number its range, of a text its length: an answer that is required is not an empty one.
        "min": argument.least if number else int(text and argument.required),
        "max": argument.most if number else None,
    }


def _type(argument: Argument) -> str:
    if argument.secret:
        return "password"
    if argument.type == "int":
        return "integer"
    return "multiplechoice" if _choices(argument) else "text"


def _choices(argument: Argument) -> tuple[str, ...]:
    if argument.secret or argument.type == "list":
        return ()
    return YES_OR_NO if argument.type == "bool" else argument.choices


def _default(argument: Argument) -> str | int:
    """Return what an answer is when nobody gives one; AWX takes an empty text for none, whatever the type."""
    if argument.default is None or argument.secret:
        # A default of a secret would be kept in AWX, and be another one each time it is compared.
        return ""
    if argument.type == "int":
        return int(argument.default)
    if argument.type == "bool":
        return YES_OR_NO[bool(argument.default)]
    return ",".join(argument.default) if isinstance(argument.default, tuple) else str(argument.default)


def _described(argument: Argument) -> str:
    how = argument.example or _HOW.get(argument.type, "")
    return f"{argument.what[:1].upper()}{argument.what[1:]}{f': {how}' if how else ''}."
