# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Preflights on GPUs that are none: broken ones fail, and what is stopped says nothing about a GPU."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import preflight as policy

from ironspan.gpud.preflight import children, kept, run
from ironspan.gpud.preflight.blas import exact, measured, rounded
from ironspan.gpud.preflight.cuda import Cuda
from ironspan.gpud.preflight.run import Report, preflight
from ironspan.gpud.preflight.verdict import Result
from ironspan.gpud.settings import Settings
from ironspan.program.errors import Refused
from tests.support import cuda, nvml

from .test_watch import until

BOOT = "boot-1"
SHORT = {name: replace(test, seconds=0.05, deadline=600) for name, test in policy.tests().items()}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of both libraries, built once."""
    folder = tmp_path_factory.mktemp("libraries")
    nvml.built(folder)
    cuda.built(folder)
    return folder


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nvml.State:
    """One H200."""
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / "cards"))
    return nvml.State(tmp_path / "cards", "h200", gpus=1)


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cuda.State:
    """What is wrong with them."""
    monkeypatch.setenv(cuda.VARIABLE, str(tmp_path / "faults"))
    return cuda.State(tmp_path / "faults")


@pytest.fixture
def chosen(tmp_path: Path, libraries: Path, cards: nvml.State, faults: cuda.State) -> Settings:
    return Settings(state=tmp_path / "state", library=str(libraries), pod_resources="")


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Iterator[t.Callable[..., None]]:
    """Give what limits a preflight to some tests, which are short."""

    def limit(*names: str, **changes: t.Any) -> None:
        found = {name: replace(SHORT[name], **changes) for name in names or SHORT}
        monkeypatch.setattr(run, "tests", lambda: found)

    limit()
    yield limit


def went(chosen: Settings, **more: t.Any) -> Report:
    return preflight(chosen, more.pop("ended", lambda: False), lambda _: None, boot=BOOT, **more)


def by_test(report: Report) -> dict[str, Result]:
    return {result.test: result for result in report.results}


def test_a_gpu_that_is_well_passes(chosen: Settings, only: t.Any) -> None:
    report = went(chosen)
    found = by_test(report)
    assert report.how == "passed", found
    assert {name for name, each in found.items() if each.passed} == {"A01", "A02", "A03", "A04", "A05", "A06"}
    assert {name for name, each in found.items() if each.passed is None} == {"A07", "A08"}
    assert (found["A02"].measured, found["A02"].wanted, found["A02"].unit) == (4400, 3870, "GB/s")
    assert (found["A06"].measured, found["A06"].wanted) == (53, 43.2)
    assert (found["A03"].way, found["A03"].wanted) == ("mma", 584.1)
    assert found["A05"].detail.startswith("45 degrees left")
    remembered = kept.read(chosen.state)
    assert remembered.verdict == report.said
    assert (remembered.condition[0], remembered.attempt.how) == ("True", "done")


FAULTS = (
    ("A01", {"wrong.add": 77}, "1 of 1048576 sums are wrong"),
    ("A02", {"wrong.d2d": 4100}, "1 words of the copy are wrong, the first at byte 4100"),
    ("A02", {"d2d": 3800}, "less than 90 % of 4300"),
    ("A03", {"wrong.mma": 3}, "4 sums are wrong, in blocks 3"),
    ("A04", {"wrong.memory": 1000}, "(pattern 0x0 0x0), the first at byte 4000"),
    ("A04", {"wrong.mma": 5}, "sums are wrong, in blocks 5"),
    ("A05", {"wrong.mma": 0}, "sums are wrong, in blocks 0"),
    ("A06", {"wrong.d2h": 9}, "what came back is not what was sent"),
    ("A06", {"wrong.h2d": 9}, "what came back is not what was sent"),
    ("A06", {"h2d": 20}, "less than 90 % of 48"),
    ("A01", {"error.cuInit": 999}, "cuInit: CUDA_ERROR_UNKNOWN (999)"),
    ("A02", {"error.cuMemAlloc_v2": 214}, "cuMemAlloc_v2: CUDA_ERROR_ECC_UNCORRECTABLE (214)"),
    ("A03", {"error.cuLaunchKernel": 719}, "cuLaunchKernel: CUDA_ERROR_UNKNOWN (719)"),
    ("A04", {"ends.cuCtxSynchronize": 1}, "its process ended with 3 and said nothing"),
    ("A06", {"hang.cuEventSynchronize": 1}, "no answer within 3 s"),
)  # fmt: skip


@pytest.mark.parametrize(("test", "fault", "says"), FAULTS, ids=lambda value: str(value)[:40])
def test_a_gpu_that_is_broken_fails(
    chosen: Settings, faults: cuda.State, only: t.Any, test: str, fault: dict[str, object], says: str
) -> None:
    faults.set(fault)
    only(test, deadline=3 if "hang" in str(fault) else 600)
    report = went(chosen)
    assert (report.how, report.condition[0], report.condition[1]) == ("failed", "False", f"{test}Failed")
    assert says in by_test(report)[test].detail
    assert says in report.condition[2]
    assert report.said["passed"] is False


@pytest.mark.parametrize(
    ("change", "passed", "says"),
    [
        ({"clocks_reasons": 0x40}, False, "clocks were lowered: HW thermal"),
        ({"clocks_reasons": 0x80 | 0x8}, False, "HW slowdown, power brake"),
        ({"clocks_reasons": 0x4 | 0x1}, True, "45 degrees left"),
        ({"margin": 0}, False, "0 degrees left"),
    ],
)
def test_heat_and_lowered_clocks(
    chosen: Settings, cards: nvml.State, only: t.Any, change: dict[str, object], passed: bool, says: str
) -> None:
    cards.set(change)
    only("A05")
    found = by_test(went(replace(chosen, preflight_tests=("A05",))))["A05"]
    assert (found.passed, says in found.detail) == (passed, True), found


def test_one_broken_gpu_of_four_is_named(
    chosen: Settings, cards: nvml.State, faults: cuda.State, only: t.Any
) -> None:
    four = nvml.State(cards.path, "h200", gpus=4)
    faults.set({f"{four.uuid(2)}.d2d": 2000, f"{four.uuid(1)}.peer": 100})
    only("A01", "A02", "A07", "A08")
    report = went(chosen)
    bad = {(each.test, each.gpu) for each in report.results if each.passed is False}
    assert bad == {("A02", four.uuid(2)), ("A07", four.uuid(1))}
    # NCCL is not here: once for the host.
    assert [(each.gpu, each.passed) for each in report.results if each.test == "A08"] == [("", None)]
    assert len(report.said["results"]) == 12


def test_memory_is_walked_as_far_as_it_is_given(chosen: Settings, faults: cuda.State, only: t.Any) -> None:
    faults.set({"memory_mib": 1124, "largest_mib": 60})
    only("A04")
    found = by_test(went(replace(chosen, preflight_tests=("A04",))))["A04"]
    assert found.passed
    assert found.detail.startswith("0.1 GiB, 6 patterns")


def test_old_cards_and_parted_ones_pass_nothing_that_was_not_run(
    chosen: Settings, cards: nvml.State, faults: cuda.State, only: t.Any
) -> None:
    faults.set({"major": 7})
    only("A01", "A03")
    report = went(replace(chosen, preflight_tests=("A01", "A03")))
    assert (report.how, report.condition[:2]) == ("incomplete", ("Unknown", "NotRun"))
    assert "A03" in report.condition[2]
    assert [each["test"] for each in report.said["results"]] == ["A01"]
    cards.set({"mig": "1 1"})
    report = went(chosen)
    assert (report.how, report.said["results"]) == ("incomplete", [])
    assert "MIG is on" in report.condition[2]


# -- what ends it, and what is left then --


def test_what_is_stopped_leaves_the_verdict_before_it(chosen: Settings, only: t.Any) -> None:
    only("A01")
    one = replace(chosen, preflight_tests=("A01",))
    went(one)
    before = kept.read(one.state)
    report = went(one, ended=lambda: True)
    assert (report.how, report.condition[:2], report.why) == (
        "yielded", ("Unknown", "Yielded"), "it was told to end",
    )  # fmt: skip
    after = kept.read(one.state)
    assert (after.verdict, after.condition) == (before.verdict, before.condition)
    assert (after.attempt.how, after.attempt.unfinished) == ("yielded", 1)


def test_it_yields_to_a_process_that_uses_a_gpu(
    chosen: Settings, cards: nvml.State, faults: cuda.State, only: t.Any
) -> None:
    only("A01")
    faults.set({"hang.cuLaunchKernel": 1})
    with subprocess.Popen(["sleep", "600"]) as other:
        told: list[str] = []

        def tell(line: str) -> None:
            told.append(line)
            cards.set({"0.processes": f"{other.pid}:100"})

        report = preflight(chosen, lambda: False, tell, boot=BOOT)
        other.kill()
    assert told
    assert (report.how, report.why) == ("yielded", f"processes use a GPU: {other.pid}")
    assert report.said["passed"] is None
    assert kept.read(chosen.state).verdict == {}


def test_its_own_processes_and_those_of_a_host_around_it_are_none_to_yield_to(
    chosen: Settings, cards: nvml.State, only: t.Any
) -> None:
    only("A01")
    cards.set({"0.processes": f"{os.getpid()}:100,4194303:100"})
    assert went(replace(chosen, preflight_tests=("A01",))).how == "passed"


def started(chosen: Settings, tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    path = tmp_path / "gpud.json"
    path.write_text(json.dumps({"state": str(chosen.state), "library": chosen.library}))
    return subprocess.Popen(
        [sys.executable, "-m", "ironspan.gpud", "preflight", "--json", "--settings", str(path), *more],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_in_the_middle_and_never_two_at_once(
    chosen: Settings, tmp_path: Path, faults: cuda.State, only: t.Any
) -> None:
    faults.set({"hang.cuLaunchKernel": 1})
    first = started(chosen, tmp_path)
    until(lambda: kept.runs(chosen.state) and kept.read(chosen.state).attempt.how == "running")
    with pytest.raises(Refused, match="runs on this host already"):
        went(chosen)
    first.kill()
    first.communicate()
    until(lambda: not kept.runs(chosen.state))
    assert kept.read(chosen.state).attempt.how == "running"
    faults.set({"hang.cuLaunchKernel": ""})
    only("A01")
    told: list[str] = []
    faults.path.write_text("")
    preflight(replace(chosen, preflight_tests=("A01",)), lambda: False, told.append, boot=BOOT)
    assert "killed in the middle" in told[0]
    assert kept.read(chosen.state).attempt.how == "done"


def test_a_signal_ends_it_and_its_processes(chosen: Settings, tmp_path: Path, faults: cuda.State) -> None:
    faults.set({"hang.cuLaunchKernel": 1})
    running = started(chosen, tmp_path, "--quick")
    until(lambda: "one" in _children(running.pid))
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=300)
    assert running.returncode == 1
    answer = json.loads(out)
    assert (answer["verdict"], answer["why"]) == ("yielded", "it was told to end")
    assert not kept.runs(chosen.state)
    # Quick ones count for nothing.
    assert kept.read(chosen.state) == kept.Kept()


def _children(pid: int) -> str:
    """Return which modules a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if path.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append((path.parent / "cmdline").read_bytes().decode())
        except OSError:
            continue
    return " ".join(text.rpartition("preflight.")[2].split("\0")[0] for text in found if "preflight." in text)


