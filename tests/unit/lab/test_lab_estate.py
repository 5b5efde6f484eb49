# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The stages of `make lab AZURE=estate`: they end at the first that fails, and say what each took."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from ironspan.cli import main as cli
from tools import lab_estate


@dataclass(frozen=True)
class Ends(lab_estate.Stage):
    """A stage that ends with the exit code that it is called after."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", f"raise SystemExit({self.name})"]


def test_the_first_that_fails_is_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    code, took = lab_estate.run([Ends("0", ("a",)), Ends("4", ("b",)), Ends("0", ("c",))])
    assert (code, [name for name, _ in took]) == (4, ["0", "4"])
    assert "ironspan b" in capsys.readouterr().out
    assert "together" in lab_estate.table(took)


@pytest.mark.parametrize("stage", lab_estate.stages("x", "tiny", rack=1), ids=lambda stage: stage.name)
def test_each_is_a_command_that_there_is(stage: lab_estate.Stage, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*stage.words, "--help"])
    assert ended.value.code == 0
    assert "usage: ironspan" in capsys.readouterr().out
