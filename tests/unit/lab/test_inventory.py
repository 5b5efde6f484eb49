# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The inventory a lab writes is the one in the repository, and makes sense for every size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    insist_on_image,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import racks_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import declared as estates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import given as given_estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults_network import FIRST, JUDGES
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.lab import inventory, keys
from ironspan.lab.lab import WAN_MTU
from ironspan.lab.layout import SIZES, Layout
from ironspan.lab.virtual import rack
from ironspan.lab.virtual import settings as servers
from ironspan.lab.virtual.expected import GROUP

DEFAULT = Path("/var/lib/ironspan-lab/default")
COMMITTED = inventory.GROUP_VARS.parent / "hosts.yml"


def render(azure: int, rack: int, index: int = 0) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(
        inventory.render(Layout("lab", index, azure, rack), Path("/s/lab"), 1400)
    )
    return loaded


def test_repository_has_what_the_default_lab_writes() -> None:
    written = inventory.render(Layout("default", 0, *SIZES["small"]), DEFAULT, WAN_MTU, etcd_backup=True)
    assert COMMITTED.read_text() == written, (
        "inventories/lab/hosts.yml is not what `lab up --etcd-backup` writes; write the rendered text there"
    )


def test_small_has_the_groups_of_the_documentation() -> None:
    assert inventory.groups(Layout("default", 0, 3, 2)) == {
        "etcd": ["az-1", "az-2", "az-3"],
        "control_plane": ["az-1", "az-2"],
        "haproxy": ["az-3"],
        "nodes": ["rack-1", "rack-2"],
        "gvisor": ["rack-1", "rack-2"],
    }


@settings(max_examples=25)  # each one reads a YAML document
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 15))
def test_every_size_is_a_sound_site(azure: int, rack: int, index: int) -> None:
    groups = inventory.groups(Layout("lab", index, azure, rack))
    assert len(groups["etcd"]) % 2 == 1
    assert len(groups["etcd"]) == {1: 1, 2: 1, 3: 3, 4: 3}.get(azure, 5)
    assert len(groups["control_plane"]) == min(azure, 2)
    assert groups["haproxy"] == [f"az-{azure}"]
    assert len(groups["nodes"]) == rack
    loaded = render(azure, rack, index)["all"]
    hosts = {**loaded["children"]["azure"]["hosts"], **loaded["children"]["on_prem"]["hosts"]}
    assert len({h["ansible_host"] for h in hosts.values()}) == azure + rack
    for name, members in groups.items():
        assert list(loaded["children"][name]["hosts"]) == members
        assert set(members) <= set(hosts)
    assert loaded["vars"]["site_api_address"] == hosts[f"az-{azure}"]["ansible_host"]


def test_each_site_uses_the_mirror_on_its_own_bridge() -> None:
    children = render(1, 1, 3)["all"]["children"]
    assert children["azure"]["vars"]["site_mirror_url"] == "http://10.98.6.1:8080"
    assert children["on_prem"]["vars"]["site_mirror_url"] == "http://10.98.7.1:8080"


