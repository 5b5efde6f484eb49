# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Nodes go their way through a real Ironic (fake-hardware): every step is taken by what it says then."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.way import Held, next_step
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

from ironspan.lab import ironic, processes
from ironspan.lab.ironic import USER, Ironic

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with ironic.running(tmp_path_factory.mktemp("ironic")) as found:
        yield found


@pytest.fixture
def api(lab: Ironic) -> IronicApi:
    return login(lab, lab.password)


def login(lab: Ironic, password: str) -> IronicApi:
    return connected(
        auth_type="http_basic",
        auth={"endpoint": lab.url, "username": USER, "password": password},
        baremetal_endpoint_override=lab.url,
    )


ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "clean": {"clean_steps": [{"interface": "bios", "step": "factory_reset"}]},
    "rescue": {"rescue_password": "of-this-test"},
}


def bring(api: IronicApi, uuid: str, wanted: Wanted, done: set[str] | None = None) -> list[str]:
    """Take steps until a node is where it shall be; each as a run would that starts there."""
    taken: list[str] = []
    finished = done if done is not None else set()
    for _ in range(20):
        node = dataclasses.replace(api.node(uuid), done=frozenset(finished))
        step = next_step(node, wanted, consent=True)
        if step is None:
            return taken
        assert not isinstance(step, Held), (step, node)
        taken.append(step.verb)
        if step.verb != "wait":
            api.take(uuid, step.verb, ARGUMENTS.get(step.verb))
        if step.verb == "delete":
            return taken
        ended = api.settled(uuid, lambda what: None, 120)
        assert "failed" not in str(ended.state), ended
        if step.verb in ("inspect", "clean", "service"):
            finished.add(step.verb)
    raise AssertionError(taken)


def test_the_record_of_its_states_is_what_ironic_says() -> None:
    program = ROOT / "tests" / "support" / "ironic_machine.py"
    environment = {"PYTHONPATH": str(ironic.library())}
    answer = subprocess.run(
        [sys.executable, "-sS", program], env=environment, check=True, capture_output=True, text=True
    )
    recorded = ROOT / "tests" / "unit" / "bare_metal" / "ironic_39.0.0.json"
    assert json.loads(answer.stdout) == json.loads(recorded.read_text(encoding="utf-8"))


def test_a_node_goes_its_whole_way(api: IronicApi) -> None:
    uuid = api.enrol("gpu-1", {"driver": "fake-hardware"}, ["5c:25:73:00:00:01"])
    assert bring(api, uuid, Wanted("active", inspect=True)) == ["manage", "inspect", "provide", "active"]
    assert bring(api, uuid, Wanted("active")) == []
    assert bring(api, uuid, Wanted("active", power="power off")) in ([], ["power_off"])
    assert bring(api, uuid, Wanted("rescue")) == ["rescue"]
    assert bring(api, uuid, Wanted("active")) == ["unrescue"]
    assert bring(api, uuid, Wanted("available")) == ["deleted"]
    assert bring(api, uuid, Wanted("retired", clean=("bios.factory_reset",))) == ["manage", "retire", "clean"]
    found = api.nodes()["gpu-1"]
    assert found[0] == uuid
    assert (found[1].state, found[1].retired) == ("manageable", True)
    assert bring(api, uuid, Wanted("absent")) == ["delete"]
    assert "gpu-1" not in api.nodes()


def test_enrolling_twice_changes_nothing_and_costs_no_time(api: IronicApi) -> None:
    first = api.enrol("gpu-2", {"driver": "fake-hardware"}, ["5c:25:73:00:00:02"])
    began = time.monotonic()
    assert api.enrol("gpu-2", {"driver": "fake-hardware"}, ["5c:25:73:00:00:02"]) == first
    assert time.monotonic() - began < 120, "a node that is busy is asked for 300 s"
    with pytest.raises(RemoteError, match="another node's"):
        api.enrol("gpu-3", {"driver": "fake-hardware"}, ["5c:25:73:00:00:02"])


def test_a_refusal_says_what_ironic_said_and_costs_no_time(api: IronicApi) -> None:
    uuid = api.enrol("gpu-4", {"driver": "fake-hardware"}, [])
    began = time.monotonic()
    with pytest.raises(RemoteError, match="can not be performed on node"):
        api.take(uuid, "rescue")
    assert time.monotonic() - began < 120, "a node that is busy is asked for 300 s"


def test_a_wrong_password_is_a_refusal(lab: Ironic) -> None:
    with pytest.raises(RemoteError, match="401"):
        login(lab, "wrong").nodes()


def test_an_ironic_goes_on_with_what_it_knew_after_it_was_ended(lab: Ironic, api: IronicApi) -> None:
    uuid = api.enrol("gpu-9", {"driver": "fake-hardware"}, [])
    ironic.stop(lab.folder)
    assert not processes.marked(lab.folder)
    assert ironic.start(lab.folder) == lab
    assert api.nodes()["gpu-9"][0] == uuid
