# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The backup program of a host: how it is called, and what its answers mean."""

from __future__ import annotations

import json
import typing as t

PROGRAM = "/opt/ironspan/etcd-backup/bin/ironspan-etcd-backup"
REFUSED = 2
"""Its exit status for what it refuses to do."""


class ProgramError(Exception):
    """A command of the program failed.

    Args:
        message: what it says of that.
        refused: whether it refused and touched nothing.
        answer: what it printed, None when that is no JSON.
    """

    def __init__(self, message: str, refused: bool, answer: t.Any) -> None:
        super().__init__(message)
        self.refused, self.answer = refused, answer


def command(program: str, verb: str, arguments: t.Sequence[str]) -> t.List[str]:
    """Return the words that run one of its commands.

    Args:
        program: its path.
        verb: the command.
        arguments: what follows it, never a secret.
    """
    return [program, verb, *arguments, "--json"]


def answer_of(verb: str, status: int, output: str, problems: str) -> t.Any:
    """Return what a command of it answered.

    Args:
        verb: the command.
        status: its exit status.
        output: what it printed.
        problems: what it wrote as progress and messages.

    Raises:
        ProgramError: it failed, or its answer is no JSON.
    """
    answer = _read(output)
    if status != 0:
        raise ProgramError(f"{verb}: {_reason(answer, problems)}", status == REFUSED, answer)
    if answer is None:
        raise ProgramError(f"{verb}: the answer of the program is no JSON: {output[:200]!r}", False, None)
    return answer


def _read(output: str) -> t.Any:
    try:
        return json.loads(output)
    except ValueError:
        return None


def _reason(answer: t.Any, problems: str) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return " ".join(str(error[part]) for part in ("message", "remedy") if error.get(part))
    lines = problems.strip().splitlines()
    return lines[-1].strip() if lines else "it gave no reason; look at journalctl -u ironspan-etcd-backup"
