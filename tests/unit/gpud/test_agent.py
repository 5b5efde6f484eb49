# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What comes in as readings, events and lines of the log, and what goes out to the Node."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped

from ironspan.gpud import node, watch
from ironspan.gpud.agent import Agent, boot_id, pci_key
from ironspan.gpud.checks.base import Expected
from ironspan.gpud.kmsg import Line
from ironspan.gpud.publish import Publisher
from ironspan.gpud.settings import Settings
from ironspan.lab.ports import free_port
from ironspan.program.errors import ServiceError
from tests.support import nvml
from tests.support.playbooks import ROOT

from .test_watch import until

BOOT = "boot-1"
FELL = "NVRM: Xid (PCI:0000:1f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def chosen(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path, clear_s=0, expected=Expected(count=8, model="H100"))


@pytest.fixture(scope="module")
def recorded(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, t.Any]:
    """What the process that asks NVML says of eight GPUs, asked once."""
    path = tmp_path_factory.mktemp("recorded") / "gpus"
    nvml.State(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(nvml.VARIABLE, str(path))
        found = watch.read_once(library=str(library.parent))
    return t.cast("dict[str, t.Any]", found["reading"])


@pytest.fixture
def reading(recorded: dict[str, t.Any]) -> dict[str, t.Any]:
    return copy.deepcopy(recorded)


def agent(chosen: Settings, reading: Mapping[str, t.Any]) -> Agent:
    """Return an agent that has read the GPUs once."""
    made = Agent(chosen, BOOT)
    made.heard({"reading": reading})
    return made


def log(of: Agent, *texts: str, at: float | None = None) -> None:
    number = int(of.store.content.log.get("number", 0))
    of.log([Line(text, time.time() if at is None else at) for text in texts], {"number": number + len(texts)})


def test_gpus_that_are_well(chosen: Settings, reading: dict[str, t.Any], gpus: nvml.State) -> None:
    made = agent(chosen, reading)
    assert made.judged()[:3] == ("True", "Healthy", "no event")
    seen = json.loads(made.seen())
    assert (seen["boot"], seen["driver"], len(seen["gpus"])) == (BOOT, "580.95.05", 8)
    assert seen["gpus"][1] == {
        "index": 1, "uuid": gpus.uuid(1), "serial": "1650000000001", "model": "NVIDIA H100 80GB HBM3",
        "memory_mib": 81559, "pci": "00000000:1f:00.0",
    }  # fmt: skip


def test_nothing_is_said_before_something_is_known(chosen: Settings) -> None:
    made = Agent(chosen, BOOT)
    assert made.starting
    assert made.judged().status == "Unknown"


def test_a_line_of_the_log_is_an_event_of_its_gpu(
    chosen: Settings, reading: dict[str, t.Any], gpus: nvml.State
) -> None:
    made = agent(chosen, reading)
    log(made, "usb 1-1: new device", FELL)
    judged = made.judged()
    assert (judged.status, judged.reason) == ("False", "Xid79")
    assert judged.message.startswith(f"A3 xid 79, {gpus.uuid(1)}: 79, pid=")
    (event,) = json.loads(judged.events)
    assert (event["index"], event["serial"], event["count"]) == (1, "1650000000001", 1)
    made.heard({"xid": 79, "gpu": gpus.uuid(1)})
    (event,) = json.loads(made.judged().events)
    assert event["count"] == 1
    # The same agent after a restart, and after a boot.
    assert Agent(chosen, BOOT).judged()[:2] == ("False", "Xid79")
    assert json.loads(Agent(chosen, "boot-2").judged().events) == []


def test_lines_wait_until_the_gpus_are_known_by_their_addresses(
    chosen: Settings, reading: dict[str, t.Any], gpus: nvml.State
) -> None:
    kernel = chosen.state / "kmsg"
    kernel.write_text(FELL + "\n")
    made = Agent(replace(chosen, kmsg=kernel), BOOT)
    made.follow_log(lambda: False, 0.3)
    assert made.store.content.records == {}
    made.heard({"reading": reading})
    made.follow_log(lambda: False, 0.3)
    assert list(made.store.content.records) == [("xid 79", gpus.uuid(1))]


@pytest.mark.parametrize(
    ("line", "event", "status"),
    [
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
            "sxid non-fatal",
            "True",
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM", "sxid fatal", "False"),
        (
            "NVRM: Xid (PCI:0000:1f:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 08 (0x00000226 0x0)",
            "",
            "True",
        ),
        (
            "NVRM: Xid (PCI:0000:1f:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004001c6 0x0)",
            "xid 149",
            "False",
        ),
        ("NVRM: Xid (PCI:0000:ff:00): 48, pid=1", "xid 48", "False"),
        ("NVRM: Xid (PCI:0000:1f:00): 31, pid=7, name=python3, MMU Fault", "xid 31", "True"),
        ("NVRM: GPU 0000:1f:00.0: GPU has fallen off the bus.", "xid 79", "False"),
    ],
)
def test_each_kind_of_line(
    line: str, event: str, status: str, chosen: Settings, reading: dict[str, t.Any]
) -> None:
    made = agent(chosen, reading)
    log(made, line)
    judged = made.judged()
    assert judged.status == status
    assert [each["event"] for each in json.loads(judged.events)] == [event] * bool(event)


def test_the_site_s_classes_hold(chosen: Settings, reading: dict[str, t.Any]) -> None:
    policy = shipped().with_overrides([{"event": "sxid 20034", "class": "A0", "reason": "ours"}])
    made = agent(replace(chosen, policy=policy), reading)
    log(made, "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM")
    judged = made.judged()
    assert judged.status == "True"
    assert [each["event"] for each in json.loads(judged.events)] == ["sxid 20034"]


def test_a_call_that_hangs_and_a_driver_that_is_gone(chosen: Settings, reading: dict[str, t.Any]) -> None:
    made = agent(chosen, reading)
    made.hung(watch.Hung("temperature", 2, 45))
    judged = made.judged()
    assert (judged.status, judged.reason) == ("False", "NvmlHung")
    assert "temperature does not return" in judged.message
    made.heard({"reading": reading})
    assert made.judged().status == "True"
    made.heard({"failed": 9, "text": "Driver Not Loaded"})
    assert made.judged()[:2] == ("False", "NvmlGpuMissing")
    made.heard({"reading": reading})
    assert made.judged().status == "True"
    made.heard({"failed": 18, "text": "Driver/library version mismatch"})
    assert [each["event"] for each in json.loads(made.judged().events)] == ["nvml versions_differ"]


def test_since_when_nvml_does_not_start(
    chosen: Settings, reading: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = agent(chosen, reading)
    assert made.failing_s() == 0
    for at in (100.0, 250.0):
        monkeypatch.setattr(time, "monotonic", lambda at=at: at)
        made.heard({"failed": 9, "text": "Driver Not Loaded"})
    assert made.failing_s() == 150
    made.heard({"reading": reading})
    assert made.failing_s() == 0


def test_a_gpu_that_is_lost_when_nvml_starts_again_keeps_its_name(
    chosen: Settings, reading: dict[str, t.Any], gpus: nvml.State
) -> None:
    made = agent(chosen, reading)
    lost = {**reading, "gpus": [*reading["gpus"]]}
    lost["gpus"][3] = {"index": 3, "lost": 15}
    made.heard({"reading": lost})
    (event,) = json.loads(made.judged().events)
    assert (event["event"], event["gpu"], event["index"]) == ("nvml gpu_lost", gpus.uuid(3), 3)


def test_an_operator_clears_what_was_reset_by_hand(
    chosen: Settings, reading: dict[str, t.Any], gpus: nvml.State
) -> None:
    made = agent(chosen, reading)
    log(made, FELL)
    (chosen.state / "clear.json").write_text(json.dumps({"gpu": gpus.uuid(2)}))
    made.take_request()
    assert made.judged().status == "False"
    (chosen.state / "clear.json").write_text(json.dumps({"gpu": gpus.uuid(1)}))
    made.take_request()
    assert made.judged().status == "True"
    (chosen.state / "clear.json").write_text("{")
    made.take_request()
    assert not (chosen.state / "clear.json").exists()


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("00000000:1F:00.0", "0000:1f:00"),
        ("0000:1f:00", "0000:1f:00"),
        ("00010000:3b:00.0", "10000:3b:00"),
        ("?", "?"),
    ],
)
def test_addresses_have_one_form(address: str, key: str) -> None:
    assert pci_key(address) == key


