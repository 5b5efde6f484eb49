# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Surveys made of operations, held against what AWX takes and what the operations do with the answers."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import EVERYWHERE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.survey import survey_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.argument_values import wrong_value
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

Question = dict[str, t.Any]
OPERATIONS = catalogue.OPERATIONS.values()
ASKED = [
    pytest.param(operation, question, id=f"{operation.name}-{question['variable']}")
    for operation in OPERATIONS
    for question in survey_of(operation).get("spec", ())
]


def refused_by_awx(survey: dict[str, t.Any]) -> list[str]:
    """Return why AWX would not keep a survey; its rules as of 24.6.1, with more strictness about numbers."""
    found = [key for key in ("name", "description") if not isinstance(survey.get(key), str)]
    spec = survey.get("spec")
    if not isinstance(spec, list) or not spec:
        return [*found, "spec"]
    variables = [question["variable"] for question in spec]
    found += [name for name in variables if variables.count(name) > 1]
    return found + [why for question in spec for why in _wrong(question)]


def _wrong(question: Question) -> t.Iterator[str]:
    kind, default, choices = question["type"], question["default"], question["choices"]
    if kind not in ("text", "password", "integer", "multiplechoice"):
        yield f"{kind} is no type"
    if not all(isinstance(question[key], str) and question[key] for key in ("question_name", "variable")):
        yield "no name"
    if not isinstance(question["required"], bool):
        yield "required"
    if not all(question[key] is None or type(question[key]) is int for key in ("min", "max")):
        yield "min or max"
    if default != "" and type(default) is not (int if kind == "integer" else str):
        yield f"the default {default!r} is of another type"
    if kind == "multiplechoice" and (not choices or not isinstance(choices, list)):
        yield "no choices"
    if kind == "multiplechoice" and default not in ("", *choices):
        yield f"the default {default!r} is none of the choices"
    if kind == "password" and default != "":
        yield "a secret in a survey"


@pytest.mark.parametrize("name", catalogue.OPERATIONS)
def test_awx_takes_the_survey(name: str) -> None:
    operation = catalogue.OPERATIONS[name]
    survey = survey_of(operation)
    asked = [entry.name for entry in operation.arguments if entry not in EVERYWHERE]
    assert [question["variable"] for question in survey.get("spec", ())] == asked
    assert (refused_by_awx(survey) == []) if asked else survey == {}


@pytest.mark.parametrize(("operation", "question"), ASKED)
def test_an_answer_is_one_of_the_command_line(operation: Operation, question: Question) -> None:
    name, default = question["variable"], question["default"]
    argument = operation.argument(name)
    assert argument is not None
    # Nothing given, and the survey's own default, come to the same.
    # (AWX leaves out a choice and a number that nobody answers; of a text it sends an empty one.)
    sent: dict[str, t.Any] = {} if default == "" and question["type"] != "text" else {name: default}
    assert all(wrong_value(argument, value) is None for value in sent.values())
    if argument == catalogue.arguments()[name]:
        assert value_of(sent, name) == value_of({}, name)
    for choice in question["choices"]:
        assert wrong_value(argument, choice) is None
    if question["type"] == "multiplechoice":
        assert wrong_value(argument, "neither of them") is not None
    if question["type"] == "integer" and question["min"] is not None:
        assert wrong_value(argument, question["min"]) is None
        assert wrong_value(argument, question["min"] - 1) is not None
    if question["required"] and question["type"] == "text":
        assert question["min"] == 1


def test_what_is_consented_to_is_chosen() -> None:
    (asked,) = (
        question
        for question in survey_of(catalogue.OPERATIONS["node_remove"])["spec"]
        if question["variable"] == "ironspan_allow_destructive"
    )
    assert (asked["type"], asked["choices"], asked["default"]) == (
        "multiplechoice",
        ["false", "true"],
        "false",
    )
    assert value_of({"ironspan_allow_destructive": "true"}, "ironspan_allow_destructive") is True


def test_every_type_has_its_question() -> None:
    operation = Operation(
        name="try_all",
        summary="ask everything",
        arguments=(
            Argument(name="ironspan_key", what="a key", secret=True, default="never shown", required=True),
            Argument(name="ironspan_days", what="days", type="int", least=1, most=9, default=3),
            Argument(name="ironspan_loud", what="loudly", type="bool", default=True),
            Argument(name="ironspan_way", what="the way", choices=("up", "down")),
            Argument(name="ironspan_names", what="names", type="list", default=("a", "b")),
            Argument(name="ironspan_until", what="until when", pattern="[0-9-]+", example="2026-11-22"),
            *EVERYWHERE,
        ),
    )
    survey = survey_of(operation)
    assert refused_by_awx(survey) == []
    assert (survey["name"], survey["description"]) == ("try_all", "Ask everything.")
    shown = [
        [question[key] for key in ("question_name", "type", "required", "default", "choices", "min", "max")]
        for question in survey["spec"]
    ]
    assert shown == [
        ["Key", "password", True, "", [], 1, None],
        ["Days", "integer", False, 3, [], 1, 9],
        ["Loud", "multiplechoice", False, "true", ["false", "true"], 0, None],
        ["Way", "multiplechoice", False, "", ["up", "down"], 0, None],
        ["Names", "text", False, "a,b", [], 0, None],
        ["Until", "text", False, "", [], 0, None],
    ]
    assert "never shown" not in str(survey)
    assert survey["spec"][-1]["question_description"] == "Until when: 2026-11-22."
