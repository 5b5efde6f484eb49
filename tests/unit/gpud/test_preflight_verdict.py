# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What results mean, when a preflight is due, and that the repair controller reads what the agent writes."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import threading
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import preflight as policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import PolicyError
from hypothesis import given
from hypothesis import strategies as st

from ironspan.gpu_repair.model import Preflight
from ironspan.gpu_repair.reading import node_of
from ironspan.gpud import publish, settings
from ironspan.gpud.agent import Agent
from ironspan.gpud.preflight import ask, kept, verdict
from ironspan.gpud.preflight.ask import Asking
from ironspan.gpud.preflight.kept import Attempt, Kept
from ironspan.gpud.preflight.verdict import Result
from ironspan.gpud.settings import Settings
from tests.support.playbooks import ROOT

from .test_agent import FakeNode, agent, reading, recorded  # noqa: F401

BOOT, DRIVER = "boot-1", "580.159.04"
START, END = "2026-11-26T16:00:00Z", "2026-11-26T16:01:00Z"
GPUS = ("GPU-0", "GPU-1")
WANTED = ("A01", "A02", "A03")


def seen(node: Mapping[str, t.Any], wanted: Sequence[str] = WANTED) -> Preflight | None:
    """Return what the controller reads."""
    return node_of(node, "rack-1", wanted).preflight


def node(
    condition: tuple[str, str, str] | None, said: str, boot: str = BOOT, driver: str = DRIVER
) -> dict[str, t.Any]:
    """Return a Node that says so."""
    gpus = [{"uuid": gpu, "index": n, "serial": gpu} for n, gpu in enumerate(GPUS)]
    return {
        "metadata": {
            "name": "n0",
            "annotations": {
                ask.ANNOTATION: said,
                "ironspan.io/gpu-seen": json.dumps({"boot": boot, "driver": driver, "gpus": gpus}),
            },
        },
        "status": {
            "nodeInfo": {"bootID": boot},
            "conditions": [{"type": ask.CONDITION, "status": condition[0]}] if condition else [],
        },
    }


RESULTS = st.lists(
    st.builds(
        Result,
        st.sampled_from(["A01", "A02", "A03", "A05"]),
        st.sampled_from(["", *GPUS]),
        st.sampled_from([True, True, True, False, None]),
        detail=st.text(max_size=300),
    ),
    max_size=24,
) | st.builds(
    lambda bad: [Result(test, gpu, (test, gpu) != bad or None) for test in WANTED for gpu in GPUS],
    st.tuples(st.sampled_from([*WANTED, "none"]), st.sampled_from(GPUS)),
)


@given(RESULTS)
def test_the_controller_takes_a_verdict_for_what_it_is(results: list[Result]) -> None:
    how = verdict.outcome(results, WANTED, GPUS)
    condition = verdict.condition(how, results, WANTED)
    said = json.dumps(verdict.annotation(BOOT, DRIVER, START, END, results, how))
    found = seen(node(condition, said))
    assert found is not None
    assert (found.passed is True) == (how == verdict.PASSED)
    assert (found.passed is False) == (how == verdict.FAILED)
    assert len(condition[2]) <= 1000
    assert condition[0] == {"passed": "True", "failed": "False", "incomplete": "Unknown"}[how]


def test_all_tests_of_sixteen_gpus_are_read() -> None:
    gpus = [f"GPU-{n}" for n in range(16)]
    results = [Result(test, gpu, True, 1.0, detail="x" * 300) for test in policy.tests() for gpu in gpus]
    said = verdict.annotation(BOOT, DRIVER, START, END, results, verdict.PASSED)
    written = node(("True", "", ""), json.dumps(said))
    seen_ = {"boot": BOOT, "driver": DRIVER, "gpus": [{"uuid": gpu} for gpu in gpus]}
    written["metadata"]["annotations"]["ironspan.io/gpu-seen"] = json.dumps(seen_)
    found = seen(written, list(policy.tests()))
    assert found is not None
    assert (found.passed, found.missing) == (True, ())


@given(RESULTS)
def test_a_verdict_passes_only_what_each_gpu_has_passed(results: list[Result]) -> None:
    if verdict.outcome(results, WANTED, GPUS) == verdict.PASSED:
        for test in WANTED:
            for gpu in GPUS:
                assert any(each.test == test and each.gpu in ("", gpu) and each.passed for each in results)
        assert not any(each.passed is False for each in results)
    assert verdict.outcome(results, WANTED, ()) != verdict.PASSED


