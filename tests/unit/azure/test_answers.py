# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Azure says when it refuses, found wherever it hides it."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import (
    Refused,
    Said,
    asked,
    leaves,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from hypothesis import given
from hypothesis import strategies as st

QUOTA = {"code": "QuotaExceeded", "message": "16 more cores", "target": "vm-1"}


class Answer:
    """A response as the SDK has it."""

    reason = "Conflict"

    def __init__(self, status: int, body: str) -> None:
        self.status_code, self._body = status, body
        self.headers: dict[str, str] = {}

    def text(self) -> str:
        return self._body


def refusing(status: int, body: t.Any) -> t.Callable[[], t.Any]:
    def request() -> t.Any:
        response: t.Any = Answer(status, body if isinstance(body, str) else json.dumps(body))
        error = HttpResponseError("no")
        error.response, error.status_code, error.reason = response, status, response.reason
        raise error

    return request


@pytest.mark.parametrize(
    "body",
    [
        {"error": QUOTA},
        {"status": "Failed", "error": QUOTA},
        {"error": {"code": "DeploymentFailed", "message": "see details", "details": [QUOTA]}},
        {"error": {"code": "DeploymentFailed", "message": json.dumps({"error": QUOTA})}},
        {
            "error": {
                "code": "Conflict",
                "message": "x",
                "details": [{"code": "", "message": json.dumps(QUOTA)}],
            }
        },
        {
            "error": {
                "code": "DeploymentFailed",
                "details": [
                    {"code": "ResourceDeploymentFailure", "details": [QUOTA]},
                    {"code": "ResourceDeploymentFailure", "details": [QUOTA]},
                ],
            }
        },
        {"properties": {"provisioningState": "failed", "error": {"code": "", "innererror": QUOTA}}},
    ],
)
def test_what_went_wrong_is_found_once(body: t.Any) -> None:
    assert leaves(body) == [Said("QuotaExceeded", "16 more cores", "vm-1")]


def test_a_policy_is_named() -> None:
    info = {"policyDefinitionDisplayName": "No public addresses", "policyAssignmentName": "corp"}
    body = {
        "error": {
            "code": "RequestDisallowedByPolicy",
            "message": "was disallowed",
            "additionalInfo": [{"type": "PolicyViolation", "info": info}],
        }
    }
    assert "No public addresses" in [one.message for one in leaves(body)]


def test_a_wrapper_without_anything_in_it_is_told_itself() -> None:
    assert leaves({"error": {"code": "DeploymentFailed", "message": "so"}}) == [
        Said("DeploymentFailed", "so")
    ]
    assert leaves({"value": []}) == leaves("no json") == leaves(None) == []


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["error", "code", "message", "details", "additionalInfo", "info", "target"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_answer_is_read(body: t.Any) -> None:
    for one in leaves(body):
        assert one.code
        assert "\n" not in one.text()


def test_an_operation_that_failed_is_refused_whatever_its_status() -> None:
    """Azure answers 200 with status Failed when an operation fails while it runs."""
    with pytest.raises(Refused) as caught:
        asked("to deploy x", refusing(200, {"status": "Failed", "error": QUOTA}))
    assert str(caught.value) == (
        "Azure refused to deploy x: QuotaExceeded (vm-1): 16 more cores; ask for more quota in the portal, "
        "or write smaller numbers"
    )


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        ("AnotherOperationInProgress", True),
        ("RetryableError", True),
        ("RetryableErrorDueToAnotherOperation", True),
        ("PrincipalNotFound", True),
        ("DeploymentActive", True),
        ("QuotaExceeded", False),
        ("AuthorizationFailed", False),
    ],
)
def test_what_may_succeed_later_is_told_from_what_never_will(code: str, transient: bool) -> None:
    with pytest.raises(Refused) as caught:
        asked("it", refusing(409, {"error": {"code": code, "message": "m"}}))
    assert caught.value.transient is transient


def test_one_lasting_reason_makes_all_of_it_last() -> None:
    said = [Said("RetryableError", "a"), Said("QuotaExceeded", "b")]
    assert not Refused("it", said).transient


def test_what_is_not_there_is_none_and_other_404s_are_refused() -> None:
    assert asked("it", refusing(404, {"error": {"code": "ResourceNotFound", "message": "m"}})) is None
    with pytest.raises(Refused, match="SubscriptionNotFound"):
        asked("it", refusing(404, {"error": {"code": "SubscriptionNotFound", "message": "m"}}))


def test_an_answer_that_is_no_json_is_told_by_its_status() -> None:
    with pytest.raises(Refused, match=r"HTTP 502|no"):
        asked("it", refusing(502, "<html>"))


def test_who_cannot_prove_who_he_is_and_who_does_not_answer() -> None:
    def denied() -> None:
        raise ClientAuthenticationError("az login\nplease")

    def silent() -> None:
        raise ServiceRequestError("no route")

    with pytest.raises(RemoteError, match=r"who it is: az login please; log in"):
        asked("it", denied)
    with pytest.raises(RemoteError, match="does not answer"):
        asked("it", silent)


def test_many_reasons_are_cut() -> None:
    error = Refused("it", [Said(f"Code{number}", "m" * 1000) for number in range(20)])
    assert "and 12 more" in str(error)
    assert len(str(error)) < 4000
