# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a program and what it uses, where callers act differently on it."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError


class ProgramError(ActionableError):
    """Something that an operator of a program has to know: what is wrong, and what to do about it."""


class ServiceError(ProgramError):
    """A service that the program uses, such as a store, did not do what it was asked.

    Args:
        message: what is wrong.
        remedy: what to do about it.
        retryable: the same request may succeed later; its outcome may also be unknown.
        retry_after: seconds the service asked to wait, if it did.
    """

    def __init__(
        self, message: str, remedy: str = "", *, retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message, remedy)
        self.retryable = retryable
        self.retry_after = retry_after


class AlreadyThere(ServiceError):
    """An object of this name exists; nothing was replaced."""


class NotThere(ServiceError):
    """No object of this name exists."""


class LeaseLost(ServiceError):
    """Another holder has the lease, or ours ran out."""


class Refused(ServiceError):
    """The service, or the way to it, has to be fixed by an operator. Asking again is for much later."""


class Forbidden(Refused):
    """The identity may not do this, or the object is under a retention policy."""


class RoleMissing(Forbidden):
    """The identity has no role that allows it; no policy was asked."""


class KeyMissing(ProgramError):
    """The key version that something was encrypted with is not to be had, or does not open it."""
