# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An API that is away, slow, cut off, foreign or out of date: the client goes on, or says what to do."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store

from tests.support.fake_api import NODES, FakeApi, Fault, api_of, server_files
from tests.support.faults import insist
from tests.support.simulated_site import make_store

NAME = "api.small"
DAY, MINUTE = datetime.timedelta(days=1), datetime.timedelta(minutes=1)
HTML = b"<html><title>Sign in</title></html>"
UNAUTHORIZED = json.dumps(
    {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make_store(tmp_path_factory.mktemp("store"))


def client(store: Store, port: int, patience: float = 0.5) -> Api:
    return Api.from_kubeconfig(store.admin_kubeconfig(f"{NAME}:{port}", 1, "127.0.0.1"), None, patience)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("api-reset", Fault(close=True)),
        ("api-reset", Fault(cut=5)),
        ("api-busy", Fault(status=429)),
        ("api-error", Fault(status=500)),
        ("api-not-ready", Fault(status=503)),
        ("api-truncated", Fault(body=b'{"items": [{"metadata"')),
        ("api-truncated", Fault(body=HTML)),
        ("api-clock", Fault(status=401, body=UNAUTHORIZED.encode())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_that_stays_is_explained(store: Store, name: str, fault: Fault) -> None:
    with api_of(store, NAME) as api:
        api.fault = lambda method, path: fault
        with pytest.raises(ClusterError) as caught:
            client(store, api.port).get(NODES)
    insist(name, str(caught.value))
    assert caught.value.remedy


@pytest.mark.parametrize(
    "fault",
    [
        Fault(close=True),
        Fault(cut=0),
        Fault(cut=5),
        Fault(status=429),
        Fault(status=500),
        Fault(status=502),
        Fault(status=503),
        Fault(status=504),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_a_fault_that_passes_is_not_noticed(store: Store, fault: Fault, method: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"a": "1"}}}
    calls: dict[str, Callable[[Api], object]] = {
        "GET": lambda api: api.get(f"{NODES}/n"),
        "PATCH": lambda api: api.apply(f"{NODES}/n", node),
        "DELETE": lambda api: api.delete(f"{NODES}/n"),
    }
    with api_of(store, NAME) as api:
        api.objects[f"{NODES}/n"] = {"metadata": {"name": "n"}}
        api.fault = lambda method, path: fault if len(api.asked) <= 2 else None
        calls[method](client(store, api.port, 20))
        assert len(api.asked) == 3
        assert api.names(NODES) == ([] if method == "DELETE" else ["n"])


def test_what_was_done_before_the_answer_was_cut_is_not_done_twice(store: Store) -> None:
    """The label was set, the answer was lost, the request comes again: nothing else changes."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"a": "1"}}}
    with api_of(store, NAME) as api:
        api.objects[f"{NODES}/n"] = {"metadata": {"name": "n", "labels": {"b": "2"}}}
        api.fault = lambda method, path: Fault(cut=5) if len(api.asked) <= 2 else None
        client(store, api.port, 20).apply(f"{NODES}/n", node)
        assert api.objects[f"{NODES}/n"]["metadata"]["labels"] == {"a": "1", "b": "2"}


def test_an_answer_that_takes_too_long(store: Store) -> None:
    with api_of(store, NAME) as api:
        api.fault = lambda method, path: Fault(slow_s=8)
        with pytest.raises(ClusterError) as caught:
            client(store, api.port).request("GET", NODES, timeout=2, patience=0)
    insist("api-slow", str(caught.value))


def test_nobody_there(store: Store) -> None:
    with FakeApi() as free:
        port = free.port
    with pytest.raises(ClusterError) as caught:
        client(store, port).get(NODES)
    insist("api-refused", str(caught.value))


@pytest.mark.parametrize(
    ("name", "not_before", "lifetime"), [("api-expired", -7 * MINUTE, MINUTE), ("api-not-yet", DAY, DAY)]
)
def test_certificates_out_of_their_time(
    store: Store, name: str, not_before: datetime.timedelta, lifetime: datetime.timedelta
) -> None:
    with api_of(store, NAME, not_before=not_before, lifetime=lifetime) as api:
        with pytest.raises(ClusterError) as caught:
            client(store, api.port, 20).get(NODES)
        assert api.asked == []
    insist(name, str(caught.value))


def test_certificates_of_others(store: Store, tmp_path: Path) -> None:
    other = make_store(tmp_path)
    with api_of(other, NAME) as api, pytest.raises(ClusterError) as caught:
        client(store, api.port, 20).get(NODES)
    insist("api-stranger", str(caught.value))
    with api_of(store, "another.name") as api, pytest.raises(ClusterError) as caught:
        client(store, api.port, 20).get(NODES)
    insist("api-stranger", str(caught.value))


def test_an_etcd_member_with_an_expired_certificate(store: Store, tmp_path: Path) -> None:
    pair = store.client_pair("etcd-client", "ironspan:controller")
    context = client_context(
        store.ca("etcd").certificate_pem, pair.certificate_pem, pair.key_pem, tmp_path / "tmp"
    )
    file = server_files(store, tmp_path, "m", -7 * MINUTE, MINUTE, authority="etcd", ips=["127.0.0.1"])
    with FakeApi(file, store.ca("etcd").certificate_pem) as server:
        member = etcd.ask_members({"m": "127.0.0.1"}, context, server.port)[0]
    insist("etcd-expired", member.error)
