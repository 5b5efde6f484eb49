# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Classes of events agree with NVIDIA's catalogue, and sites change single ones."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import (
    CLASSES,
    SOURCES,
    UNKNOWN_TO,
    Event,
    PolicyError,
    data,
    shipped,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.report import page, report, rows
from hypothesis import given
from hypothesis import strategies as st

from ironspan.cli.main import main
from tests.support.playbooks import ROOT

RESET = (46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, *range(144, 151), 155, 156, 158)
REBOOT = (79, 151)
"""What NVIDIA's catalogue resets or restarts: written here again, by hand, from the catalogue."""
OVERRIDE = {"event": "xid 94", "class": "A2", "reason": "ticket 4711: contained errors came back"}


def test_all_codes_that_the_catalogue_resets_are_reset() -> None:
    assert len(RESET) + len(REBOOT) == 25
    xids = shipped().xids()
    assert {code: xids[code].action for code in RESET} == dict.fromkeys(RESET, "A2")
    assert {code: xids[code].action for code in REBOOT} == dict.fromkeys(REBOOT, "A3")
    classes = {code for code, rule in xids.items() if rule.action in ("A2", "A3") and rule.nvidia}
    assert classes == {*RESET, *REBOOT}, (
        "no other code of the catalogue takes a GPU out of service for a reset"
    )


@pytest.mark.parametrize("code", shipped().xids())
def test_an_xid_has_the_class_of_its_action_or_says_why(code: int) -> None:
    rule = shipped().xids()[code]
    assert rule.action in CLASSES
    if not rule.why:
        assert rule.action == data()["actions"][rule.nvidia]
    assert rule.nvidia in ("", *data()["actions"])
    assert rule.asks in ("", "recovery_action") or Event("nvml", rule.asks) in shipped().rules
    assert rule.again in ("", *CLASSES)


def test_every_rule_has_a_class() -> None:
    assert {event.source for event in shipped().rules} == set(SOURCES)
    for event, rule in shipped().rules.items():
        assert rule.action in data()["classes"], event


def test_what_nobody_knows_is_never_acted_on() -> None:
    for event in (Event("xid", "999"), Event("sxid", "1"), Event("nvml", "new"), Event("dcgm", "NEW")):
        assert shipped().rule(event).action == "A0"


def test_a_site_changes_single_entries() -> None:
    changed = shipped().with_overrides([OVERRIDE, {**OVERRIDE, "event": "xid 999", "class": "A4"}])
    rule = changed.rule(Event("xid", "94"))
    assert (rule.action, rule.by_site, rule.nvidia) == ("A2", True, "RESTART_APP")
    assert changed.rule(Event("xid", "999")).action == "A4"
    same = {event: rule for event, rule in changed.rules.items() if not rule.by_site}
    assert same.items() <= shipped().rules.items()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"event": ""}, "'' is no event"),
        ({"event": "xid"}, "'xid' is no event"),
        ({"event": "xids 3"}, "'xids 3' is no event"),
        ({"event": "xid -3"}, "no number of XIDs"),
        ({"event": "xid ²"}, "no number of XIDs"),
        ({"event": "xid 4711"}, "write 1 to 1023"),
        ({"event": "nvml remap_pendin"}, "nvml has no remap_pendin; write remap_pending"),
        ({"event": "dcgm nothing like it"}, "write one of MONITOR"),
        ({"class": "A6"}, "'A6' is no class; write one of A0"),
        ({"class": None}, "'' is no class"),
        ({"reason": " "}, "xid 94 has no reason"),
        ({"reason": "two\nlines"}, "xid 94 has no reason"),
    ],
)
def test_overrides_that_are_none(values: dict[str, str], says: str) -> None:
    with pytest.raises(PolicyError) as caught:
        shipped().with_overrides([{**OVERRIDE, **values}])
    assert says in str(caught.value)


def test_two_policies_for_one_event() -> None:
    with pytest.raises(PolicyError, match="xid 94 is there twice"):
        shipped().with_overrides([OVERRIDE, {**OVERRIDE, "event": "xid 094"}])


@given(st.text())
def test_an_event_is_one_or_an_error(text: str) -> None:
    try:
        event = shipped().event(text)
    except PolicyError as error:
        assert error.remedy
    else:
        assert event.source in SOURCES


def test_the_device_plugin_is_told_the_same() -> None:
    disabled, enabled = (
        {int(code) for code in text.split(",") if code} for text in shipped().health_checks()
    )
    assert enabled == {109}
    assert 94 in disabled and 79 not in disabled
    ignored = (shipped().plugin_ignores | disabled) - enabled
    for code, rule in shipped().xids().items():
        assert (code in ignored) == (rule.action in ("A0", "A1")), code
    moved = shipped().with_overrides([OVERRIDE, {"event": "xid 31", "class": "A4", "reason": "x"}])
    disabled_text, enabled_text = moved.health_checks()
    assert "94" not in disabled_text.split(",")
    assert enabled_text == "31,109"


def test_codes_that_nobody_knows_are_harmless_where_the_agent_watches() -> None:
    """The policy calls them A0: shown, never acted on. The plugin has no such word, so it is told each."""
    known = set(shipped().xids())
    cautious, watched = (
        {int(code) for code in shipped().health_checks(agent)[0].split(",")} for agent in (False, True)
    )
    assert cautious < known and not watched & {79, 109}
    assert watched - cautious == set(range(1, UNKNOWN_TO + 1)) - known
    assert max(known) < UNKNOWN_TO
    assert shipped().health_checks(True)[1] == shipped().health_checks()[1]


def test_the_report_names_who_disagrees() -> None:
    changed = shipped().with_overrides([OVERRIDE])
    found = {row["EVENT"]: row for row in rows(changed, differences=True)}
    assert found["xid 94"]["REMARK"].startswith("the site: ticket 4711")
    assert "goes on handing this GPU out" in found["xid 109"]["REMARK"]
    assert "out of service" in found["xid 63"]["REMARK"]
    assert "xid 79" not in found, "all agree about it"
    text = page(report(changed))
    assert "DP_ENABLE_HEALTHCHECKS=109" in text and str(data()["catalogue"]) in text


def test_the_command_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "policy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["catalogue"] == str(data()["catalogue"])
    assert {row["EVENT"] for row in found["events"]} >= {"xid 79", "nvml gpu_lost", "sxid fatal"}
    assert main(["gpu", "policy", "--differences"]) == 0
    assert "xid 109" in capsys.readouterr().out


def test_it_needs_no_ansible() -> None:
    package = "ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy"
    program = (
        f"import sys, {package}.messages, {package}.report; "
        "sys.exit(', '.join(name for name in sys.modules if name.partition('.')[0] == 'ansible') or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "collections")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
