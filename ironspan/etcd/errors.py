# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between a program and etcd."""

from __future__ import annotations

from ironspan.program.errors import ProgramError


class EtcdError(ProgramError):
    """An etcd member did not do what it was asked for.

    Attributes:
        code: gRPC's status code by name, for example ``UNAVAILABLE``.
        endpoint: the member that was asked.
    """

    def __init__(self, message: str, remedy: str = "", *, code: str = "", endpoint: str = "") -> None:
        super().__init__(message, remedy)
        self.code = code
        self.endpoint = endpoint


class Unreachable(EtcdError):
    """The member did not answer, or lost its leader; another one may answer. A write may have happened."""


class Compacted(EtcdError):
    """The revision asked for is no longer in etcd.

    Attributes:
        compact_revision: the oldest revision that etcd still has; 0 when etcd did not say.
    """

    def __init__(self, message: str, *, compact_revision: int = 0, endpoint: str = "") -> None:
        super().__init__(message, code="OUT_OF_RANGE", endpoint=endpoint)
        self.compact_revision = compact_revision
