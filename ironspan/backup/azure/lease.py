# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The lease of a blob."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from azure.storage.blob import BlobLeaseClient

from ironspan.program.errors import LeaseLost, NotThere


class BlobLease:
    """A lease that is held.

    Args:
        ask: makes a request and raises our errors.
        name: of the object, for messages.
        held: the SDK's lease.
    """

    def __init__(
        self, ask: Callable[[Callable[[], object]], object], name: str, held: BlobLeaseClient
    ) -> None:
        self.id = str(held.id)
        self._ask, self._name, self._held = ask, name, held
        self._released = False

    def renew(self) -> None:
        """Hold it for its seconds again. Raises LeaseLost when another took it."""
        if self._released:
            raise LeaseLost(f"The lease of {self._name} was given up.")
        try:
            self._ask(self._held.renew)
        except NotThere as error:
            raise LeaseLost(error.message) from None

    def release(self) -> None:
        """Give it up; a lease that is lost already is no error."""
        if self._released:
            return
        with contextlib.suppress(LeaseLost, NotThere):
            self._ask(self._held.release)
        self._released = True
