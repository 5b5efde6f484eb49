# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Verdicts about two endpoints from a real API server: its defaults, its field selectors, its refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.ask import ask
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.lookup import Lookup
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

from tests.support import policy_site
from tests.support.policy_site import ADDRESSES, NOW, PODS
from tests.support.waiting import until

from .loopback_cluster import Control, find_programs, running

pytestmark = pytest.mark.lab
PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Service": "/api/v1/namespaces/{}/services",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return the API of a control plane that holds the objects of ``policy_site``; nothing runs pods."""
    folder = tmp_path_factory.mktemp("control")
    store = open_store(folder / "pki", generate_key_file(folder / "pki.key"))
    store.ensure_cas()
    programs = find_programs()
    with running(Control(programs, store, folder)) as control:
        control.start_etcd("etcd-1")
        control.start_api()
        control.bind_administrators()
        api = control.api(patience=60)
        for made in policy_site.objects():
            meta = made["metadata"]
            path = f"{PLURALS[made['kind']].format(meta.get('namespace'))}/{meta['name']}"
            api.apply(path, made)
            if made["kind"] == "Pod":
                key = (meta["namespace"], meta["name"])
                body = {**made, "status": policy_site.status(key)}
                api.apply(
                    f"{path}/status",
                    {name: body[name] for name in ("apiVersion", "kind", "metadata", "status")},
                )
        yield api


@pytest.mark.parametrize(
    ("source", "target", "outcome", "rule"),
    [
        ("team-a/web", "team-b/db:sql", "allowed", "NetworkPolicy team-b/database, ingress[0]"),
        ("team-b/shut", "10.244.0.20:5432", "denied", "NetworkPolicy team-b/deny: no rule opens it"),
        ("team-a/web", "10.96.0.77:15432", "partly allowed", "NetworkPolicy team-b/deny: no rule opens it"),
        ("team-a/web", "203.0.113.200:443", "denied", "NetworkPolicy team-a/out: no rule opens it"),
        ("team-a/web", f"{ADDRESSES['az-1']}:6443", "denied", "NetworkPolicy team-a/out: no rule opens it"),
    ],
)
def test_verdicts_from_the_api(api: Api, source: str, target: str, outcome: str, rule: str) -> None:
    site = policy_site.site(egress_enabled=True, egress_policy_image="example.test/policies@sha256:0")
    lookup = Lookup(api, {ADDRESSES[name]: name for name in ("az-1", "rack-1")})
    report = ask(site, lookup, source, target, NOW)
    assert report["outcome"] == outcome
    assert any(rule in step["rule"] for route in report["routes"] for step in route["steps"]), report


def test_the_api_fills_in_the_types(api: Api) -> None:
    found = api.get(f"{PLURALS['NetworkPolicy'].format('team-b')}/deny")
    assert found["spec"]["policyTypes"] == ["Ingress"]


def test_a_policy_that_is_refused_protects_nobody_and_is_not_there(api: Api) -> None:
    path = PLURALS["NetworkPolicy"].format("team-a")
    wrong = policy_site.policy("team-a", "wrong", ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0"}}]}])
    with pytest.raises(ApiError, match="Invalid value"):
        api.apply(f"{path}/wrong", wrong)
    assert "wrong" not in {each["metadata"]["name"] for each in Lookup(api, {}).policies("team-a")}


def test_every_pod_is_found_by_its_address(api: Api) -> None:
    for (namespace, name), address in PODS.items():
        selector = f"status.podIP={address}"
        until(lambda asked=selector: api.get("/api/v1/pods", fieldSelector=asked)["items"])  # type: ignore[misc]
        found = api.get("/api/v1/pods", fieldSelector=selector)["items"]
        assert [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found] == [
            (namespace, name)
        ]
