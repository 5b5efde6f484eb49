# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The errors of talking to a cluster, for people."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError


class ClusterError(ActionableError):
    """The cluster did not do what was asked, or cannot be reached; both parts are sentences."""


class UnreachableError(ClusterError):
    """Nothing answers at the API's address."""


class ApiError(ClusterError):
    """The API answered with an error.

    Args:
        status: HTTP status.
        reason: the machine-readable reason of the answer ("NotFound", "Conflict", ...).
        message: the API's own sentence.
        request: method and path.
    """

    def __init__(self, status: int, reason: str, message: str, request: str) -> None:
        super().__init__(f"The API refused {request}: {message or reason} (HTTP {status}).")
        self.status = status
        self.reason = reason
