# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tokens of people: what is in them, what each fault does to them, and what a rotation of keys leaves."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from ironspan.lab.azure import people, settings
from ironspan.lab.azure.control import Control
from ironspan.lab.azure.tokens import Refused, verify
from ironspan.lab.azure.world import World

ANNA = people.Person("anna", roles=("Researchers",))
ISSUER = people.issuer()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    (folder / "keys").mkdir()
    return World(folder)


def part(token: str, number: int) -> dict[str, Any]:
    text = token.split(".")[number]
    return dict(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def test_a_token_says_who_and_for_what(world: World) -> None:
    claims = verify(people.token(world, ANNA, ISSUER), world.keys(), time.time())
    assert claims["iss"] == f"https://login.microsoftonline.com/{settings.TENANT}/v2.0"
    assert (claims["aud"], claims["tid"]) == (people.APPLICATION, settings.TENANT)
    assert claims["oid"] == settings.identifier("person-anna")
    assert claims["roles"] == ["Researchers"]
    assert "groups" not in claims


@pytest.mark.parametrize(("count", "listed"), [(200, True), (201, False)])
def test_too_many_groups_are_left_out(world: World, count: int, listed: bool) -> None:
    groups = tuple(settings.identifier(f"group-{number}") for number in range(count))
    claims = part(people.token(world, people.Person("anna", groups=groups), ISSUER), 1)
    assert ("groups" in claims) == listed
    assert ("groups" in claims.get("_claim_names", {})) != listed


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("expired", "is expired"),
        ("not_yet", "not yet valid"),
        ("unknown_key", "key is unknown"),
        ("altered", "Signature validation failed"),
        ("no_algorithm", "not signed with RS256"),
        ("shared_secret", "not signed with RS256"),
    ],
)
def test_a_faulty_token_does_not_verify(world: World, fault: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        verify(people.token(world, ANNA, ISSUER, fault), world.keys(), time.time())


@pytest.mark.parametrize(
    ("fault", "claim"),
    [
        ("wrong_tenant", "tid"),
        ("no_tenant", "tid"),
        ("no_object_id", "oid"),
        ("wrong_audience", "aud"),
        ("wrong_issuer", "iss"),
    ],
)
def test_one_claim_is_another(world: World, fault: str, claim: str) -> None:
    good = verify(people.token(world, ANNA, ISSUER), world.keys(), time.time())
    claims = verify(people.token(world, ANNA, ISSUER, fault), world.keys(), time.time())
    assert {
        name for name in {*good, *claims} - {"exp", "iat", "nbf", "uti"} if good.get(name) != claims.get(name)
    } == {claim}


def test_every_fault_is_tried_by_a_test() -> None:
    tried = {"expired", "not_yet", "unknown_key", "altered", "no_algorithm", "shared_secret"}
    assert tried | {"wrong_tenant", "no_tenant", "no_object_id", "wrong_audience", "wrong_issuer"} == set(
        people.FAULTS
    )


def test_an_unknown_fault_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="fault 'x': write one of wrong_tenant"):
        people.token(world, ANNA, ISSUER, "x")


def test_after_a_rotation_both_keys_are_published_after_a_theft_one(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    world = World(tmp_path)
    control = Control(world, {})
    before = people.token(world, ANNA, ISSUER)
    assert control.answer({"do": "rotate"}) == {"keys": 2}
    assert verify(before, World(tmp_path).keys(), time.time())
    after = control.answer({"do": "person", "name": "anna", "roles": ["Researchers"]})["token"]
    assert part(after, 0)["kid"] != part(before, 0)["kid"]
    assert control.answer({"do": "rotate", "withdraw": True}) == {"keys": 1}
    for token in (before, after):
        with pytest.raises(Refused, match="key is unknown"):
            verify(token, world.keys(), time.time())
