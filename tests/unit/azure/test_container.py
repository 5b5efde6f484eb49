# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From the container that is there to the one that is wanted."""

from __future__ import annotations

import dataclasses
import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.account import faults
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.container import (
    Found,
    Policy,
    StoreSetupError,
    Wanted,
    after,
    before,
    steps,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.management import Management
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.roles import (
    ADD,
    DELETE,
    READ,
    ROLES,
    WRITE,
    Allowed,
    judge,
)

WANTED = Wanted("s", "backup", "acme", "etcd", 30)
RIGHT = Found(public=False, policy=Policy(30, append=True))
LOCKED = Found(public=False, policy=Policy(30, append=True, locked=True))


@pytest.mark.parametrize(
    ("found", "lock", "verbs"),
    [
        (None, False, ["create", "protect"]),
        (None, True, ["create", "protect", "lock"]),
        (Found(public=False, policy=None), False, ["protect"]),
        (Found(public=True, policy=RIGHT.policy), False, ["close"]),
        (RIGHT, False, []),
        (RIGHT, True, ["lock"]),
        (Found(public=False, policy=Policy(7, append=True)), False, ["change"]),
        (Found(public=False, policy=Policy(90, append=True)), False, ["change"]),
        (Found(public=False, policy=Policy(30, append=False)), True, ["change", "lock"]),
        (LOCKED, False, []),
        (LOCKED, True, []),
        (Found(public=True, policy=LOCKED.policy), True, ["close"]),
        (Found(public=False, policy=Policy(7, append=True, locked=True)), True, ["extend"]),
    ],
)
def test_steps(found: Found | None, lock: bool, verbs: list[str]) -> None:
    made = steps(WANTED, found, lock)
    assert [step.verb for step in made] == verbs
    assert all("acme/etcd" in step.text for step in made)
    if made:
        shown = after(WANTED, found, made)
        assert shown != before(found)
        assert shown["policy"]["locked"] is (lock or bool(found and found.policy and found.policy.locked))


@pytest.mark.parametrize(
    ("policy", "lock", "text"),
    [
        (Policy(90, append=True, locked=True), True, "write retention_days: 90"),
        (Policy(30, append=False, locked=True), True, "use another container"),
        (Policy(7, append=True, locked=True), False, "-e ironspan_lock=acme/etcd"),
    ],
)
def test_what_a_lock_forbids(policy: Policy, lock: bool, text: str) -> None:
    with pytest.raises(StoreSetupError, match=text):
        steps(WANTED, Found(public=False, policy=policy), lock)


GOOD: dict[str, t.Any] = {
    "allow_shared_key_access": False,
    "allow_blob_public_access": False,
    "public_network_access": "Disabled",
    "enable_https_traffic_only": True,
    "minimum_tls_version": "TLS1_2",
}


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({}, []),
        ({"minimum_tls_version": "TLS1_3"}, []),
        ({"allow_shared_key_access": None}, ["--allow-shared-key-access false"]),
        ({"allow_shared_key_access": True}, ["accepts account keys"]),
        ({"allow_blob_public_access": None}, ["--allow-blob-public-access false"]),
        ({"public_network_access": "Enabled"}, ["private endpoint"]),
        ({"public_network_access": None}, ["from the internet"]),
        ({"enable_https_traffic_only": False}, ["--https-only true"]),
        ({"minimum_tls_version": None}, ["--min-tls-version TLS1_2"]),
        (dict.fromkeys(GOOD, None), ["keys", "public", "internet", "1.2"]),
    ],
)
def test_accounts(change: dict[str, t.Any], texts: list[str]) -> None:
    said = faults("acme", types.SimpleNamespace(**{**GOOD, **change}))
    assert len(said) == len(texts)
    assert all(text in line for text, line in zip(texts, said, strict=True))


WRITER, COLLECTOR, PROVER, READER = ROLES
CONTRIBUTOR = Allowed((READ, WRITE, ADD, DELETE))


@pytest.mark.parametrize(
    ("role", "assigned", "said"),
    [
        (WRITER, [Allowed((READ, WRITE, ADD))], ""),
        (WRITER, [Allowed((READ.upper(), WRITE)), Allowed((ADD,))], ""),
        (WRITER, [Allowed((READ,))], "lacks write, add"),
        (WRITER, [], "lacks read, write, add"),
        (WRITER, [CONTRIBUTOR], "may also delete"),
        (WRITER, [dataclasses.replace(CONTRIBUTOR, but=(DELETE,))], ""),
        (WRITER, [Allowed(("*",))], "may also delete"),
        (WRITER, [Allowed((READ, WRITE, ADD)), Allowed(("Microsoft.Storage/*/delete",))], "may also delete"),
        (COLLECTOR, [Allowed((READ, DELETE))], ""),
        (COLLECTOR, [CONTRIBUTOR], "may also add, write"),
        (PROVER, [Allowed((READ, WRITE))], ""),
        (PROVER, [CONTRIBUTOR], "may also add, delete"),
        (READER, [Allowed((READ,))], ""),
        (READER, [Allowed((WRITE,))], "lacks read and may also write"),
    ],
)
def test_roles(role: t.Any, assigned: list[Allowed], said: str) -> None:
    judged = judge(role, "id", assigned)
    assert judged.endswith(said)
    assert bool(judged) is bool(said)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.key)
def test_a_definition_is_what_azure_takes(role: t.Any) -> None:
    definition = role.definition(WANTED.group_scope)
    assert definition["AssignableScopes"] == ["/subscriptions/s/resourceGroups/backup"]
    assert WANTED.scope.startswith(f"{WANTED.group_scope}/providers/Microsoft.Storage/storageAccounts/acme/")
    assert WANTED.scope.endswith("/blobServices/default/containers/etcd")
    assert (DELETE in definition["DataActions"]) is (role.key == "collectors")
    assert not judge(role, "id", [Allowed(tuple(definition["DataActions"]))])


def test_assigned_roles_are_read_with_those_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    definition = "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/d"
    asked: list[tuple[str, str]] = []

    def get(manager: Management, path: str, filtered: str = "") -> dict[str, t.Any]:
        asked.append((path, filtered))
        if path == definition:
            permission = {"actions": [], "dataActions": [READ, WRITE], "notDataActions": [DELETE]}
            return {"properties": {"permissions": [permission]}}
        return {"value": [{"properties": {"roleDefinitionId": definition}}]}

    monkeypatch.setattr(Management, "_get", get)
    manager = Management.__new__(Management)
    assert manager.assigned(WANTED, "oid") == [Allowed((READ, WRITE), (DELETE,))]
    path = f"{WANTED.scope}/providers/Microsoft.Authorization/roleAssignments"
    assert asked == [(path, "assignedTo('oid')"), (definition, "")]