class FakeNode(node.Node):
    """A Node that can be away, and forget."""

    def __init__(self) -> None:
        super().__init__(Path("/none"), "rack-1")
        self.there = True
        self.held: dict[str, t.Any] = {}
        self.annotations: dict[str, str] = {}
        self.writes = 0

    def _insist(self) -> None:
        if not self.there:
            raise ServiceError("away", retryable=True)

    def metadata(self) -> dict[str, t.Any]:
        self._insist()
        return {"annotations": dict(self.annotations)}

    def conditions(self) -> list[dict[str, t.Any]]:
        self._insist()
        return [self.held] if self.held else []

    def write(self, conditions: list[dict[str, t.Any]], annotations: Mapping[str, str]) -> None:
        self._insist()
        (self.held,) = conditions
        self.annotations.update(annotations)
        self.writes += 1


@pytest.fixture
def published(
    chosen: Settings, reading: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[Agent, FakeNode, Publisher, list[float]]:
    made, of, now = agent(chosen, reading), FakeNode(), [1e9]
    return made, of, Publisher(made, of, 300, lambda: now[0]), now


Published = tuple[Agent, FakeNode, Publisher, list[float]]


def test_it_writes_at_once_what_changes_and_else_every_five_minutes(published: Published) -> None:
    made, of, publisher, now = published
    assert publisher.one_pass()
    assert (of.held["status"], of.held["lastTransitionTime"]) == ("True", "2001-09-09T01:46:40Z")
    now[0] += 5
    assert not publisher.one_pass()
    log(made, FELL)
    assert publisher.one_pass()
    assert (of.held["status"], of.held["lastTransitionTime"]) == ("False", "2001-09-09T01:46:45Z")
    now[0] += 299
    assert not publisher.one_pass()
    now[0] += 1
    assert publisher.one_pass()
    assert of.held["lastTransitionTime"] == "2001-09-09T01:46:45Z"
    assert of.writes == 3


def test_a_clock_that_is_set_back_keeps_nobody_waiting(published: Published) -> None:
    """A host has the time of its own clock until it has asked others: an hour too late, for example."""
    _, of, publisher, now = published
    publisher.one_pass()
    now[0] -= 3600
    assert publisher.one_pass()
    assert of.held["lastHeartbeatTime"] == "2001-09-09T00:46:40Z"
    now[0] += 11
    of.annotations = {}
    assert publisher.one_pass()


def test_while_the_link_is_cut_it_keeps_and_then_sends_what_is_current(published: Published) -> None:
    made, of, publisher, _ = published
    publisher.one_pass()
    of.there = False
    log(made, FELL)
    for _ in range(3):
        with pytest.raises(ServiceError):
            publisher.one_pass()
    log(made, FELL.replace("79", "48"), at=time.time() + 60)
    of.there = True
    assert publisher.one_pass()
    assert of.held["reason"] == "Xid79"
    assert {each["event"] for each in json.loads(of.annotations[node.EVENTS])} == {"xid 79", "xid 48"}


def test_a_node_that_was_registered_again_is_told_again(published: Published) -> None:
    _, of, publisher, now = published
    publisher.one_pass()
    of.held, of.annotations = {}, {}
    now[0] += 11
    assert publisher.one_pass()
    assert of.held["status"] == "True"


def test_another_agent_takes_over_since_when_it_is_so(published: Published) -> None:
    made, of, publisher, now = published
    log(made, FELL)
    publisher.one_pass()
    now[0] += 50
    Publisher(made, of, 300, lambda: now[0]).one_pass()
    assert of.held["lastTransitionTime"] == "2001-09-09T01:46:40Z"


@contextlib.contextmanager
def running(folder: Path, library: Path, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the agent as a program; ``folder/port`` is where its metrics are."""
    port = free_port()
    (folder / "port").write_text(str(port))
    content = {
        "state": str(folder), "kmsg": str(folder / "kmsg"), "library": str(library.parent),
        "every_seconds": 1, "metrics": {"port": port}, **more,
    }  # fmt: skip
    (folder / "gpud.json").write_text(json.dumps(content))
    command = [sys.executable, "-m", "ironspan.gpud", "run", "--settings", str(folder / "gpud.json")]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def counts(folder: Path) -> dict[str, int]:
    """Return how often each event was counted, as the file has it, of all GPUs."""
    found: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError):
        for record in json.loads((folder / "events.json").read_text())["records"]:
            found[record["event"]] = found.get(record["event"], 0) + record["count"]
    return found


def test_killed_again_and_again_it_counts_each_line_once(
    tmp_path: Path, gpus: nvml.State, library: Path
) -> None:
    kernel = tmp_path / "kmsg"
    kernel.write_text("")
    written = 0
    for pause in (0.9, 1.1, 1.3):
        with running(tmp_path, library) as process:
            end = time.monotonic() + pause
            while time.monotonic() < end:
                with kernel.open("a") as file:
                    file.write(FELL.replace("79", "63") + "\n")
                written += 1
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
    with running(tmp_path, library):
        until(lambda: counts(tmp_path).get("xid 63") == written)
        time.sleep(1)
        assert counts(tmp_path)["xid 63"] == written
    assert json.loads((tmp_path / "events.json").read_text())["boot"] == boot_id()
