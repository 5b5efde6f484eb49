# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A new layer is one folder: a copy of the collection with the roles that docs/contributing.md writes out.

The other roles bring nothing there, so that hosts can be folders; what they say of themselves is theirs.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import load
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

from tests.support import small_plays
from tests.support.playbooks import ROOT
from tests.support.recipes import files_of
from tests.unit.render.support import KEY, write_inventory
from tools import role_pages

ADDED = {"shelf": files_of("A new layer"), "bulletin": files_of("A new add-on")}
VARIABLE = files_of("A new variable")
NOTHING = {
    "desired.yml.j2": "[]\n",
    "reset.yml.j2": "[]\n",
    "fitness.yml.j2": "{}\n",
    "objects.yml.j2": "[]\n",
}
PLAN = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - ironspan.hybrid.validate:
        purpose: apply
- hosts: all
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        mode: plan
        root: "{{ user_root }}"
      diff: true
- hosts: localhost
  gather_facts: false
  tasks:
    - ironspan.hybrid.write_plan:
        file: "{{ user_plan }}"
"""
RESET = """\
- hosts: w2
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge:
        mode: reset
        consent: small
        root: "{{ user_root }}"
"""
SHELF = "roots/w2/etc/shelf/boards"


class House:
    """A copy of the collection with new roles, and a small site that has their layers on one host.

    Args:
        folder: where all of it is.
        added: files of the roles.
        group: whose only host is w2.
        variables: of the whole site.
    """

    def __init__(
        self,
        folder: Path,
        added: Mapping[str, Mapping[str, str]] = ADDED,
        group: str = "shelf",
        variables: str = "",
    ) -> None:
        self.folder = folder
        self.home = home = folder / "collections" / "ansible_collections" / "ironspan" / "hybrid"
        home.mkdir(parents=True)
        for name in ("plugins", "playbooks", "galaxy.yml", "meta", "artifacts.lock.yml"):
            (home / name).symlink_to(ROOT / name)
        for file in (ROOT / "roles").rglob("*"):
            copy = home / file.relative_to(ROOT)
            if file.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(NOTHING.get(file.name) or file.read_text())
        for name, text in VARIABLE.items():
            with (home / "roles" / "haproxy" / name).open("a") as more:
                more.write(text)
        for role, files in added.items():
            for name, text in files.items():
                file = home / "roles" / role / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        inventory = write_inventory(folder)
        text = inventory.read_text().replace(
            "site_api_address: 10.1.0.9", f"site_api_address: 127.0.0.9\n    site_lab: true{variables}"
        )
        inventory.write_text(f"{text}    {group}: {{hosts: {{w2: }}}}\n")

    def play(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run plays against the site, with the copy."""
        return small_plays.play(
            self.folder,
            text,
            "--limit",
            "localhost,w2",
            *options,
            ANSIBLE_COLLECTIONS_PATH=str(self.folder / "collections"),
            IRONSPAN_PKI_KEY=KEY,
            XDG_STATE_HOME=str(self.folder / "state"),
        )

    def done(self, text: str, *options: str) -> str:
        """Run plays that succeed; return what they print, its lines joined."""
        result = self.play(text, *options)
        assert result.returncode == 0, result.stdout + result.stderr
        return re.sub(r"\s+", " ", result.stdout)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Return the copy."""
    return House(tmp_path_factory.mktemp("house"))


def converging(book: str, *phases: str) -> str:
    """Return the plays of a playbook that ask for these phases, for hosts that are folders."""
    plays = []
    for play in yaml.safe_load((ROOT / "playbooks" / f"{book}.yml").read_text()):
        tasks = [
            {**task, "ironspan.hybrid.converge": {**arguments, "root": "{{ user_root }}"}}
            for task in play.get("tasks", [])
            if (arguments := task.get("ironspan.hybrid.converge")) and arguments.get("phase") in phases
        ]
        if tasks:
            plays.append({"hosts": "w2", "gather_facts": False, "tasks": tasks})
    assert plays
    return json.dumps(plays)


def test_a_new_layer_is_one_folder(house: House) -> None:
    plan = house.folder / "shelf.plan.json"
    house.done(PLAN, "-e", f"user_plan={plan}")
    (changes,) = [host["changes"] for host in load(plan).hosts.values()]
    assert [change["resource"] for change in changes] == ["shelf/folder", "shelf/boards"]
    assert not (house.folder / SHELF).exists()

    said = house.done(converging("prepare", "prepare"))
    assert "changed=1" in said
    assert (house.folder / SHELF).read_text() == "1.0: 3 boards on w2\n"
    assert "changed=0" in house.done(converging("prepare", "prepare"))

    version = ("-e", "shelf_version=1.1")
    assert "changed=1" in house.done(converging("upgrade", "upgrade_nodes"), *version)
    assert (house.folder / SHELF).read_text() == "1.1: 3 boards on w2\n"

    house.done(RESET)
    assert not (house.folder / SHELF).parent.exists()


def test_a_new_add_on_is_one_folder(house: House) -> None:
    plan = house.folder / "bulletin.plan.json"
    house.done(PLAN, "-e", f"user_plan={plan}")
    assert load(plan).content["cluster"]["objects"]["bulletin"] == []
    house.done(PLAN, "-e", f"user_plan={plan}", "-e", "bulletin_text=Closed")
    (shown,) = load(plan).content["cluster"]["objects"]["bulletin"]
    assert shown["data"] == {"text": "Closed"}
    assert shown["metadata"]["labels"] == {"ironspan.io/site": "small", "ironspan.io/layer": "bulletin"}


def test_its_variables_and_groups_are_checked_as_any(house: House) -> None:
    inventory = house.folder / "hosts.yml"
    text = inventory.read_text()
    inventory.write_text(
        text.replace("w2: {site_address", "w2: {shelf_boards_count: 12, shelf_bords_count: 1, site_address")
        .replace("nodes: {hosts: {w1: , w2: }}", "nodes: {hosts: {w1: }}\n    etcd_drill: {hosts: {w2: }}")
        .replace("    shelf: {", "    shelv: {hosts: {w1: }}\n    shelf: {")
    )
    try:
        result = house.play(PLAN, "-e", "user_plan=unused")
    finally:
        inventory.write_text(text)
    said = re.sub(r"\s+", " ", result.stdout)
    assert result.returncode == 2
    assert "shelf_boards_count: 12 is outside 1 to 9 (boards of one shelf)" in said
    assert "shelf_bords_count: unknown variable; write shelf_boards_count" in said
    assert "groups.shelv: unknown group; write shelf" in said
    assert "groups.shelf: host w2 is not in the group nodes" in said


def test_a_new_variable_is_one_entry(house: House) -> None:
    role = house.home / "roles" / "haproxy"
    assert "haproxy_queue_length: 100" in role_pages.defaults_page(role)
    assert "From 1 to 5000 (connections that wait)." in role_pages.role_page(role)
    assert "maxqueue {{ haproxy_queue_length }}" in (role / "templates" / "haproxy.cfg.j2").read_text()
    house.done(
        PLAN, "-e", f"user_plan={house.folder / 'variable.plan.json'}", "-e", "haproxy_queue_length=5000"
    )
    inventory = house.folder / "hosts.yml"
    text = inventory.read_text()
    inventory.write_text(
        text.replace(
            "w2: {site_address", "w2: {haproxy_queue_length: 7, haproxy_queue_lenght: 1, site_address"
        )
    )
    try:
        wrong = house.play(PLAN, "-e", "user_plan=unused", "-e", "haproxy_queue_length=5001")
        own = house.play(PLAN, "-e", "user_plan=unused")
    finally:
        inventory.write_text(text)
    assert (wrong.returncode, own.returncode) == (2, 2)
    said, of_one = (re.sub(r"\s+", " ", each.stdout) for each in (wrong, own))
    assert "haproxy_queue_length: 5001 is outside 1 to 5000 (connections that wait)" in said
    assert "haproxy_queue_lenght: unknown variable; write haproxy_queue_length" in said
    assert re.search(r"hosts.yml:\d+: haproxy_queue_length: ", of_one), of_one


def test_a_layer_that_is_wrong_is_refused_before_any_host_is_contacted(house: House) -> None:
    file = house.home / "roles" / "shelf" / "meta" / "layer.yml"
    text = file.read_text()
    file.write_text(text.replace("phase: prepare", "phase: prepair"))
    try:
        result = house.play(PLAN, "-e", "user_plan=unused")
    finally:
        file.write_text(text)
    assert result.returncode == 2
    assert "shelf/meta/layer.yml:6: phase: is prepair, which nothing is called; write prepare" in re.sub(
        r"\s+", " ", result.stdout
    )
    assert "no host was contacted" in result.stdout


def test_the_index_of_layers_names_every_layer() -> None:
    """The one line outside of the folder."""
    index = (ROOT / "docs" / "roles.md").read_text()
    there = all_layers()
    assert [name for name in (*there.order, *there.cluster) if f"| `{name}` |" not in index] == []
