# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``systemd_unit``, with a stand-in for systemctl that keeps units."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import systemd_unit
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.systemd_unit import (
    full_name,
    has_newer_file,
    parse_show,
    parse_time,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from hypothesis import given
from hypothesis import strategies as st

from .fake_host import FakeHost, converge, filled

SYSTEMCTL = """
import json, os, sys, time
root = os.environ["IRONSPAN_ROOT"]
assert os.environ["TZ"] == "UTC"
path = root + "/units.json"
units = json.load(open(path))
arguments = [a for a in sys.argv[1:] if a not in ("--", "--no-block")]
verb, names = arguments[0], [a for a in arguments[1:] if not a.startswith("-")]
status = 0
def load(name):
    file = root + "/etc/systemd/system/" + name
    if name not in units and os.path.exists(file):
        units[name] = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead",
                       "UnitFileState": "disabled", "FragmentPath": "/etc/systemd/system/" + name}
if verb == "daemon-reload":
    for unit in units.values():
        unit.pop("NeedDaemonReload", None)
    for name in os.listdir(root + "/etc/systemd/system"):
        load(name)
for name in names:
    unit = units.get(name, {})
    if verb == "show":
        state = {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "UnitFileState": "",
                 "NeedDaemonReload": "no", "FragmentPath": "", "DropInPaths": "", "ActiveEnterTimestamp": ""}
        state.update(unit)
        state["Id"] = unit.get("Id", name)
        print("\\n".join("%s=%s" % item for item in state.items() if item[0] != "fail") + "\\n")
    elif verb in ("enable", "disable"):
        unit["UnitFileState"] = verb + "d"
    elif verb in ("mask", "unmask"):
        unit["UnitFileState"] = "masked" if verb == "mask" else "disabled"
    elif verb in ("start", "restart") and "fail" in unit:
        unit["ActiveState"], unit["SubState"] = unit["fail"]
        status = 1 if unit["fail"][0] == "failed" else 0
    elif verb in ("start", "restart", "reload", "reload-or-restart"):
        unit["ActiveState"], unit["SubState"] = "active", "exited"
        unit["ActiveEnterTimestamp"] = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime())
    elif verb == "stop":
        unit["ActiveState"], unit["SubState"] = "inactive", "dead"
json.dump(units, open(path, "w"))
sys.exit(status)
"""
ACTIVE = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "UnitFileState": "enabled",
    "FragmentPath": "/etc/systemd/system/etcd.service",
    "ActiveEnterTimestamp": "Sat 2026-11-21 12:00:00 UTC",
}
NOON = 1795262400
"""2026-11-21 12:00:00 UTC."""


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> systemd_unit.SystemdUnitKind:
    kind = systemd_unit.SystemdUnitKind()
    monkeypatch.setattr(systemd_unit, "KIND", kind)
    monkeypatch.setattr(systemd_unit, "SETTLE_SECONDS", 0)
    return kind


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.python_program("systemctl", SYSTEMCTL)
    host.program("journalctl", "echo 'etcd: data folder is locked'")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    return host


def units(host: FakeHost, **changes: Any) -> None:
    """Let there be an active, enabled etcd.service, but for some changes."""
    host.put("/units.json", json.dumps({"etcd.service": {**ACTIVE, **changes}}))
    file = host.put("/etc/systemd/system/etcd.service", "[Service]\n")
    os.utime(file, (NOON - 60, NOON - 60))


def spec(**values: Any) -> dict[str, Any]:
    return filled(systemd_unit.KIND, **{"id": "etcd/service", "name": "etcd", **values})


def verbs(host: FakeHost) -> list[str]:
    """Return what systemctl was asked to do, but for showing."""
    calls = [[word for word in call[1:] if not word.startswith("-")] for call in host.calls("systemctl")]
    return [call[0] for call in calls if call[0] != "show"]


