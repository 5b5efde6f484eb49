# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One node on its way from a fault back to work."""

from __future__ import annotations

import json

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import DRIVER_CHANGE

from ironspan.gpu_repair import model, records
from ironspan.gpu_repair.decide import is_open
from ironspan.gpu_repair.limits import Limits, Window
from ironspan.gpu_repair.model import (
    Pod,
    State,
)
from tests.unit.gpu_repair.racks import DAY, NOW, TESTS, Racks

CORDON = "ironspan/cordoned"


def at_work(count: int = 10) -> Racks:
    """Return racks whose nodes are at work."""
    racks = Racks({f"n{i}": f"rack-{i}" for i in range(count)})
    for name in racks.racks:
        racks.see(name)
    racks.go()
    return racks


def repaired_until(state: State, event: str) -> Racks:
    """Return racks of which the first node is in a state of its repair."""
    racks = at_work()
    racks.event("n0", event)
    for _ in range(4):
        racks.go(seconds=61)
        if racks.state("n0") is state:
            return racks
    raise AssertionError(racks.state("n0"))


def why(racks: Racks, name: str = "n0") -> str:
    """Return the reason of a node's state."""
    record = racks.node(name).record
    assert record is not None
    return record.reason


def test_a_fault_that_a_reset_repairs() -> None:
    """Cordoned at once, drained after a moment, reset without its pods, back when its preflight passed."""
    racks = at_work()
    racks.pods["n0"] = [Pod("team/job-0", True)]
    racks.event("n0", "xid 95", "GPU-1")
    racks.go()
    node = racks.nodes["n0"]
    assert racks.taints("n0") == {model.REPAIR_TAINT: "suspect"}
    assert node["spec"]["unschedulable"] is True
    assert CORDON in node["metadata"]["annotations"]
    racks.go(seconds=61)
    assert racks.taints("n0") == {model.REPAIR_TAINT: "draining"}
    evicts = racks.go()
    assert [(step.node.name, step.record) for step in evicts.steps] == [("n0", None)]
    racks.pods["n0"] = []
    racks.go()
    assert racks.asked("n0")["do"] == "reset"
    assert racks.asked("n0")["gpu"] == "GPU-1"
    racks.answer("n0", True)
    racks.go()
    assert racks.taints("n0") == {model.REPAIR_TAINT: "retest", model.PREFLIGHT_TAINT: "pending"}
    assert not racks.go().steps
    racks.preflight("n0")
    racks.go()
    assert racks.taints("n0") == {}
    assert "unschedulable" not in node["spec"]
    assert CORDON not in node["metadata"]["annotations"]
    assert not racks.go().steps


def test_a_reboot_is_proven_by_its_boot_id() -> None:
    """An agent that says that it was done is not believed."""
    racks = repaired_until(State.REBOOTING, "xid 79")
    assert racks.asked("n0")["gpu"] is None
    racks.answer("n0", True)
    assert not racks.go().steps
    racks.reboot("n0")
    racks.nodes["n0"]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert not racks.go().steps
    racks.condition("n0", "Ready", "True")
    racks.go()
    assert racks.state("n0") is State.RETEST


@pytest.mark.parametrize("power", [True, False])
def test_without_a_new_boot_its_power_is_to_be_cycled(power: bool) -> None:
    """Where power cycles are not asked for, a person looks at it."""
    racks = repaired_until(State.REBOOTING, "xid 79")
    racks.go(Limits(power=power), seconds=1801)
    assert racks.state("n0") is (State.POWER_CYCLE if power else State.TRIAGE)
    racks.go(seconds=DAY)
    assert racks.state("n0") is State.TRIAGE
    assert racks.taints("n0") == {model.REPAIR_TAINT: "triage"}


def test_two_resets_then_two_reboots_then_a_person() -> None:
    """All of it within seven days; a person's word begins again."""
    racks = repaired_until(State.RESETTING, "nvml remap_pending")
    did = []
    while racks.state("n0") is not State.TRIAGE:
        action = racks.asked("n0")
        did.append(action["do"])
        racks.answer("n0", True)
        if action["do"] == "reboot":
            racks.reboot("n0")
            racks.event("n0", "nvml remap_pending")
        racks.go()
        assert racks.state("n0") is State.RETEST
        racks.preflight("n0")
        racks.go()
    assert did == ["reset", "reset", "reboot", "reboot"]
    racks.well("n0")
    racks.release("n0")
    racks.go()
    assert racks.state("n0") is State.RETEST
    assert why(racks) == "ann: looked at it"
    racks.preflight("n0")
    racks.go()
    assert racks.state("n0") is State.READY