def test_a_test_that_hangs_when_its_starter_is_killed_ends_too(
    chosen: Settings, tmp_path: Path, faults: cuda.State
) -> None:
    faults.set({"hang.cuLaunchKernel": 1})
    running = started(chosen, tmp_path)
    until(lambda: "one" in _children(running.pid))
    children = [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/stat") if _parent(p) == running.pid]
    running.kill()
    running.communicate()
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in children))


def _parent(path: Path) -> int:
    try:
        return int(path.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


# -- the parts --


def test_a_file_that_cannot_be_used_is_forgotten(chosen: Settings) -> None:
    chosen.state.mkdir()
    for text in ("", "{", "[]", '{"version": 2}', '{"version": 1, "condition": [1], "attempt": {}}'):
        kept.path(chosen.state).write_text(text)
        assert kept.read(chosen.state) == kept.Kept()


class _Blas:
    """A cuBLAS that multiplies small matrices with the convention of the real one."""

    def __init__(self, spoil: int = -1) -> None:
        self.spoil, self.runs = spoil, 0

    def cublasCreate_v2(self, handle: t.Any) -> int:
        return 0

    def cublasDestroy_v2(self, handle: t.Any) -> int:
        return 0

    def cublasGemmEx(self, *given: t.Any) -> int:
        size, a, b, product = given[3], given[7], given[10], given[14]

        def of(address: t.Any, row: int, column: int) -> float:
            at = address.value + 2 * (row + column * size)
            return float(struct.unpack("<f", b"\0\0" + ctypes.string_at(at, 2))[0])

        self.runs += 1
        for row in range(size):
            for column in range(size):
                value = sum(of(a, row, k) * of(b, k, column) for k in range(size))
                if self.runs == self.spoil and (row, column) == (1, size - 1):
                    value += 64
                ctypes.memmove(product.value + 2 * (row + column * size), rounded(value), 2)
        return 0


@pytest.mark.parametrize(
    ("spoil", "says"), [(-1, "bit-equal"), (1, "wrong sums at (1, 15); two"), (3, "differ")]
)
def test_products_of_cublas(
    libraries: Path, faults: cuda.State, monkeypatch: pytest.MonkeyPatch, spoil: int, says: str
) -> None:
    gpu = Cuda(str(libraries / "libcuda.so.1"))
    monkeypatch.setattr(gpu, "median", lambda do, seconds: (do(), do(), 1e-3)[2])
    passed, _, unit, way, detail = measured(gpu, _Blas(spoil), 1, size=16)
    assert (passed, unit, way) == (spoil < 0, "TFLOP/s", "cuBLAS")
    assert says in detail


def test_exact_sums() -> None:
    assert [exact(row, column, 4) for row, column in ((0, 0), (3, 2))] == [
        sum((((row + k * 4) * 5 + 3) % 13 - 6) * (((k + column * 4) * 7 + 1) % 11 - 5) for k in range(4))
        for row, column in ((0, 0), (3, 2))
    ]
    assert rounded(257) == rounded(256)  # half to even
    assert rounded(259) == rounded(260)
    assert rounded(-3) == b"\x40\xc0"


def test_one_that_answers_while_its_starter_is_not_let_run_is_not_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = "import time; time.sleep(0.5); print('{\"passed\": true}')"
    monkeypatch.setattr(children, "command", lambda *given: [sys.executable, "-c", answer])
    child = children.Child("A01", ["GPU-0"], 1, 60, "")

    def stalled() -> float:
        child._process.wait()
        return 61.0

    monkeypatch.setattr(child, "seconds", stalled)
    assert child.found() == {"passed": True}


def test_one_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "command", lambda *given: ["sleep", "3600"])
    child = children.Child("A01", ["GPU-0"], 1, 60, "")
    assert child.found() is None
    monkeypatch.setattr(child, "seconds", lambda: 60.0)
    assert child.found() == {"passed": False, "detail": "no answer within 60 s"}
