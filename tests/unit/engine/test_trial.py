# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changes on trial: they stay when confirmed and go back otherwise, wherever somebody is killed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import trial
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import VARIABLE
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run
from ansible_collections.ironspan.hybrid.plugins.module_utils._unattended import root_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.host_process import HostProcess

from .test_killed import fresh
from .test_random_machines import machine_with, machines, without_readings

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

Spec = dict[str, t.Any]
TRIAL = {"id": "run-1", "seconds": 300}
OLD = "old\n"

# The mirror's thread does not touch anything that the forked engine uses.
pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


def resources(content: str) -> list[Spec]:
    return [
        {"kind": "file", "id": "config", "path": "/etc/app/app.conf", "content": content},
        {"kind": "file", "id": "more", "path": "/etc/app/more", "content": content},
        {"kind": "systemd_unit", "id": "service", "name": "app", "restart_on": ["l/config"]},
    ]


@pytest.fixture
def host(sandbox: Sandbox) -> Sandbox:
    """A host on which the old configuration was applied by ironspan."""
    sandbox.put("etc/systemd/system/app.service", "[Service]\n")
    (sandbox.root / "etc/app").mkdir()
    assert not sandbox.run(*resources(OLD)).get("failed")
    sandbox.calls()
    return sandbox


def tried(host: Sandbox, content: str = "new\n", **params: t.Any) -> dict[str, t.Any]:
    return host.run(*resources(content), trial=TRIAL, **params)


def expire(host: Sandbox, arm: int = 2, name: str = "run-1") -> dict[str, t.Any]:
    """What systemd starts when the timer has run out."""
    return host.run(mode="revert", expired={"id": name, "arm": arm})


def revisions(host: Sandbox) -> int:
    return len(host.run(mode="history")["revisions"])


def ballast(host: Sandbox) -> Path:
    return host.root / "var/lib/ironspan/ballast"


def test_confirmed(host: Sandbox) -> None:
    result = tried(host)
    assert not result.get("failed"), result["msg"]
    assert (host.root / "etc/systemd/system" / trial.TIMER).exists()
    assert host.calls().count(f"restart {trial.TIMER}") == 2, "before the first change, and after the last"
    assert ballast(host).stat().st_size == trial.BALLAST_BYTES
    assert revisions(host) == 1, "what is on trial is not applied yet"
    shown = host.run(mode="confirm", check=True)
    assert shown["changed"] and shown["trial"]["complete"]
    confirmed = host.run(mode="confirm")
    assert confirmed["msg"] == "confirmed"
    assert [entry["resource"] for entry in confirmed["changes"]] == ["l/config", "l/more", "l/service"]
    assert revisions(host) == 2
    assert not list((host.root / "etc/systemd/system").glob("ironspan*"))
    assert not (host.root / "etc/systemd/system" / trial.WANTED).is_symlink()
    assert not ballast(host).exists()
    assert host.run(*resources("new\n"))["changed"] is False
    assert expire(host)["changed"] is False, "a timer that was about to fire finds nothing"
    assert host.read("etc/app/app.conf") == "new\n"


def test_not_confirmed(host: Sandbox) -> None:
    before = host.snapshot()
    tried(host)
    host.calls()
    result = expire(host)
    assert result["rolled_back"] == ["l/service", "l/more", "l/config"]
    assert "restart app.service" in host.calls()
    after = host.snapshot()
    after.pop("etc/systemd/system/timers.target.wants")
    assert after == before
    assert "went back at" in host.run(mode="confirm")["msg"]
    assert host.run(mode="history")["reports"][-1]["reason"] == "on trial, and not confirmed in time"
    assert host.run(*resources(OLD))["changed"] is False


def test_taken_back_by_hand(host: Sandbox) -> None:
    tried(host)
    assert host.run(mode="revert")["rolled_back"]
    assert host.run(mode="revert")["changed"] is False
    assert host.read("etc/app/app.conf") == OLD


