# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tokens: what verifies was signed by the key that it names, is valid now and for this audience."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.lab.azure import settings
from ironspan.lab.azure.tokens import Refused, Signer, verify
from ironspan.lab.azure.world import World

NOW = 1_800_000_000.0
CLAIMS = {"oid": "x", "nbf": NOW - 10, "exp": NOW + 100}


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer.at(tmp_path_factory.mktemp("keys") / "one.pem")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer.at(tmp_path_factory.mktemp("keys") / "two.pem")


def part(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def test_what_was_signed_verifies(signer: Signer, other: Signer) -> None:
    assert verify(signer.sign(CLAIMS), [other.jwk(), signer.jwk()], NOW) == CLAIMS


def test_the_key_in_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "key.pem"
    first = Signer.at(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Signer.at(path).kid == first.kid


def test_a_token_of_another_key_is_refused(signer: Signer, other: Signer) -> None:
    with pytest.raises(Refused, match="unknown"):
        verify(other.sign(CLAIMS), [signer.jwk()], NOW)
    # Nor does it help to claim the right key's name.
    claimed = {**other.jwk(), "kid": signer.kid}
    token = other.sign(CLAIMS)
    head = part({"alg": "RS256", "kid": signer.kid})
    with pytest.raises(Refused, match="Signature validation failed"):
        verify(".".join([head, *token.split(".")[1:]]), [signer.jwk()], NOW)
    with pytest.raises(Refused, match="Signature validation failed"):
        verify(signer.sign(CLAIMS), [claimed], NOW)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS512", None])
def test_no_other_algorithm(signer: Signer, algorithm: str | None) -> None:
    _, claims, signature = signer.sign(CLAIMS).split(".")
    for given_signature in (signature, ""):
        token = f"{part({'alg': algorithm, 'kid': signer.kid})}.{claims}.{given_signature}"
        with pytest.raises(Refused, match="RS256"):
            verify(token, [signer.jwk()], NOW)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"nbf": NOW - 100, "exp": NOW - 1}, "expired"),
        ({"nbf": NOW + 301, "exp": NOW + 900}, "not yet valid"),
        ({"exp": NOW + 900}, "no times"),
        ({"nbf": NOW}, "no times"),
        ({"nbf": NOW, "exp": "never"}, "no times"),
    ],
)
def test_a_token_is_valid_at_its_time_only(signer: Signer, claims: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        verify(signer.sign(claims), [signer.jwk()], NOW)


@given(st.text(max_size=60))
def test_whatever_is_no_token_is_refused(text: str) -> None:
    for token in (text, f"{text}.{text}.{text}", f"{part(text)}.{part([])}.AA"):
        with pytest.raises(Refused):
            verify(token, [], NOW)


@given(position=st.integers(0), bit=st.integers(0, 7))
def test_no_bit_of_a_token_can_be_changed(signer: Signer, position: int, bit: int) -> None:
    head, claims, signature = signer.sign(CLAIMS).split(".")
    raw = bytearray(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    raw[position % len(raw)] ^= 1 << bit
    altered = base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()
    with pytest.raises(Refused):
        verify(f"{head}.{altered}.{signature}", [signer.jwk()], NOW)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def test_a_token_is_for_one_audience(world: World) -> None:
    token = world.issue(settings.IDENTITIES["writer"], "https://storage.azure.com/")
    claims = world.verify(token, ("https://storage.azure.com",))
    assert settings.by_object(claims["oid"]) is settings.IDENTITIES["writer"]
    with pytest.raises(Refused, match="Audience"):
        world.verify(token, ("https://management.azure.com",))


def test_another_tenants_token_is_refused(world: World) -> None:
    now = world.now()
    claims = {"iss": f"https://sts.windows.net/{settings.SUBSCRIPTION}/", "nbf": now, "exp": now + 60}
    with pytest.raises(Refused, match="Issuer"):
        world.verify(world.signer.sign(claims), ("https://storage.azure.com",))


def test_policies_and_clock_survive_a_restart_and_faults_do_not(tmp_path: Path) -> None:
    from ironspan.lab.azure.control import Control

    first = Control(World(tmp_path), {})
    first.answer({"do": "policy", "container": "etcd", "days": 3, "append": "append", "lock": True})
    first.answer({"do": "clock", "offset_s": 60})
    first.answer({"do": "fault", "kind": "outage"})
    again = Control(World(tmp_path), {}).answer({"do": "status"})
    assert again["containers"]["etcd"]["policy"]["locked"] is True
    assert again["clock_offset_s"] == 60
    assert again["faults"] == []
