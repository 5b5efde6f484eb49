# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that run: redeployed and retired from every state; accounts of BMCs that Ironic has or has not."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import wanted_node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_state import found_state, way_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import Record
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.ironic_login import SINCE, BmcLogins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import Kept
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State

from tests.support import racks

SERVER = racks.server(0)
NOTHING = Record()


def wanted(**differences: t.Any) -> State:
    """Return what is wanted of a server, but for some differences."""
    return {**wanted_node(SERVER, {"driver": "fake-hardware"}, {}, {}, True), **differences}


REDEPLOY = wanted(goal="active", redeploy=True)
RETIRE = wanted(goal="retired", inspect=False, clean=["deploy.erase_devices"])


def verbs(state: str, goal: State, record: Record = NOTHING, **node: t.Any) -> list[str]:
    """Return the steps of a server in a state that was inspected before."""
    done = frozenset({"inspect"})
    there = found_state({}, Node(state, **{"done": done, **node}), goal, set(), record)
    found = way_of(there, goal)
    assert found.held is None, found.held
    return [step.verb for step in found.steps]


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        ("active", ["deleted", "manage", "inspect", "provide", "active"]),
        ("rescue", ["deleted", "manage", "inspect", "provide", "active"]),
        ("error", ["deleted", "manage", "inspect", "provide", "active"]),
        # A run of before was killed here: what it began is ended, and nothing is written twice.
        ("deploying", ["wait"]),
        ("wait call-back", ["wait"]),
        ("deploy failed", ["active"]),
        ("deleting", ["wait", "active"]),
        ("available", ["active"]),
        ("manageable", ["provide", "active"]),
    ],
)
def test_a_redeployment_begins_where_the_server_is(state: str, steps: list[str]) -> None:
    assert verbs(state, REDEPLOY) == steps


def test_a_redeployment_without_inspection_writes_in_place() -> None:
    assert verbs("active", {**REDEPLOY, "inspect": False}) == ["rebuild"]


@pytest.mark.parametrize(
    ("state", "node", "steps"),
    [
        ("active", {}, ["retire", "deleted", "clean"]),
        ("available", {}, ["manage", "retire", "clean"]),
        ("manageable", {}, ["retire", "clean"]),
        ("manageable", {"retired": True}, ["clean"]),
        ("clean failed", {"retired": True}, ["manage", "clean"]),
        ("cleaning", {"retired": True}, ["wait", "clean"]),
    ],
)
def test_a_retirement_begins_where_the_server_is(
    state: str, node: dict[str, t.Any], steps: list[str]
) -> None:
    assert verbs(state, RETIRE, **node) == steps


def test_a_server_that_was_erased_is_not_erased_again() -> None:
    done = Record(erased=("deploy.erase_devices",))
    assert verbs("manageable", RETIRE, done, retired=True) == []
    assert verbs("manageable", RETIRE, Record(erased=("deploy.other",)), retired=True) == ["clean"]


@pytest.mark.parametrize("state", sorted(ironic_states.STATES))
@pytest.mark.parametrize("goal", [REDEPLOY, RETIRE], ids=["redeploy", "retire"])
def test_nothing_is_done_with_a_server_on_which_a_node_runs(state: str, goal: State) -> None:
    there = found_state({}, Node(state, running=True), goal, set(), Record())
    found = way_of(there, goal)
    gone = {"deleted", "rebuild"} & {step.verb for step in found.steps}
    assert not gone, found


def test_what_was_held_is_inspected_again_by_the_next_run() -> None:
    active = wanted(goal="active")
    assert verbs("manageable", active) == ["provide", "active"]
    assert verbs("manageable", active, Record(differed=True)) == ["inspect", "provide", "active"]
    assert verbs("active", active, Record(differed=True)) == []


class Keeper:
    """Keeps one account."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def account(self, serial: str) -> bytes | None:
        return self.kept.as_bytes() if serial == SERVER.serial else None


class Answer(t.NamedTuple):
    """An answer of Ironic, which repeats what it was sent."""

    status_code: int
    text: str
    content: bytes = b"x"

    def json(self) -> t.Any:
        return {"error_message": self.text} if self.status_code >= 400 else {}


class Session:
    """A session of keystoneauth1 that takes or refuses."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.asked: list[tuple[str, dict[str, t.Any]]] = []

    def request(self, path: str, method: str, **options: t.Any) -> Answer:
        self.asked.append((f"{method} {path}", options))
        return Answer(self.status, f"Couldn't apply patch {options.get('json')}")


LOGIN = Login("ironspan", "of-this-test")
KEPT = Kept(LOGIN, since="2026-11-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("kept", "serial", "extra", "standing"),
    [
        (Kept(), SERVER.serial, {}, "none"),
        (KEPT, "SN666", {}, "none"),
        (KEPT, "", {}, "none"),
        (KEPT, SERVER.serial, None, "former"),
        (KEPT, SERVER.serial, {}, "former"),
        (KEPT, SERVER.serial, "damaged", "former"),
        (KEPT, SERVER.serial, {SINCE: "2026-10-01T00:00:00+00:00"}, "former"),
        (KEPT, SERVER.serial, {SINCE: KEPT.since}, "current"),
        (dataclasses.replace(KEPT, pending=LOGIN), SERVER.serial, {SINCE: KEPT.since}, "changing"),
    ],
)
def test_whether_ironic_has_the_account_that_holds(
    kept: Kept, serial: str, extra: t.Any, standing: str
) -> None:
    assert BmcLogins(Keeper(kept)).standing(serial, extra) == standing


def test_an_account_is_sent_in_one_request_that_no_log_has() -> None:
    session = Session()
    BmcLogins(Keeper(KEPT)).tell(IronicApi(session), "uuid", SERVER.serial)
    ((asked, options),) = session.asked
    assert (asked, options["log"]) == ("PATCH /nodes/uuid", False)
    assert {change["path"] for change in options["json"]} == {
        "/driver_info/redfish_username",
        "/driver_info/redfish_password",
        f"/extra/{SINCE}",
    }


def test_a_refusal_does_not_repeat_the_password() -> None:
    with pytest.raises(RemoteError) as refused:
        BmcLogins(Keeper(KEPT)).tell(IronicApi(Session(400)), "uuid", SERVER.serial)
    assert "left out" in str(refused.value)
    assert LOGIN.password not in str(refused.value)


@pytest.mark.parametrize("kept", [Kept(), dataclasses.replace(KEPT, pending=LOGIN)])
def test_no_account_is_sent_that_does_not_hold(kept: Kept) -> None:
    session = Session()
    with pytest.raises((RemoteError, BmcError), match="run ironspan bmc setup"):
        BmcLogins(Keeper(kept)).tell(IronicApi(session), "uuid", SERVER.serial)
    assert session.asked == []
