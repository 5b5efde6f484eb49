# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the action asks the API before hosts are asked."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.action import net_check

from tests.support.policy_site import site


def nodes(*parts: str | None) -> t.Any:
    """Return a session whose cluster has nodes with these parts of flannel's network."""
    items = [
        {"metadata": {"name": f"n{number}"}, "spec": {"podCIDR": part} if part else {}}
        for number, part in enumerate(parts)
    ]

    class Held:
        def __init__(self, *_: object) -> None:
            pass

        def api(self, patience: float) -> t.Self:
            return self

        def get(self, path: str) -> t.Any:
            assert path == "/api/v1/nodes"
            return {"items": items}

    return Held


@pytest.mark.parametrize(
    ("cni", "networks", "noted"),
    [("flannel", {"n0": "10.244.0.0/24"}, False), ("cilium", {}, True)],
)
def test_only_flannels_tunnel_has_an_address_to_ask(
    monkeypatch: pytest.MonkeyPatch, cni: str, networks: dict[str, str], noted: bool
) -> None:
    monkeypatch.setattr(net_check, "Session", nodes("10.244.0.0/24", None))
    made = site()
    made.cni = cni
    found, notes = net_check._pod_networks(made)
    assert found == networks
    assert bool(notes) == noted