def test_what_comes_back_after_its_repair_has_the_policy_s_other_class() -> None:
    """XID 48 after its reset: a person."""
    racks = repaired_until(State.RESETTING, "xid 48")
    racks.answer("n0", True)
    racks.go()
    racks.preflight("n0")
    racks.go()
    assert racks.state("n0") is State.READY
    racks.event("n0", "xid 48")
    for _ in range(3):
        racks.go(seconds=61)
    assert racks.state("n0") is State.TRIAGE


def test_nvml_s_recovery_action_has_the_last_word_about_xids() -> None:
    """Not about other GPUs, and not about NVML's own states."""
    racks = at_work()
    racks.event("n0", "xid 79", "GPU-0")
    racks.event("n0", "nvml recovery_none", "GPU-0")
    assert not racks.go().steps
    racks.event("n0", "xid 79", "GPU-1")
    racks.event("n1", "nvml recovery_none", "GPU-0")
    racks.event("n1", "nvml remap_failure", "GPU-0")
    racks.go()
    assert [racks.state(name) for name in ("n0", "n1", "n2")] == [State.SUSPECT, State.SUSPECT, State.READY]


def test_an_event_that_nobody_knows_and_one_of_another_boot_do_nothing() -> None:
    """Nor does one of the application's own."""
    racks = at_work()
    for event in ("xid 999", "xid 31", "my own: class A4"):
        racks.event("n0", event)
    racks.annotate("n1", gpu_events=[{"event": "xid 79", "boot": "another", "last": "x", "count": 1}])
    assert not racks.go().steps


def test_pods_have_seven_days_and_those_of_a_lost_gpu_ten_minutes() -> None:
    """A budget that holds a pod back is obeyed until then, and what was left is written down."""
    racks = repaired_until(State.DRAINING, "xid 79")
    racks.pods["n0"] = [Pod("team/train-0", True), Pod("team/web-0", False)]
    racks.go(seconds=700)
    assert racks.state("n0") is State.DRAINING
    racks.pods["n0"] = [Pod("team/train-0", True)]
    racks.go()
    assert racks.state("n0") is State.REBOOTING
    assert why(racks) == "reboot: the time of 1 pods is over (team/train-0)"
    racks = repaired_until(State.DRAINING, "xid 95")
    racks.pods["n0"] = [Pod("team/train-0", True)]
    racks.go(seconds=6.9 * DAY)
    assert racks.state("n0") is State.DRAINING
    racks.go(seconds=DAY)
    assert racks.state("n0") is State.RESETTING


def test_what_is_gone_before_its_turn_is_proven_by_a_preflight() -> None:
    """Without a drain, as nothing was wrong in the end."""
    racks = at_work()
    racks.event("n0", "nvml remap_pending")
    racks.go()
    racks.well("n0")
    racks.go()
    assert racks.taints("n0") == {model.PREFLIGHT_TAINT: "pending"}
    racks.preflight("n0")
    racks.go()
    assert racks.taints("n0") == {}
    assert "unschedulable" not in racks.nodes["n0"]["spec"]


@pytest.mark.parametrize("passed", [True, False])
def test_a_failed_preflight_that_passes_before_its_turn_is_no_reason_to_reboot(passed: bool) -> None:
    """A driver's way back makes such a verdict; the node still has to prove itself with the next one."""
    racks = at_work(2)
    racks.go(Limits(retest_seconds=DAY), seconds=2 * DAY)
    racks.preflight("n0")
    racks.go()
    racks.reboot("n0")
    racks.go()
    racks.preflight("n0", False)
    racks.go()
    assert racks.state("n0") is State.SUSPECT
    racks.now += 61
    racks.preflight("n0", passed)
    racks.go()
    assert racks.state("n0") is (State.TESTING if passed else State.DRAINING)


