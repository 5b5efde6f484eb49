# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Events of a run of site.yml, as ansible-runner tells them, for as many hosts as a test wants."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from pathlib import Path

from ironspan.cli.report import CONVERGE, VALIDATE, VERIFY, Run
from ironspan.cli.run_record import Recorder

STARTED = 1_800_000_000.0
RACK = 40
"""Hosts in a rack."""
Event = dict[str, t.Any]


class Clock:
    """Seconds that go by when they are told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def play(name: str) -> Event:
    """Return the begin of a phase."""
    return {"event": "playbook_on_play_start", "event_data": {"name": name}}


def said(kind: str, host: str, res: t.Any, action: str = CONVERGE, duration: float = 0.4) -> Event:
    """Return what a host answered; kind is ok, failed or unreachable."""
    data = {"host": host, "task": "Converge", "resolved_action": action, "res": res, "duration": duration}
    return {"event": f"runner_on_{kind}", "event_data": data}


def names(hosts: int) -> list[str]:
    """Return names of workers."""
    return [f"rack-{number // RACK + 1:02}-gpu-{number % RACK + 1:02}" for number in range(hosts)]


def places(hosts: int) -> dict[str, dict[str, list[str]]]:
    """Return where hosts are: three servers in Azure, workers in racks."""
    racks: dict[str, list[str]] = {}
    for name in names(hosts):
        racks.setdefault(name[:7], []).append(name)
    return {"azure": {"zone 1": ["az-1"], "zone 2": ["az-2"], "zone 3": ["az-3"]}, "on_prem": racks}


def applied(text: str = "hello") -> Event:
    """Return the answer of a host to which changes were applied.

    Args:
        text: that stands in all places where a host or an inventory may choose.
    """
    header = f"/etc/motd (base/{text})"
    return {
        "changed": True,
        "layers": ["base", "containerd", "node"],
        "changes": [
            {"resource": f"base/{text}", "kind": "file", "action": "update",
             "reason": f"content differs {text}",
             "before": {"mode": "0600", "owner": text}, "after": {"mode": "0644", "owner": text}},
            {"resource": "base/sysctl", "kind": "sysctl", "action": "create", "reason": "missing",
             "before": {}, "after": {"net.ipv4.ip_forward": "1", "vm.swappiness": "10"}},
            {"resource": "containerd/config", "kind": "file", "action": "update", "reason": "content differs",
             "before": {"sha256": "1"}, "after": {"sha256": "2"}},
            {"resource": "containerd/unit", "kind": "systemd_unit", "action": "restart", "reason": "",
             "before": {}, "after": {}},
            {"resource": "node/kubelet", "kind": "systemd_unit", "action": "update",
             "reason": "disabled", "before": {"enabled": False, "state": "stopped"},
             "after": {"enabled": True, "state": "started"}},
        ],
        "diff": [
            {"before_header": header, "after_header": header, "before": f"old {text}\nsame\n",
             "after": f"new {text}\nsame\n"},
            {"before_header": "/etc/containerd/config.toml (containerd/config)",
             "after_header": "/etc/containerd/config.toml (containerd/config)",
             "before": 'version = 3\n[plugins."io.containerd.cri.v1.images"]\nsnapshotter = "overlayfs"\n',
             "after": 'version = 3\n[plugins."io.containerd.cri.v1.images"]\nsnapshotter = "overlayfs"\n'
                      "max_concurrent_downloads = 6\n"},
        ],
    }  # fmt: skip


def verified(hosts: int, text: str = "") -> Event:
    """Return the report of a verification, all of it well but names in the cluster."""
    evidence = [
        {"node": name, "ready": "yes", "kubelet": "v1.36.4", "runtime": "containerd://2.3.7",
         "kernel": text or "6.12.57-amd64", "address": f"10.8.{number // 250}.{number % 250 + 1}"}
        for number, name in enumerate(names(hosts))
    ]  # fmt: skip
    checks = [
        {"name": "api", "ok": True, "summary": f"https://api:6443 is ready, v1.36.4{text}", "problems": [],
         "evidence": [], "seconds": 0.2},
        {"name": "nodes", "ok": True, "summary": f"{hosts} of {hosts} Ready", "problems": [],
         "evidence": evidence, "seconds": 1.5},
        {"name": "dns", "ok": False, "summary": "2 of 3 pods get answers",
         "problems": [f"smoke-2 on rack-01-gpu-02: no answer from 10.96.0.10 {text}"], "evidence": [],
         "seconds": 4.0},
        {"name": "gvisor", "ok": None, "summary": "no node is in the group gvisor", "problems": [],
         "evidence": [], "seconds": 0.0},
    ]  # fmt: skip
    return {"schema": 1, "kind": "verify", "site": "north", "started": "", "seconds": 6.0, "ok": False,
            "checks": checks}  # fmt: skip


def events(hosts: int, broken: int = 3, text: str = "motd") -> Iterator[tuple[float, Event]]:
    """Yield a run: seconds that went by, and what happened.

    Args:
        hosts: workers.
        broken: workers that fail, and as many that do not answer.
        text: what hosts say where they may choose.
    """
    workers = names(hosts)
    failing, silent = workers[1 : 1 + broken], workers[5 : 5 + broken]
    site = {"site": "north", "hosts": hosts + 3, "places": places(hosts)}
    yield 0.1, play("Validate the inventory")
    yield 1.2, said("ok", "localhost", site, VALIDATE)
    yield 0.0, play("Assess all hosts")
    yield 8.0, said("ok", "az-1", {"changed": False, "groups": [], "changes": []})
    for name in ["az-2", "az-3", *workers]:
        if name in silent:
            yield 0.0, said("unreachable", name, {"msg": f"Connection timed out {text}"})
        else:
            yield 0.02, said("ok", name, {"changed": False, "groups": ["__ironspan_pending"], "changes": []})
    yield 0.0, play("Prepare hosts that differ")
    for number, name in enumerate(name for name in ["az-2", "az-3", *workers] if name not in silent):
        if name in failing:
            broke = {"msg": f"no space left on device {text}", "failed_resource": "containerd/binary",
                     "remedy": "free some space below /opt and run again", "rolled_back": ["x"]}  # fmt: skip
            yield 0.1, said("failed", name, broke)
        else:
            yield 0.05, said("ok", name, applied(text), duration=2 + number % 7)
    yield 0.0, play("Join the workers")
    for name in workers[:8]:
        if name not in silent and name not in failing:
            yield 1.0, said("ok", name, {"changed": True, "changes": [], "layers": ["node"]})
    yield 0.0, play("Verify the cluster")
    yield 14.0, said("failed", "localhost",
                     {"msg": f"The cluster is not as it should be.\ndns: smoke-2 {text}",
                      "report": verified(hosts, text)}, VERIFY)  # fmt: skip
    yield 0.1, {"event": "playbook_on_stats", "event_data": {"processed": dict.fromkeys(workers, 1)}}


def recorded(
    folder: Path, hosts: int, broken: int = 3, text: str = "motd", *, check: bool = False
) -> Recorder:
    """Return the recorder of such a run that has come to its end; nothing is written yet."""
    clock = Clock()
    run = Run(clock=clock, again="ironspan apply -i inventories/north")
    recorder = Recorder(
        run,
        "site",
        ["--check"] if check else [],
        folder / "apply-20270115T080000.000000Z.log",
        ["ironspan", "apply", "-i", "inventories/north"],
        clock=lambda: STARTED + clock.now,
    )
    for seconds, event in events(hosts, broken, text):
        clock.now += seconds
        run.take(event)
        recorder.take(event)
    return recorder