def test_nothing_else_may_change_the_host(host: Sandbox) -> None:
    tried(host)
    other = host.run(*resources("third\n"))
    assert other["failed"] and "on trial" in other["msg"] and "ironspan confirm" in other["msg"]
    again = host.run(*resources("third\n"), trial={"id": "run-2", "seconds": 60})
    assert again["failed"]
    assert host.read("etc/app/app.conf") == "new\n"
    assessed = host.run(*resources("new\n"), mode="assess")
    assert assessed["changes"] == [], "what is on trial is what is there"
    assert [verdict["check"] for verdict in assessed["verdicts"]] == ["trial"]
    same = host.run(*resources("new\n"), mode="assess", trial=TRIAL)
    assert same["verdicts"] == []
    host.run(mode="confirm")
    assert not host.run(*resources("third\n")).get("failed")


def test_the_same_run_may_add_to_it(host: Sandbox) -> None:
    before = host.snapshot()
    tried(host)
    second = tried(host, "newer\n")
    assert not second.get("failed"), second["msg"]
    assert second["resumed"] is False
    assert expire(host, arm=2)["msg"].startswith("the trial was set again")
    assert host.read("etc/app/app.conf") == "newer\n"
    assert tried(host, "newer\n")["changed"] is False
    assert expire(host, arm=4)["rolled_back"]
    after = host.snapshot()
    after.pop("etc/systemd/system/timers.target.wants")
    assert after == before


def test_what_was_settled_by_the_first_call_is_settled_when_the_second_is_confirmed(host: Sandbox) -> None:
    tried(host)
    extra = {"kind": "file", "id": "extra", "path": "/etc/app/extra", "content": ""}
    host.run(extra, trial=TRIAL)
    assert not host.run(mode="confirm").get("failed")
    state = json.loads(host.read("var/lib/ironspan/state.json"))
    assert state["settled"]["l/service"] == state["changed"]["l/config"] == state["serial"]
    assert {"l/config", "l/more", "l/extra"} <= set(state["owned"])


def test_a_trial_that_fails_is_undone_at_once(host: Sandbox) -> None:
    result = tried(host, "broken\n")
    assert result["failed_resource"] == "l/service"
    assert host.read("etc/app/app.conf") == OLD
    assert not list((host.root / "etc/systemd/system").glob("ironspan*"))
    assert host.run(mode="history")["trial"] == {}


def test_nothing_to_change_is_no_trial(host: Sandbox) -> None:
    assert tried(host, OLD)["changed"] is False
    assert not list((host.root / "etc/systemd/system").glob("ironspan*"))
    nothing = host.run(mode="confirm")
    assert (nothing["msg"], nothing["changed"]) == ("nothing is on trial on this host", False)


def test_a_cluster_is_not_tried(host: Sandbox) -> None:
    configuration = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\netcd: {external: {}}\n"
    start = {"kind": "kubeadm", "id": "x", "action": "init", "role": "control_plane", "endpoint": "a:1"}
    start["config"] = configuration
    assessed = host.run(start, mode="assess", trial=TRIAL)
    assert [verdict["check"] for verdict in assessed["verdicts"]] == ["trial"]
    assert "l/x" in assessed["verdicts"][0]["found"]
    refused = host.run(*resources("new\n"), start, trial=TRIAL)
    assert "this host alone" in refused["msg"]
    assert host.read("etc/app/app.conf") == OLD


def test_a_timer_that_cannot_be_set_forbids_the_trial(host: Sandbox) -> None:
    stand_in = host.root / "usr/local/ironspan-test-bin/systemctl"
    text = stand_in.read_text()
    host.put(
        "usr/local/ironspan-test-bin/systemctl",
        text.replace("daemon-reload) exit 0", "daemon-reload) exit 1"),
        0o755,
    )
    result = tried(host)
    assert "timer" in result["msg"]
    assert host.read("etc/app/app.conf") == OLD
    assert host.run(mode="history")["trial"] == {}


def test_a_timer_that_cannot_be_set_again_undoes_the_trial(host: Sandbox, monkeypatch: t.Any) -> None:
    setting = trial.arm

    def fails_later(machine: t.Any, wanted: trial.Trial, folder: str) -> None:
        if wanted["arm"] > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        setting(machine, wanted, folder)

    monkeypatch.setattr(trial, "arm", fails_later)
    assert tried(host)["failed"]
    assert host.read("etc/app/app.conf") == OLD


