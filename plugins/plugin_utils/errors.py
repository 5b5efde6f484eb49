# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What every error that an operator reads has in common: what is wrong, and what to do about it.

One class for the controller, the command line, the lab and programs: what they raise derives from it. Code
for hosts cannot import it, and tells the controller what is wrong as data (``ResourceError``, ``Problem``).
"""

from __future__ import annotations


class ActionableError(Exception):
    """Something cannot be done, for a reason that an operator can act on.

    Args:
        message: what is wrong, either a sentence or a clause without a full stop; never holds a secret.
        remedy: what to do about it, in the same form; "" when the message says all.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        separator = " " if message.endswith((".", "?", "!")) else "; "
        super().__init__(f"{message}{separator}{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class PlanError(ActionableError):
    """A plan is not made or not applied: the message is a clause without a full stop, the remedy too."""
