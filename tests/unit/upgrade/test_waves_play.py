# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The play of the waves in real runs, with stand-ins for what it calls: who is asked what, and when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.playbooks import ROOT

HOSTS = ("g1", "g2", "g3")
ACTION = """
import json, os
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        folder, name = os.environ["CALLS"], "{name}"
        arguments = dict(self._task.args)
        asked = arguments.get("phase") or arguments.get("mode") or arguments.get("state") or ""
        entry = [task_vars["inventory_hostname"], name, asked, arguments]
        with open(folder + "/calls", "a") as calls:
            calls.write(json.dumps(entry) + "\\n")
        answers = json.load(open(folder + "/answers"))
        found = {{"changed": False, "facts": {{"reboots": [], "boot_id": "b-" + entry[0]}}}}
        for key, answer in answers.items():
            where, _, what = key.partition(" ")
            if where in (name, entry[0]) and what in ("", asked):
                answer = answer.pop(0) if isinstance(answer, list) and answer else answer
                found.update(answer or {{}})
        json.dump(answers, open(folder + "/answers", "w"))
        return found
"""
LOOKUP = """
from ansible.plugins.lookup import LookupBase

class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        return {value}
"""
NOTHING = {"returning": [], "back": [], "report": ""}


def run(
    folder: Path, answers: dict[str, object]
) -> tuple[int, list[tuple[str, str, str]], list[dict[str, object]]]:
    """Run the play with one host a wave; return its status, the calls, and their arguments."""
    plugins = folder / "collections/ansible_collections/ironspan/hybrid/plugins"
    for kind in ("action", "lookup", "modules"):
        (plugins / kind).mkdir(parents=True, exist_ok=True)
    for name in ("converge", "node_drain", "node_reboot", "upgrade_gate"):
        (plugins / f"action/{name}.py").write_text(ACTION.format(name=name))
        (plugins / f"modules/{name}.py").write_text("")
    (plugins / "lookup/argument.py").write_text(LOOKUP.format(value="[False]"))
    (plugins / "lookup/waves.py").write_text(LOOKUP.format(value="[1, 1, 1]"))
    whole = yaml.safe_load((ROOT / "playbooks/upgrade.yml").read_text())
    (waves,) = (play for play in whole if play.get("hosts") == "__ironspan_upgrade_nodes")
    (folder / "waves.yml").write_text(yaml.safe_dump([waves], sort_keys=False))
    inventory = {
        "__ironspan_upgrade_nodes": {"hosts": {host: {"ansible_connection": "local"} for host in HOSTS}}
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (folder / "answers").write_text(json.dumps({"upgrade_gate": NOTHING, **answers}))
    (folder / "calls").write_text("")
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_CONFIG": str(folder / "none.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "CALLS": str(folder),
    }
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "waves.yml"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    (folder / "output").write_text(done.stdout + done.stderr)
    lines = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    return (
        done.returncode,
        [(host, name, asked) for host, name, asked, _ in lines],
        [line[3] for line in lines],
    )


def wave(host: str) -> list[tuple[str, str, str]]:
    return [
        (host, "converge", ""),
        (host, "node_drain", ""),
        (host, "upgrade_gate", "drivers"),
        *forward(host),
    ]


def forward(host: str) -> list[tuple[str, str, str]]:
    return [
        (host, "converge", "upgrade_nodes"),
        (host, "node_reboot", ""),
        (host, "converge", "upgrade_nodes"),
        (host, "upgrade_gate", "nodes"),
    ]


UNCORDON = "schedulable"


def test_waves_that_pass(tmp_path: Path) -> None:
    status, calls, arguments = run(tmp_path, {})
    assert status == 0, (tmp_path / "output").read_text()
    assert calls == [call for host in HOSTS for call in (*wave(host), (host, "node_drain", UNCORDON))]
    assert arguments[calls.index(("g1", "upgrade_gate", "nodes"))]["boots"] == {"g1": "b-g1"}


def test_one_that_failed_goes_back_and_no_other_wave_begins(tmp_path: Path) -> None:
    gate = [NOTHING, {**NOTHING, "back": ["g2"], "report": "g2 went back"}, NOTHING]
    status, calls, arguments = run(tmp_path, {"upgrade_gate nodes": gate})
    back = [("g2", "converge", "rollback"), *forward("g2"), ("g2", "node_drain", UNCORDON)]
    assert status != 0
    assert calls == [*wave("g1"), ("g1", "node_drain", UNCORDON), *wave("g2"), *back]
    assert arguments[-2] == {
        "phase": "nodes",
        "hosts": ["g2"],
        "boots": {"g2": "b-g2"},
        "returning": ["g2"],
    }
    assert "g2 went back" in (tmp_path / "output").read_text()


def test_one_that_cannot_go_back_stays_cordoned(tmp_path: Path) -> None:
    answers: dict[str, object] = {
        "upgrade_gate nodes": [{**NOTHING, "back": ["g1"], "report": "g1 went back"}],
        "g1 rollback": {"failed": True, "msg": "no document with another version is kept"},
    }
    status, calls, _ = run(tmp_path, answers)
    assert status != 0
    assert calls == [*wave("g1"), ("g1", "converge", "rollback")]


@pytest.mark.parametrize("closed", [False, True])
def test_one_that_a_killed_run_was_taking_back_goes_on_with_that(tmp_path: Path, closed: bool) -> None:
    said = {"failed": True, "msg": "no"} if closed else {**NOTHING, "report": "g1 went back"}
    answers: dict[str, object] = {
        "upgrade_gate drivers": {**NOTHING, "returning": ["g1"]},
        "upgrade_gate nodes": said,
    }
    status, calls, _ = run(tmp_path, answers)
    assert status != 0
    begin = wave("g1")
    resumed = [*begin[:3], ("g1", "converge", "rollback"), *begin[3:]]
    assert calls == resumed + ([] if closed else [("g1", "node_drain", UNCORDON)])
