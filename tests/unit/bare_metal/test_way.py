# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The way of a node through Ironic, played against the state machine of Ironic 39.0.0 as it was recorded."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states as ironic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.gpus import accelerators
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.journey import _IN_USE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import TRIES, Goal, Node, Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.way import Held, next_step, way
from hypothesis import given, settings
from hypothesis import strategies as st

RECORDED = Path(__file__).parent / "ironic_39.0.0.json"
MACHINE: dict[str, t.Any] = json.loads(RECORDED.read_text())
JUMPS: dict[tuple[str, str], str] = {(state, event): to for state, event, to in MACHINE["transitions"]}
VERBS = {**MACHINE["verbs"], "rebuild": "rebuild"}
GOALS: tuple[Goal, ...] = t.get_args(Goal)
BY_ITSELF = ("done", "fail", "wait", "resume", "clean", "manage", "hold")
"""Events of a state that moves which nobody asks for."""
FAULT_OF = {state: fault for fault, state in ironic.FAULTS.items() if state}


def verbs(node: Node, wanted: Wanted) -> list[str]:
    found = way(node, wanted)
    assert found.held is None, found.held
    return [step.verb for step in found.steps]


def held(node: Node, wanted: Wanted) -> str:
    found = way(node, wanted)
    assert found.held is not None, found.steps
    return f"{found.held.reason}; {found.held.remedy}"


# -- the table against Ironic itself -----------------------------------------------------------------


def test_every_state_of_ironic_is_known() -> None:
    assert MACHINE["version"] == "39.0.0"
    assert ironic.STATES.keys() == set(MACHINE["states"])
    assert {state for state, known in ironic.STATES.items() if known.sort == "failed"} == {
        *MACHINE["failed"],
        "error",
    }
    moving = {state for state, known in ironic.STATES.items() if known.sort in ("moving", "waiting")}
    assert moving - {"deploy complete", "deleted"} == set(MACHINE["unstable"])
    assert {state for state, known in ironic.STATES.items() if known.sort == "settled"} == {
        *MACHINE["stable"]
    } - {"error"}
    assert set(ironic.DELETABLE) == set(MACHINE["delete_allowed"])
    assert ironic.FAULTS.keys() == set(MACHINE["faults"])


def test_every_move_is_one_that_ironic_takes() -> None:
    moves = [*((state, move) for state, moves in ironic.MOVES.items() for move in moves)]
    moves += [("manageable", ironic.INSPECT), ("manageable", ironic.CLEAN), ("active", ironic.SERVICE)]
    for state, move in moves:
        to = JUMPS[state, VERBS[move.verb]]
        # Where it leads by itself, if all goes well.
        ends = ironic.STATES[to].then or to
        assert ends == move.to or (ends, move.to) == ("available", "manageable"), (state, move)


def test_what_waits_can_be_ended_and_where_that_leads() -> None:
    for state, known in ironic.STATES.items():
        if known.sort == "waiting":
            assert JUMPS[state, "abort"] == known.failed
        if known.failed:
            assert JUMPS[state, "fail"] == known.failed


def test_from_every_state_that_stays_a_way_leads_to_every_goal() -> None:
    for state, known in ironic.STATES.items():
        if known.sort != "held":
            for goal in GOALS:
                assert way(Node(state), Wanted(goal)).held is None, (state, goal)


# -- ways --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "wanted", "steps"),
    [
        (None, Wanted("active"), ["enrol", "manage", "provide", "active"]),
        (None, Wanted("active", inspect=True), ["enrol", "manage", "inspect", "provide", "active"]),
        (None, Wanted("active", adopt=True), ["enrol", "manage", "adopt"]),
        (None, Wanted("absent"), []),
        ("manageable", Wanted("available", inspect=True, clean=("raid.x",)), ["inspect", "clean", "provide"]),
        ("active", Wanted("active"), []),
        ("active", Wanted("active", deploy=True), ["rebuild"]),
        (
            "active",
            Wanted("active", deploy=True, clean=("deploy.erase_devices",)),
            ["deleted", "manage", "clean", "provide", "active"],
        ),
        ("active", Wanted("active", service=("firmware.update",)), ["service"]),
        ("active", Wanted("retired"), ["retire", "deleted", "clean"]),
        ("available", Wanted("retired"), ["manage", "retire", "clean"]),
        ("active", Wanted("absent"), ["deleted", "manage", "delete"]),
        ("active", Wanted("rescue"), ["rescue"]),
        ("rescue", Wanted("active"), ["unrescue"]),
        ("rescue", Wanted("active", deploy=True), ["unrescue", "rebuild"]),
        ("clean failed", Wanted("absent"), ["manage", "delete"]),
        ("inspect failed", Wanted("absent"), ["manage", "delete"]),
        ("service failed", Wanted("active"), ["abort"]),
        ("deploy failed", Wanted("active", deploy=True), ["active"]),
        ("error", Wanted("available"), ["deleted"]),
        ("wait call-back", Wanted("active"), ["wait"]),
        ("cleaning", Wanted("active"), ["wait", "active"]),
        ("deleting", Wanted("manageable"), ["wait", "manage"]),
        ("verifying", Wanted("available"), ["wait", "provide"]),
    ],
)  # fmt: skip
def test_ways(state: str | None, wanted: Wanted, steps: list[str]) -> None:
    assert verbs(Node(state), wanted) == steps


