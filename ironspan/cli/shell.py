# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan completion`` and ``ironspan man``: made from the command line's own parser."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
import sys
import typing as t
from collections.abc import Iterator

SHELLS = ("bash", "zsh", "fish")


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the commands ``completion`` and ``man``."""
    completion = subparsers.add_parser(
        "completion",
        help="print what completes this command in a shell",
        description="Print a script that completes commands and options. bash: ironspan completion bash > "
        "~/.local/share/bash-completion/completions/ironspan. zsh: into a file _ironspan in a folder of "
        "$fpath. fish: ironspan completion fish > ~/.config/fish/completions/ironspan.fish.",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")
    completion.set_defaults(func=complete)
    man = subparsers.add_parser(
        "man",
        help="print the manual page",
        description="Print the manual page, for example: ironspan man > ~/.local/share/man/man1/ironspan.1",
    )
    man.set_defaults(func=manual)


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        words: behind the program's name; empty for the program itself.
        parser: of it.
        commands: below it, each with its help.
    """

    words: tuple[str, ...]
    parser: argparse.ArgumentParser
    commands: dict[str, str]

    @property
    def path(self) -> str:
        """Return the words as one text."""
        return " ".join(self.words)

    def options(self) -> Iterator[argparse.Action]:
        """Yield its options that are shown."""
        for action in self.parser._actions:
            if action.option_strings and action.help is not argparse.SUPPRESS:
                yield action

    def arguments(self) -> Iterator[argparse.Action]:
        """Yield its positional arguments."""
        for action in self.parser._actions:
            if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
                yield action

    def choices(self) -> list[str]:
        """Return the words that a positional argument takes, where it takes only these."""
        return [str(choice) for action in self.arguments() for choice in action.choices or ()]


