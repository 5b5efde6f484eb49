# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How a command ends: exit codes, and the error that carries one."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError


class Exit(enum.IntEnum):
    """Exit codes of every ``ironspan`` command (and of what ``ansible-playbook`` runs are mapped to)."""

    OK = 0
    FAILED = 1
    """A change failed on at least one host; the failing host was rolled back."""
    BAD_INPUT = 2
    """The input was refused before anything was touched."""
    UNFINISHED = 3
    """The end of the run was never seen: ansible-playbook was killed. The next run finishes it."""
    HOSTS = 4
    """At least one host was unreachable or unfit; the others finished."""
    INTERRUPTED = 130
    """The operator pressed Ctrl-C; the next run resumes."""


class CommandError(ActionableError):
    """A command cannot go on, and this is how it ends.

    Args:
        message: what is wrong, in one sentence.
        remedy: what to do about it, in one sentence; may be empty.
        code: how the command ends.
    """

    def __init__(self, message: str, remedy: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(message, remedy)
        self.code = code


@contextlib.contextmanager
def ending(code: Exit, *errors: type[ActionableError]) -> Iterator[None]:
    """Let a command end with a code for errors that have none.

    Args:
        code: how it ends.
        errors: for these; other errors are left alone.

    Raises:
        CommandError: with what the error says.
    """
    try:
        yield
    except errors as error:
        raise CommandError(error.message, error.remedy, code) from error
