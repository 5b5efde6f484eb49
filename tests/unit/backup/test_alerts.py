# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Alerts and the dashboard ask for metrics that there are; the manual says what to do about each alert."""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

import pytest
import yaml

from ironspan.backup.agent.metrics import Metrics

ROOT = pathlib.Path(__file__).resolve().parents[3]
ALERTS = [
    rule
    for group in yaml.safe_load((ROOT / "monitoring/etcd-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
ETCD_OWN = {
    "etcd_server_has_leader",
    "etcd_server_leader_changes_seen_total",
    "etcd_disk_wal_fsync_duration_seconds_bucket",
    "etcd_disk_backend_commit_duration_seconds_bucket",
}
"""Names of etcd 3.6's own metrics, as its members answer them (tests/integration/test_etcd_care.py)."""


def known() -> set[str]:
    found = set(ETCD_OWN)
    for metric in Metrics().registry.collect():
        found.add(f"{metric.name}_total" if metric.type == "counter" else metric.name)
    return found


def names(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:ironspan_)?etcd_\w+", expression))


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_there_is(rule: dict[str, t.Any]) -> None:
    assert names(rule["expr"])
    assert names(rule["expr"]) <= known()
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_its_runbook(rule: dict[str, t.Any]) -> None:
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    (row,) = [line for line in (ROOT / path).read_text().splitlines() if f'<a id="{anchor}"></a>' in line]
    assert f"`{rule['alert']}`" in row


def test_promtool_is_told_when_every_alert_fires_and_when_not() -> None:
    cases = yaml.safe_load((ROOT / "monitoring/etcd-alerts.test.yml").read_text())["tests"]
    told = [one for case in cases for one in case.get("alert_rule_test", ())]
    for rule in ALERTS:
        expected = [bool(one["exp_alerts"]) for one in told if one["alertname"] == rule["alert"]]
        assert {True, False} <= set(expected), rule["alert"]


def test_the_dashboard_asks_for_what_there_is() -> None:
    board = json.loads((ROOT / "monitoring/etcd-dashboard.json").read_text())
    targets = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(targets) >= 10
    assert not set().union(*map(names, targets)) - known()
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
