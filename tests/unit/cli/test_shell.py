# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Completion and manual page: all commands are in them, and shells take them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from ironspan.cli import shell
from ironspan.cli.main import build_parser, main

COMMANDS = list(shell.commands_of(build_parser()))


def completed(*words: str) -> list[str]:
    script = shell.bash(COMMANDS) + (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ironspan; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ironspan", "vali"), ["validate"]),
        (("ironspan", "awx", "web"), ["webhook-key"]),
        (("ironspan", "awx", "events-"), ["events-token", "events-account"]),
        (("ironspan", "awx", "render", "--out"), ["--output"]),
        (("ironspan", "completion", ""), ["bash", "zsh", "fish"]),
        # A host that is called like a command is one only behind the command.
        (("ironspan", "node", "add", "awx", "--forc"), []),
        (("ironspan", "nonsense", "aw"), ["awx"]),
    ],
)
def test_bash_completes_what_fits(words: tuple[str, ...], found: list[str]) -> None:
    assert completed(*words) == found


def test_each_command_is_in_each_script() -> None:
    assert len(COMMANDS) > 60
    bash, zsh, fish = shell.bash(COMMANDS), shell.zsh(COMMANDS), shell.fish(COMMANDS)
    for command in COMMANDS:
        for option in command.options():
            for name in option.option_strings:
                assert name in bash and name in zsh and name.lstrip("-") in fish
        for name in command.commands:
            assert f"-a {name} " in fish


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_other_shells_take_theirs(name: str) -> None:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"no {name} here")
    script = {"zsh": shell.zsh, "fish": shell.fish}[name](COMMANDS)
    done = subprocess.run([program, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_manual_page_has_every_command_and_no_request_by_accident(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    for command in COMMANDS[1:]:
        assert f".SS ironspan {command.path}".replace("-", "\\-") in page
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".TP", ".B", ".I"}
    if groff := shutil.which("groff"):
        done = subprocess.run(
            [groff, "-man", "-ww", "-z", "-K", "utf8"], input=page, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""


def test_help_imports_nothing_that_is_slow() -> None:
    """0.3 s of CPU is what `ironspan --help` may cost; these would be more."""
    script = (
        "import sys\nfrom ironspan.cli.main import build_parser\nbuild_parser().format_help()\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    slow = {"ansible", "cryptography", "jinja2", "kubernetes", "rich", "urllib3", "yaml"}
    assert not set(done.stdout.split()) & slow
