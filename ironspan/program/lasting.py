# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tells of what lasts when it begins, and not each time that it is found again."""

from __future__ import annotations

import logging


class Lasting:
    """One thing that may be wrong, looked at again and again.

    Args:
        log: where it is told.
        level: of the messages.
    """

    def __init__(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        self._log, self._level = log, level
        self._told = ""

    def tell(self, problem: object | None, name: str = "") -> None:
        """Tell what was found, unless the last look found the same.

        Args:
            problem: what is wrong, in words; None when nothing is.
            name: by which it is known to be the same where its words change while it lasts; default: these.
        """
        found = "" if problem is None else name or str(problem)
        if found and found != self._told:
            self._log.log(self._level, "%s", problem)
        self._told = found
