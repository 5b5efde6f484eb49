# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The callback ``ironspan_report``: what a run of ansible-playbook leaves, and what it does not."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest

from ironspan.cli.playbook import LOGS_KEPT, REPORTED, log_file
from tests.support.playbooks import BIN, ROOT

SECRET, GIVEN = "word-of-a-task", "word-of-the-command"
PLAY = """\
- name: look
  hosts: all
  connection: local
  gather_facts: false
  tasks:
    - {name: quiet, ansible.builtin.debug: {msg: SECRET}, no_log: true}
    - {name: differ, ansible.builtin.debug: {msg: x}, changed_when: inventory_hostname == 'a'}
- name: break
  hosts: all
  connection: local
  gather_facts: false
  tasks:
    - {name: give up, ansible.builtin.fail: {msg: "b is broken"}, when: inventory_hostname == 'b'}
    - {name: try, ansible.builtin.fail: {msg: "not counted"}, ignore_errors: true}
""".replace("SECRET", SECRET)


def played(folder: pathlib.Path, **environment: str) -> tuple[str, list[pathlib.Path]]:
    """Run the playbook; return Ansible's output, and what there is in the folder of reports."""
    (folder / "small.yml").write_text(PLAY)
    reports = folder / "reports"
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", "a,b,", "-e", f"word={GIVEN}", str(folder / "small.yml")],
        cwd=folder,
        env=os.environ
        | {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_CALLBACKS_ENABLED": "ironspan_report",
            "IRONSPAN_REPORT_FOLDER": str(reports),
            "ANSIBLE_NOCOLOR": "1",
        }
        | environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    return done.stdout, sorted(reports.iterdir()) if reports.is_dir() else []


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[pathlib.Path]]:
    return played(tmp_path_factory.mktemp("callback"))


def test_a_run_leaves_its_page_and_data_and_names_the_page(left: tuple[str, list[pathlib.Path]]) -> None:
    output, files = left
    assert [file.suffix for file in files] == [".html", ".json"]
    assert output.rstrip().endswith(f"report: {files[0]}")
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    page = files[0].read_text()
    assert "b is broken" in page and "Log:" not in page


def test_the_data_are_those_of_the_run(left: tuple[str, list[pathlib.Path]]) -> None:
    record: dict[str, t.Any] = json.loads(left[1][1].read_text())
    assert (record["playbook"], record["state"], record["code"]) == ("small", "failed", 1)
    assert [phase["name"] for phase in record["phases"]] == ["look", "break"]
    assert {host: one["changes"] for host, one in record["phases"][0]["hosts"].items()} == {"a": 1, "b": 0}
    (failure,) = record["failures"]
    assert (failure["host"], failure["phase"], failure["task"]) == ("b", "break", "give up")
    assert record["again"].startswith("ansible-playbook -i a,b, -e word=… ")


def test_no_secret_is_in_it(left: tuple[str, list[pathlib.Path]]) -> None:
    for file in left[1]:
        assert SECRET not in file.read_text() and GIVEN not in file.read_text()


def test_ironspan_writes_its_own_and_a_folder_that_is_none_ends_no_run(tmp_path: pathlib.Path) -> None:
    assert played(tmp_path, **{REPORTED: "1"})[1] == []
    (tmp_path / "file").write_text("")
    output, files = played(tmp_path, IRONSPAN_REPORT_FOLDER=str(tmp_path / "file" / "reports"))
    assert files == [] and "no report of this run" in output


def test_reports_without_a_log_are_not_kept_for_ever(tmp_path: pathlib.Path) -> None:
    for number in range(LOGS_KEPT + 5):
        for suffix in (".json", ".html"):
            (tmp_path / f"site-20270101T0000{number:02}.000000Z{suffix}").touch()
    (tmp_path / "site-20260101T000000.000000Z.txt").touch()
    log_file("site", tmp_path)
    names = sorted({path.name.split(".")[0] for path in tmp_path.glob("*.json")})
    assert len(names) == LOGS_KEPT - 1 and names[0] == "site-20270101T000006"
    assert len(list(tmp_path.glob("*.html"))) == len(names)
    assert (tmp_path / "site-20260101T000000.000000Z.txt").exists()