CASES: list[tuple[dict[str, Any], dict[str, Any], set[str], str | None, list[str]]] = [
    ({}, {}, set(), None, []),
    ({"ActiveState": "inactive"}, {}, set(), "start", ["start"]),
    ({"ActiveState": "failed"}, {}, set(), "start", ["reset-failed", "start"]),
    ({"ActiveState": "activating", "SubState": "auto-restart"}, {}, set(), "start", ["start"]),
    ({"ActiveState": "activating", "SubState": "start"}, {}, set(), None, []),
    ({"UnitFileState": "disabled"}, {}, set(), "enable", ["enable"]),
    (
        {"UnitFileState": "masked", "ActiveState": "inactive"},
        {},
        set(),
        "start",
        ["unmask", "enable", "start"],
    ),
    ({"UnitFileState": "static"}, {}, set(), None, []),
    ({"UnitFileState": "enabled-runtime"}, {}, set(), "enable", ["enable"]),
    ({}, {"enabled": False}, set(), "update", ["disable"]),
    ({"UnitFileState": "static"}, {"enabled": False}, set(), None, []),
    ({}, {"state": "stopped"}, set(), "stop", ["stop"]),
    (
        {"ActiveState": "activating", "SubState": "auto-restart"},
        {"state": "stopped"},
        set(),
        "stop",
        ["stop"],
    ),
    ({"ActiveState": "failed"}, {"state": "stopped"}, set(), None, []),
    ({"ActiveState": "inactive"}, {"state": "unchanged"}, set(), None, []),
    ({}, {"restart_on": ["a/b"]}, set(), None, []),
    ({}, {"restart_on": ["a/b"]}, {"a/b"}, "restart", ["restart"]),
    ({}, {"restart_on": ["a/b"]}, {"c/d"}, None, []),
    ({}, {"restart_on": ["a/b"], "reload_on": ["a/b"]}, {"a/b"}, "restart", ["restart"]),
    ({}, {"reload_on": ["a/b"]}, {"a/b"}, "update", ["reload"]),
    ({}, {"restart_on": ["a/b"], "state": "unchanged"}, {"a/b"}, "restart", ["restart"]),
    ({"ActiveState": "inactive"}, {"restart_on": ["a/b"], "state": "unchanged"}, {"a/b"}, None, []),
    ({"ActiveState": "inactive"}, {"restart_on": ["a/b"]}, {"a/b"}, "start", ["start"]),
    ({"NeedDaemonReload": "yes"}, {}, set(), "restart", ["daemon-reload", "restart"]),
    ({"NeedDaemonReload": "yes"}, {"state": "stopped"}, set(), "stop", ["daemon-reload", "stop"]),
    # It failed, and its file was removed since.
    (
        {"NeedDaemonReload": "yes", "ActiveState": "failed", "UnitFileState": ""},
        {"state": "stopped", "enabled": False},
        set(),
        None,
        [],
    ),
    (
        {"NeedDaemonReload": "yes", "ActiveState": "inactive"},
        {"state": "unchanged"},
        set(),
        "update",
        ["daemon-reload"],
    ),
]


@pytest.mark.parametrize(("unit", "wanted", "changed", "action", "asked"), CASES)
def test_compare_and_apply(
    host: FakeHost,
    kind: systemd_unit.SystemdUnitKind,
    unit: dict[str, Any],
    wanted: dict[str, Any],
    changed: set[str],
    action: str | None,
    asked: list[str],
) -> None:
    units(host, **unit)
    host.changes = changed
    change = kind.compare(spec(**wanted), host)
    assert (change.action if change else None) == action
    if change is not None:
        assert change.reason
        assert set(change.before) == set(change.after) != set()
        kind.apply(spec(**wanted), change, host)
        host.changes = set()
        assert kind.compare(spec(**wanted), host) is None
    assert verbs(host) == asked


def test_a_unit_whose_file_is_written_in_this_run(host: FakeHost, kind: systemd_unit.SystemdUnitKind) -> None:
    host.put("/units.json", "{}")
    change = kind.compare(spec(), host)
    assert change is not None
    assert (change.action, change.before) == ("start", {"enabled": "absent", "state": "inactive"})
    host.put("/etc/systemd/system/etcd.service", "[Service]\n")
    kind.apply(spec(), change, host)
    assert verbs(host) == ["daemon-reload", "enable", "start"]


def test_a_unit_that_does_not_exist(host: FakeHost, kind: systemd_unit.SystemdUnitKind) -> None:
    host.put("/units.json", "{}")
    change = kind.compare(spec(), host)
    assert change is not None
    with pytest.raises(ResourceError, match=r"no unit etcd\.service") as caught:
        kind.apply(spec(), change, host)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("age", "drop_in", "newer"),
    [(-1, None, False), (0.9, None, False), (1, None, True), (-60, 5, True), (-60, -5, False)],
)
def test_unit_files_newer_than_the_start(
    host: FakeHost, kind: systemd_unit.SystemdUnitKind, age: float, drop_in: float | None, newer: bool
) -> None:
    unit = dict(ACTIVE)
    os.utime(host.put(unit["FragmentPath"], ""), (NOON, NOON + age))
    if drop_in is not None:
        unit["DropInPaths"] = "/etc/systemd/system/etcd.service.d/1.conf /missing.conf"
        os.utime(host.put("/etc/systemd/system/etcd.service.d/1.conf", ""), (NOON, NOON + drop_in))
    assert has_newer_file(unit, host) is newer
    assert not has_newer_file({**unit, "ActiveState": "inactive"}, host)


