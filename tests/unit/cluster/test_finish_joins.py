# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A run that was killed after its hosts had joined: the next one gives them their serving certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import csr
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

from tests.support import fake_api
from tests.support.fake_api import NODES, REQUESTS, FakeApi, Joins

ADDRESSES = {"w1": ["10.2.0.1"], "w2": ["10.2.0.2"]}


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeApi]:
    joins = Joins(tmp_path, {name: addresses[0] for name, addresses in ADDRESSES.items()})
    with FakeApi(joins=joins) as made:
        yield made


def client(fake: FakeApi) -> Api:
    return Api(f"http://127.0.0.1:{fake.port}", ssl.create_default_context(), None, 5)


def join(fake: FakeApi, name: str) -> None:
    assert fake.joins is not None
    (fake.joins.folder / "joined" / name).touch()


def test_who_never_joined_is_not_waited_for(fake: FakeApi) -> None:
    assert csr.finish_joins(client(fake), ADDRESSES, 0) == csr.Outcome([], [], ["w1", "w2"], [])
    assert fake.asked == [f"GET {REQUESTS}"], (
        "a run with nothing to do asks once, however many nodes there are"
    )


def test_who_joined_lately_is_waited_for_and_approved(fake: FakeApi) -> None:
    join(fake, "w1")
    outcome = csr.finish_joins(client(fake), ADDRESSES, 20)
    assert [verdict.node for verdict in outcome.approved] == ["w1"]
    assert csr.finish_joins(client(fake), ADDRESSES, 0).approved == []


def test_who_joined_and_never_asks_is_named(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_api, "SERVING_AFTER_S", 3600)
    join(fake, "w2")
    with pytest.raises(
        ClusterError, match=r"After 0 s no request .* came from w2\. Look at the kubelet's log"
    ):
        csr.finish_joins(client(fake), ADDRESSES, 0)


def test_who_is_approved_and_not_signed_is_waited_for(fake: FakeApi) -> None:
    fake.signs = False
    join(fake, "w1")
    with pytest.raises(ClusterError, match=r"nobody has signed the approved certificate of w1\. Look at"):
        csr.approve_until_all_serve(client(fake), ADDRESSES, ["w1"], 2)


def test_who_joined_and_was_removed_is_forgotten(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_api, "SERVING_AFTER_S", 3600)
    join(fake, "w2")
    client(fake).delete(f"{NODES}/w2")
    assert csr.finish_joins(client(fake), ADDRESSES, 0).approved == []


def test_a_refused_request_is_not_waited_for(fake: FakeApi) -> None:
    assert fake.joins is not None
    fake.joins.addresses = {"w1": "10.2.0.99"}
    join(fake, "w1")
    api = client(fake)
    while not any(name.startswith("serving-") for name in fake.names(REQUESTS)):
        pass
    outcome = csr.finish_joins(api, ADDRESSES, 20)
    assert [verdict.node for verdict in outcome.denied] == ["w1"]
