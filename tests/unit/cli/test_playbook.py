# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A playbook through ansible-runner: what a task says arrives, however long it is."""

from __future__ import annotations

import io
import json
import pathlib

from ironspan.cli.console import Console
from ironspan.cli.playbook import PlaybookRun
from tests.support.playbooks import ROOT

PLAY = """\
- name: Much
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Say much
      ansible.builtin.debug:
        msg: "{{ 'x' * 800000 }}"
      changed_when: true
"""


def test_a_long_result_counts_as_the_change_that_it_is(tmp_path: pathlib.Path) -> None:
    """Behind the task of a plan of 165 objects of a controller stood "unchanged": its result came empty."""
    playbook = tmp_path / "much.yml"
    playbook.write_text(PLAY)
    shown = io.StringIO()
    with Console("json", shown) as console:
        run = PlaybookRun(playbook, ["-i", "localhost,"], console, tmp_path / "log")
        assert run.execute(ROOT) == 0
    lines = [json.loads(line) for line in shown.getvalue().splitlines()]
    assert "Say much: 1 change" in str(lines)
    assert len(run.run.results["ansible.builtin.debug"]["msg"]) == 800000
