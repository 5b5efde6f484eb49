# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a backup, where callers act differently on it."""

from __future__ import annotations


class BackupError(Exception):
    """Something that an operator has to know.

    Args:
        message: what is wrong, with the name of the object or file.
        remedy: what to do about it.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()


class StoreError(BackupError):
    """A store did not do what it was asked.

    Args:
        message: what is wrong.
        remedy: what to do about it.
        retryable: the same request may succeed later; its outcome may also be unknown.
        retry_after: seconds the store asked to wait, if it did.
    """

    def __init__(
        self, message: str, remedy: str = "", *, retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message, remedy)
        self.retryable = retryable
        self.retry_after = retry_after


class AlreadyThere(StoreError):
    """An object of this name exists; nothing was replaced."""


class NotThere(StoreError):
    """No object of this name exists."""


class PositionConflict(StoreError):
    """An append did not land because the object is not as long as the caller believed.

    Args:
        message: what is wrong.
        actual: the object's length in bytes.
    """

    def __init__(self, message: str, actual: int) -> None:
        super().__init__(message)
        self.actual = actual


class LeaseLost(StoreError):
    """Another holder has the lease, or ours ran out."""


class Refused(StoreError):
    """The store, or the way to it, has to be mended by an operator. Asking again is for much later."""


class Forbidden(Refused):
    """The identity may not do this, or the object is under a retention policy."""


class RoleMissing(Forbidden):
    """The identity has no role that allows it; no policy was asked."""


class ChainError(BackupError):
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


class KeyMissing(BackupError):
    """The key version that a backup was encrypted with is not to be had, or does not open it."""


class WrongCluster(BackupError):
    """The store's newest epoch belongs to another etcd cluster."""