@pytest.mark.parametrize(
    ("model", "test", "way", "figure", "passed", "wanted"),
    [
        ("NVIDIA H200", "A02", "cuMemcpyDtoD", 3870.0, True, 3870.0),
        ("NVIDIA H200", "A02", "cuMemcpyDtoD", 3869.0, False, 3870.0),
        ("NVIDIA H200", "A02", "other", 1.0, True, None),
        ("NVIDIA H200 NVL", "A06", "pinned", 40.0, False, 43.2),
        ("NVIDIA A100-SXM4-80GB", "A06", "pinned", 20.7, True, 20.7),
        ("NVIDIA B200", "A06", "pinned", 1.0, True, None),
        ("NVIDIA GH200 480GB", "A06", "pinned", 1.0, True, None),
        ("NVIDIA H200", "A06", "pinned", float("nan"), False, 43.2),
    ],
)
def test_figures(model: str, test: str, way: str, figure: float, passed: bool, wanted: float | None) -> None:
    found = {"passed": True, "measured": figure, "unit": "GB/s", "way": way}
    result = verdict.judged(test, "GPU-0", model, found, policy.shipped())
    assert (result.passed, result.wanted) == (passed, wanted)
    assert ("no figure is known" in result.detail) == (wanted is None)


@pytest.mark.parametrize(
    "found", [{}, {"passed": 1}, {"passed": None, "measured": "much"}, {"passed": "true"}]
)
def test_an_answer_that_is_none_passes_nothing(found: dict[str, t.Any]) -> None:
    assert verdict.judged("A01", "GPU-0", "NVIDIA H200", found, policy.shipped()).passed is None


def test_a_site_has_figures_of_its_own() -> None:
    own = policy.shipped().with_overrides(
        [
            {"model": "h200", "test": "A02", "value": 4000, "reason": "ticket 7"},
            {"model": "H100", "test": "A06", "value": 0, "reason": "virtual machines"},
        ]
    )
    assert own.wanted("NVIDIA H200", "A02", "any way") == (3600, own.entries[0])
    assert own.wanted("NVIDIA H100 80GB HBM3", "A06", "pinned") is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": ""}, "no model"),
        ({"test": "A99"}, "'A99' is no test; write one of A01"),
        ({"value": "much"}, "'much' is no figure"),
        ({"value": True}, "True is no figure"),
        ({"value": -1}, "-1 is no figure"),
        ({"reason": " "}, "no reason"),
    ],
)
def test_figures_that_are_none(change: dict[str, t.Any], says: str) -> None:
    entry = {"model": "H200", "test": "A02", "value": 4000, "reason": "ticket 7", **change}
    with pytest.raises(PolicyError, match=says):
        policy.shipped().with_overrides([entry])
    good = {"model": "H200", "test": "A02", "value": 4000, "reason": "ticket 7"}
    with pytest.raises(PolicyError, match="is there twice"):
        policy.shipped().with_overrides([good, {**good, "model": "h200"}])


def test_the_data_is_whole() -> None:
    for reference in policy.shipped().entries:
        assert reference.test in {*policy.tests(), *policy.pair_tests()}
        assert reference.source
        assert reference.date
        assert reference.value > 0
    defaults = yaml.safe_load((ROOT / "roles/gpu_repair/defaults/main.yml").read_text())
    assert tuple(defaults["gpu_repair_tests"]) == settings.DEMANDED


# -- when one is due, and what is said meanwhile --

SAID = verdict.annotation(BOOT, DRIVER, START, END, [], verdict.PASSED)
PASSED = Kept(Attempt("done", BOOT, 100, 200), SAID, ("True", "Passed", "all"))
AT = ask.started(SAID)


def record(state: str, tests: float) -> str:
    return json.dumps({"state": state, "tests": tests})


