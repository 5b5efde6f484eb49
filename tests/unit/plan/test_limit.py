# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Playbooks under --limit: they stay within it, and what localhost would do is done or said to be missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import types
import typing as t
from pathlib import Path

import pytest
from ansible import context
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible_collections.ironspan.hybrid.plugins.action import operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limit import (
    LEFT_OUT,
    leaves_localhost_out,
    limited_to,
    outside,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

from tests.support.playbooks import BIN, ROOT
from tests.support.small_plays import SSH, files, mirror_index, play, run
from tests.unit.plan.test_playbooks import PLAN, write_inventory
from tests.unit.render.support import KEY, ROLES
from tests.unit.render.test_playbooks import ALONE

HOST = "gpu-a-01"
CLUSTER_ONLY = {"network", "names", "isolation", "verify"}
"""Playbooks about the whole cluster: a limit to some hosts is no order to change objects all nodes share."""
NAMES = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))

CONTROLLER = "controller"
"""Stands for plays that take the limit's hosts where localhost is left out."""


@pytest.fixture(scope="module")
def plays() -> dict[str, list[tuple[str, list[str]]]]:
    """Return the plays of every playbook under the limit: pattern and hosts, as Ansible itself says."""
    return listed("--limit", HOST)


def listed(*options: str) -> dict[str, list[tuple[str, list[str]]]]:
    """Ask Ansible for the hosts of all plays of all playbooks."""
    done = subprocess.run(
        [
            str(BIN / "ansible-playbook"), "-i", str(ROOT / "inventories" / "example"), "--list-hosts",
            *options,
            "-e", "ironspan_planned=node_add", *(f"playbooks/{name}.yml" for name in NAMES),
        ],
        cwd=ROOT, env={**os.environ, "IRONSPAN_PKI_KEY": KEY}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for text in re.split(r"^playbook: ", done.stdout, flags=re.M)[1:]:
        name = Path(text.splitlines()[0]).stem
        found[name] = [
            (pattern, hosts.split())
            for pattern, hosts in re.findall(
                r"^    pattern: \['(.*)'\]\n    hosts \(\d+\):\n?((?:      .*\n?)*)", text, flags=re.M
            )
        ]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_no_play_leaves_the_limit(name: str, plays: dict[str, list[tuple[str, list[str]]]]) -> None:
    assert plays[name], "the listing was not understood"
    for pattern, hosts in plays[name]:
        assert set(hosts) <= {HOST}, f"{name}.yml: {pattern} contacts {hosts}"


@pytest.mark.parametrize("name", NAMES)
def test_what_the_controller_does_is_not_left_out(
    name: str, plays: dict[str, list[tuple[str, list[str]]]]
) -> None:
    left_out = [pattern for pattern, hosts in plays[name] if "localhost" in pattern and not hosts]
    if name in CLUSTER_ONLY:
        assert len(left_out) == len(plays[name]), "then it does nothing at all under a limit"
        return
    text = (ROOT / "playbooks" / f"{name}.yml").read_text()
    imported = set(re.findall(r"import_playbook: (\w+)\.yml", text))
    assert len(left_out) <= len(CLUSTER_ONLY & _all_imported(imported)), (
        f"{name}.yml has a play on localhost, which --limit leaves out; "
        "write hosts: \"{{ lookup('ironspan.hybrid.controller') }}\" and run_once: true"
    )
    # What is left out has to be said, and validate.yml is what says it.
    assert not left_out or "validate" in _all_imported(imported)


def _all_imported(names: set[str]) -> set[str]:
    found = set(names)
    for name in names:
        text = (ROOT / "playbooks" / f"{name}.yml").read_text()
        found |= _all_imported(set(re.findall(r"import_playbook: (\w+)\.yml", text)))
    return found


def test_with_localhost_in_the_limit_everything_runs_there() -> None:
    for name, entries in listed("--limit", f"{HOST},localhost").items():
        for pattern, hosts in entries:
            assert ("localhost" in hosts) is (pattern == "localhost"), f"{name}: {pattern}"


def limited(folder: Path, name: str, *options: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a playbook of the project on the example site with --limit; return what was dialled by ssh."""
    inventory, log, ssh = folder / "inventory", folder / "ssh.log", folder / "ssh"
    if not inventory.exists():
        shutil.copytree(ROOT / "inventories" / "example", inventory)
    ssh.write_text(SSH.format(log=log))
    ssh.chmod(0o755)
    log.write_text("")
    (folder / "index.json").write_text(mirror_index())
    home = folder / f"home-{name}"
    home.mkdir(exist_ok=True)
    done = run(
        folder, f"playbooks/{name}.yml", "-i", str(inventory), "--limit", HOST,
        "-e", f"site_artifacts_index={folder / 'index.json'}", "-e", f"site_pki_store={folder / 'pki'}",
        *options,
        ANSIBLE_SSH_EXECUTABLE=str(ssh), ANSIBLE_SSH_RETRIES="0", ANSIBLE_BECOME="0", IRONSPAN_PKI_KEY=KEY,
        HOME=str(home), XDG_STATE_HOME=str(home / "state"), XDG_CACHE_HOME=str(home / "cache"),
    )  # fmt: skip
    dialled = re.findall(r" (\d+\.\d+\.\d+\.\d+) ", log.read_text())
    return done, dialled


def variables(limit: str, groups: str = "") -> dict[str, t.Any]:
    """Return the variables of a task in a run with this limit."""
    manager = InventoryManager(DataLoader(), sources="a,b,c,")
    if groups:
        manager.add_group("mine")
        manager.add_host("localhost", group="mine")
        manager.reconcile_inventory()
    manager.subset(limit or None)
    manager.restrict_to_hosts([manager.get_host("a")])
    return {"hostvars": types.SimpleNamespace(_inventory=manager), "groups": manager.get_groups_dict()}


@pytest.mark.parametrize(
    ("limit", "groups", "limited", "left_out"),
    [
        ("", "", None, []),
        ("b", "", ["b"], ["a", "c"]),
        ("a,b", "", ["a", "b"], ["c"]),
        ("b,localhost", "", None, ["a", "c"]),
        ("localhost", "", None, ["a", "b", "c"]),
        ("all", "", ["a", "b", "c"], []),
        ("all:!c", "", ["a", "b"], ["c"]),
        ("mine,b", "mine", None, ["a", "c"]),
        ("all", "mine", None, []),
        ("loc*", "mine", None, ["a", "b", "c"]),
    ],
)
def test_what_a_limit_leaves(
    limit: str, groups: str, limited: list[str] | None, left_out: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_task = variables(limit, groups)
    assert limited_to(of_task) == limited
    assert outside(of_task, ["a", "b", "c"]) == left_out
    # The same before the first play, from the command line alone.
    monkeypatch.setattr(context, "CLIARGS", {"subset": limit})
    of_play = {"groups": of_task["groups"]}
    assert leaves_localhost_out(of_task) == leaves_localhost_out(of_play) == (limited is not None)
    assert limited_to({}) is None and outside({}, ["a"]) == []


def test_a_limit_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "retry"
    monkeypatch.setattr(context, "CLIARGS", {"subset": f"@{file}"})
    for text, left_out in (("a\nb\n", True), ("a\n\nlocalhost\n", False)):
        file.write_text(text)
        assert leaves_localhost_out({"groups": {}}) is left_out


def test_an_operation_is_not_done_by_halves() -> None:
    action = object.__new__(operation.ActionModule)
    action._variables = variables("b,localhost")
    site: t.Any = types.SimpleNamespace(hosts={"a": None, "b": None})
    action._insist_on_reach(site, "node_remove", ["b", "gone"])
    with pytest.raises(OperationError, match="has to work on a, and --limit leaves them out"):
        action._insist_on_reach(site, "node_remove", ["a", "b"])


CASES = [
    # name, options, exit status, hosts dialled, what is said
    ("validate", (), 0, 0, "ok=1"),
    ("site", (), 4, 1, LEFT_OUT[:60]),
    ("plan", (), 4, 1, "unreachable=1"),
    ("reset", (), 2, 0, "-e ironspan_reset_site=example"),
    ("doctor", (), 2, 1, "reachable: gpu-a-01: cannot be reached"),
]


@pytest.mark.parametrize(
    ("name", "options", "status", "connections", "says"), CASES, ids=lambda v: str(v)[:12]
)
def test_what_playbooks_do_under_a_limit(
    name: str, options: tuple[str, ...], status: int, connections: int, says: str, tmp_path: Path
) -> None:
    done, dialled = limited(tmp_path, name, *options)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == status, done.stdout[-3000:]
    assert set(dialled) == ({"10.30.1.11"} if connections else set())
    assert says in text
    # Nothing is kept on the controller that a later run would need: no facts, no state.
    home = tmp_path / f"home-{name}"
    kept = {str(path.relative_to(home)).split("/")[0] for path in home.rglob("*") if path.is_file()}
    assert kept <= set(), kept


def test_a_limited_run_needs_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    """Two hosts, one run each, each with a home folder that nobody has used: as in one run for both."""
    write_inventory(tmp_path)
    text = ALONE.format(roles=ROLES, mode="apply")
    for host in ("a1", "w2"):
        home = tmp_path / f"home-{host}"
        home.mkdir()
        done = play(tmp_path, text, "--limit", host, HOME=str(home), XDG_STATE_HOME=str(home / "s"))
        assert done.returncode == 0, done.stdout
        left = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
        assert left == set()
    apart = files(tmp_path)
    assert {name.split("/")[1] for name in apart} == {"a1", "w2"}
    again = play(tmp_path, text, "--limit", "a1,w2", HOME=str(tmp_path / "home-a1"))
    assert again.returncode == 0 and "changed=1" not in again.stdout
    assert files(tmp_path) == apart


def test_a_plan_of_a_limited_run_is_written(tmp_path: Path) -> None:
    write_inventory(tmp_path)
    text = PLAN.format(roles=ROLES, file=tmp_path / "p.plan.json").replace(
        "- hosts: localhost", "- hosts: \"{{ lookup('ironspan.hybrid.controller') }}\""
    )
    done = play(tmp_path, text, "--limit", "w2")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "p.plan.json").is_file()
