# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program that Ironic is packed as; what it starts runs in tests/integration/test_ironic.py."""

from __future__ import annotations

import sys
import types

import pytest

from ironspan.ironic import main as program


@pytest.mark.parametrize("arguments", [[], ["paint"], ["password"], ["password", "a", "4", "b"]])
def test_what_is_no_command_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(arguments) == program.REFUSED
    assert "usage: ironspan-ironic COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize("command", program.COMMANDS)
def test_a_command_is_the_one_of_ironic_with_its_options(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    name, module = program.COMMANDS[command]
    stand_in = types.SimpleNamespace(main=lambda: seen.append([*sys.argv]))
    monkeypatch.setitem(sys.modules, module.rpartition(".")[0], types.ModuleType("ironic"))
    monkeypatch.setitem(sys.modules, module, stand_in)
    monkeypatch.setattr(sys, "argv", ["before"])
    assert program.main([command, "--config-file", "x"]) == 0
    assert seen == [[name, "--config-file", "x"]]