def test_a_wrong_setting_waits_for_a_person_without_a_drain() -> None:
    """Class A5: cordoned; after three days in triage."""
    racks = at_work()
    racks.event("n0", "nvml ecc_off")
    racks.go()
    racks.go(seconds=3600)
    assert racks.state("n0") is State.SUSPECT
    racks.go(seconds=3 * DAY)
    assert racks.state("n0") is State.TRIAGE


def test_a_part_that_was_replaced_makes_it_a_new_node() -> None:
    """From RMA it comes back by itself when its serial numbers are others."""
    racks = repaired_until(State.TRIAGE, "xid 54")
    racks.release("n0", "rma")
    racks.go()
    assert racks.state("n0") is State.RMA
    assert not racks.go().steps
    racks.reboot("n0")
    racks.see("n0", ("S0", "S7"))
    racks.go()
    assert (racks.state("n0"), why(racks)) == (State.REPLACED, "replaced: S1 by S7")
    for _ in range(2):
        racks.go()
    assert racks.state("n0") is State.TESTING
    racks.preflight("n0")
    racks.go()
    assert racks.taints("n0") == {}


def new_node() -> Racks:
    """Return racks with one node that has just registered with its taint."""
    racks = Racks({"n0": "rack"})
    racks.see("n0")
    gate = {"key": model.PREFLIGHT_TAINT, "value": "pending", "effect": "NoSchedule"}
    other = {"key": "team", "value": "a", "effect": "NoSchedule"}
    racks.nodes["n0"]["spec"]["taints"] = [gate, other]
    for _ in range(2):
        racks.go(mode=model.GATE)
    assert racks.state("n0") is State.TESTING
    return racks


@pytest.mark.parametrize("what", ["none", "another boot", "incomplete", "condition", "driver", "no GPU"])
def test_the_gate_stays_closed(what: str) -> None:
    """Only a preflight of this boot and driver, complete on each GPU, opens it."""
    racks = new_node()
    if what != "none":
        racks.preflight(
            "n0",
            boot="b" if what == "another boot" else "",
            tests=TESTS[:1] if what == "incomplete" else TESTS,
        )
    if what == "condition":
        racks.condition("n0", "GPUPreflight", "Unknown")
    if what == "driver":
        racks.annotate(
            "n0", gpu_seen={"boot": racks.boot("n0"), "driver": "1.0", "gpus": [{"uuid": "GPU-0"}]}
        )
    if what == "no GPU":
        racks.annotate("n0", gpu_seen={"boot": racks.boot("n0"), "driver": "580.95.05", "gpus": []})
    racks.go(mode=model.GATE)
    assert racks.taints("n0") == {model.PREFLIGHT_TAINT: "pending", "team": "a"}


def test_the_gate_opens_and_leaves_the_taints_of_others() -> None:
    """A preflight that passed lets the node in; the mode gate is enough for that."""
    racks = new_node()
    racks.preflight("n0")
    racks.go(mode=model.GATE)
    assert racks.taints("n0") == {"team": "a"}


def test_a_new_node_that_fails_its_preflight_goes_to_a_person() -> None:
    """The mode gate leaves it as it is."""
    racks = new_node()
    racks.preflight("n0", False)
    decision = racks.go(mode=model.GATE)
    assert racks.state("n0") is State.TESTING
    assert "the mode is gate" in decision.waiting["n0"]
    racks.go()
    assert racks.state("n0") is State.TRIAGE


def test_a_wave_that_changes_the_driver_decides_about_its_failure() -> None:
    """The node goes back to the driver of before; the controller judges it with that one."""
    racks = new_node()
    node = racks.nodes["n0"]
    node["spec"]["unschedulable"] = True
    notes = node["metadata"]["annotations"]
    notes[CORDON] = "2026-11-26T00:00:00Z"
    change = {"before": "570.1.1", "to": "580.95.05", "back": False}
    notes[DRIVER_CHANGE] = json.dumps(change)
    for back in (False, True):
        notes[DRIVER_CHANGE] = json.dumps({**change, "back": back})
        racks.preflight("n0", False)
        racks.go(seconds=3 * DAY)
        assert racks.state("n0") is State.TESTING
    # It runs the driver of before, and its GPUs fail with that one too.
    notes[DRIVER_CHANGE] = json.dumps({**change, "before": "580.95.05", "back": True})
    racks.preflight("n0", False)
    racks.go()
    assert racks.state("n0") is State.TRIAGE


