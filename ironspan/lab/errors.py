# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the lab raises."""

from __future__ import annotations

from ironspan.cli.outcome import CommandError, Exit


class LabError(CommandError):
    """The lab cannot do what was asked; the message says what is wrong and what to do.

    `exit_code` follows the CLI: 2 bad input or a machine that lacks something, 1 a step failed.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message, code=Exit(exit_code))
