# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A command does the same on a machine that other projects have left their settings on."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.cli import environment
from tests.support import hostile_home
from tests.support.playbooks import ROOT
from tests.support.small_plays import mirror_index

IRONSPAN = str(pathlib.Path(sys.executable).with_name("ironspan"))


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("ANSIBLE_VAULT_PASSWORD_FILE", True),
        ("ANSIBLE_BECOME_PASSWORD_FILE", True),
        ("ANSIBLE_PRIVATE_KEY_FILE", True),
        ("ANSIBLE_NOCOLOR", True),
        ("ANSIBLE_CONFIG", False),
        ("ANSIBLE_HASH_BEHAVIOUR", False),
        ("ANSIBLE_SKIP_TAGS", False),
        ("ANSIBLE_HOST_KEY_CHECKING", False),
        ("PATH", True),
        ("IRONSPAN_PKI_KEY", True),
    ],
)
def test_the_operators_settings_count_the_projects_are_the_projects(name: str, kept: bool) -> None:
    variables = {name: "x"}
    assert environment.settle(variables) == ([] if kept else [name])
    assert (name in variables) is kept


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_nothing_but_ansibles_settings_goes(variables: dict[str, str]) -> None:
    before = dict(variables)
    ignored = environment.settle(variables)
    assert all(name.startswith("ANSIBLE_") for name in ignored)
    kept = {name: value for name, value in before.items() if name not in (*ignored, "LC_ALL")}
    assert kept.items() <= variables.items()


@pytest.mark.parametrize("locale", ["xx_XX.UTF-8", "POSIX"])
def test_ansible_runs_whatever_the_callers_locale_is(locale: str) -> None:
    variables = {**os.environ, "LC_ALL": locale}
    command = [str(pathlib.Path(sys.executable).with_name("ansible-playbook")), "--version"]
    before = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert before.returncode != 0, "Ansible takes this locale now: choose another one for this test"
    environment.settle(variables)
    subprocess.run(command, env=variables, capture_output=True, check=True)


def test_validate_says_the_same_in_a_used_home(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    cache = tmp_path / "cache" / "ironspan" / "mirror"
    cache.mkdir(parents=True)
    (cache / "index.json").write_text(mirror_index())
    own = {
        "IRONSPAN_PKI_KEY": base64.b64encode(bytes(32)).decode(),
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip
    command = [IRONSPAN, "validate", "-i", "inventories/example", "--json", "-e"]
    clean = [*command, f"site_pki_store={tmp_path}/clean"]
    used = hostile_home.command_line(home, [*command, f"site_pki_store={tmp_path}/used"])
    variables = hostile_home.make(home, tmp_path)
    answers = []
    for line, around, umask in ((clean, dict(os.environ), 0o022), (used, variables, hostile_home.UMASK)):
        done = subprocess.run(
            line, cwd=ROOT, env={**around, **own}, umask=umask, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        last = json.loads(done.stdout.splitlines()[-1])
        answers.append((last["code"], [(phase["name"], phase["changes"]) for phase in last["phases"]]))
    assert answers[0] == answers[1]
    ignored = sorted(name for name in hostile_home.VARIABLES if name.startswith("ANSIBLE_"))
    assert f"ignored: {', '.join(ignored)}" in done.stderr


def test_what_is_the_sites_own_is_never_asked_through_a_proxy() -> None:
    # `urlopen` heeds http_proxy: right for the official downloads, wrong for hosts, the mirror and the API.
    code = [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "roles").rglob("*.py")]
    code += [path for path in (ROOT / "ironspan").rglob("*.py") if path.parent.name != "artifacts"]
    assert code
    assert not [path for path in code if "urlopen(" in path.read_text(encoding="utf-8")]
