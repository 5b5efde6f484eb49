# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Requests and answers as the parts of the resource manager hand them to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ironspan.lab.azure.arm.guards import Caller
from ironspan.lab.azure.arm.state import Operation, subscription_scope


@dataclass
class Asked:
    """A request.

    Attributes:
        path: Without a slash at its end.
        base: Beginning of the addresses that answers name.
    """

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]
    base: str
    caller: Caller

    @property
    def version(self) -> str:
        """The api-version."""
        return self.query.get("api-version", "")

    def polled(
        self, operation: Operation | None, location: bool, retry_after_s: float, status: bool = True
    ) -> dict[str, str]:
        """Return the headers of an answer that an operation goes on behind.

        Args:
            operation: The operation; None for none.
            location: Whether the answer names a Location.
            retry_after_s: Seconds to wait before asking again.
            status: Whether it names an Azure-AsyncOperation.
        """
        if operation is None:
            return {}
        place = f"{self.base}{subscription_scope()}/providers/Microsoft.Resources/locations/lab"
        version = f"?api-version={self.version}"
        headers = {"retry-after": f"{retry_after_s:g}"}
        if status:
            headers["azure-asyncoperation"] = f"{place}/operations/{operation.id}{version}"
        if location:
            headers["location"] = f"{place}/operationResults/{operation.id}{version}"
        return headers


@dataclass
class Answer:
    """An answer; `document` None is an empty body."""

    status: int
    document: Any
    headers: dict[str, str] = field(default_factory=dict)
