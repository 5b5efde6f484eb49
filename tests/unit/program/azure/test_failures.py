# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every answer of Azure, in an operator's words."""

from __future__ import annotations

import ssl
import types
import typing as t

import pytest
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from ironspan.azure.failures import Place, explain, outcome_unknown
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

PLACE = Place("acme", "etcd", "lab/writer")
SECRET = "eyJ0eXAiOiJKV1Qi"


def answered(status: int, code: str = "", **headers: str) -> HttpResponseError:
    """Return the error of an answer with a status and the service's code."""
    named = {"x-ms-error-code": code} if code else {}
    response: t.Any = types.SimpleNamespace(
        status_code=status,
        reason="Reason",
        headers={**named, **headers, "authorization": SECRET},
        text=lambda: SECRET,
    )
    return HttpResponseError(message=SECRET, response=response)


@pytest.mark.parametrize(
    ("status", "code", "need", "kind", "retryable", "texts"),
    [
        (404, "BlobNotFound", "read", NotThere, False, ["acme/etcd/lab/writer does not exist"]),
        (404, "", "read", NotThere, False, ["does not exist"]),
        (404, "ContainerNotFound", "read", Refused, False, ["The container etcd is not in the account",
                                                            "backup_store.yml"]),
        (409, "BlobAlreadyExists", "write", AlreadyThere, False, ["exists already"]),
        (412, "ConditionNotMet", "write", AlreadyThere, False, ["exists already"]),
        (409, "BlobImmutableDueToPolicy", "delete", Forbidden, False, ["retention policy or legal hold"]),
        (409, "LeaseAlreadyPresent", "write", LeaseLost, False, ["another holds the lease"]),
        (412, "LeaseLost", "write", LeaseLost, False, ["another holds the lease"]),
        (409, "LeaseIdMismatchWithLeaseOperation", "write", LeaseLost, False, []),
        (403, "AuthorizationPermissionMismatch", "write", RoleMissing, False,
         ["may not write blobs", '"ironspan backup writer" on the container etcd']),
        (403, "AuthorizationPermissionMismatch", "delete", RoleMissing, False,
         ['"ironspan backup garbage collector"']),
        (403, "AuthorizationFailure", "read", Forbidden, False, ["refuses this network", "private endpoint"]),
        (403, "AuthenticationFailed", "read", Forbidden, False, ["identity's token", "clock"]),
        (401, "InvalidAuthenticationInfo", "read", Forbidden, False, ["tenant"]),
        (403, "AccountIsDisabled", "read", Forbidden, False, ["does not allow"]),
        (429, "", "read", ServiceError, True, ["busy"]),
        (503, "ServerBusy", "write", ServiceError, True, ["503 ServerBusy"]),
        (500, "InternalError", "write", ServiceError, True, []),
        (501, "APINotImplemented", "write", ServiceError, False, []),
        (408, "OperationTimedOut", "write", ServiceError, True, []),
        (400, "InvalidHeaderValue", "write", ServiceError, False, ["400 InvalidHeaderValue"]),
        (409, "BlockCountExceedsLimit", "write", ServiceError, False, ["409 BlockCountExceedsLimit"]),
        (413, "RequestBodyTooLarge", "write", ServiceError, False, []),
    ],
)  # fmt: skip
def test_answers(
    status: int, code: str, need: str, kind: type[ProgramError], retryable: bool, texts: list[str]
) -> None:
    found = explain(answered(status, code), PLACE, need)
    assert type(found) is kind
    assert isinstance(found, ServiceError)
    assert found.retryable is retryable
    assert not [text for text in texts if text not in str(found)]
    assert SECRET not in str(found)


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)]
)
def test_retry_after(text: str, seconds: float | None) -> None:
    found = explain(answered(503, "ServerBusy", **({"Retry-After": text} if text else {})), PLACE, "read")
    assert isinstance(found, ServiceError)
    assert found.retry_after == seconds


@pytest.mark.parametrize(
    ("error", "unknown", "texts"),
    [
        (ServiceRequestError("x"), False, ["no connection", "port 443"]),
        (
            ServiceRequestError("x", error=OSError(ssl.SSLCertVerificationError("x"))),
            False,
            ["certificate", "`ca`"],
        ),
        (ServiceResponseError("x"), True, ["did not answer"]),
        (HttpResponseError("x"), True, ["incomplete response"]),
        (answered(500), True, []),
        (answered(503), True, []),
        (answered(429), False, []),
        (answered(404), False, []),
    ],
)
def test_what_got_no_whole_answer(error: AzureError, unknown: bool, texts: list[str]) -> None:
    found = explain(error, PLACE, "write")
    assert not [text for text in texts if text not in str(found)]
    assert outcome_unknown(error) is unknown
