# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a backup, where callers act differently on it."""

from __future__ import annotations

from ironspan.program.errors import ProgramError, ServiceError


class PositionConflict(ServiceError):
    """An append did not land because the object is not as long as the caller believed.

    Args:
        message: what is wrong.
        actual: the object's length in bytes.
    """

    def __init__(self, message: str, actual: int) -> None:
        super().__init__(message)
        self.actual = actual


class ChainError(ProgramError):
    """The backups do not lead to the point asked for, or are not what was written.

    Args:
        message: what is wrong.
        remedy: what to do about it.
        gap: first and last revision that are missing, if some are.
        altered: name of the object whose bytes are not those that were written, if one is.
    """

    def __init__(
        self, message: str, remedy: str = "", *, gap: tuple[int, int] | None = None, altered: str = ""
    ) -> None:
        super().__init__(message, remedy)
        self.gap = gap
        self.altered = altered


class Unsigned(ChainError):
    """An object of the time before objects were signed; nobody knows who wrote it."""


class WrongCluster(ProgramError):
    """The store's newest epoch belongs to another etcd cluster."""
