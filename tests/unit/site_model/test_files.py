# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Ansible would read only in part is refused with its place, and what follows from it is not said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import ini_text, yaml_text
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.marks import read_marks
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.playbooks import BIN, play

from .conftest import Example
from .file_mutations import GPU, MISTAKES, Mistake


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_named_and_nothing_else(example: Example, mistake: Mistake) -> None:
    mistake.make(example)
    problems = example.problems()
    everything = "\n".join(map(str, problems))
    assert len(problems) == 1, everything
    (problem,) = problems
    assert mistake.says in str(problem)
    if not mistake.at:
        line = 0
    elif mistake.at.isdigit():
        line = int(mistake.at)
    else:
        text = (example.folder / mistake.file).read_bytes().decode("utf-8", "replace")
        (line,) = (number for number, each in enumerate(text.split("\n"), 1) if mistake.at in each)
    assert (problem.file, problem.line) == (str(example.folder / mistake.file), line), everything


@pytest.mark.parametrize(
    ("inner", "says"),
    [('{"kind": null}', "kind: has no value"), ('{"knd": 5}', "knd: unknown key; write kind")],
)
def test_a_part_of_a_value_in_json(example: Example, inner: str, says: str) -> None:
    example.append("group_vars/rack_a.json", f'{{\n"user_a": 1,\n"etcd_backup_management": {inner}\n}}\n')
    found = [problem for problem in example.problems() if says in str(problem)]
    assert [(problem.file, problem.line) for problem in found] == [
        (str(example.folder / "group_vars/rack_a.json"), 3)
    ], example.problems()


def test_a_text_of_one_host_is_named_in_its_own_file(example: Example) -> None:
    example.replace(
        "hosts.yml", "gpu-a-02: {ansible_host: 10.30.1.12}", "gpu-a-02: {site_address: 10.30.1.12}"
    )
    example.append("host_vars/gpu-a-01.json", '{\n"site_address": "10.30.1.11\\nx"\n}\n')
    (problem,) = example.problems()
    assert problem.file == str(example.folder / "host_vars/gpu-a-01.json")


def test_an_encrypted_file_of_json(example: Example) -> None:
    loader = DataLoader()
    secret = VaultSecret(b"a password")
    loader.set_vault_secrets([("default", secret)])
    data = VaultLib([("default", secret)]).encrypt('{"ansible_hots": "10.20.0.11"}', secret)
    example.append("group_vars/rack_a.json", data.decode())
    (problem,) = example.problems(loader=loader)
    assert "ansible_hots: unknown variable; write ansible_host" in str(problem)
    assert problem.file == str(example.folder / "group_vars/rack_a.json")


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("group_vars/rack_a.yml", "user_a: 1\nuser_a: 2\n", "is there twice, on line 2"),
        ("group_vars/rack_a.yml", "- user_a\n", "is a list, and variables are lines"),
        ("group_vars/rack_a.yml", "user_a:\n\tb: 1\n", "is not valid YAML: the line is indented with a tab"),
        ("more.yml", "user_x: {hosts: [az-1]}\n", "is a list and must be a dictionary"),
        ("group_vars/rack_a.yml", "user_a: 1\n", ""),
        ("more.yml", "user_x: {hosts: {az-1: }}\n", ""),
    ],
)
def test_inside_of_an_encrypted_file(example: Example, file: str, text: str, says: str) -> None:
    loader = DataLoader()
    secret = VaultSecret(b"a password")
    loader.set_vault_secrets([("default", secret)])
    example.append(file, VaultLib([("default", secret)]).encrypt(text, secret).decode())
    found = example.problems(loader=loader)
    assert [(problem.file, problem.line) for problem in found] == [(str(example.folder / file), 1)] * bool(
        says
    )
    assert all(says in problem.message and "ansible-vault edit" in problem.remedy for problem in found)


def test_names_are_told_apart() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)


def test_a_file_that_nobody_may_read(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may read everything: the answer of the system is what counts.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "gpu.yml")
    (problem,) = example.problems()
    assert (problem.file, problem.message) == (str(example.folder / GPU), "cannot be read by you")


