# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A BMC of the lab with a server in memory, and a store of the site."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, generate_key_file, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Endpoint, Trust
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.entry import Place
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import Factory

from ironspan.lab.bmc.front import Front
from ironspan.lab.bmc.resources import Account, State
from ironspan.lab.bmc.servers import InMemory

SERIAL = "SN0001"
FACTORY = Login("root", "calvin-of-the-factory")


def state(**more: t.Any) -> State:
    return State(SERIAL, {"2": Account(FACTORY.username, FACTORY.password)}, **more)


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    with Front(tmp_path, state(), InMemory()).running() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(tmp_path / "pki", generate_key_file(tmp_path / "pki.key"))
    made.ensure_cas()
    return made


def endpoint(front: Front) -> Endpoint:
    return Endpoint("gpu-1", front.address, front.port)


def pinned(front: Front) -> Trust:
    return Trust(pins=frozenset({front.sha256}))


def place(front: Front, **more: t.Any) -> Place:
    factory = Factory(FACTORY, pinned(front), own=True)
    return Place(endpoint(front), **{"serial": SERIAL, "slot": "rack-1 U1", "factory": factory, **more})


def bmc_of(front: Front, login: Login = FACTORY, seconds: float = 30) -> Bmc:
    return Bmc(endpoint(front), pinned(front), login, seconds)


def no_pause(seconds: float) -> None:
    """Do not wait."""