@pytest.mark.parametrize(
    ("what", "boot", "driver", "tainted", "repair", "wanted"),
    [
        (Kept(), BOOT, DRIVER, True, "", True),
        (Kept(), BOOT, DRIVER, False, "", False),
        (Kept(), BOOT, "", True, "", False),
        (PASSED, BOOT, DRIVER, True, "", False),
        (PASSED, "boot-2", DRIVER, True, "", True),
        (PASSED, BOOT, "595.1", True, "", True),
        (PASSED, BOOT, DRIVER, True, record("retest", AT), True),
        (PASSED, BOOT, DRIVER, True, record("testing", AT), True),
        (PASSED, BOOT, DRIVER, True, record("retest", AT - 50), False),
        (PASSED, BOOT, DRIVER, False, record("retest", AT), False),
        (PASSED, BOOT, DRIVER, True, record("triage", AT), False),
        (PASSED, BOOT, DRIVER, True, "{", False),
        (PASSED, BOOT, DRIVER, True, "[]", False),
        (PASSED, BOOT, DRIVER, True, '{"state": "retest", "tests": 1e999}', False),
        (Kept(Attempt("yielded", BOOT, 0, 970, unfinished=1)), BOOT, DRIVER, True, "", False),
        (Kept(Attempt("yielded", BOOT, 0, 930, unfinished=1)), BOOT, DRIVER, True, "", True),
        (Kept(Attempt("running", BOOT, 930, 0, unfinished=2)), BOOT, DRIVER, True, "", False),
        (Kept(Attempt("yielded", "boot-0", 0, 999, unfinished=9)), BOOT, DRIVER, True, "", True),
    ],
)
def test_when_the_taint_asks_for_one(
    what: Kept, boot: str, driver: str, tainted: bool, repair: str, wanted: bool
) -> None:
    assert ask.due(what, boot, driver, tainted, repair, 1000) == wanted


@pytest.mark.parametrize(
    ("what", "boot", "running", "says"),
    [
        (Kept(), BOOT, False, None),
        (Kept(), BOOT, True, ("Unknown", "Running")),
        (PASSED, BOOT, False, ("True", "Passed")),
        (PASSED, BOOT, True, ("True", "Passed")),
        (PASSED, "boot-2", False, ("Unknown", "Outdated")),
        (Kept(Attempt("running", BOOT, 1)), BOOT, False, ("Unknown", "Killed")),
        (Kept(Attempt("yielded", BOOT, 1, 2, "a pod has a GPU")), BOOT, False, ("Unknown", "Yielded")),
        (Kept(Attempt("yielded", "boot-0", 1, 2)), BOOT, False, None),
    ],
)
def test_what_the_condition_says(what: Kept, boot: str, running: bool, says: tuple[str, str] | None) -> None:
    found = ask.condition(what, boot, DRIVER, running)
    assert (found and found[:2]) == says


def test_what_is_remembered_is_read_back(tmp_path: Path) -> None:
    kept.write(tmp_path, PASSED)
    assert kept.read(tmp_path) == PASSED
    begun = kept.begun(kept.begun(PASSED, BOOT, 5), BOOT, 6)
    assert (begun.attempt.how, begun.attempt.unfinished, begun.verdict) == ("running", 2, SAID)
    assert kept.begun(begun, "boot-2", 7).attempt.unfinished == 1


class Started:
    """Where preflights are begun, which are none."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[Sequence[str]] = []
        self.fails: Exception | None = None
        self.asking = Asking(folder, Path("/etc/gpud.json"), BOOT, self._run)

    def _run(self, command: Sequence[str]) -> None:
        self.calls.append(command)
        if self.fails:
            raise self.fails


def test_one_is_begun_in_a_unit_of_its_own_and_never_two(tmp_path: Path) -> None:
    started = Started(tmp_path)
    assert started.asking.begin() == ""
    (command,) = started.calls
    assert command[0] == "systemd-run"
    assert f"--unit={ask.UNIT}" in command
    assert f"--property=ReadWritePaths={tmp_path}" in command
    assert list(command[-4:]) == ["ironspan.gpud", "preflight", "--settings", "/etc/gpud.json"]
    with kept.alone(tmp_path) as alone, kept.alone(tmp_path) as second:
        assert (alone, second) == (True, False)
        assert started.asking.begin() == "a preflight is running"
    started.fails = subprocess.CalledProcessError(1, "systemd-run", output="Unit\nexists")
    assert started.asking.begin() == "it cannot be begun: Unit exists"


def test_who_only_looks_whether_one_runs_is_none(tmp_path: Path) -> None:
    """The agent looks every second, and may not be let run while it does."""
    with kept.alone(tmp_path):
        pass
    looks = os.open(tmp_path / "preflight.lock", os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    looked = threading.Timer(0.3, os.close, [looks])
    looked.start()
    with kept.alone(tmp_path) as alone:
        assert alone
        assert kept.runs(tmp_path)
    looked.join()


def test_one_that_ends_while_it_is_looked_at_was_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is another one begun in its place: what was read is from before its end."""
    kept.write(tmp_path, kept.begun(Kept(), BOOT, 1000))
    started = Started(tmp_path)

    def ended(folder: Path) -> bool:
        kept.write(folder, PASSED)
        return False

    monkeypatch.setattr(kept, "runs", ended)
    condition, _ = started.asking.said(DRIVER)
    assert condition and condition[:2] == ("True", "Passed")
    kept.write(tmp_path, kept.begun(Kept(), BOOT, 1000))
    tainted = {"spec": {"taints": [{"key": ask.TAINT, "effect": "NoSchedule"}]}}
    started.asking.tainted(tainted, False, DRIVER, 2000)
    assert started.calls == []