def test_what_is_done_is_not_asked_for_again() -> None:
    wanted = Wanted(
        "active", inspect=True, clean=("deploy.erase_devices",), deploy=True, service=("firmware.update",)
    )
    assert verbs(Node("active", done=frozenset({"inspect", "clean", "deploy", "service"})), wanted) == []
    assert verbs(Node("manageable", retired=True, done=frozenset({"clean"})), Wanted("retired")) == []


def test_a_lock_or_changing_power_is_waited_for_only_when_there_is_something_to_do() -> None:
    for node in (Node("available", reserved_by="host"), Node("available", power="rebooting")):
        assert verbs(node, Wanted("available")) == []
        assert verbs(node, Wanted("active")) == ["wait", "active"]


def test_wiping_stands_in_the_step() -> None:
    def wiping(state: str | None, wanted: Wanted, **more: t.Any) -> list[str]:
        return [step.verb for step in way(Node(state, **more), wanted).steps if "wipes" in step.effects]

    assert wiping(None, Wanted("active")) == ["provide", "active"]
    assert wiping(None, Wanted("active"), automated_clean=False) == ["active"]
    assert wiping("active", Wanted("available"), automated_clean=False) == ["deleted"]
    assert wiping("manageable", Wanted("manageable", clean=("firmware.update",))) == []
    assert wiping("manageable", Wanted("manageable", clean=("firmware.update", "deploy.new_step"))) == [
        "clean"
    ]
    assert wiping("active", Wanted("active", service=("raid.apply_configuration",))) == ["service"]
    assert wiping("active", Wanted("active", adopt=True)) == []


def test_without_consent_nothing_is_wiped_or_deleted() -> None:
    assert next_step(Node("available"), Wanted("active"), consent=False) == Held(
        "'write the operating system' needs consent",
        "if that is what you want, run it again with -e ironspan_allow_destructive=true "
        "(ironspan: --allow-destructive)",
    )
    assert isinstance(next_step(Node("manageable"), Wanted("absent"), consent=False), Held)
    assert getattr(next_step(Node("available"), Wanted("active"), consent=True), "verb", "") == "active"


HOLDS = json.loads((Path(__file__).parent / "holds.json").read_text())
HELD: dict[str, tuple[Node, Wanted]] = {
    "unknown_state": (Node("polishing"), Wanted("active")),
    "deploy_hold": (Node("deploy hold"), Wanted("active")),
    "maintenance": (Node("available", maintenance=True, maintenance_reason="new PSU"), Wanted("active")),
    "power_failure": (
        Node("available", maintenance=True, fault="power failure", maintenance_reason="HTTP 401"),
        Wanted("active"),
    ),
    "protected": (Node("active", protected=True), Wanted("available")),
    "running_redeploy": (Node("active", running=True), Wanted("active", deploy=True)),
    "running_rescue": (Node("active", running=True), Wanted("rescue")),
    "running_power_off": (
        Node("active", power="power on", running=True),
        Wanted("active", power="power off"),
    ),
    "inspect_in_use": (Node("active"), Wanted("active", inspect=True)),
    "retire_without_cleaning": (Node("active", automated_clean=False), Wanted("retired")),
    "retired": (Node("manageable", retired=True), Wanted("available")),
    "adopt_and_erase": (Node("available"), Wanted("available", adopt=True, clean=("deploy.erase_devices",))),
    "adopt_after_failed_deploy": (Node("deploy failed"), Wanted("active", adopt=True)),
    "adopt_and_deploy": (Node("active"), Wanted("active", adopt=True, deploy=True)),
    "little_memory": (Node("manageable", memory_mib=2048), Wanted("manageable", inspect=True)),
    "clean_failed": (
        Node("clean failed", failures=TRIES, last_error="[Errno 2] No such file or directory: 'fuser'"),
        Wanted("available"),
    ),
    "bmc_failed": (Node("enroll", failures=TRIES, last_error="x"), Wanted("manageable")),
    "stuck_conductor": (Node("deploying", in_state_s=4000), Wanted("active")),
    "dead_conductor_moving": (Node("cleaning", conductor_alive=False), Wanted("active")),
    "dead_conductor": (Node("available", conductor_alive=False), Wanted("active")),
}


