# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``mig_layout`` and the program of the same work, with a stand-in for nvidia-smi."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import nvidia_mig
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.mig_layout import KIND
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.reboot_request import FOLDER
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import holders
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

from tests.support.nvidia_smi import Gpu, Killed, Smi, state

from .fake_host import FakeHost, converge, filled

HALVES = ["3g.40gb:0", "3g.40gb:4"]
MIXED = ["1g.10gb:0", "1g.10gb:1", "2g.20gb:2", "3g.40gb:4"]


class GpuHost(FakeHost):
    """A host with two H100 and a stand-in for nvidia-smi."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.smi = Smi([Gpu(), Gpu()])
        self.put(nvidia_mig.DRIVER, "580.159.03\n")

    def run(self, argv: Sequence[str], *more: Any, **options: Any) -> tuple[int, str, str]:
        return self.smi.run(argv)

    def layouts(self) -> list[list[str] | None]:
        """Return what the GPUs are."""
        return [gpu.layout for _, gpu in sorted(nvidia_mig.read(self.smi.run).items())]


@pytest.fixture
def host(tmp_path: Path) -> GpuHost:
    return GpuHost(tmp_path)


def spec(layout: dict[str, Any]) -> dict[str, Any]:
    return filled(KIND, id="nvidia_mig/layout", layout=layout)


@pytest.mark.parametrize(
    ("layout", "found"),
    [
        ({"others": HALVES}, [HALVES, HALVES]),
        ({"0": MIXED}, [MIXED, None]),
        ({"1": HALVES, "others": []}, [None, HALVES]),
        ({}, [None, None]),
    ],
)
def test_gpus_become_what_the_layout_says(host: GpuHost, layout: dict[str, Any], found: list[Any]) -> None:
    change = converge(KIND, spec(layout), host)
    assert host.layouts() == found
    assert bool(change) is bool(layout)


def test_only_what_differs_is_changed_and_the_way_back_is_that_of_before(host: GpuHost) -> None:
    converge(KIND, spec({"others": MIXED}), host)
    before = dict(host.smi.gpus[0].instances)
    fewer = spec({"0": [*MIXED[:2], "3g.40gb:4"], "others": MIXED})
    change = KIND.compare(fewer, host)
    assert change is not None
    assert (change.before, change.after) == ({"0": MIXED}, {"0": [*MIXED[:2], "3g.40gb:4"]})
    KIND.apply(fewer, change, host)
    after = host.smi.gpus[0].instances
    assert {number: after[number] for number in after} == {number: before[number] for number in after}
    KIND.undo(fewer, change, host)
    assert host.layouts() == [MIXED, MIXED]


def test_divided_gpus_become_whole_again(host: GpuHost) -> None:
    converge(KIND, spec({"others": HALVES}), host)
    change = converge(KIND, spec({"0": [], "others": HALVES}), host)
    assert change is not None
    assert host.layouts() == [None, HALVES]
    KIND.undo(spec({}), change, host)
    assert host.layouts() == [HALVES, HALVES]


def test_a_comparison_changes_nothing(host: GpuHost) -> None:
    before = state(host.smi)
    assert KIND.compare(spec({"others": HALVES}), host) is not None
    assert state(host.smi) == before


def test_drift_is_seen(host: GpuHost) -> None:
    wanted = spec({"others": HALVES})
    converge(KIND, wanted, host)
    host.smi.gpus[1].instances.popitem()
    change = converge(KIND, wanted, host)
    assert change is not None
    assert change.before == {"1": HALVES[:1]}


def test_an_instance_without_a_part_to_compute_on_is_made_again(host: GpuHost) -> None:
    wanted = spec({"0": HALVES})
    host.smi.half = True
    with pytest.raises(ResourceError, match="GPU 0 is"):
        converge(KIND, wanted, host)
    host.smi.half = False
    converge(KIND, wanted, host)
    assert host.layouts() == [HALVES, None]


def test_killed_anywhere_it_goes_on(host: GpuHost) -> None:
    converge(KIND, spec({"others": HALVES}), host)
    start = copy.deepcopy(host.smi.gpus)
    wanted = spec({"0": MIXED})
    for calls in itertools.count():
        host.smi = Smi(copy.deepcopy(start), dies=calls)
        try:
            change = KIND.compare(wanted, host)
            assert change is not None
            KIND.apply(wanted, change, host)
        except Killed:
            host.smi.dies = None
            converge(KIND, wanted, host)
            assert host.layouts() == [MIXED, None]
        else:
            assert calls > 10
            return


def test_nothing_is_divided_while_somebody_computes(host: GpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "holders", lambda _, devices: [f"python3 (4711) {devices}"])
    before = state(host.smi)
    with pytest.raises(
        ResourceError, match=r"the GPUs are in use: python3 \(4711\).*/dev/nvidia-uvm"
    ) as failed:
        converge(KIND, spec({"others": HALVES}), host)
    assert "Drain the node" in failed.value.remedy
    assert state(host.smi) == before


def test_a_mode_that_waits_for_a_reset_asks_for_a_boot(host: GpuHost) -> None:
    host.smi.reset = True
    wanted = spec({"0": HALVES})
    converge(KIND, wanted, host)
    (request,) = Path(host.path(FOLDER)).iterdir()
    assert "GPU 0 takes its MIG mode" in json.loads(request.read_text())["reason"]
    assert host.layouts() == [None, None]
    host.smi.gpus[0].mode, host.smi.reset = True, False
    converge(KIND, wanted, host)
    assert host.layouts() == [HALVES, None]


def test_without_a_driver_there_is_nothing_to_divide(host: GpuHost) -> None:
    Path(host.path(nvidia_mig.DRIVER)).unlink()
    assert KIND.compare(spec({"others": HALVES}), host) is None


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ({"5": HALVES}, "the layout divides GPU 5, and there are 0, 1"),
        ({"0": ["3g.71gb:0"]}, "Invalid GPU instance profile: 3g.71gb"),
        ({"0": ["4g.40gb:0", "3g.40gb:2"]}, "Insufficient Resources"),
    ],
)
def test_what_the_host_cannot_do_is_named(host: GpuHost, layout: dict[str, Any], says: str) -> None:
    with pytest.raises(ResourceError, match=says):
        converge(KIND, spec(layout), host)


@pytest.mark.parametrize(
    "layout", [{"first": HALVES}, {"0": ["3g.40gb"]}, {"0": ["3g.40gb:9"]}, {"0": ["; reboot"]}, {"0": [7]}]
)
def test_what_is_no_layout_is_refused(layout: dict[str, Any]) -> None:
    assert len(KIND.check(spec(layout))) == 1
    assert KIND.check(spec({"0": ["1g.10gb+me:0"], "others": None})) == []


def test_at_a_boot_the_program_does_the_same(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvidia_mig, "DRIVER", host.path(nvidia_mig.DRIVER))
    settings = host.put("/etc/ironspan/nvidia-mig.json", json.dumps({"layout": {"0": HALVES}}))
    monkeypatch.setattr(nvidia_mig, "SETTINGS", str(settings))
    monkeypatch.setattr(nvidia_mig, "run_program", host.smi.run)
    assert nvidia_mig.main() == 0
    assert capsys.readouterr().out == "GPU 0: 3g.40gb:0, 3g.40gb:4\nGPU 1: not divided\n"
    settings.write_text(json.dumps({"layout": {"7": HALVES}}))
    assert nvidia_mig.main() == 1
    assert "the layout divides GPU 7" in capsys.readouterr().err
    Path(nvidia_mig.DRIVER).unlink()
    assert nvidia_mig.main() == 0
