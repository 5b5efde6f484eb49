# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Refusals as the resource manager words them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ArmError(Exception):
    """An error answer.

    Attributes:
        status: HTTP status.
        code: What programs tell it by.
        details: Further errors, as documents.
        headers: Headers of the answer, for example Retry-After.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Sequence[dict[str, Any]] = (),
        target: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = list(details)
        self.target = target
        self.headers = dict(headers or {})

    def document(self) -> dict[str, Any]:
        """The error without the envelope."""
        found: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.target:
            found["target"] = self.target
        if self.details:
            found["details"] = self.details
        return found


def failure(document: Mapping[str, Any], status: int = 400) -> ArmError:
    """Return the error that the document of an operation describes."""
    return ArmError(
        status,
        str(document.get("code", "InternalServerError")),
        str(document.get("message", "")),
        document.get("details", ()),
        str(document.get("target", "")),
    )


def not_found(path: str) -> ArmError:
    """Return the answer about a resource that is not there."""
    return ArmError(404, "ResourceNotFound", f"The Resource '{path}' was not found.")
