# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Azure answered, in an operator's words: which object, what is wrong, what to do."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from ironspan.program.errors import (
    AlreadyThere,
    Forbidden,
    LeaseLost,
    NotThere,
    ProgramError,
    Refused,
    RoleMissing,
    ServiceError,
)

ROLES = {
    "read": "ironspan backup reader",
    "write": "ironspan backup writer",
    "delete": "ironspan backup garbage collector",
}
"""The roles that docs/backup-store.md defines, by what they let an identity do with blobs."""
_NO_BLOB = ("BlobNotFound", "ResourceNotFound")
_EXISTS = ("BlobAlreadyExists", "UnauthorizedBlobOverwrite", "InvalidBlobType", "ConditionNotMet")
_LEASED = ("LeaseAlreadyPresent", "LeaseIdMismatchWithLeaseOperation", "LeaseNotPresentWithLeaseOperation",
           "LeaseIsBrokenAndCannotBeRenewed", "LeaseIsBreakingAndCannotBeAcquired", "LeaseLost",
           "LeaseIdMissing", "LeaseIdMismatchWithBlobOperation")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request went: what a message has to name."""

    account: str
    container: str
    blob: str = ""

    def __str__(self) -> str:
        return f"{self.account}/{self.container}/{self.blob}".rstrip("/")


def code_of(error: AzureError) -> str:
    """Return the service's error code, such as ``BlobNotFound``; "" when it gave none."""
    code = getattr(error, "error_code", None) or getattr(getattr(error, "error", None), "code", None)
    response = getattr(error, "response", None)
    if not code and response is not None:
        code = response.headers.get("x-ms-error-code")
    return str(getattr(code, "value", code) or "")


def retry_after(error: AzureError) -> float | None:
    """Return the seconds that the service asked to wait, if it did."""
    response = getattr(error, "response", None)
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return float(text) if text.isdecimal() else None


def outcome_unknown(error: AzureError) -> bool:
    """Say whether the request may have been carried out although it failed."""
    if isinstance(error, ServiceRequestError):
        return False
    status = getattr(error, "status_code", None)
    return status is None or status == 408 or status >= 500


def explain(error: AzureError, place: Place, need: str) -> ProgramError:
    """Turn an error of the Azure SDK into one of ours.

    Args:
        error: what the SDK raised. Its text is never repeated: it may hold headers.
        place: what the request was about.
        need: what the request needed to be allowed: ``read``, ``write`` or ``delete``.
    """
    if isinstance(error, ServiceRequestError):
        return _unreachable(error, place)
    if not isinstance(error, HttpResponseError) or error.status_code is None:
        slow = isinstance(error, ServiceResponseError)
        what = "did not answer in time or broke the connection" if slow else "sent an incomplete response"
        return ServiceError(f"{place}: the store {what}.", retryable=True)
    return _answered(error, place, need)


def _unreachable(error: ServiceRequestError, place: Place) -> ServiceError:
    cause: BaseException | None = error.inner_exception
    while cause is not None and not isinstance(cause, ssl.SSLError):
        reason = getattr(cause, "reason", None)
        nested = reason if isinstance(reason, BaseException) else (cause.args[0] if cause.args else None)
        cause = nested if isinstance(nested, BaseException) else None
    if cause is not None:
        return ServiceError(
            f"{place}: the certificate of the store is not trusted, or not for this name.",
            "If a firewall inspects TLS, exempt the account from it; `ca` in the settings names an authority "
            "other than the system's.",
            retryable=True,
        )
    return ServiceError(
        f"{place}: no connection to the store.",
        "Check the account's name, DNS, and the way to the private endpoint (port 443).",
        retryable=True,
    )


def _answered(error: HttpResponseError, place: Place, need: str) -> ServiceError:
    status, code = error.status_code or 0, code_of(error)
    said = f"{status} {code}".strip()
    if status in (408, 429) or status >= 500:
        return ServiceError(
            f"{place}: the store is busy or failing ({said}).",
            retryable=status not in (501, 505),
            retry_after=retry_after(error),
        )
    if code in _LEASED:
        return LeaseLost(f"{place}: another holds the lease ({said}).")
    if status == 404:
        return _missing(place, code)
    if status in (401, 403):
        return _refused(place, code, said, need)
    if code in ("BlobImmutableDueToPolicy", "BlobImmutableDueToLegalHold"):
        return Forbidden(
            f"{place}: a retention policy or legal hold of the container protects it ({said}).",
            "Nothing to do: it can be deleted when the policy's time is over.",
        )
    if code in _EXISTS:
        return AlreadyThere(f"{place} exists already ({said}).")
    if code == "PublicAccessNotPermitted":
        return ServiceError(f"{place}: anonymous requests are not permitted ({said}).")
    return ServiceError(f"{place}: the store refused the request ({said}).", f"Azure says: {_short(error)}")


def _missing(place: Place, code: str) -> ServiceError:
    if code in ("ContainerNotFound", "ContainerBeingDeleted"):
        return Refused(
            f"The container {place.container} is not in the account {place.account} ({code}).",
            "Create it with playbooks/backup_store.yml, or correct the name in the settings.",
        )
    if code in _NO_BLOB or not code:
        return NotThere(f"{place} does not exist.")
    return ServiceError(f"{place} was not found ({code}).", "Check account and container in the settings.")


def _refused(place: Place, code: str, said: str, need: str) -> ServiceError:
    if code in ("AuthorizationPermissionMismatch", "InsufficientAccountPermissions"):
        return RoleMissing(
            f"{place}: this identity may not {need} blobs ({said}).",
            f'Assign it the role "{ROLES[need]}" on the container {place.container} (docs/backup-store.md); '
            "a new assignment takes up to ten minutes to count.",
        )
    if code == "AuthorizationFailure":
        return Forbidden(
            f"{place}: the account refuses this network ({said}).",
            "Reach it through its private endpoint, or allow this network in the account's firewall rules.",
        )
    if code in ("AccountIsDisabled", "KeyBasedAuthenticationNotPermitted"):
        return Forbidden(f"{place}: the account does not allow it ({said}).")
    return Forbidden(
        f"{place}: the store does not accept the identity's token ({said}).",
        "Check the account's name, the tenant of the identity, and this host's clock (`chronyc tracking`).",
    )


def _short(error: HttpResponseError) -> str:
    return (error.reason or "no reason").splitlines()[0][:200]