def commands_of(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[Command]:
    """Yield a parser's command and all below it, the upper ones first."""
    nested = [item for item in parser._actions if isinstance(item, argparse._SubParsersAction)]
    helps = {choice.dest: _plain(choice.help or "") for item in nested for choice in item._choices_actions}
    below = {name: one for item in nested for name, one in item.choices.items()}
    yield Command(words, parser, {name: helps.get(name, "") for name in below})
    for name, one in below.items():
        yield from commands_of(one, (*words, name))


def _plain(text: str) -> str:
    return re.sub(r"%%", "%", " ".join(text.split()))


def complete(arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    from ironspan.cli.main import build_parser

    made = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]
    sys.stdout.write(made(list(commands_of(build_parser()))))
    return 0


def manual(_: argparse.Namespace) -> int:
    """Print the manual page."""
    from ironspan.cli.main import build_parser

    sys.stdout.write(man_page(list(commands_of(build_parser()))))
    return 0


def _names(command: Command) -> list[str]:
    return [name for action in command.options() for name in action.option_strings]


_WALK = """\
  local here=ironspan word
  for word in "${words_before[@]}"; do
    case " ${known[$here]} " in *" $word "*) here="$here $word" ;; esac
  done
"""


def bash(commands: list[Command]) -> str:
    """Return the script of bash: commands and options where they fit, and files."""
    return "\n".join(
        [
            "# Completion of ironspan for bash, made by `ironspan completion bash`.",
            "_ironspan() {",
            *_tables(commands, "    [{key}]={value}"),
            '  local words_before=("${COMP_WORDS[@]:1:COMP_CWORD-1}") word_now="${COMP_WORDS[COMP_CWORD]}"',
            f"{_WALK}"
            '  if [[ $word_now == -* ]]; then COMPREPLY=($(compgen -W "${options[$here]}" -- "$word_now"))',
            '  else COMPREPLY=($(compgen -W "${known[$here]} ${choices[$here]}" -- "$word_now")); fi',
            "}",
            "complete -o default -F _ironspan ironspan",
            "",
        ]
    )


def zsh(commands: list[Command]) -> str:
    """Return the script of zsh."""
    return "\n".join(
        [
            "#compdef ironspan",
            "# Made by `ironspan completion zsh`.",
            "_ironspan() {",
            *_tables(commands, "    {key} {value}"),
            '  local -a words_before=("${(@)words[2,CURRENT-1]}")',
            f"{_WALK}  if [[ ${{words[CURRENT]}} == -* ]]; then compadd -- ${{=options[$here]}}",
            "  else compadd -- ${=known[$here]} ${=choices[$here]}; _files; fi",
            "}",
            'if [[ ${funcstack[1]} == _ironspan ]]; then _ironspan "$@"; else compdef _ironspan ironspan; fi',
            "",
        ]
    )


def _tables(commands: list[Command], entry: str) -> Iterator[str]:
    """Yield three tables of a shell with associative arrays, by the words of a command.

    Args:
        commands: all of them.
        entry: how the shell writes one, with ``{key}`` and ``{value}``.
    """
    for table, texts in (
        ("known", {one.path: list(one.commands) for one in commands}),
        ("options", {one.path: _names(one) for one in commands}),
        ("choices", {one.path: one.choices() for one in commands}),
    ):
        yield f"  local -A {table}=("
        for path, names in texts.items():
            if names:
                key = shlex.quote(f"ironspan {path}".strip())
                yield entry.format(key=key, value=shlex.quote(" ".join(names)))
        yield "  )"


def fish(commands: list[Command]) -> str:
    """Return the script of fish, with a help text for each word."""
    lines = [
        "# Completion of ironspan for fish, made by `ironspan completion fish`.",
        "function __ironspan_at",
        "    set -l given (commandline -opc)[2..-1]",
        "    set -l path",
        "    for word in $given",
        '        contains -- (string join " " $path $word) $__ironspan_commands; and set -a path $word',
        "    end",
        '    test (string join " " $path) = "$argv[1]"',
        "end",
        "set -g __ironspan_commands " + " ".join(shlex.quote(one.path) for one in commands if one.words),
    ]
    for one in commands:
        start = f"complete -c ironspan -n {shlex.quote(f'__ironspan_at {shlex.quote(one.path)}')}"
        for name, text in one.commands.items():
            lines.append(f"{start} -f -a {name} -d {_fish(text)}")
        for choice in one.choices():
            lines.append(f"{start} -f -a {shlex.quote(choice)}")
        for action in one.options():
            kinds = " ".join(
                f"-{'l' if name.startswith('--') else 's'} {name.lstrip('-')}"
                for name in action.option_strings
            )
            value = "" if action.nargs == 0 else " -r"
            values = f" -f -a {shlex.quote(' '.join(map(str, action.choices)))}" if action.choices else ""
            lines.append(f"{start} {kinds}{value}{values} -d {_fish(_plain(action.help or ''))}")
    return "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def man_page(commands: list[Command]) -> str:
    """Return the manual page as man(7) source."""
    import ironspan

    top = commands[0]
    lines = [
        f'.TH IRONSPAN 1 "" "ironspan {ironspan.__version__}" "User Commands"',
        ".SH NAME",
        f"ironspan \\- {_roff(_plain(top.parser.description or ''))}",
        ".SH SYNOPSIS",
        ".B ironspan",
        ".I COMMAND",
        "[options]",
        ".SH COMMANDS",
    ]
    for one in commands[1:]:
        lines += [f".SS ironspan {_roff(one.path)}", _roff(_plain(one.parser.description or ""))]
        for action in (*one.arguments(), *one.options()):
            names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            metavar = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
            value = f" {metavar}" if action.option_strings and action.nargs != 0 else ""
            lines += [".TP", f".B {_roff(names + value)}", _roff(_plain(_expanded(one, action)))]
    lines += [
        ".SH EXIT STATUS",
        _roff(_plain(top.parser.epilog or "")),
        ".SH SEE ALSO",
        "ansible-playbook(1)",
    ]
    return "\n".join(lines) + "\n"


def _expanded(command: Command, action: argparse.Action) -> str:
    formatter = command.parser._get_formatter()
    return formatter._expand_help(action) if action.help else ""


def _roff(text: str) -> str:
    """Return a text as one line of roff that is no request and keeps its signs."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
