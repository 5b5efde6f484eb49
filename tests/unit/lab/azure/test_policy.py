# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Retention policies and legal holds: the tables of what is denied, and the rules of changing a policy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.lab.azure.operations import Effect
from ironspan.lab.azure.policy import DAY_S, Append, Blob, Container, PolicyError

NOW = 1_800_000_000.0
EFFECTS: tuple[Effect, ...] = (
    "read", "put", "block", "append", "change", "delete", "lease", "tags", "other",
)  # fmt: skip
CHANGING = {"put", "block", "append", "change", "delete"}


def blob(age_days: float = 0.0, idle_days: float | None = None, appendable: bool = False) -> Blob:
    idle = age_days if idle_days is None else idle_days
    return Blob(NOW - age_days * DAY_S, NOW - idle * DAY_S, appendable)


def container(days: int = 0, append: Append = "none", holds: tuple[str, ...] = ()) -> Container:
    one = Container(holds=list(holds))
    if days:
        one.put(days, append, None)
    return one


@pytest.mark.parametrize(
    ("kept", "there", "denied"),
    [
        (container(), blob(), set()),
        (container(7), None, set()),
        (container(holds=("case-1",)), None, set()),
        (container(7), blob(6.9), CHANGING),
        # Once its time is over a blob can be deleted, and still not be overwritten.
        (container(7), blob(7.1), CHANGING - {"delete"}),
        (container(holds=("case-1",)), blob(999), CHANGING),
        (container(7, holds=("case-1",)), blob(7.1), CHANGING),
        (container(7, "append"), blob(1, appendable=True), CHANGING - {"append"}),
        (container(7, "all"), blob(1), CHANGING - {"append", "block"}),
        # An append blob that may still grow is kept from its last append, not from its creation.
        (container(7, "append"), blob(30, 6.9, appendable=True), CHANGING - {"append"}),
        (container(7, "append"), blob(30, 7.1, appendable=True), CHANGING - {"append", "delete"}),
        (container(7), blob(30, 6.9, appendable=True), CHANGING - {"delete"}),
    ],
)
def test_what_is_denied(kept: Container, there: Blob | None, denied: set[str]) -> None:
    assert {effect for effect in EFFECTS if kept.refusal(effect, there, NOW) is not None} == denied


def test_the_code_says_which_of_the_two_it_is() -> None:
    assert container(7).refusal("delete", blob(), NOW) == "BlobImmutableDueToPolicy"
    assert container(holds=("x",)).refusal("delete", blob(), NOW) == "BlobImmutableDueToLegalHold"


@given(st.integers(1, 400), st.floats(0, 800), st.sampled_from(["none", "append", "all"]), st.booleans())
def test_nothing_young_is_ever_deleted(days: int, age: float, append: Append, appendable: bool) -> None:
    kept = container(days, append)
    refused = kept.refusal("delete", blob(age, appendable=appendable), NOW)
    assert (refused is None) == (age * DAY_S >= days * DAY_S)


def code_of(change: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(PolicyError) as caught:
        change()
    return caught.value.status, caught.value.code


def test_an_unlocked_policy_can_be_changed_and_removed() -> None:
    one = container(7)
    assert one.policy is not None
    assert one.put(3, "all", one.policy.etag).days == 3
    assert one.policy.append == "all"
    one.remove("*")
    assert one.policy is None
    assert one.mutable


def test_a_locked_policy_can_only_grow_five_times() -> None:
    one = container(7, "append")
    first = one.policy
    assert first is not None
    locked = one.lock(first.etag)
    assert locked.locked
    assert locked.etag != first.etag
    assert code_of(lambda: one.put(9, "append", "*")) == (409, "ContainerImmutabilityPolicyLocked")
    assert code_of(lambda: one.remove("*")) == (409, "ContainerImmutabilityPolicyLocked")
    assert code_of(lambda: one.extend(6, "*")) == (409, "ImmutabilityPolicyShortened")
    for days in range(8, 13):
        assert one.extend(days, "*").days == days
        assert one.policy is not None
        assert one.policy.append == "append"
    assert code_of(lambda: one.extend(13, "*")) == (409, "ImmutabilityPolicyExtensions")
    assert one.as_dict()["policy"]["days"] == 12


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda one: one.lock("0123"), (412, "PreconditionFailed")),
        (lambda one: one.lock(None), (400, "MissingRequiredHeader")),
        (lambda one: one.remove("0123"), (412, "PreconditionFailed")),
        (lambda one: one.put(5, "none", "0123"), (412, "PreconditionFailed")),
        (lambda one: one.put(0, "none", None), (400, "InvalidParameter")),
        (lambda one: one.put(146_001, "none", None), (400, "InvalidParameter")),
        (lambda one: one.extend(9, "*"), (409, "ImmutabilityPolicyUnlocked")),
    ],
)
def test_changes_that_are_refused_change_nothing(
    change: Callable[[Container], object], refusal: tuple[int, str]
) -> None:
    one = container(7)
    before = one.as_dict()
    assert code_of(lambda: change(one)) == refusal
    assert one.as_dict() == before


def test_without_a_policy_there_is_nothing_to_lock() -> None:
    assert code_of(lambda: Container().lock("*")) == (404, "ContainerImmutabilityPolicyNotFound")


def test_policies_outlive_the_process() -> None:
    one = container(7, "append", ("case-1",))
    one.lock("*")
    assert Container.from_dict(one.as_dict()) == one