def killed(host: Sandbox, step: int, **params: t.Any) -> bool:
    """Run in a process of its own that kills itself at a step; tell whether it got that far."""
    child = os.fork()
    if child == 0:
        os.environ[VARIABLE] = str(step)
        run({"root": str(host.root), "mirror": host.mirror, **params})
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def timer_fires(host: Sandbox) -> None:
    """Do what systemd would: start the service as its file says, again until it succeeds."""
    unit = host.root / "etc/systemd/system" / trial.SERVICE
    if not unit.exists():
        return
    words = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")).split()
    assert not expire(host, int(words[-1]), words[-2]).get("failed")


@pytest.mark.usefixtures("no_sync")
def test_a_trial_killed_anywhere_goes_back_by_its_timer(tmp_path: Path, host: Sandbox) -> None:
    before = host.snapshot()
    document = host.document(*resources("new\n"))
    step = applied = 0
    while True:
        step += 1
        copy = fresh(tmp_path, host)
        if not killed(copy, step, document=document, trial=TRIAL):
            break
        changed = copy.read("etc/app/app.conf") != OLD
        assert not changed or (copy.root / "etc/systemd/system" / trial.SERVICE).exists(), (
            f"step {step}: whatever is changed, the timer is set"
        )
        applied += changed
        timer_fires(copy)
        assert copy.run(mode="history")["trial"] == {}, step
        after = copy.snapshot()
        after.pop("etc/systemd/system/timers.target.wants", None)
        # Files of a trial that was not begun yet do nothing, and go with the next one.
        stray = {name for name in after if "ironspan-revert" in name or ".ironspan-" in name}
        for name in stray:
            after.pop(name)
        assert not stray or not changed, (step, stray)
        assert after == before, f"after a kill at step {step}"
    assert step > 20 and applied > 5


@pytest.mark.usefixtures("no_sync")
def test_a_confirmation_killed_anywhere_is_one_or_none(tmp_path: Path, host: Sandbox) -> None:
    tried(host)
    outcomes = set()
    step = 0
    while True:
        step += 1
        copy = fresh(tmp_path, host)
        if not killed(copy, step, mode="confirm"):
            break
        timer_fires(copy)
        content = copy.read("etc/app/app.conf")
        outcomes.add(content)
        assert copy.read("etc/app/more") == content
        assert copy.read("run/units/app.service.active") == content
        assert copy.run(mode="history")["trial"] == {}
        assert revisions(copy) == (2 if content == "new\n" else 1), step
        assert copy.run(*resources(content))["changed"] is False
        assert not list((copy.root / "etc/systemd/system").glob("ironspan*")), step
    assert outcomes == {OLD, "new\n"}


@pytest.mark.usefixtures("no_sync")
def test_going_back_killed_anywhere_is_finished(tmp_path: Path, host: Sandbox) -> None:
    before = host.snapshot()
    tried(host)
    step = 0
    while True:
        step += 1
        copy = fresh(tmp_path, host)
        expired = {"id": "run-1", "arm": 2}
        if not killed(copy, step, mode="revert", expired=expired):
            break
        # systemd starts it again; or the next run comes first.
        if step % 2:
            timer_fires(copy)
            assert copy.run(*resources(OLD))["changed"] is False, step
        else:
            result = copy.run(*resources(OLD))
            assert not result.get("failed") or "on trial" in result["msg"], (step, result.get("msg"))
            timer_fires(copy)
        after = copy.snapshot()
        after.pop("etc/systemd/system/timers.target.wants", None)
        assert after == before, f"after a kill at step {step}"
    assert step > 10


@pytest.mark.usefixtures("no_sync")
def test_confirmation_and_timer_at_the_same_time(tmp_path: Path, host: Sandbox) -> None:
    tried(host)
    for number in range(12):
        copy = fresh(tmp_path, host)
        modes: list[dict[str, t.Any]] = [
            {"mode": "confirm"},
            {"mode": "revert", "expired": {"id": "run-1", "arm": 2}},
        ]
        children = []
        for mode in modes if number % 2 else reversed(modes):
            child = os.fork()
            if child == 0:
                run({"root": str(copy.root), **mode})
                os._exit(0)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
        content = copy.read("etc/app/app.conf")
        assert copy.read("etc/app/more") == copy.read("run/units/app.service.active") == content
        assert revisions(copy) == (2 if content == "new\n" else 1)
        assert copy.run(*resources(content))["changed"] is False
        assert not list((copy.root / "etc/systemd/system").glob("ironspan*"))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(machine=machines(), later=machines(), step=st.integers(1, 90), confirmed=st.booleans())