def test_idle_nodes_are_tested_again_the_oldest_first_and_work_is_not_hindered() -> None:
    """Without a taint; at most so many at once; not one with a pod that uses its GPUs."""
    racks = at_work(4)
    limits = Limits(most_tested=2, retest_seconds=DAY)
    racks.pods["n1"] = [Pod("team/job", True)]
    racks.go(limits, seconds=2 * DAY)
    assert [name for name in racks.racks if racks.asked(name)] == ["n0", "n2"]
    assert racks.asked("n0")["do"] == "preflight"
    assert racks.taints("n0") == {}
    racks.preflight("n0")
    racks.go(limits)
    racks.go(limits)
    assert [racks.asked(name).get("do") for name in ("n1", "n3")] == [None, "preflight"]
    racks.preflight("n2", False)
    racks.go(limits)
    assert racks.state("n2") is State.SUSPECT


def test_a_node_that_started_again_proves_itself_first() -> None:
    """It keeps its pods out until then, within the breaker; not one that never passed a preflight."""
    racks = at_work(2)
    racks.reboot("n0")
    assert not racks.go().steps
    limits = Limits(retest_seconds=DAY)
    racks.go(limits, seconds=2 * DAY)
    for name in racks.racks:
        racks.preflight(name)
    racks.go()
    racks.reboot("n0")
    racks.reboot("n1")
    decision = racks.go()
    assert racks.taints("n0") == {model.PREFLIGHT_TAINT: "pending"}
    assert racks.taints("n1") == {}
    assert "1 of 1 nodes are out of service" in decision.waiting["n1"]


def test_a_cordon_of_others_stays() -> None:
    """Of a person, and of a change of the site, which also keeps a drain from beginning."""
    racks = at_work()
    racks.nodes["n0"]["spec"]["unschedulable"] = True
    racks.nodes["n1"]["spec"]["unschedulable"] = True
    racks.write("n0", {})
    racks.write("n1", {CORDON: "2027-01-01T00:00:00Z"})
    for name in ("n0", "n1"):
        racks.event(name, "xid 95")
    racks.go()
    decision = racks.go(seconds=61)
    assert decision.waiting["n1"] == "a change of the site has cordoned it"
    for name in ("n0", "n1"):
        racks.well(name)
    racks.go()
    racks.go()
    racks.answer("n0", True)
    racks.go()
    for name in ("n0", "n1"):
        racks.preflight(name)
    racks.go()
    assert [racks.state(name) for name in ("n0", "n1")] == [State.READY, State.READY]
    assert all(racks.nodes[name]["spec"]["unschedulable"] for name in ("n0", "n1"))


def test_a_taint_that_somebody_removes_comes_back() -> None:
    """While the node is in repair."""
    racks = repaired_until(State.REBOOTING, "xid 79")
    racks.nodes["n0"]["spec"]["taints"] = []
    racks.write("n0", {})
    racks.go()
    assert racks.taints("n0") == {model.REPAIR_TAINT: "rebooting"}


@pytest.mark.parametrize(
    ("at", "is_so"),
    [
        ("2026-11-23T21:59:00Z", False),
        ("2026-11-23T22:00:00Z", True),
        ("2026-11-24T03:59:00Z", True),
        ("2026-11-24T04:00:00Z", False),
        ("2026-11-24T23:00:00Z", False),
        ("2026-11-22T23:00:00Z", True),
        ("2026-11-23T02:00:00Z", True),
    ],
)
def test_windows_go_through_midnight(at: str, is_so: bool) -> None:
    """Mondays and Sundays from 22:00 to 04:00 UTC."""
    windows = [Window(frozenset({0, 6}), 22 * 60, 4 * 60)]
    assert is_open(windows, records.seconds(at)) is is_so
    assert is_open([], NOW)


def test_records_are_read_as_they_were_written() -> None:
    """And stay small: Node objects hold them."""
    racks = repaired_until(State.RESETTING, "xid 48")
    record = racks.node("n0").record
    assert record is not None
    assert records.loads(records.dumps(record)) == record
    assert len(records.dumps(record)) < 2000
    assert json.loads(records.dumps(record))["state"] == "resetting"
