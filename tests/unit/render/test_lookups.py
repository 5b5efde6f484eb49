# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The lookups that give playbooks the site and a layer's objects."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.ironspan.hybrid.plugins.lookup.objects import LookupModule as Objects
from ansible_collections.ironspan.hybrid.plugins.lookup.site import ATTRIBUTES
from ansible_collections.ironspan.hybrid.plugins.lookup.site import LookupModule as SiteLookup

from .support import write_inventory


def variables_of(folder: Path) -> dict[str, t.Any]:
    """Return the variables that Ansible gives a lookup, as far as they matter."""
    loader = DataLoader()
    manager = InventoryManager(loader=loader, sources=[str(folder / "hosts.yml")])
    variables = VariableManager(loader=loader, inventory=manager)
    return {"hostvars": HostVars(inventory=manager, variable_manager=variables, loader=loader)}


def test_values_of_the_site(tmp_path: Path) -> None:
    write_inventory(tmp_path)
    values = SiteLookup().run(["name", "api_port", "dns_address"], variables_of(tmp_path))
    assert values == ["small", 6443, "10.96.0.10"]


def test_without_the_parts_of_hostvars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_inventory(tmp_path)
    arguments = {"inventory": (str(file),), "extra_vars": ("site_name=other",)}
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(arguments))
    # The function remembers its answer in an attribute; nothing counts as not asked yet.
    monkeypatch.setattr(load_extra_vars, "extra_vars", {}, raising=False)
    assert SiteLookup().run(["name"], {"hostvars": {}}) == ["other"]


def test_every_attribute_is_there(tmp_path: Path) -> None:
    write_inventory(tmp_path)
    assert len(SiteLookup().run(list(ATTRIBUTES), variables_of(tmp_path))) == len(ATTRIBUTES)


def test_an_attribute_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AnsibleLookupError, match="the site has no 'nmae'; write name"):
        SiteLookup().run(["nmae"], {})


def test_a_wrong_inventory(tmp_path: Path) -> None:
    file = write_inventory(tmp_path)
    file.write_text(file.read_text().replace("site_name: small", "site_name: [small]"))
    with pytest.raises(AnsibleLookupError, match=r"hosts.yml:3: site_name: must be text, is a list"):
        SiteLookup().run(["name"], variables_of(tmp_path))


def test_objects_without_a_plugin_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_inventory(tmp_path)
    roles = tmp_path / "roles"
    (roles / "base").mkdir(parents=True)
    (roles / "site").symlink_to(Path(__file__).parents[3] / "roles" / "site")
    (roles / "base" / "objects.yml.j2").write_text("- {kind: Namespace, metadata: {name: {{ site.name }}}}\n")
    lookup = Objects()
    # Options come from the plugin loader, which a unit test has not.
    monkeypatch.setattr(lookup, "set_options", lambda **_options: None)
    monkeypatch.setattr(lookup, "get_option", lambda _name: str(roles))
    labels = {"ironspan.io/layer": "base", "ironspan.io/site": "small"}
    assert lookup.run(["base"], variables_of(tmp_path)) == [
        {"kind": "Namespace", "metadata": {"name": "small", "labels": labels}}
    ]
