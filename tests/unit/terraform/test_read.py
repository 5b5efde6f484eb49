# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files of Terraform are read, whatever is in them; nothing of them is said that could be a secret."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.found import parsed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.read import (
    TerraformError,
    found_in,
    read,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from .states import ACCOUNT, COSMOS, NETWORK, SECRET, SUBSCRIPTION, outputs, resource, resources, shown, state


@pytest.mark.parametrize("content", [state(), shown()])
def test_both_forms_of_a_state_say_the_same(content: bytes) -> None:
    found = found_in(content, "f")
    assert len(found.known) == 10
    network = next(one for one in found.known if one.id == NETWORK)
    assert (network.owned, network.listed("address_space")) == (True, ("10.20.0.0/19",))
    assert [one.owned for one in found.known if one.id == COSMOS] == [False]
    assert SECRET not in repr(found)


def test_addresses_are_those_of_terraform() -> None:
    many = resource("azurerm_storage_account", "each", id=ACCOUNT, module="module.a")
    many["instances"][0]["index_key"] = "west"
    (one,) = found_in(state([many]), "f").known
    assert one.where == 'module.a.azurerm_storage_account.each["west"]'


def test_what_is_owned_wins_over_what_is_looked_up() -> None:
    both = [
        resource("azurerm_storage_account", "a", mode="data", id=ACCOUNT),
        resource(
            "azurerm_storage_account", "b", id=ACCOUNT.upper().replace("/SUBSCRIPTIONS", "/subscriptions")
        ),
    ]
    (one,) = found_in(state(both), "f").known
    assert one.owned


def test_outputs_are_looked_through_and_sensitive_ones_are_not() -> None:
    top = json.loads(outputs(hub={"ids": [[NETWORK], {"a": ACCOUNT}]}, azure_region="westeurope", note="x"))
    top["key"] = {"sensitive": True, "type": "string", "value": COSMOS}
    top["odd"] = {"sensitive": "no", "type": "string", "value": COSMOS}
    found = found_in(json.dumps(top).encode(), "f")
    assert [(one.id, one.where, one.owned) for one in found.known] == [
        (NETWORK, "output hub", False),
        (ACCOUNT, "output hub", False),
    ]
    assert found.outputs == {"azure_region": "westeurope"}
    assert found.hidden == ("key", "odd")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "line 1, is no JSON"),
        (b"PK\x03\x04plan", "is a plan of Terraform"),
        (b"\xff\xfe{}", "no JSON in UTF-8"),
        (b"[]", "the whole is no object"),
        (b"{}", "has no outputs"),
        (b'{"a": 1}', "is neither outputs nor a state"),
        (b'{"encrypted_data": "x", "serial": 1}', "is an encrypted state"),
        (b'{"version": 3, "modules": [], "resources": []}', "of another version than 4"),
        (b'{"version": true, "resources": []}', "of another version than 4"),
        (b'{"version": 4, "resources": {}}', "resources is no list"),
        (b'{"version": 4, "resources": [7]}', "an entry of resources is no object"),
        (b'{"version": 4, "resources": [{"instances": 7}]}', "instances is no list"),
        (b'{"version": 4, "resources": [{"instances": [7]}]}', "an instance is no object"),
        (b'{"version": 4, "resources": [], "outputs": [7]}', "outputs is no object"),
        (b'{"format_version": "1.0", "values": 7}', "values is no object"),
        (b'{"format_version": "1.0", "values": {"root_module": [7]}}', "root_module is no object"),
        (b"[" * 100_000, "deeper than any state"),
        (b'{"a": {"value": ' + b"9" * 5000 + b"}}", "no JSON in UTF-8"),
    ],
)
def test_refused(content: bytes, says: str) -> None:
    with pytest.raises(TerraformError) as refused:
        found_in(content, "f")
    assert says in refused.value.message
    assert refused.value.remedy


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TerraformError, match="cannot be read: No such file"):
        read(tmp_path / "none")


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([NETWORK, ACCOUNT]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_state_with_anything_in_the_place_of_a_value_is_read_or_refused(data: st.DataObject) -> None:
    top = json.loads(data.draw(st.sampled_from([state(), shown(), outputs(a=NETWORK)])))
    inside: t.Any = top
    while True:
        key = data.draw(st.sampled_from([*(inside if isinstance(inside, dict) else range(len(inside)))]))
        if not isinstance(inside[key], dict | list) or not inside[key] or data.draw(st.booleans()):
            break
        inside = inside[key]
    inside[key] = data.draw(_VALUES)
    try:
        found = found_in(json.dumps(top).encode(), "f")
    except TerraformError as refused:
        assert SECRET not in str(refused)
    else:
        assert SECRET not in repr(found)
        assert all(parsed(one.id) for one in found.known)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_with_a_message(content: bytes) -> None:
    try:
        found_in(content, "f")
    except TerraformError as refused:
        assert refused.remedy


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=40)
    | st.from_regex(r"/subscriptions/[0-9a-f-]{36}(/[A-Za-z.]{0,9}){0,8}", fullmatch=True)
)
def test_ids_are_whole_or_none(text: str) -> None:
    parts = parsed(text)
    if parts is not None:
        assert text.lower().startswith(
            f"/subscriptions/{parts.subscription}/resourcegroups/{parts.group.lower()}"
        )
        assert parts.names[-1] == text.rpartition("/")[2]


def test_the_state_of_the_tests_has_what_they_say() -> None:
    assert {one["type"] for one in resources()} >= {"azurerm_virtual_network", "azurerm_cosmosdb_account"}
    assert parsed(f"/subscriptions/{SUBSCRIPTION}/resourceGroups/hub") is not None
