# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The command line of a program: how a command ends decides the exit code and what is said."""

from __future__ import annotations

import argparse
import json
import typing as t
from pathlib import Path

import pytest

from ironspan.program import command
from ironspan.program.errors import ProgramError, ServiceError


class Asked(ProgramError):
    """An error of something that the program asks, which is no service."""


def ran(func: t.Callable[[str, argparse.Namespace], int | None], *words: str) -> int:
    """Run the only command of a program whose settings are the text of a file."""
    parser = argparse.ArgumentParser(prog="program")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("do").set_defaults(func=func)
    command.add_common(commands, Path("/nowhere/settings.json"))
    return command.run(parser, str, ["do", *words], (ServiceError, Asked))


def raising(error: BaseException) -> t.Callable[[str, argparse.Namespace], None]:
    """Return a command that raises."""

    def func(settings: str, arguments: argparse.Namespace) -> None:
        raise error

    return func


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (7, 7)])
def test_a_command_gets_its_settings_and_says_how_it_ended(returned: int | None, code: int) -> None:
    seen: list[str] = []

    def func(settings: str, arguments: argparse.Namespace) -> int | None:
        seen.append(settings)
        return returned

    assert ran(func) == ran(func, "--settings", "/other") == code
    assert seen == ["/nowhere/settings.json", "/other"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProgramError("no"), command.REFUSED),
        (ServiceError("no"), command.FAILED),
        (Asked("no"), command.FAILED),
        (KeyboardInterrupt(), command.INTERRUPTED),
    ],
)
def test_what_is_raised_decides_the_exit_code(error: BaseException, code: int) -> None:
    assert ran(raising(error)) == code


def test_an_error_is_said_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(raising(ProgramError("It is broken.", "Fix it.")), "--json") == command.REFUSED
    told = capsys.readouterr()
    assert told.err == "program: It is broken.\n  Fix it.\n"
    said = {"kind": "ProgramError", "message": "It is broken.", "remedy": "Fix it."}
    assert json.loads(told.out) == {"error": said}


@pytest.mark.parametrize(("words", "said"), [((), "for people\n"), (("--json",), '{\n "a": 1\n}\n')])
def test_an_answer_is_for_people_or_for_programs(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert ran(lambda _, arguments: command.answer(arguments, {"a": 1}, "for people"), *words) == 0
    assert capsys.readouterr().out == said