@pytest.mark.parametrize("name", HELD)
def test_why_a_node_is_held(name: str) -> None:
    assert held(*HELD[name]) == HOLDS[name]


def test_every_reason_has_its_case() -> None:
    assert HELD.keys() == HOLDS.keys()


def test_maintenance_that_a_failed_clean_began_is_ended() -> None:
    node = Node("clean failed", maintenance=True, fault="clean failure")
    assert verbs(node, Wanted("manageable")) == ["end_maintenance", "manage"]
    assert "it is in maintenance" in held(dataclasses.replace(node, fault=""), Wanted("manageable"))
    assert "it is in maintenance" in held(dataclasses.replace(node, state="manageable"), Wanted("available"))


def test_a_node_in_maintenance_that_is_where_it_shall_be_is_left_alone() -> None:
    assert verbs(Node("active", maintenance=True), Wanted("active")) == []


def test_an_agent_that_is_silent_for_too_long_is_ended() -> None:
    assert verbs(Node("inspect wait", in_state_s=3600), Wanted("manageable", inspect=True)) == [
        "wait",
        "inspect",
    ]
    assert verbs(Node("inspect wait", in_state_s=3601), Wanted("manageable", inspect=True)) == [
        "abort",
        "manage",
        "inspect",
    ]


def test_an_error_is_explained_or_repeated_on_one_line() -> None:
    assert explained(None) == explained("") == ""
    assert explained("a\n\x1b[2Jb") == ": a \\u001b[2Jb"
    assert "never called back" in explained("Timeout reached while waiting for callback for node 1")
    assert "does not answer" in explained("HTTPSConnectionPool(host='10.1.1.1'): Max retries exceeded")


def test_ironic_is_given_the_gpus_that_its_own_table_lacks() -> None:
    devices = accelerators()["pci_devices"]
    assert all(device["vendor_id"] and device["device_id"] for device in devices)
    assert {"2330", "2335", "2901", "2941", "20b2"} <= {device["device_id"] for device in devices}


# -- against the machine -----------------------------------------------------------------------------


class Ironic:
    """A node in the recorded machine, and what may happen to it."""

    def __init__(self, node: Node, draw: random.Random, failing: float) -> None:
        self.node, self.draw, self.failing = node, draw, failing
        self.asked = ""
        self.wiped: list[str] = []

    def change(self, **values: t.Any) -> None:
        self.node = dataclasses.replace(self.node, **values)

    def take(self, verb: str) -> None:
        """Do what the API does with a verb; a verb that it would refuse is a KeyError here."""
        state = self.node.state
        if verb == "enrol":
            assert state is None
            self.change(state="enroll")
        elif verb == "end_maintenance":
            self.change(maintenance=False, fault="")
        elif verb == "retire":
            assert state != "available"
            self.change(retired=True)
        elif verb == "delete":
            assert state in MACHINE["delete_allowed"]
            self.change(state=None)
        elif verb in ("power_on", "power_off"):
            self.change(power=verb.replace("_", " "))
        elif verb == "wait":
            self.go_on()
        else:
            assert not self.node.maintenance
            assert not (verb == "provide" and self.node.retired)
            self.asked = verb
            self.change(
                state=JUMPS[str(state), VERBS[verb]],
                in_state_s=0,
                target="manageable" if verb == "clean" else None,
            )

    def go_on(self) -> None:
        """Let a state that moves go on by one event."""
        state = str(self.node.state)
        events = [event for event in BY_ITSELF if (state, event) in JUMPS and event != "hold"]
        if state == "cleaning":
            manual = self.asked == "clean" or self.node.target == "manageable" or self.node.retired
            events.remove("done" if manual else "manage")
        if self.draw.random() >= self.failing and len(events) > 1 and "fail" in events:
            events.remove("fail")
        event = self.draw.choice(events)
        self.change(state=JUMPS[state, event])
        if event == "fail":
            fault = FAULT_OF.get(str(self.node.state), "")
            self.change(failures=self.node.failures + 1, last_error="x", maintenance=bool(fault), fault=fault)
        elif event in ("done", "manage"):
            chore = {"active": "deploy", "rebuild": "deploy"}.get(self.asked, self.asked)
            if chore in ("inspect", "clean", "deploy", "service"):
                self.change(done=self.node.done | {chore})
            self.asked = ""

    @property
    def moves(self) -> bool:
        return ironic.STATES[self.node.state].sort in ("moving", "waiting") if self.node.state else False


