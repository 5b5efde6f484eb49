# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""BMCs as remote things: compared, planned without a secret, brought where the site wants them."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Endpoint, Trust
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError, Unreachable
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import (
    FactoryAccounts,
    read_factory,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.fleet import with_each
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import kept_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.compare import compared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import bmc as kind_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds.bmc import BmcKind
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

from ironspan.lab.bmc.faults import Fault
from ironspan.lab.bmc.front import Front
from ironspan.lab.bmc.resources import Account, State
from ironspan.lab.bmc.servers import InMemory
from tests.support.ironic_in_memory import MemoryIronic
from tests.unit.redfish.conftest import place

NAMES = ("gpu-1", "gpu-2", "gpu-3")


@pytest.fixture
def fronts(tmp_path: Path) -> Iterator[dict[str, Front]]:
    made = {
        name: Front(
            tmp_path,
            State(f"SN{number}", {"2": Account("root", f"calvin-{number}")}),
            InMemory(),
            f"127.0.0.{10 + number}",
        )
        for number, name in enumerate(NAMES, 1)
    }
    with made["gpu-1"].running(), made["gpu-2"].running(), made["gpu-3"].running():
        yield made


@pytest.fixture
def racks(fronts: dict[str, Front], tmp_path: Path) -> Path:
    rows = [
        f"{name},{front.address},rack-1,{number},{front.state.serial}"
        for number, (name, front) in enumerate(fronts.items(), 1)
    ]
    file = tmp_path / "racks.csv"
    file.write_text("\n".join(["name,bmc_address,rack,position,serial", *rows]))
    return file


@pytest.fixture
def factory(fronts: dict[str, Front], tmp_path: Path) -> FactoryAccounts:
    entries = {
        front.state.serial: {
            "username": "root",
            "password": front.state.accounts["2"].password,
            "sha256": front.sha256,
        }
        for front in fronts.values()
    }
    file = tmp_path / "factory.yml"
    file.touch(mode=0o600)
    file.write_text(json.dumps(entries))
    return read_factory(file)


@pytest.fixture
def kind(fronts: dict[str, Front], store: Store, factory: FactoryAccounts) -> BmcKind:
    ports = {front.address: front.port for front in fronts.values()}
    return BmcKind(store.bmcs, factory, store.ensure_cas, ports=ports)


def wanted(racks: Path, **arguments: t.Any) -> dict[str, t.Any]:
    return kind_file.declared({}, {"ironspan_expected": str(racks), **arguments})


def brought(kind: BmcKind, racks: Path, **arguments: t.Any) -> t.Any:
    return bring(kind, wanted(racks, **arguments), Consent(), lambda text: None)


def test_all_are_set_up_and_the_second_run_changes_nothing(
    kind: BmcKind, racks: Path, fronts: dict[str, Front], store: Store
) -> None:
    outcome = brought(kind, racks)
    assert outcome.problems == []
    assert outcome.done[:3] == [
        "set a password of the site's own",
        "switch off HTTP, IPMI, SNMP",
        "install a certificate of the site's authority",
    ]
    for front in fronts.values():
        kept = kept_of(store.bmcs.account(front.state.serial))
        assert kept.login
        assert kept.login.password == front.state.accounts["2"].password
        assert front.state.services == {
            "IPMI": False, "SNMP": False, "Telnet": False, "SSH": True, "HTTP": False,
        }  # fmt: skip
        assert kept.pins == (front.sha256,)
    again = brought(kind, racks)
    assert (again.done, again.problems) == ([], [])


def test_another_password_when_asked_for(kind: BmcKind, racks: Path, fronts: dict[str, Front]) -> None:
    brought(kind, racks, ironspan_servers=["gpu-1"])
    before = fronts["gpu-1"].state.accounts["2"].password
    later = wanted(racks, ironspan_servers="gpu-1", ironspan_rotate=True)
    later["gpu-1"]["rotated_since"] = "2999-01-01T00:00:00+00:00"
    outcome = bring(kind, later, Consent(), lambda text: None)
    assert outcome.done == ["set a password of the site's own"]
    assert fronts["gpu-1"].state.accounts["2"].password != before
    assert wanted(racks, ironspan_rotate=True)["gpu-1"]["rotated_since"] > "2026"
    assert fronts["gpu-2"].state.accounts["2"].password == "calvin-2"


def test_ironic_hears_of_a_password_in_the_run_that_sets_it_and_after_a_kill(
    fronts: dict[str, Front], store: Store, factory: FactoryAccounts, racks: Path
) -> None:
    ironic, ports = MemoryIronic(), {front.address: front.port for front in fronts.values()}
    down: list[RemoteError] = []

    def connect() -> IronicApi:
        if down:
            raise down[0]
        return IronicApi(ironic)

    def opened(ask: bool = True) -> BmcKind:
        return BmcKind(store.bmcs, factory, store.ensure_cas, ports=ports, connect=connect if ask else None)

    def rotated(kind: BmcKind) -> Outcome:
        later = wanted(racks, ironspan_servers="gpu-1", ironspan_rotate=True)
        later["gpu-1"]["rotated_since"] = "2999-01-01T00:00:00+00:00"
        return bring(kind, later, Consent(), lambda text: None)

    IronicApi(ironic).enrol("gpu-1", {"driver": "redfish"}, [])
    IronicApi(ironic).enrol("gpu-2", {"driver": "ipmi"}, [])
    (node, other) = ironic.nodes.values()
    tell = "give Ironic the account of its BMC"
    assert [step == tell for step in brought(opened(), racks).done].count(True) == 1
    account = fronts["gpu-1"].state.accounts["2"]
    assert node["driver_info"] == {"redfish_username": "root", "redfish_password": account.password}
    assert "driver_info" not in other
    assert brought(opened(), racks).done == []
    # As if the run had ended after the BMC took its password.
    assert rotated(opened(ask=False)).problems == []
    node["extra"]["ironspan_bmc_since"] = "2026-01-01T00:00:00+00:00"
    assert node["driver_info"]["redfish_password"] != account.password
    assert brought(opened(), racks).done == [tell]
    assert node["driver_info"]["redfish_password"] == account.password
    assert rotated(opened()).done == ["set a password of the site's own", tell]
    assert node["driver_info"]["redfish_password"] == account.password
    before = account.password
    down.append(RemoteError("Ironic does not answer"))
    (problem,) = rotated(opened()).problems
    assert "can only be changed when Ironic hears of it" in problem
    assert account.password == before


def test_one_that_fails_is_named_and_the_others_are_finished(
    kind: BmcKind, racks: Path, fronts: dict[str, Front]
) -> None:
    fronts["gpu-1"].faults.serial = "SN9"
    fronts["gpu-2"].faults.add(Fault("500", method="PATCH", path="NetworkProtocol"))
    outcome = brought(kind, racks)
    assert len(outcome.problems) == 2
    assert "SN9" in outcome.problems[0]
    assert "switch" in outcome.problems[1]
    assert "done before: set a password of the site's own" in outcome.problems[1]
    assert fronts["gpu-1"].state.accounts["2"].password == "calvin-1"
    assert fronts["gpu-3"].state.services["IPMI"] is False


def test_a_plan_has_no_secret(kind: BmcKind, racks: Path, fronts: dict[str, Front]) -> None:
    things = compared(kind, wanted(racks))
    text = json.dumps([thing.as_dict() for thing in things])
    assert [len(thing.steps) for thing in things] == [3, 3, 3]
    assert not any(front.state.accounts["2"].password in text for front in fronts.values())
    assert {method for front in fronts.values() for method, _ in front.seen} == {"GET"}


def test_other_accounts_are_named(kind: BmcKind, racks: Path, fronts: dict[str, Front]) -> None:
    fronts["gpu-1"].state.accounts["3"] = Account("vendor", "support")
    thing = compared(kind, wanted(racks))[0]
    assert "other accounts may log in: vendor" in thing.found.notes


def test_names_that_are_wrong(racks: Path) -> None:
    with pytest.raises(BmcError, match="write gpu-3"):
        wanted(racks, ironspan_servers=["gpu-33"])
    with pytest.raises(OperationError, match="write IPMI"):
        wanted(racks, ironspan_close=["IPNI"])
    racks.write_text("name,bmc_adress\nx,y\n")
    with pytest.raises(BmcError, match="write bmc_address"):
        wanted(racks)


def test_many_are_asked_and_each_answers_for_itself(front: Front, store: Store) -> None:
    good = place(front)
    absent = dataclasses.replace(good, endpoint=Endpoint("gpu-2", "127.0.0.1", 1))
    answers = with_each([absent, good], store.bmcs, lambda bmc: bmc.identity().serial)
    assert answers["gpu-1"] == "SN0001"
    assert isinstance(answers["gpu-2"], Unreachable)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SN1: {username: root}", "username and password"),
        ("SN1: {username: root, password: 12345}", "username and password are texts"),
        ("SN1: {user: root, username: a, password: hidden}", "write username"),
        ("SN1: {username: a, password: hidden, sha256: ab}", "64 hexadecimal digits"),
        ("default: {username: a, password: hidden, sha256: " + "a" * 64 + "}", "one server's"),
        ("SN1: {username: a, password: hidden, authority: none.pem}", "cannot be read"),
        ("sn1: {username: a, password: hidden}\nSN1: {username: a, password: hidden}", "twice"),
        ("- a", "no mapping"),
        ("{", "not YAML"),
    ],
)
def test_a_file_of_factory_accounts_that_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "factory.yml"
    file.touch(mode=0o600)
    file.write_text(text)
    with pytest.raises(BmcError, match=problem) as raised:
        read_factory(file)
    assert "hidden" not in str(raised.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "factory.yml"
    file.write_text("SN1: {username: a, password: hidden}")
    file.chmod(0o640)
    with pytest.raises(BmcError, match="chmod 0600"):
        read_factory(file)
    with pytest.raises(BmcError, match="is not there"):
        read_factory(tmp_path / "none.yml")


def test_a_bmc_of_nobody_gets_nothing(store: Store, racks: Path, fronts: dict[str, Front]) -> None:
    ports = {front.address: front.port for front in fronts.values()}
    kind = BmcKind(store.bmcs, FactoryAccounts(), store.ensure_cas, ports=ports)
    outcome = brought(kind, racks)
    assert len(outcome.problems) == 3
    assert all("into the file of factory accounts" in problem for problem in outcome.problems)
    assert not any(front.seen for front in fronts.values())


def test_the_authority_of_bmcs_is_part_of_the_recovery_and_of_another_key(
    kind: BmcKind, racks: Path, fronts: dict[str, Front], store: Store, tmp_path: Path
) -> None:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

    before = store.backup_keys.stamp()
    brought(kind, racks)
    assert store.backup_keys.stamp() != before
    store.change_key(generate_key_file(tmp_path / "new.key"))
    opened = open_store(tmp_path / "pki", tmp_path / "new.key")
    assert opened.bmcs.serials() == ["SN1", "SN2", "SN3"]
    front = fronts["gpu-1"]
    login = kept_of(opened.bmcs.account("SN1")).login
    assert login
    where = Endpoint("gpu-1", front.address, front.port)
    with Bmc(where, Trust(opened.bmcs.authority_pem()), login, 20) as bmc:
        assert bmc.identity().serial == "SN1"
