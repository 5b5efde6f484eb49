# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The settings file of a program, as its role writes it; ``Section`` reads it strictly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.module_utils._programs._settings import Section, take

from ironspan.program.errors import ProgramError

__all__ = ["Section", "SettingsError", "checked", "load"]


class SettingsError(ProgramError):
    """The settings file cannot be used; ``problems`` has one line for each thing to change."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.problems = problems
        lines = "\n".join(f"  {line}" for line in problems)
        super().__init__(f"{path} cannot be used:\n{lines}", "Run playbooks/site.yml, which writes it.")


def load(path: Path, role: str) -> object:
    """Return what a settings file holds.

    Args:
        path: the file, JSON.
        role: that writes it, for messages.

    Raises:
        SettingsError: it cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(path, [f"{error.strerror}; the role {role} writes this file"]) from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(path, [f"is not JSON ({error}); let the role {role} write it again"]) from error


def checked[Settings](data: object, path: Path, read: Callable[[Section], Settings]) -> Settings:
    """Return the settings that a file's content says.

    Args:
        data: the content.
        path: of the file, for messages.
        read: takes every setting from the section that is the whole file; what it leaves is refused.

    Raises:
        SettingsError: something in it is wrong; all problems at once.
    """
    problems: list[str] = []
    settings = take(data, read, problems)
    if problems:
        raise SettingsError(path, problems)
    return settings
