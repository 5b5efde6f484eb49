# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts whose GPUs are shared (MPS): its server is no work, its clients are, and no reset meets either."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from ironspan.gpud import actions, nvml, processes
from ironspan.gpud.actions import Actions
from ironspan.gpud.agent import Agent
from ironspan.gpud.preflight import children
from ironspan.gpud.settings import Settings
from ironspan.gpud.store import Store
from tests.support import nvml as shim
from tests.support.playbooks import ROOT

GPU = "GPU-00000001-1111-2222-3333-444444444444"
OURS = "0::/system.slice/ironspan-nvidia-mps.service"
OLDER = "\n".join(
    f"{each}:/system.slice/ironspan-nvidia-mps.service" for each in ("12:pids", "1:name=systemd")
)
POD = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands for /proc."""
    monkeypatch.setattr(processes, "PROC", tmp_path / "proc")
    return tmp_path / "proc"


def put(proc: Path, pid: int, group: str) -> None:
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "cgroup").write_text(f"{group}\n")


@pytest.mark.parametrize(
    ("group", "serves"),
    [
        (OURS, True),
        (OLDER, True),
        (POD, False),
        ("0::/user.slice/user-0.slice/session-1.scope", False),
        # A daemon of somebody else: nobody stops it for a reset.
        ("0::/system.slice/nvidia-mps.service", False),
        ("0::/system.slice/not-ironspan-nvidia-mps.service", False),
        (f"{OURS}/below", False),
        ("", False),
    ],
)
def test_a_server_is_known_by_the_unit_that_it_is_in(group: str, serves: bool, proc: Path) -> None:
    put(proc, 41, group)
    assert processes.serves(41) is serves
    assert not processes.serves(42), "it has ended"


def test_the_unit_is_that_of_the_role() -> None:
    declared = (ROOT / "roles" / "nvidia_mps" / "desired.yml.j2").read_text()
    assert f"name: {processes.MPS_UNIT}" in declared


def test_clients_compute_and_the_server_does_not(state: shim.State, proc: Path) -> None:
    for pid, group in ((41, OURS), (42, POD), (43, POD)):
        put(proc, pid, group)
    state.set({"0.processes": "41:400 42:100", "0.mps_processes": "42:100 43:7", "1.processes": "41:400"})
    cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    assert [nvml.computing(card) for card in cards] == [{42: 100, 43: 7}, {}]


def test_a_driver_that_does_not_know_clients_apart(
    state: shim.State, proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(proc, 42, POD)
    state.set({"0.processes": "42:100"})
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    for code, known in ((pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, True), (pynvml.NVML_ERROR_GPU_IS_LOST, False)):

        def refuses(_: object, code: int = code) -> None:
            raise pynvml.NVMLError(code)

        monkeypatch.setattr(pynvml, "nvmlDeviceGetMPSComputeRunningProcesses", refuses)
        with contextlib.nullcontext() if known else pytest.raises(pynvml.NVMLError):
            assert nvml.computing(card) == {42: 100}


def test_a_process_that_has_ended_since_holds_nothing_up(tmp_path: Path, proc: Path) -> None:
    """NVML is asked for them twice a minute: a drained node would refuse its reset for so long."""
    agent = Agent(Settings(state=tmp_path), "boot-1", lambda: None, lambda: frozenset())
    put(proc, 42, POD)
    agent.reading = {"gpus": [{"uuid": GPU, "processes": [[42, 100], [43, 100]]}]}
    assert agent.processes("") == agent.processes(GPU) == [42]
    (proc / "42" / "cgroup").unlink()
    (proc / "42").rmdir()
    assert agent.processes("") == []
    assert not agent.in_use


class Host:
    """A host whose GPUs are shared; what is run is written down."""

    def __init__(self, folder: Path, mps: bool = True) -> None:
        self.calls: list[Sequence[str]] = []
        self.busy: dict[str, list[int]] = {}
        folder.mkdir(exist_ok=True)
        store = Store(folder, "boot-1")
        store.change(lambda old: replace(old, gpus={GPU: {"index": 1}}))
        self.actions = Actions(
            store,
            "boot-1",
            True,
            lambda gpu: [pid for uuid, pids in self.busy.items() if gpu in ("", uuid) for pid in pids],
            self._quiet,
            lambda: 1e9,
            self.calls.append,
            mps=mps,
        )

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        yield

    def ask(self) -> tuple[bool, str]:
        order = {"id": "a", "do": "reset", "gpu": GPU, "expires": "2001-09-09T02:00:00Z"}
        found = json.loads(self.actions.answer(json.dumps(order)))
        return found["ok"], found["detail"]


def test_a_reset_stops_the_daemon_before_and_starts_it_whatever_becomes_of_it(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.ask() == (True, "reset")
    ((*unit, program, order, flag, gpu),) = host.calls
    assert (program, order, flag, gpu) == ("nvidia-smi", "--gpu-reset", "-i", GPU)
    # In one unit of systemd, so that it is started again when the agent is killed meanwhile.
    assert unit[0] == "systemd-run"
    assert f"--property=ExecStartPre=/usr/bin/systemctl stop {processes.MPS_UNIT}" in unit
    assert f"--property=ExecStopPost=/usr/bin/systemctl --no-block start {processes.MPS_UNIT}" in unit


def test_without_mps_nothing_is_stopped() -> None:
    assert "mps" not in " ".join(actions.reset(GPU, mps=False))
    assert "-i" not in actions.reset("", mps=True)


def test_pods_of_other_gpus_have_the_same_daemon(tmp_path: Path) -> None:
    for mps, wanted in ((True, (False, "processes use it: 42")), (False, (True, "reset"))):
        host = Host(tmp_path / str(mps), mps)
        host.busy = {"GPU-of-others": [42]}
        assert host.ask() == wanted


def test_a_preflight_computes_without_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of the daemon would be given a share of the GPU, and fail for it."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/mps/nvidia.com/gpu.shared/pipe")
    found = children.environment(gpus=[GPU])["CUDA_MPS_PIPE_DIRECTORY"]
    assert not os.path.lexists(found)