def test_a_taint_begins_one_unless_a_gpu_is_used(tmp_path: Path) -> None:
    started = Started(tmp_path)
    tainted = {"spec": {"taints": [{"key": ask.TAINT, "effect": "NoSchedule"}]}}
    started.asking.tainted(tainted, True, DRIVER, 1000)
    started.asking.tainted({"spec": {}}, False, DRIVER, 1000)
    assert started.calls == []
    started.asking.tainted(tainted, False, DRIVER, 1000)
    assert len(started.calls) == 1


class Whole(FakeNode):
    """A Node with several conditions and taints."""

    def __init__(self) -> None:
        super().__init__()
        self.all: dict[str, dict[str, t.Any]] = {}
        self.taints: list[dict[str, str]] = []

    def conditions(self) -> list[dict[str, t.Any]]:
        return list(self.all.values())

    def whole(self) -> dict[str, t.Any]:
        return {"metadata": self.metadata(), "spec": {"taints": self.taints}}

    def write(self, conditions: list[dict[str, t.Any]], annotations: Mapping[str, str]) -> None:
        self.all |= {each["type"]: each for each in conditions}
        self.annotations.update(annotations)
        self.writes += 1


def test_the_node_gets_the_verdict_and_the_controller_lets_it_in(
    tmp_path: Path,
    reading: dict[str, t.Any],  # noqa: F811
) -> None:
    reading["gpus"] = reading["gpus"][:2]
    made: Agent = agent(Settings(state=tmp_path), reading)
    boot, driver = json.loads(made.seen())["boot"], made.driver
    started, of, now = Started(tmp_path), Whole(), [1e9]
    started.asking = Asking(tmp_path, Path("/etc/gpud.json"), boot, started._run)
    of.taints = [{"key": ask.TAINT}]
    publisher = publish.Publisher(made, of, 300, lambda: now[0], tests=started.asking)
    publisher.one_pass()
    assert ask.CONDITION not in of.all
    now[0] += 31
    publisher.one_pass()
    assert len(started.calls) == 1
    uuids = [gpu["uuid"] for gpu in json.loads(made.seen())["gpus"]]
    results = [Result(test, gpu, True, 1.0) for test in settings.DEMANDED for gpu in uuids]
    for how, last in (("passed", True), ("failed", False)):
        found = [dataclasses.replace(each, passed=last) for each in results]
        said = verdict.annotation(boot, driver, START, END, found, how)
        condition = verdict.condition(how, found, settings.DEMANDED)
        kept.write(tmp_path, Kept(Attempt("done", boot, 1, 2), said, condition))
        assert publisher.one_pass()
        assert not publisher.one_pass()
        written = {
            "metadata": {"name": "n0", "annotations": of.annotations},
            "status": {"nodeInfo": {"bootID": boot}, "conditions": list(of.all.values())},
        }
        read = seen(written, settings.DEMANDED)
        assert read is not None
        assert (read.passed, read.missing) == (last, () if last else read.missing)
        assert read.started == ask.started(said)
    # Somebody else changes what it wrote.
    of.annotations[ask.ANNOTATION] = "{}"
    now[0] += 11
    assert publisher.one_pass()
    assert of.annotations[ask.ANNOTATION] == json.dumps(said, separators=(",", ":"))
