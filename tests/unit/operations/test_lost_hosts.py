# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host is lost, or fails, in a wave of an upgrade: its wave is finished, and no other one begins.

The play is that of upgrade.yml, with its own rules of waves; what it does to hosts and asks of the API is
replaced.
"""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.support.faults import insist
from tests.support.playbooks import ROOT, recap_of

LOST = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
FAILING = {"user_fails": True}
GATES = {"upgrade_drivers": {"returning": []}, "upgrade_gate": {"back": [], "report": ""}}
"""No driver goes back to the one of before."""


def play_of_the_nodes() -> dict[str, t.Any]:
    """Return the play of the waves; hosts do nothing, and the second of them breaks at its first change."""
    plays: list[dict[str, t.Any]] = yaml.safe_load((ROOT / "playbooks" / "upgrade.yml").read_text())
    play = next(play for play in plays if play.get("hosts") == "__ironspan_upgrade_nodes")
    replaced = 0
    for task in play["tasks"]:
        task.pop("register", None)  # what the replaced ones would return is in GATES
        for action in [name for name in task if name.startswith("ironspan.")]:
            del task[action]
            replaced += 1
            if "Give kubelet" in task["name"]:
                task["ansible.builtin.command"] = "{{ 'false' if user_fails | default(false) else 'true' }}"
            else:
                task["ansible.builtin.debug"] = {"msg": "done"}
    assert replaced >= 5
    return {**play, "hosts": "all", "serial": [2], "vars": {**play["vars"], **GATES}}


@pytest.mark.parametrize(("trouble", "how"), [(LOST, "unreachable"), (FAILING, "failed")])
def test_no_wave_begins_after_one_that_lost_a_host(
    tmp_path: Path, trouble: dict[str, t.Any], how: str
) -> None:
    hosts = {"w1": {}, "w2": trouble, "w3": {}, "w4": {}}
    variables = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": variables, "hosts": hosts}}))
    (tmp_path / "hosts.json").rename(tmp_path / "hosts.yml")
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play_of_the_nodes()], sort_keys=False))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            "-i",
            str(tmp_path / "hosts.yml"),
            str(tmp_path / "play.yml"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    output = done.stdout
    recap = recap_of(output)
    insist("upgrade-lost", output)
    assert "w2 did not finish" in " ".join(output.split())
    assert recap["w2"][how] == 1
    assert "Uncordon the nodes" in output
    assert recap["w1"]["ok"] >= 5 and recap["w1"]["failed"] == 0, "its wave is finished"
    others = [recap.get(name, {}).get("ok", 0) for name in ("w3", "w4")]
    assert others == [0, 0], "the next one does not begin"
    assert done.returncode != 0