def test_ssh_keeps_checking_host_keys() -> None:
    variables = render(1, 1)["all"]["vars"]
    assert "UserKnownHostsFile=/s/lab/ssh/known_hosts" in variables["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking" not in variables["ansible_ssh_common_args"]
    # Nothing of the user's: a `ProxyCommand` or `User` for all hosts would be theirs, too.
    assert "-F /dev/null " in variables["ansible_ssh_common_args"]
    assert variables["ansible_ssh_private_key_file"] == "/s/lab/ssh/id_ed25519"


def test_written_inventory_finds_the_group_variables(tmp_path: Path) -> None:
    layout = Layout("lab", 0, 1, 1)
    path = inventory.write(layout, tmp_path, 1400)
    again = inventory.write(layout, tmp_path, 1400)
    assert path == again == tmp_path / "inventory/hosts.yml"
    variables = yaml.safe_load((path.parent / "group_vars/all.yml").read_text())
    assert variables["site_lab"] is True


def test_link_to_another_checkout_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/group_vars").symlink_to(tmp_path / "gone")
    inventory.write(Layout("lab", 0, 1, 1), tmp_path, 1400)
    assert (tmp_path / "inventory/group_vars").readlink() == inventory.GROUP_VARS


def test_no_setting_of_the_whole_machine_is_ever_asked_for() -> None:
    variables = yaml.safe_load((inventory.GROUP_VARS / "all.yml").read_text())
    assert all(entry["name"].startswith("net.") for entry in variables["base_sysctls"])
    assert variables["base_kernel_modules"] == []


def test_a_backed_up_lab_is_a_sound_site(tmp_path: Path) -> None:
    layout = Layout("lab", 0, 3, 2)
    keys.ensure(tmp_path, layout)
    site, problems = load_site([inventory.write(layout, tmp_path, 1400, etcd_backup=True)])
    assert [str(one) for one in problems] == []
    assert site is not None
    text = inventory.path(tmp_path).read_text()
    assert str(layout.azure_site.endpoint) in text
    assert "etcd_backup" not in inventory.write(layout, tmp_path, 1400).read_text()


@pytest.mark.parametrize("size", sorted(SIZES))
def test_named_sizes_can_be_rendered(size: str) -> None:
    azure, rack = SIZES[size]
    children = render(azure, rack)["all"]["children"]
    assert (len(children["azure"]["hosts"]), len(children["on_prem"]["hosts"])) == (azure, rack)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let images of whole systems be built."""
    image = servers.Image("http://10.98.1.1:8080/disk.raw", "ab" * 32)
    monkeypatch.setattr(servers, "images", lambda mirror: {"server-disk": image})


@pytest.mark.usefixtures("built")
def test_a_lab_with_virtual_servers_is_a_sound_site_before_and_after_they_run(tmp_path: Path) -> None:
    layout = Layout("lab", 0, 3, 2)
    keys.ensure(tmp_path, layout)
    path = inventory.write(layout, tmp_path, 1400, bare_metal=True)
    site, problems = load_site([path])
    assert [str(one) for one in problems] == []
    assert site is not None
    variables = yaml.safe_load(path.read_text())["all"]["vars"]
    assert "password" not in json.dumps(variables)
    ground = racks_of(variables["site_bare_metal_racks"])["rack-b"]
    assert ground.address(3) == str(rack.of(layout).server(3))
    insist_on_image(
        variables["site_bare_metal_image"],
        Account.of(variables["site_bare_metal_account"]),
        variables["site_bare_metal_known_hosts"],
    )
    deployed = {"server-1": {"ansible_host": ground.address(1), "site_rack": "rack-b"}}
    groups: dict[str, Any] = {group: {"hosts": {"server-1": {}}} for group in ("nodes", GROUP)}
    more = path.parent / "servers.yml"
    more.write_text(yaml.safe_dump({"all": {"children": {"on_prem": {"hosts": deployed}, **groups}}}))
    site, problems = load_site([path, more])
    assert [str(one) for one in problems] == []
    assert site is not None
    server = site.hosts["server-1"]
    assert server.mirror_url == site.hosts["rack-1"].mirror_url


@pytest.mark.parametrize("members", [1, 3])
def test_the_inventory_of_an_estate_declares_machines_that_its_checks_take(
    tmp_path: Path, members: int
) -> None:
    layout = Layout("lab", 2, 0, 2, estate=members)
    keys.ensure(tmp_path, layout)
    path = inventory.write(layout, tmp_path, 1400, etcd_backup=True)
    assert yaml.safe_load((path.parent / "azure.yml").read_text()) == {"plugin": "ironspan.hybrid.azure"}
    assert inventory.source(layout, tmp_path) == path.parent
    written = yaml.safe_load(path.read_text())["all"]
    variables, racks = written["vars"], written["children"]["on_prem"]
    made = estates.declared(variables)
    assert made is not None
    assert len(made.in_group("etcd")) == members
    taken = {str(one) for site in layout.sites for one in (site.controller, site.router, site.endpoint)}
    assert not taken & {one.address for one in made.machines}
    looked = given_estate(variables, {"rack-1": (racks["hosts"]["rack-1"]["ansible_host"], ("on_prem",))})
    assert [fault for judge in (*FIRST, *JUDGES) for fault in judge(looked)] == []
    # ssh takes the first file of known hosts that it is given.
    assert "UserKnownHostsFile" not in variables["ansible_ssh_common_args"]
    assert f"UserKnownHostsFile={keys.known_hosts(tmp_path)}" in racks["vars"]["ansible_ssh_extra_args"]
