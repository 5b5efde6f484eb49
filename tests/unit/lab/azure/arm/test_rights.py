# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who may use the data of an estate: scopes, wildcards, what a role takes away again, and when."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ironspan.lab.azure.arm.rights import BLOBS, KEYS, may
from ironspan.lab.azure.arm.rules.access import ASSIGNMENT, DEFINITION
from ironspan.lab.azure.arm.schedules import expire
from ironspan.lab.azure.arm.state import Resource, State, subscription_scope

GROUP = f"{subscription_scope()}/resourceGroups/data"
ACCOUNT = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/acme"
CONTAINER = f"{ACCOUNT}/blobServices/default/containers/etcd"
READER, OWNER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1", "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
WHO = "aaaaaaaa-0000-4000-8000-000000000001"
CUSTOM = "cccccccc-0000-4000-8000-000000000001"
PERMISSION: dict[str, t.Any] = {
    "actions": [], "notActions": [], "dataActions": [f"{BLOBS}/blobs/*"],
    "notDataActions": [f"{BLOBS}/blobs/delete"],
}  # fmt: skip


def state(folder: Path, scope: str, role: str, who: str = WHO, visible_at: float = 0.0) -> State:
    """A subscription with one role assignment and one custom role."""
    made = State(folder)
    for type, name, properties in (
        (ASSIGNMENT, "a", {"principalId": who, "roleDefinitionId": f"/x/{role}", "scope": scope}),
        (DEFINITION, CUSTOM, {"permissions": [PERMISSION]}),
    ):
        id = f"{scope}/providers/{type}/{name}"
        document = {"id": id, "name": name, "type": type, "properties": properties}
        made.resources[id.lower()] = Resource(document, visible_at=visible_at)
    return made


@pytest.mark.parametrize(
    ("scope", "role", "action", "allowed"),
    [
        (CONTAINER, READER, f"{BLOBS}/blobs/read", True),
        (CONTAINER, READER, f"{BLOBS}/blobs/write", False),
        (CONTAINER.upper(), READER, f"{BLOBS}/blobs/READ", True),
        (ACCOUNT, READER, f"{BLOBS}/read", True),
        (GROUP, OWNER, f"{BLOBS}/blobs/add/action", True),
        (f"{CONTAINER}2", READER, f"{BLOBS}/blobs/read", False),
        (f"{ACCOUNT}2", OWNER, f"{BLOBS}/blobs/read", False),
        (CONTAINER, OWNER, f"{KEYS}/read", False),
        (CONTAINER, CUSTOM, f"{BLOBS}/blobs/write", True),
        (CONTAINER, CUSTOM, f"{BLOBS}/blobs/delete", False),
        (CONTAINER, "dddddddd-0000-4000-8000-000000000001", f"{BLOBS}/blobs/read", False),
    ],
)
def test_a_role_counts_where_it_is_assigned_and_below(
    tmp_path: Path, scope: str, role: str, action: str, allowed: bool
) -> None:
    assert may(state(tmp_path, scope, role), WHO, CONTAINER, action) is allowed


def test_nobody_else_has_it_and_nobody_before_it_is_seen(tmp_path: Path) -> None:
    read = f"{BLOBS}/blobs/read"
    assert not may(state(tmp_path, CONTAINER, READER, who=f"{WHO[:-1]}2"), WHO, CONTAINER, read)
    assert not may(state(tmp_path, CONTAINER, READER, visible_at=2.0**40), WHO, CONTAINER, read)


def test_an_assignment_that_ends_is_gone_and_a_new_one_lasts(tmp_path: Path) -> None:
    made = state(tmp_path, CONTAINER, READER)
    made.settings.role_ends = {WHO: made.now() + 60}
    assert not expire(made)
    made.offset_s = 61
    assert expire(made)
    assert not may(made, WHO, CONTAINER, f"{BLOBS}/blobs/read")
    assert made.settings.role_ends == {}
