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
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import audit_watch, runtime_smoke

from ironspan.backup.agent.metrics import Metrics as BackupMetrics
from ironspan.events.metrics import Metrics as EventsMetrics
from ironspan.gpu_repair.metrics import Metrics as GpuRepairMetrics
from ironspan.gpud.agent import Agent
from ironspan.gpud.metrics import Exported
from ironspan.gpud.pods import Pods
from ironspan.gpud.settings import Settings
from ironspan.kms.metrics import Metrics as KmsMetrics
from ironspan.program.metrics import Metrics

ROOT = pathlib.Path(__file__).resolve().parents[3]
FILES = sorted(path for path in (ROOT / "monitoring").glob("*-alerts.yml"))
ALERTS = [
    pytest.param(path, rule, id=rule["alert"])
    for path in FILES
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
SERVED: dict[str, t.Callable[[], Metrics]] = {
    "etcd": BackupMetrics,
    "gpu-repair": GpuRepairMetrics,
    "kms": KmsMetrics,
    "events": EventsMetrics,
    "gpud": lambda: Metrics("ironspan_gpud"),
}
"""Programs that serve metrics, by the name of their alerts."""
ETCD_OWN = {
    "etcd_server_has_leader",
    "etcd_server_leader_changes_seen_total",
    "etcd_disk_wal_fsync_duration_seconds_bucket",
    "etcd_disk_backend_commit_duration_seconds_bucket",
}
"""Names of etcd 3.6's own metrics, as its members answer them (tests/integration/test_etcd_care.py)."""
LEADERSHIP = {"gpu-repair": {"ironspan_gpu_repair_leader"}}
"""What ``serve`` adds for programs of which one acts."""


def written(text: str) -> set[str]:
    """Return the names of metrics in a file for the node exporter."""
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


def known(part: str, folder: pathlib.Path) -> set[str]:
    """Return the metrics that there are for some alerts."""
    if part == "access":
        watch = audit_watch.Watch(str(folder / "audit.log"), str(folder))
        watch.save()
        return written((folder / audit_watch.METRICS).read_text())
    if part == "runtime":
        one = {"name": "gvisor", "ok": True, "seconds": 1.0, "message": ""}
        return written(runtime_smoke.metrics({"classes": [one], "time": 1.0}))
    metrics = SERVED[part]()
    if part == "gpud":
        chosen = Settings(state=folder)
        metrics.registry.register(Exported("ironspan_gpud", Agent(chosen, "boot"), Pods(""), chosen.policy))
    return {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for metric in metrics.registry.collect()
    } | (ETCD_OWN if part == "etcd" else LEADERSHIP.get(part, set()))


def names(expression: str) -> set[str]:
    """Return the metrics that an expression asks for."""
    return set(re.findall(r"\b(?:ironspan|etcd)_\w+", expression))


def part_of(path: pathlib.Path) -> str:
    """Return what the alerts of a file are about."""
    return path.name.removesuffix("-alerts.yml")


def test_every_program_with_metrics_has_alerts() -> None:
    assert {part_of(path) for path in FILES} == {*SERVED, "access", "runtime"}
    serving = [
        path.parent.name if path.parent.name != "agent" else path.parents[1].name
        for path in (ROOT / "ironspan").rglob("metrics.py")
        if path.parent.name != "program"
    ]
    assert len(serving) == len(SERVED)


@pytest.mark.parametrize(("path", "rule"), ALERTS)
def test_an_alert_asks_for_what_there_is(
    path: pathlib.Path, rule: dict[str, t.Any], tmp_path: pathlib.Path
) -> None:
    assert names(rule["expr"])
    assert names(rule["expr"]) <= known(part_of(path), tmp_path)
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}


@pytest.mark.parametrize(("path", "rule"), ALERTS)
def test_an_alert_leads_to_its_runbook(path: pathlib.Path, rule: dict[str, t.Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    lines = (ROOT / page).read_text().splitlines()
    told = [line for line in lines if f'<a id="{anchor}"></a>' in line or line == f"### {rule['alert']}"]
    (line,) = told
    assert anchor == rule["alert"].lower()
    assert rule["alert"] in line


@pytest.mark.parametrize("path", FILES, ids=part_of)
def test_promtool_is_told_when_every_alert_fires_and_when_not(path: pathlib.Path) -> None:
    cases = yaml.safe_load(path.with_name(f"{part_of(path)}-alerts.test.yml").read_text())["tests"]
    told = [one for case in cases for one in case.get("alert_rule_test", ())]
    for group in yaml.safe_load(path.read_text())["groups"]:
        for rule in group["rules"]:
            expected = [bool(one["exp_alerts"]) for one in told if one["alertname"] == rule["alert"]]
            assert {True, False} <= set(expected), rule["alert"]


def test_every_file_of_rules_is_one_that_promtool_gets() -> None:
    """Nobody would check a file of another name, or see that cases are for another file or alert."""
    tested = [path.with_name(f"{part_of(path)}-alerts.test.yml") for path in FILES]
    assert {*(ROOT / "monitoring").glob("**/*.y*ml")} == {*FILES, *tested}
    for path, cases in zip(FILES, tested, strict=True):
        content = yaml.safe_load(cases.read_text())
        assert content["rule_files"] == [path.name]
        there = {
            rule["alert"] for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]
        }
        told = {one["alertname"] for case in content["tests"] for one in case.get("alert_rule_test", ())}
        assert told == there


def test_the_dashboard_asks_for_what_there_is(tmp_path: pathlib.Path) -> None:
    board = json.loads((ROOT / "monitoring/etcd-dashboard.json").read_text())
    targets = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(targets) >= 10
    assert not set().union(*map(names, targets)) - known("etcd", tmp_path)
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)


@pytest.mark.parametrize("page", ["docs/backup.md", "docs/encryption.md"])
def test_the_manual_lists_every_metric(page: str) -> None:
    """What is not said there is found by nobody; process metrics are Prometheus' own."""
    part = {"docs/backup.md": "etcd", "docs/encryption.md": "kms"}[page]
    made = SERVED[part]()
    text = (ROOT / page).read_text()
    for metric in made.registry.collect():
        name = metric.name.removeprefix(f"{made.prefix}_")
        if metric.name.startswith(f"{made.prefix}_") and not name.startswith("process_"):
            counted = f"{name}_total" if metric.type == "counter" else name
            assert re.search(rf"`{counted}[`{{]", text), counted
