# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A run reads and checks its inventory once."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import pickle
import re
import types
import typing as t

import pytest
from ansible import constants
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly import ansible_run, loader, remembered
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.remembered import Remembered
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

from tests.support.playbooks import ROOT

KEY = base64.b64encode(bytes(32)).decode()
EXAMPLE = ROOT / "inventories" / "example"


@pytest.fixture
def site() -> Site:
    found, problems = loader.load_site([EXAMPLE], environment={"IRONSPAN_PKI_KEY": KEY})
    assert found is not None, problems
    return found


def place(folder: pathlib.Path, **changed: t.Any) -> Remembered:
    given: dict[str, t.Any] = {"hosts": {"a": 1}, "extra_vars": {"x": 1}, "more": False} | changed
    manager = types.SimpleNamespace(_sources=["/inventory"], hosts=given["hosts"])
    return Remembered(manager, given["extra_vars"], given["more"], folder=folder)


def test_what_was_kept_comes_back_whole(tmp_path: pathlib.Path, site: Site) -> None:
    place(tmp_path).keep(site)
    found = place(tmp_path).recall()
    assert found is not None
    assert found is not site
    assert list(found.hosts) == list(site.hosts)
    for name, host in site.hosts.items():
        assert dataclasses.asdict(found.hosts[name]) == dataclasses.asdict(host)
    assert found.plan == site.plan
    assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [0o600]


@pytest.mark.parametrize(
    "changed",
    [{"hosts": {"a": 1, "b": 2}}, {"extra_vars": {"x": 2}}, {"more": True}],
    ids=["a host was added", "another variable on the command line", "a slice"],
)
def test_another_site_is_not_taken_for_it(
    tmp_path: pathlib.Path, site: Site, changed: dict[str, t.Any]
) -> None:
    place(tmp_path).keep(site)
    assert place(tmp_path, **changed).recall() is None


def test_what_cannot_be_kept_or_read_is_read_again(tmp_path: pathlib.Path, site: Site) -> None:
    site.uid_source = lambda: "not for another process"
    place(tmp_path).keep(site)
    assert place(tmp_path).recall() is None
    for content in (b"", b"\x80\x05half", b"\x80\x05N."):
        place(tmp_path)._file.write_bytes(content)
        assert place(tmp_path).recall() is None
    place(tmp_path / "there is no such folder").keep(site)


def test_what_the_main_process_has_read_no_other_reads(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, site: Site
) -> None:
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(remembered, "_EARLY", {})
    remembered.read_early()
    assert not remembered._EARLY
    place(tmp_path).keep(site)
    (tmp_path / "ironspan-site-broken").write_bytes(b"\x80\x05half")
    remembered.read_early()
    place(tmp_path)._file.unlink()
    found = place(tmp_path).recall()
    assert found is not None
    assert list(found.hosts) == list(site.hosts)
    assert place(tmp_path, more=True).recall() is None


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda: "no plain data", "Can't .*lambda.*a fault of ironspan"),
        (OSError(28, "No space left on device"), "No space left on device. Is the disk .* full"),
    ],
    ids=["it cannot be written down", "the disk is full"],
)
def test_a_site_that_cannot_be_kept_is_said_once(
    tmp_path: pathlib.Path, site: Site, monkeypatch: pytest.MonkeyPatch, fault: t.Any, says: str
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text: said.append(text))
    if isinstance(fault, OSError):
        monkeypatch.setattr(pickle, "dump", lambda *_, **__: (_ for _ in ()).throw(fault))
        place(tmp_path).keep(site)
    else:
        place(tmp_path).keep(dataclasses.replace(site, uid_source=fault))
        # Another process has the function elsewhere; Ansible shows the same words once.
        place(tmp_path).keep(dataclasses.replace(site, uid_source=eval("lambda: ''")))
    assert len(set(said)) == 1
    assert re.search(says, said[0]) and "0x" not in said[0]
    assert not list(tmp_path.iterdir())
    assert place(tmp_path).recall() is None


def test_the_second_action_of_a_run_reads_no_inventory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setenv("IRONSPAN_PKI_KEY", KEY)
    data = DataLoader()
    manager = InventoryManager(loader=data, sources=[str(EXAMPLE)])
    variables = VariableManager(loader=data, inventory=manager)
    hostvars = HostVars(inventory=manager, variable_manager=variables, loader=data)
    first = ansible_run.site_of_run({"hostvars": hostvars})

    def refuse(*_: object, **__: object) -> t.NoReturn:
        raise AssertionError("the inventory was read again")

    monkeypatch.setattr(ansible_run, "load_from_ansible", refuse)
    assert list(ansible_run.site_of_run({"hostvars": hostvars}).hosts) == list(first.hosts)
