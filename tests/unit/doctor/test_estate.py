# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Azure is asked about an estate, and what etcd says of its disk."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._health import network, probes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.deployment import Standing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.whatif import Change, Foreseen
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd_metrics import buckets_of, quantile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor import estate_ask
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_ask import (
    SCHEDULES,
    ask_estate,
    names_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_checks import told
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.network_checks import probes_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.facts import growth
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

from tests.unit.doctor import samples
from tests.unit.doctor.samples import NOW
from tests.unit.estate.conftest import RICH, SMALL, made

SCOPE = f"/subscriptions/{SMALL['azure_subscription']}"
MACHINE = (
    f"{SCOPE}/resourceGroups/ironspan-example-machines/providers/Microsoft.Compute/virtualMachines/etcd-1"
)


def site(**more: t.Any) -> Site:
    return samples.site_with({**SMALL, **RICH, **more})


class Azure:
    """Deployments of a subscription in which the estate stands."""

    def __init__(self, *changes: Change, **answers: t.Any) -> None:
        self.rest = self
        self.subscription = SMALL["azure_subscription"]
        self.changes = changes
        self.answers = {SCOPE: {"tenantId": SMALL["azure_tenant"], "state": "Enabled"}, **answers}

    def standing(self, wanted: t.Any) -> Standing:
        return Standing("id", "succeeded", "2026-11-01")

    def foreseen(self, wanted: t.Any) -> Foreseen:
        return Foreseen(self.changes)

    def validated(self, wanted: t.Any) -> list[t.Any]:
        return []

    def get(self, path: str, version: str, what: str, **query: str) -> t.Any:
        return self.answers.get(path)

    def listed(self, path: str, version: str, what: str, **query: str) -> list[t.Any]:
        return self.answers.get(path) or []


def said(azure: Azure, **more: t.Any) -> list[str]:
    asked = ask_estate(site(**more), lambda _: t.cast("t.Any", azure))
    return [finding.what for finding in told(site(**more), asked, NOW)]


def test_an_estate_that_is_right_is_no_finding() -> None:
    assert said(Azure()) == []


def test_what_azure_foresees_is_drift() -> None:
    assert said(Azure(Change(MACHINE, "create"))) == [
        "the estate ironspan-example lacks what the data have: etcd-1"
    ]


def test_quota_is_asked_for_what_pools_may_grow_to() -> None:
    more = growth(made(**RICH))
    # Seven more of 40 spot vCPUs.
    assert more["Microsoft.Compute", "lowPriorityCores"] == 280
    usage = {"name": {"value": "lowPriorityCores"}, "currentValue": 40, "limit": 100}
    path = f"{SCOPE}/providers/Microsoft.Compute/locations/westeurope/usages"
    (found,) = said(Azure(**{path: [usage]}))
    assert "40 used + 280 wanted = 320 of 100" in found


def test_roles_that_end_are_named_and_those_that_do_not_are_not() -> None:
    ending = {
        "endDateTime": "2027-01-20T08:00:00Z",
        "scope": SCOPE,
        "expandedProperties": {
            "principal": {"displayName": "ops"},
            "roleDefinition": {"displayName": "Contributor"},
        },
    }
    path = f"{SCOPE}/providers/{SCHEDULES}"
    listed = [{"properties": ending}, {"properties": {"scope": SCOPE}}, {}]
    (found,) = said(Azure(**{path: listed}))
    assert found.startswith("the role Contributor of ops on ")


def test_another_tenant_is_said_and_nothing_else_is_asked() -> None:
    azure = Azure(**{SCOPE: {"tenantId": "other", "state": "Enabled"}})
    assert said(azure) == [
        "the estate ironspan-example: the subscription is of the tenant other, and azure_tenant says "
        + SMALL["azure_tenant"]
    ]


def test_a_site_without_an_estate_asks_nobody() -> None:
    assert ask_estate(samples.site()) == {}
    assert all("resolve" not in one for one in probes_for(samples.site()).values())


def test_hosts_in_azure_are_asked_for_names_of_private_endpoints() -> None:
    wanted = probes_for(site())
    assert "resolve" not in wanted["rack-1"]
    names = wanted["az-1"]["resolve"]
    assert names == names_of(site())
    assert "state.documents.azure.com" in names
    assert [one for one in names if one.endswith(".vault.azure.net")]


def test_the_estate_is_worked_out_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(values: t.Any) -> t.Any:
        made.append(values)
        return declared(values)

    monkeypatch.setattr(estate_ask, "declared", counted)
    one, other = site(), site()
    for _ in range(2):
        assert names_of(one) == names_of(one)
        assert not ask_estate(one, lambda _: t.cast("t.Any", Azure())).get("error")
    assert len(made) == 1
    assert names_of(other) and len(made) == 2


def test_a_host_resolves_names_by_its_own_resolver() -> None:
    found = probes({"resolve": ["localhost", "no.such.invalid"]})["resolved"]
    assert found["localhost"] == {"addresses": ["127.0.0.1"]}
    assert set(found["no.such.invalid"]) == {"error"}
    assert network.addresses_of("127.0.0.9") == {"addresses": ["127.0.0.9"]}


METRICS = """\
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 50
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.002"} 90
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.004"} 100
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 100
etcd_disk_wal_fsync_duration_seconds_sum 0.1
etcd_disk_backend_commit_duration_seconds_bucket{le="8.192"} 7
"""


def test_the_p99_of_a_histogram_is_prometheus_own() -> None:
    assert quantile(buckets_of(METRICS), 0.99) == pytest.approx(0.0038)
    assert quantile(buckets_of(METRICS), 0.5) == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("buckets", "p99"),
    [
        ([], None),
        ([(0.001, 0.0), (float("inf"), 0.0)], None),
        ([(0.001, 1.0), (float("inf"), 100.0)], 0.001),
        ([(float("inf"), 3.0)], 0.0),
    ],
)
def test_a_histogram_that_says_little(buckets: list[tuple[float, float]], p99: float | None) -> None:
    assert quantile(buckets, 0.99) == p99