def test_all_units_of_the_document_in_one_call(host: FakeHost, kind: systemd_unit.SystemdUnitKind) -> None:
    units(host)
    for name in ("etcd", "containerd.service", "some.socket"):
        assert kind.check(spec(name=name)) == []
    for name in ("etcd", "containerd", "some.socket"):
        kind.compare(spec(name=name), host)
    assert len(host.calls("systemctl")) == 1
    assert host.calls("systemctl")[0][-3:] == ["etcd.service", "containerd.service", "some.socket"]


def test_an_alias_is_known_by_the_name_asked_for(host: FakeHost, kind: systemd_unit.SystemdUnitKind) -> None:
    units(host, Id="other.service")
    assert kind.compare(spec(), host) is None


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a;b", "a\nb"])
def test_names_that_are_none(kind: systemd_unit.SystemdUnitKind, name: str) -> None:
    assert kind.check(spec(name=name))


@pytest.mark.parametrize("end", [("failed", "failed"), ("activating", "auto-restart"), ("inactive", "dead")])
def test_a_failed_start_shows_the_journal(
    host: FakeHost, kind: systemd_unit.SystemdUnitKind, end: tuple[str, str]
) -> None:
    units(host, ActiveState="inactive", fail=end)
    change = kind.compare(spec(), host)
    assert change is not None
    with pytest.raises(ResourceError, match="data folder is locked") as caught:
        kind.apply(spec(), change, host)
    assert f"{end[0]}/{end[1]}" in caught.value.message
    assert "journalctl -u etcd.service" in caught.value.remedy
    assert host.calls("journalctl")[0][-2:] == ["-u", "etcd.service"]
    assert "20" in host.calls("journalctl")[0]


@pytest.mark.parametrize(
    ("unit", "wanted", "changed", "expected"),
    [
        ({"ActiveState": "inactive", "UnitFileState": "disabled"}, {}, set(), ("inactive", "disabled")),
        ({"UnitFileState": "masked", "ActiveState": "inactive"}, {}, set(), ("inactive", "masked")),
        ({}, {"state": "stopped", "enabled": False}, set(), ("active", "enabled")),
        ({}, {"restart_on": ["a/b"]}, {"a/b"}, ("active", "enabled")),
    ],
)
def test_rollback_returns_the_former_state(
    host: FakeHost,
    kind: systemd_unit.SystemdUnitKind,
    unit: dict[str, Any],
    wanted: dict[str, Any],
    changed: set[str],
    expected: tuple[str, str],
) -> None:
    units(host, **unit)
    host.changes = changed
    change = kind.compare(spec(**wanted), host)
    assert change is not None
    kind.apply(spec(**wanted), change, host)
    host.forget_calls()
    kind.undo(spec(**wanted), change, host)
    kind.settle(spec(**wanted), change, host)
    after = json.loads(host.text("/units.json"))["etcd.service"]
    assert (after["ActiveState"], after["UnitFileState"]) == expected
    # What ran is restarted after the files are back, not before; what did not run is not started.
    assert ("restart" in verbs(host)) is (expected[0] == "active")


def test_no_block_does_not_wait(host: FakeHost, kind: systemd_unit.SystemdUnitKind) -> None:
    units(host, ActiveState="inactive", fail=("activating", "start"))
    assert converge(kind, spec(no_block=True), host) is not None
    assert ["systemctl", "--no-block", "start", "--", "etcd.service"] in host.calls()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sat 2026-11-21 12:00:00 UTC", NOON),
        ("Thu 1970-01-01 00:00:01 UTC", 1),
        ("", 0),
        ("n/a", 0),
        ("Sat 2026-11-21 12:00:00 CET", 0),
        ("Sat 2026-x-21 12:00:00 UTC", 0),
    ],
)
def test_parse_time(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@given(
    st.lists(
        st.dictionaries(
            st.from_regex(r"[A-Z][A-Za-z]{0,20}", fullmatch=True),
            st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"])),
            min_size=1,
        )
    )
)
def test_parse_show_reads_what_was_written(blocks: list[dict[str, str]]) -> None:
    text = "\n".join("".join(f"{key}={value}\n" for key, value in block.items()) for block in blocks)
    assert parse_show(text) == blocks


@given(st.text())
def test_parse_show_never_fails(text: str) -> None:
    assert all(isinstance(block, dict) and block for block in parse_show(text))


def test_full_name() -> None:
    assert [full_name(name) for name in ("etcd", "a.b", "x.timer")] == [
        "etcd.service",
        "a.b.service",
        "x.timer",
    ]
