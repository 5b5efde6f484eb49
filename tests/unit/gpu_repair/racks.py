# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Racks of GPU nodes in memory: Node objects as the API server keeps them, agents, pods, people, time."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import typing as t
from collections.abc import Mapping, Sequence

from ironspan.gpu_repair import decide as deciding
from ironspan.gpu_repair import model, reading, records, writing
from ironspan.gpu_repair.limits import Limits
from ironspan.gpu_repair.model import (
    Decision,
    Node,
    Pod,
    Rule,
    State,
    World,
)
from ironspan.gpu_repair.needs import Policy

NOW = 1_800_000_000.0
DAY = 86400.0
POLICY: Policy = {
    "xid 31": Rule("A1"),
    "xid 63": Rule("A0"),
    "xid 48": Rule("A2", again="A4"),
    "xid 95": Rule("A2"),
    "xid 79": Rule("A3"),
    "xid 54": Rule("A4"),
    "nvml recovery_none": Rule("A0"),
    "nvml recovery_reset": Rule("A2"),
    "nvml remap_pending": Rule("A2"),
    "nvml remap_failure": Rule("A4"),
    "nvml gpu_lost": Rule("A3"),
    "nvml ecc_off": Rule("A5"),
}
DRIVER = "580.95.05"
GPUS = ("GPU-0", "GPU-1")
TESTS = ("A01", "A03")
LIMITS = Limits()


class Refused(Exception):
    """The object is another one by now."""