UNUSUAL = {
    "group_vars/servers.csv": "serial,rack\n",
    "group_vars/README.md": "What is where.\n",
    "README.md": "hosts: are in hosts.yml\n",
    ".gitignore": "*.bak\n",
    "group_vars/.gpu.yml.swp": "b0VIM\n",
    "group_vars/rack_a": "user_a: 1\n",
    "group_vars/rack_b/one.yml": "user_a: 1\n",
    "group_vars/rack_b/two": "user_b: 1\n",
    "group_vars/rack_c.json": '{"user_a": 1}\n',
    "host_vars/az-1.yml": "",
    "host_vars/az-2.yml": "# nothing yet\n",
    "host_vars/az-3.yml": "user_x: &x {a: 1}\nuser_y: {<<: *x, b: 2}\n",
    "racks/more.yml": "user_x: {hosts: az-1}\nuser_y: {children: user_x}\n",
    "more": "; groups of our own\n[user_x]\naz-1 user_a='b c' # ours\naz-[2:3]\n\n"
    "[user_y:children]\nuser_x\n\n[user_y:vars]\nuser_b = 1\n",
}


@pytest.mark.parametrize("file", UNUSUAL)
def test_unusual_files_are_right(example: Example, file: str) -> None:
    path = example.folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(UNUSUAL[file])
    assert example.problems() == []


def test_what_ansible_is_told_to_ignore(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    example.append("generated.yml", "all: {hosts: [x]}\n")
    assert len(example.problems()) == 1
    monkeypatch.setattr("ansible.constants.INVENTORY_IGNORE_PATTERNS", ["^generated"])
    assert example.problems() == []


def test_a_playbook_that_makes_the_inventory_runs_without_it(tmp_path: Path) -> None:
    play_file = tmp_path / "make.yml"
    play_file.write_text(
        "- {hosts: localhost, gather_facts: false, tasks: [{ansible.builtin.debug: {msg: made}}]}\n"
    )
    ended = play(str(play_file), tmp_path / "not" / "yet.yml", tmp_path, timeout=300)
    assert ended.status == 0, ended.output


def test_a_byte_order_mark_is_no_mistake(example: Example) -> None:
    path = example.folder / GPU
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert example.problems() == []


def test_what_ansible_encrypted_is_read_with_its_password(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = tmp_path / "password"
    password.write_text("of a test\n")
    path = example.folder / GPU
    vault = [
        str(BIN / "ansible-vault"),
        "encrypt",
        "--vault-password-file",
        str(password),
    ]
    subprocess.run([*vault, str(path)], check=True, capture_output=True, timeout=120)
    assert path.read_text().startswith("$ANSIBLE_VAULT")
    assert "no password was given" in str(example.problems())
    monkeypatch.setattr("ansible.constants.DEFAULT_VAULT_PASSWORD_FILE", str(password))
    assert example.problems() == []


@pytest.mark.parametrize("playbook", ["verify", "nodes", "site"])
def test_every_playbook_ends_with_2(example: Example, playbook: str) -> None:
    """Also one that is a phase, and begins with the hosts."""
    example.append(GPU, "user_x: [\n")
    ended = play(playbook, example.folder, example.folder.parent, timeout=300)
    assert ended.status == 2, ended.output
    assert "1 problem in the inventory; no host was contacted." in ended.output
    assert f"{GPU}:" in ended.output
    assert "TASK" not in ended.output


@settings(max_examples=300)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_any_text_has_lines_or_a_reason(text: str) -> None:
    """Neither reader ends with an error of its own, whatever stands in a file."""
    found = yaml_text.parse(text, "file")
    assert found.broken is None or (found.root is None and found.broken[0].line >= 1)
    lines = list(ini_text.lines_of(text))
    assert all(1 <= line.number <= max(len(text.splitlines()), 1) for line in lines)


@settings(max_examples=100)
@given(st.text(alphabet="[]:=# \n\tabc-'\"{}&*!|>~%@`,?", max_size=120))
def test_any_inventory_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name in ("hosts.yml", "hosts"):
        (folder / name).write_text(text)
        marks = read_marks([str(folder / name)])
        assert all(problem.message and problem.remedy and problem.line >= 0 for problem in marks.misread)


def test_two_files_of_one_folder_have_its_mistakes_once(example: Example) -> None:
    example.append("more.yml", "user_x: {hosts: az-1}\n")
    example.append("group_vars/all.yaml", "site_wan_mtu: 1300\n")
    example.append("group_var/all.yml", "site_wan_mtu: 1300\n")
    given = [str(example.folder / name) for name in ("hosts.yml", "more.yml")]
    named = sorted(Path(problem.file).name for problem in read_marks(given).misread)
    assert named == ["all.yaml", "group_var"]