def test_any_trial_is_all_or_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    no_sync: None,
    sandbox: Sandbox,
    machine: tuple[list[Spec], dict[str, str]],
    later: tuple[list[Spec], dict[str, str]],
    step: int,
    confirmed: bool,
) -> None:
    """Killed somewhere or not, confirmed or not: the machine is as before, or as without a trial."""
    box = machine_with(type(sandbox), tmp_path_factory.mktemp("machine"), machine[1])
    assert not box.run(*machine[0]).get("failed")
    before = settled(box)
    reference = fresh(tmp_path_factory.mktemp("reference"), box)
    assert not reference.run(*later[0]).get("failed")
    cut_off = killed(box, step, document=box.document(*later[0]), trial=TRIAL)
    answer = box.run(mode="confirm") if confirmed else {"changed": False}
    timer_fires(box)
    expected = settled(reference) if not cut_off or answer.get("changed") else before
    if confirmed or cut_off:
        assert settled(box) == expected
    else:
        assert settled(box) == before


def settled(box: Sandbox) -> dict[str, t.Any]:
    """Describe a machine but for the timer's traces and what the service has read."""
    seen = without_readings(box)
    return {path: what for path, what in seen.items() if "timers.target" not in path and "revert" not in path}


def test_a_trial_that_was_cut_off_cannot_be_confirmed(host: Sandbox) -> None:
    document = host.document(*resources("new\n"))
    assert killed(host, 12, document=document, trial=TRIAL)
    assert "cut off" in host.run(mode="confirm")["msg"]
    timer_fires(host)
    assert host.read("etc/app/app.conf") == OLD


def test_a_full_disk_is_tried_again(host: Sandbox, monkeypatch: t.Any) -> None:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import backup

    before = host.snapshot()
    tried(host)
    restoring = backup.restore

    def full(*arguments: t.Any) -> t.Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "restore", full)
    assert expire(host)["failed"], "systemd starts it again after a failure"
    assert host.run(*resources("third\n"))["failed"]
    monkeypatch.setattr(backup, "restore", restoring)
    timer_fires(host)
    after = host.snapshot()
    after.pop("etc/systemd/system/timers.target.wants")
    assert after == before


def test_a_full_disk_at_the_confirmation_leaves_the_trial_open(host: Sandbox, monkeypatch: t.Any) -> None:
    tried(host)

    def full(*arguments: t.Any) -> t.Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(
            "ansible_collections.ironspan.hybrid.plugins.module_utils._engine.journal.write_all", full
        )
        assert host.run(mode="confirm")["failed"]
    assert host.run(mode="history")["trial"]["complete"]
    assert not host.run(mode="confirm").get("failed")


def test_the_program_works_from_its_place_only() -> None:
    assert root_of("/var/lib/ironspan/revert.py") == "/"
    assert root_of("/a/root/var/lib/ironspan/revert.py") == "/a/root"
    with pytest.raises(SystemExit):
        root_of("/somewhere/else")


def test_the_program_on_the_host_needs_no_ansible(host: Sandbox) -> None:
    """What is sent leaves the program, and what systemd would start runs from there alone."""
    process = HostProcess(host.root)
    assert process.converge(host.document(*resources("new\n")), trial=TRIAL)["changed"]
    shutil.rmtree(host.root / "var/lib/ironspan/engine")
    unit = (host.root / "etc/systemd/system" / trial.SERVICE).read_text()
    argv = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).partition("=")[2].split()
    assert argv[1] == "-I"
    program = Path(argv[2]).read_text()
    reverted = subprocess.run(
        argv, text=True, capture_output=True, check=True, cwd="/", env={"PATH": "/usr/bin:/bin"}
    )
    assert reverted.stdout == "taken back: l/service, l/more, l/config\n"
    assert host.read("etc/app/app.conf") == OLD
    assert not Path(argv[2]).exists()
    Path(argv[2]).write_text(program)
    again = subprocess.run(
        argv, text=True, capture_output=True, check=True, cwd="/", env={"PATH": "/usr/bin:/bin"}
    )
    assert again.stdout == "nothing is on trial any more\n"