class Racks:
    """Some nodes.

    Args:
        names: rack of each node.
        now: seconds since the epoch.
    """

    def __init__(self, names: Mapping[str, str], now: float = NOW) -> None:
        self.racks, self.now = dict(names), now
        self.nodes = {name: self._made(name) for name in names}
        self.pods: dict[str, list[Pod]] = {name: [] for name in names}
        self.events: dict[str, list[dict[str, t.Any]]] = {name: [] for name in names}
        self.boots = dict.fromkeys(names, 0)
        self.done: dict[str, set[str]] = {name: set() for name in names}
        """Ids that each agent has acted on."""
        self._read: dict[str, Node] = {}

    def _made(self, name: str) -> dict[str, t.Any]:
        return {
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "annotations": {}},
            "spec": {},
            "status": {
                "nodeInfo": {"bootID": f"{name}-boot-0"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def boot(self, name: str) -> str:
        """Return the boot id of a node."""
        return str(self.nodes[name]["status"]["nodeInfo"]["bootID"])

    def annotate(self, name: str, **values: t.Any) -> None:
        """Write annotations as the node's agent does: gpu_seen is ironspan.io/gpu-seen."""
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        self.write(name, {model.PREFIX + key.replace("_", "-"): text for key, text in texts.items()})

    def write(self, name: str, annotations: Mapping[str, str]) -> None:
        """Write annotations."""
        self.nodes[name]["metadata"]["annotations"] |= annotations
        self._changed(name)

    def condition(self, name: str, kind: str, status: str) -> None:
        """Write a condition as the node's agent does."""
        conditions = self.nodes[name]["status"]["conditions"]
        conditions[:] = [each for each in conditions if each["type"] != kind]
        conditions.append({"type": kind, "status": status})
        self._changed(name)

    def see(self, name: str, serials: Sequence[str] = ("S0", "S1")) -> None:
        """Let the agent say which GPUs there are."""
        gpus = [{"uuid": gpu, "serial": serial} for gpu, serial in zip(GPUS, serials, strict=True)]
        self.annotate(name, gpu_seen={"boot": self.boot(name), "driver": DRIVER, "gpus": gpus})

    def event(self, name: str, key: str, gpu: str = "GPU-0") -> None:
        """Let something happen."""
        there = [each for each in self.events[name] if (each["event"], each["gpu"]) == (key, gpu)]
        new: dict[str, t.Any] = {"event": key, "gpu": gpu, "count": 0, "since": records.moment(self.now)}
        entry = there[0] if there else new
        entry |= {"last": records.moment(self.now), "boot": self.boot(name), "count": entry["count"] + 1}
        if not there:
            self.events[name].append(entry)
        self.annotate(name, gpu_events=self.events[name])

    def well(self, name: str, kind: str = "") -> None:
        """Let what is wrong be gone; with a kind only events of that."""
        self.events[name] = [each for each in self.events[name] if not each["event"].startswith(kind)]
        self.annotate(name, gpu_events=self.events[name])

    def preflight(self, name: str, passed: bool = True, tests: Sequence[str] = TESTS, boot: str = "") -> None:
        """Let the agent run a preflight."""
        results = [{"test": test, "gpu": gpu, "passed": passed} for test in tests for gpu in GPUS]
        said = {"boot": boot or self.boot(name), "driver": DRIVER, "passed": passed, "results": results}
        self.annotate(
            name,
            gpu_preflight={**said, "started": records.moment(self.now), "ended": records.moment(self.now)},
        )
        self.condition(name, "GPUPreflight", str(passed))

    def reboot(self, name: str) -> None:
        """Start a node again."""
        self.boots[name] += 1
        self.nodes[name]["status"]["nodeInfo"]["bootID"] = f"{name}-boot-{self.boots[name]}"
        self._changed(name)
        self.see(name)
        self.well(name)

    def asked(self, name: str) -> dict[str, t.Any]:
        """Return what the agent is asked to do and has not done, empty when nothing."""
        action = json.loads(self.nodes[name]["metadata"]["annotations"].get(model.ACTION, "{}"))
        if not action or action["id"] in self.done[name]:
            return {}
        return {} if records.seconds(action["expires"]) <= self.now else action

    def answer(self, name: str, ok: bool, detail: str = "") -> None:
        """Let the agent answer; only once to each request."""
        action = self.asked(name)
        self.done[name].add(action["id"])
        self.annotate(name, gpu_action_done={"id": action["id"], "ok": ok, "detail": detail})

    def release(self, name: str, to: str = "preflight", by: str = "ann") -> None:
        """Let a person release a node."""
        self.annotate(
            name, gpu_release={"id": f"{self.now}", "reason": "looked at it", "to": to}, gpu_release_by=by
        )

    def taints(self, name: str) -> dict[str, str]:
        """Return the taints of a node."""
        return {each["key"]: each["value"] for each in self.nodes[name]["spec"].get("taints", ())}

    def read(self) -> list[Node]:
        """Return all nodes as the controller reads them."""
        return [self.node(name) for name in self.racks]

    def node(self, name: str) -> Node:
        """Return a node as the controller reads it."""
        version = self.nodes[name]["metadata"]["resourceVersion"]
        there = self._read.get(name)
        if there is None or there.version != version:
            there = self._read[name] = reading.node_of(self.nodes[name], self.racks[name], TESTS)
        return there

    def with_pods(self, nodes: Sequence[Node], world: World, limits: Limits) -> list[Node]:
        """Return the nodes with the pods of those that are asked about."""
        names = deciding.asks_for_pods(nodes, world, POLICY, limits)
        return [
            dataclasses.replace(node, pods=tuple(self.pods[node.name])) if node.name in names else node
            for node in nodes
        ]

    def world(self, **values: t.Any) -> World:
        """Return the world of now."""
        return World(self.now, **values)

    def decide(self, limits: Limits = LIMITS, **world: t.Any) -> Decision:
        """Return what is due."""
        now = self.world(**world)
        return deciding.decide(self.with_pods(self.read(), now, limits), now, POLICY, limits)

    def carry_out(self, decision: Decision, most: int | None = None) -> None:
        """Do the steps, or only the first ones of them: then the controller was killed."""
        for step in decision.steps[:most]:
            if step.record is not None:
                self.apply(writing.change(step))

    def go(self, limits: Limits = LIMITS, seconds: float = 5, **world: t.Any) -> Decision:
        """Let time pass, decide, and do it."""
        self.now += seconds
        decision = self.decide(limits, **world)
        self.carry_out(decision)
        return decision

    def state(self, name: str) -> State:
        """Return the state of a node."""
        return self.node(name).state

    def apply(self, patch: Mapping[str, t.Any]) -> None:
        """Take a merge patch as the API server does. Raises Refused."""
        name = next(name for name in self.nodes if f"uid-{name}" == patch["metadata"]["uid"])
        node = self.nodes[name]
        if patch["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"]:
            raise Refused
        _merge(node, copy.deepcopy(dict(patch)))
        self._changed(name)

    def _changed(self, name: str) -> None:
        metadata = self.nodes[name]["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)


def _merge(target: dict[str, t.Any], patch: dict[str, t.Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


class Storyteller:
    """Lets things happen to racks: faults, agents that answer or do not, pods that go or stay, people.

    Args:
        racks: where.
        chance: decides.
    """

    def __init__(self, racks: Racks, chance: random.Random) -> None:
        self.racks, self.chance = racks, chance
        self.asked: dict[str, list[tuple[float, str]]] = {name: [] for name in racks.racks}
        """What agents did, and when."""
        self.lazy = {name: chance.random() < 0.2 for name in racks.racks}
        """Nodes whose agents rarely do anything."""
        for name in racks.racks:
            racks.see(name)
            if chance.random() < 0.4:
                gate = {"key": model.PREFLIGHT_TAINT, "value": "pending", "effect": "NoSchedule"}
                racks.nodes[name]["spec"]["taints"] = [gate]
            racks.pods[name] = [
                Pod(f"a/{name}-{i}", chance.random() < 0.7) for i in range(chance.randint(0, 2))
            ]

    def faults(self) -> None:
        """Let something break, or seem to."""
        racks, chance = self.racks, self.chance
        for name in racks.racks:
            if chance.random() < 0.05:
                racks.event(name, chance.choice([*POLICY, "xid 999"]), chance.choice(GPUS))
            if chance.random() < 0.01:
                racks.reboot(name)
            if chance.random() < 0.02:
                racks.well(name)

    def life(self) -> None:
        """Let agents, pods and people do what they do."""
        racks, chance = self.racks, self.chance
        for name in racks.racks:
            if not (self.lazy[name] and chance.random() < 0.9):
                self._agent(name)
            if racks.state(name) is State.DRAINING and chance.random() < 0.5:
                racks.pods[name] = racks.pods[name][1:]
            elif racks.state(name) is State.READY and chance.random() < 0.2:
                racks.pods[name] = [Pod(f"a/{name}", True)][: chance.randint(0, 1)]
            if racks.state(name) is State.TRIAGE and chance.random() < 0.05:
                racks.release(name, chance.choice(["preflight", "preflight", "rma"]))
            if racks.state(name) is State.RMA and chance.random() < 0.1:
                racks.see(name, ("S0", f"S{chance.randint(2, 9)}"))
            if racks.state(name) is State.POWER_CYCLE and chance.random() < 0.3:
                racks.reboot(name)

    def _agent(self, name: str) -> None:
        racks, chance = self.racks, self.chance
        action = racks.asked(name)
        if action:
            assert action["id"] not in {made for _, made in self.asked[name]}
            self.asked[name].append((racks.now, action["id"]))
            ok = chance.random() < 0.7
            racks.answer(name, ok)
            if action["do"] == "reboot" and ok:
                racks.reboot(name)
            if action["do"] == "reset" and ok:
                racks.well(name, "nvml ")
        if racks.state(name) in (State.TESTING, State.RETEST) or action.get("do") == "preflight":
            racks.preflight(name, chance.random() < 0.7)
