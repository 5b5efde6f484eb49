# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One sentence for people out of what is wrong and what to do."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import ExchangeError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError, PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError

from ironspan.cli import main
from ironspan.cli.outcome import CommandError, Exit, ending
from ironspan.lab.errors import LabError
from ironspan.program.errors import ProgramError


@pytest.mark.parametrize(
    ("message", "remedy", "text"),
    [
        ("the plan expired", "make a new one", "the plan expired; make a new one"),
        ("The store is locked.", "Try again.", "The store is locked. Try again."),
        ("the plan expired", "", "the plan expired"),
        ("The store is locked.", "", "The store is locked."),
    ],
)
def test_sentences_and_clauses_are_joined_as_they_are_written(message: str, remedy: str, text: str) -> None:
    error = ActionableError(message, remedy)
    assert (str(error), error.message, error.remedy) == (text, message, remedy)


@pytest.mark.parametrize(
    "kind", [ClusterError, CommandError, ExchangeError, PkiError, PlanError, ProgramError]
)
def test_every_error_for_operators_has_both_parts(kind: type[ActionableError]) -> None:
    error = kind("a is not b.", "Write b.")
    assert (str(error), error.message, error.remedy) == ("a is not b. Write b.", "a is not b.", "Write b.")


def test_an_answer_of_the_api_is_one_of_them() -> None:
    error = ApiError(409, "Conflict", "", "PUT /api/v1/nodes/a")
    assert str(error) == "The API refused PUT /api/v1/nodes/a: Conflict (HTTP 409)."
    assert isinstance(error, ActionableError)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PkiError("The key is another one.", "Set site_pki_key_file."), Exit.FAILED),
        (CommandError("it is not there", "write it", Exit.BAD_INPUT), Exit.BAD_INPUT),
        (LabError("it is up"), Exit.BAD_INPUT),
        (LabError("it broke", exit_code=1), Exit.FAILED),
    ],
)
def test_a_command_says_both_parts_of_any_of_them(
    error: ActionableError, code: Exit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr("ironspan.lab.cli._status", fail)
    assert main.main(["lab", "status"]) == code
    said = capsys.readouterr().err.splitlines()
    assert said == [f"ironspan: {error.message}", *([f"          {error.remedy}"] if error.remedy else [])]


def test_an_ending_is_for_the_errors_that_it_names() -> None:
    with pytest.raises(CommandError, match="a; b") as ended, ending(Exit.HOSTS, ClusterError):
        raise ClusterError("a", "b")
    assert (ended.value.code, ended.value.remedy) == (Exit.HOSTS, "b")
    with pytest.raises(PkiError), ending(Exit.HOSTS, ClusterError):
        raise PkiError("a")
