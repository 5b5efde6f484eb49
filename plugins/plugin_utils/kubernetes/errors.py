# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The errors of talking to a cluster, for people."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError


class ClusterError(ActionableError):
    """The cluster did not do what was asked, or cannot be reached; both parts are sentences."""


class UnreachableError(ClusterError):
    """Nothing answers at the API's address."""


_REMEDIES = {
    401: (
        "It does not accept this site's certificate: compare its host's clock with this one's, and the "
        "authority that it trusts with the PKI store's (playbooks/certs.yml)."
    ),
    429: "It has too much to do: wait, and run again.",
    500: "Read the log of kube-apiserver, and ask etcd's members how they are (playbooks/doctor.yml).",
    503: "No API server is ready: look at etcd and the control planes (playbooks/doctor.yml).",
}


class ApiError(ClusterError):
    """The API answered with an error.

    Args:
        status: HTTP status.
        reason: the machine-readable reason of the answer ("NotFound", "Conflict", ...).
        message: the API's own sentence.
        request: method and path.
    """

    def __init__(self, status: int, reason: str, message: str, request: str) -> None:
        text = f"The API refused {request}: {message or reason} (HTTP {status})."
        super().__init__(text, _REMEDIES.get(status, ""))
        self.status = status
        self.reason = reason
