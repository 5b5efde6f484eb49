# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The routes as an operator gets them: shown, returned, and in a file where one was asked for."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.action.azure_routes import ActionModule

NODES = [
    {
        "metadata": {"name": name},
        "spec": {"podCIDRs": [network]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }
    for name, network, address in (
        ("az-1", "10.244.1.0/24", "10.0.0.4"),
        ("rack-1", "10.244.2.0/24", "10.9.0.4"),
    )
]


def asked(**variables: str) -> t.Any:
    """Return a cluster with a node in Azure and one in a rack."""
    groups = {"az-1": "azure", "rack-1": "on_prem"}
    hosts = {
        name: types.SimpleNamespace(site_group=group, variables=variables) for name, group in groups.items()
    }
    api = types.SimpleNamespace(get=lambda _: {"items": NODES})
    return types.SimpleNamespace(site=types.SimpleNamespace(name="lab", hosts=hosts), api=lambda: api)


def test_an_estate_gets_its_variable_and_no_table_of_other_names() -> None:
    session = asked(azure_subscription="s")
    action = object.__new__(ActionModule)
    action.say = lambda _: None  # type: ignore[assignment, method-assign]
    arguments = {"table": "", "location": "", "managed": False, "report": ""}
    result = action.visit(session, arguments)
    route = {"node": "az-1", "part": "10.244.1.0/24", "address": "10.0.0.4"}
    assert result["report"] == {"azure_pod_routes": [route]}
    refused = action.visit(session, {**arguments, "table": "mine", "managed": True})
    assert refused["refused"]
    assert "table and managed: the estate of this site has a route table of its own" in refused["msg"]


def test_without_an_estate_a_region_is_needed() -> None:
    action = object.__new__(ActionModule)
    refused = action.visit(asked(), {"table": "", "location": "", "managed": False, "report": ""})
    assert refused["refused"]
    assert "--location" in refused["msg"]


@pytest.mark.parametrize("wanted", [True, False])
def test_routes_are_shown_and_written(tmp_path: pathlib.Path, wanted: bool) -> None:
    session = asked()
    file = tmp_path / "routes.json"
    action = object.__new__(ActionModule)
    shown: list[str] = []
    action.say = shown.append  # type: ignore[assignment, method-assign]
    arguments = {"table": "", "location": "x", "managed": False, "report": str(file) if wanted else ""}
    result = action.visit(session, arguments)
    assert shown == result["text"].splitlines()
    assert shown[0] == "lab-pods: 1 of 400 routes"
    assert "10.244.1.0/24 -> 10.0.0.4" in shown[1]
    assert result["changed"] is False
    assert file.exists() is wanted
    assert not wanted or json.loads(file.read_text()) == result["report"]
