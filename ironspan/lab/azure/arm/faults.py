# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of the resource manager by name: which resource they hit, and how Azure words them.

Faults of a connection (outage, lost reply, 500, ...) are those of `ironspan.lab.azure.faults`,
service management.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any

from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.ids import ResourceId

#: Name -> status, message, whether it shows only after the resource was accepted.
NAMED: dict[str, tuple[int, str, bool]] = {
    "AnotherOperationInProgress": (409, "Another operation on this or a dependent resource runs.", False),
    "RetryableError": (429, "A retryable error occurred.", False),
    "RetryableErrorDueToAnotherOperation": (
        429, "Operation is retryable, another operation on the resource is in progress.", False,
    ),
    "TooManyRequests": (429, "The request was throttled.", False),
    "PrincipalNotFound": (400, "Principal does not exist in the directory.", False),
    "AuthorizationFailed": (403, "The client does not have authorization to perform action.", False),
    "SkuNotAvailable": (409, "The requested size is currently not available in the location or zone.", False),
    "ZonalAllocationFailed": (409, "Allocation failed: not enough capacity in the zone.", True),
    "OverconstrainedZonalAllocationRequest": (
        409, "Allocation failed. VM(s) with the following constraints cannot be allocated.", True,
    ),
    "QuotaExceeded": (409, "Operation results in exceeding approved quota.", False),
    "InUseSubnetCannotBeDeleted": (400, "Subnet is in use and cannot be deleted.", False),
    "InUseSubnetCannotBeUpdated": (400, "Subnet is in use and cannot be updated.", False),
    "DeploymentActive": (409, "Unable to replace the deployment: it is still active.", False),
    "DeploymentQuotaExceeded": (409, "Creating the deployment would exceed the quota of 800.", False),
    "RequestDisallowedByPolicy": (403, "Resource was disallowed by policy.", False),
    "ConflictError": (409, "A vault with the same name already exists in deleted state.", False),
    "StorageAccountAlreadyTaken": (409, "The storage account name is already taken.", False),
    "DenyAssignmentAuthorizationFailed": (403, "There is a deny assignment with the action.", False),
    "InternalServerError": (500, "The server encountered an internal error.", False),
    "OSProvisioningTimedOut": (409, "OS provisioning did not finish in the allotted time.", True),
}  # fmt: skip
_numbers = itertools.count(1)


@dataclass
class NamedFault:
    """A fault and the resources that it hits.

    Attributes:
        code: One of NAMED.
        type: Resource type; empty for each.
        name: Last name of the resource; empty for each.
        operation: put, delete, action; empty for each.
        count: How many more times; None for always.
        retry_after_s: Retry-After of the answer; None for no such header.
        late: Whether it shows after the resource was accepted; None for what is usual.
    """

    code: str
    type: str = ""
    name: str = ""
    operation: str = "put"
    count: int | None = 1
    retry_after_s: float | None = None
    late: bool | None = None
    id: int = 0
    hits: int = 0

    def __post_init__(self) -> None:
        if self.code not in NAMED:
            raise ValueError(f"code {self.code!r}: write one of {', '.join(NAMED)}")
        self.id = next(_numbers)

    @property
    def shows_late(self) -> bool:
        """Whether the resource is accepted first."""
        return NAMED[self.code][2] if self.late is None else self.late

    def shown(self) -> dict[str, Any]:
        """For people and programs."""
        return asdict(self)


class NamedFaults:
    """The faults there are now."""

    def __init__(self) -> None:
        self.active: list[NamedFault] = []

    def choose(self, operation: str, id: ResourceId) -> NamedFault | None:
        """Return the first fault that hits, counted."""
        for one in self.active:
            if (
                one.operation in ("", operation)
                and one.type.lower() in ("", id.type.lower())
                and one.name.lower() in ("", id.name.lower())
                and one.count != 0
            ):
                one.hits += 1
                if one.count is not None:
                    one.count -= 1
                return one
        return None


def error(fault: NamedFault, id: ResourceId) -> ArmError:
    """Return the error of a fault."""
    status, message, _ = NAMED[fault.code]
    headers = {} if fault.retry_after_s is None else {"retry-after": f"{fault.retry_after_s:g}"}
    return ArmError(status, fault.code, f"{message} Resource: {id.text}", target=id.name, headers=headers)