_steps = st.lists(
    st.sampled_from(["deploy.erase_devices", "firmware.update", "raid.create_configuration"]), max_size=2
).map(tuple)
_wanted = st.builds(
    Wanted, st.sampled_from(GOALS), inspect=st.booleans(), clean=_steps, deploy=st.booleans(), service=_steps,
    adopt=st.booleans(), power=st.sampled_from(["", "power on", "power off"]),
)  # fmt: skip
_recorded = list(MACHINE["machine"])
_nodes = st.builds(
    Node, st.sampled_from([None, *_recorded]), maintenance=st.booleans(),
    reserved_by=st.sampled_from(["", "c1"]),
    power=st.sampled_from([None, "power on", "power off", "rebooting"]),
    fault=st.sampled_from(["", *MACHINE["faults"]]),
    protected=st.booleans(), retired=st.booleans(), automated_clean=st.booleans(), running=st.booleans(),
    conductor_alive=st.sampled_from([True, True, False]), memory_mib=st.sampled_from([None, 2048, 1 << 20]),
    in_state_s=st.sampled_from([0, 10_000]), failures=st.integers(0, 3),
    target=st.sampled_from([None, "manageable"]),
)  # fmt: skip


@given(_nodes, _wanted, st.booleans(), st.integers(0, 1 << 32))
@settings(max_examples=400, deadline=None)
def test_from_any_state_it_arrives_or_is_held_and_wipes_nothing_unasked(
    node: Node, wanted: Wanted, consent: bool, seed: int
) -> None:
    """Killed after every step: each is worked out again from what Ironic says then."""
    world = Ironic(node, random.Random(seed), failing=0.3)
    for _ in range(200):
        step = next_step(world.node, wanted, consent)
        if step is None:
            assert world.node.state == {"retired": "manageable", "absent": None}.get(wanted.goal, wanted.goal)
            assert not wanted.power or wanted.goal == "absent" or world.node.power == wanted.power
            return
        if isinstance(step, Held):
            assert step.reason and step.remedy
            return
        if {"wipes", "deletes"} & step.effects:
            assert consent
        if "wipes" in step.effects:
            assert not wanted.adopt
        if step.verb in ("deleted", "rebuild", "rescue", "service") or step.disruption:
            assert not world.node.running
        if step.verb == "deleted" or step.verb == "rebuild" or step.verb == "active":
            assert "wipes" in step.effects and not world.node.protected
        if step.verb == "wait" and not world.moves:
            world.change(
                reserved_by="", power="power on" if world.node.power == "rebooting" else world.node.power
            )
            continue
        world.take(step.verb)
    pytest.fail(f"no end: {world.node}")


@given(st.sampled_from([None, *_recorded]), st.sampled_from(GOALS), st.integers(0, 1 << 32))
@settings(max_examples=200, deadline=None)
def test_with_consent_and_nothing_in_the_way_every_goal_is_reached(
    state: str | None, goal: Goal, seed: int
) -> None:
    if state and ironic.STATES[state].sort == "held":
        return
    world = Ironic(Node(state), random.Random(seed), failing=0.0)
    for _ in range(100):
        step = next_step(world.node, Wanted(goal), consent=True)
        if step is None:
            assert world.node.state == {"retired": "manageable", "absent": None}.get(goal, goal)
            return
        assert not isinstance(step, Held), (world.node, step)
        world.take(step.verb)
    pytest.fail(f"no end: {world.node}")


def test_states_with_an_operating_system_are_states() -> None:
    assert set(_IN_USE) <= ironic.STATES.keys()


def test_every_state_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs/bare-metal-states.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([a-z -]+)`", row)} == ironic.STATES.keys()
