# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""BMCs from factory to site, through the playbooks: sushy-tools' servers behind fronts with faults."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import instance_info
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import Endpoint, Trust
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.entry import Place
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import read_factory
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import Kept, kept_of

from ironspan.lab import ironic
from ironspan.lab.bmc import emulator
from ironspan.lab.bmc.faults import Fault
from ironspan.lab.bmc.front import Front
from tests.integration.test_backup_store import SITE
from tests.integration.test_ironic import login
from tests.support.firmware_lab import serving
from tests.support.playbooks import ROOT
from tests.support.small_plays import mirror_index, run

pytestmark = pytest.mark.lab
ADDRESSES = ["127.77.0.1", "127.77.0.2"]
KILLED = ROOT / "tests" / "support" / "killed_rotation.py"


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Front]]:
    with emulator.running(tmp_path_factory.mktemp("bmc"), len(ADDRESSES), ADDRESSES, 443) as found:
        yield found


@pytest.fixture
def site(tmp_path: Path, fronts: list[Front]) -> Iterator[Path]:
    """A site that has no cluster yet, its servers as they come from the factory."""
    key = tmp_path / "key"
    key.write_text(base64.b64encode(bytes(32)).decode())
    key.chmod(0o600)
    variables = {**SITE, "site_pki_store": str(tmp_path / "pki"), "site_pki_key_file": str(key)}
    groups = {
        "azure": {"hosts": {"a1": {"site_address": "10.1.0.1"}}},
        "on_prem": {"hosts": {"w1": {"site_address": "10.2.0.1"}}},
        "etcd": {"hosts": {"a1": {}}},
        "control_plane": {"hosts": {"a1": {}}},
        "nodes": {"hosts": {"w1": {}}},
    }
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"vars": variables, "children": groups}}))
    rows = [
        f"gpu-{number},{front.address},rack-1,{number},{front.state.serial}"
        for number, front in enumerate(fronts, 1)
    ]
    (tmp_path / "racks.csv").write_text("\n".join(["name,bmc_address,rack,position,serial", *rows]))
    factory = tmp_path / "factory.yml"
    factory.touch(mode=0o600)
    entries = {}
    for front in fronts:
        account = front.state.accounts["1"]
        entry = {"username": account.username, "password": account.password, "sha256": front.sha256}
        entries[front.state.serial] = entry
    factory.write_text(json.dumps(entries))
    yield tmp_path
    for front in fronts:
        front.faults.clear()


def playbook(site: Path, name: str, *options: str, **arguments: t.Any) -> subprocess.CompletedProcess[str]:
    given = {"ironspan_expected": str(site / "racks.csv")}
    if name != "bare_metal":
        given["ironspan_factory"] = str(site / "factory.yml")
    given |= {f"ironspan_{key}": value for key, value in arguments.items()}
    extra = ("-e", json.dumps(given))
    return run(site, str(ROOT / f"playbooks/{name}.yml"), "-i", str(site / "hosts.yml"), *extra, *options)


def store(site: Path) -> Store:
    return open_store(site / "pki", site / "key")


def kept(site: Path, front: Front) -> Kept:
    return kept_of(store(site).bmcs.account(front.state.serial))


def passwords(fronts: list[Front]) -> list[str]:
    return [front.state.accounts["1"].password for front in fronts]


def test_from_factory_to_site(site: Path, fronts: list[Front]) -> None:
    factory = passwords(fronts)
    checked = playbook(site, "bmc_setup", "--check", "--diff", "-vvv")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "changed=1" in checked.stdout
    assert passwords(fronts) == factory
    fronts[1].faults.serial = "LAB9999"
    made = playbook(site, "bmc_setup", "--diff", "-vvv")
    assert made.returncode == 2
    assert "gpu-2 (rack-1 U2): the server LAB9999" in made.stdout
    assert passwords(fronts)[0] != factory[0]
    assert passwords(fronts)[1] == factory[1]
    fronts[1].faults.clear()
    finished = playbook(site, "bmc_setup", "-vvv")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    again = playbook(site, "bmc_setup", "-vvv")
    assert "changed=0" in again.stdout, again.stdout + again.stderr
    for front in fronts:
        login = kept(site, front).login
        assert login and login.password == front.state.accounts["1"].password
        assert front.state.services["IPMI"] is False
        assert kept(site, front).pins == (front.sha256,)
    said = "".join(done.stdout + done.stderr for done in (checked, made, finished, again))
    on_disk = [path.read_bytes() for path in site.rglob("*") if path.is_file() and path.name != "factory.yml"]
    for password in {*factory, *passwords(fronts)}:
        assert password not in said
        assert not any(password.encode() in content for content in on_disk)


def test_planned_shown_and_applied_as_planned(site: Path, fronts: list[Front]) -> None:
    assert playbook(site, "bmc_setup").returncode == 0
    file, before = site / "x.plan.json", passwords(fronts)
    planned = playbook(site, "plan", planned="bmc_setup", plan_file=str(file), rotate=True)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert passwords(fronts) == before
    assert not any(password in file.read_text() for password in before)
    applied = playbook(site, "bmc_setup", plan=str(file), rotate=True)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert not set(passwords(fronts)) & set(before)


def test_questions_and_power(site: Path, fronts: list[Front]) -> None:
    report = site / "report.json"
    shown = playbook(site, "bmc_show", report=str(report))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    answer = json.loads(report.read_text())["gpu-1"]
    assert (answer["serial"], answer["bmc"]) == (fronts[0].state.serial, "1.02.3")
    refused = playbook(site, "bmc_power", servers="gpu-1", power="off")
    assert refused.returncode == 2 and "--allow-destructive" in refused.stdout
    switched = playbook(site, "bmc_power", servers="gpu-1", power="on", report=str(report))
    assert switched.returncode == 0, switched.stdout + switched.stderr
    assert json.loads(report.read_text())["gpu-1"]["after"] == "system On, chassis On, 1800 W"
    fronts[0].state.entries += [("2026-02-01T00:00:00Z", "Critical", f"GPU {n} fell off") for n in range(70)]
    logged = playbook(site, "bmc_log", servers="gpu-1", worse_than="Warning", entries=60)
    assert logged.stdout.count("Critical GPU") == 60, logged.stdout


def test_a_medium_that_was_ejected_can_be_shown_as_inserted(fronts: list[Front]) -> None:
    front = fronts[0]
    account, pin = front.state.accounts["1"], Trust(pins=frozenset({front.sha256}))
    with Bmc(Endpoint("gpu-1", front.address), pin, Login(account.username, account.password)) as bmc:
        (path,) = [
            str(one["@odata.id"])
            for one in bmc.members(str(bmc.system()["VirtualMedia"]["@odata.id"]))
            if "CD" in one["MediaTypes"]
        ]
        assert bmc.get(path)["Inserted"] is False
        front.faults.stale_media = True
        assert bmc.get(path)["Inserted"] is True
    front.faults.clear()


def test_killed_at_every_step(site: Path, fronts: list[Front]) -> None:
    """The process is gone, with what it had in memory; the disk and the BMC are as they are."""
    front, opened = fronts[0], store(site)
    opened.ensure_cas()
    factory = read_factory(site / "factory.yml").of(front.state.serial)
    place = Place(Endpoint("gpu-1", front.address), front.state.serial, "", factory)
    path = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'collections'}"}
    for step in itertools.count():
        command = [sys.executable, str(KILLED), str(site), front.address, front.state.serial, str(step)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=path)
        known = {factory.login, kept(site, front).login, kept(site, front).pending}
        now = Login(emulator.USERNAME, front.state.accounts["1"].password)
        assert now in known, step
        rotation.rotate(place, opened.bmcs)
        assert kept(site, front) == Kept(
            Login(emulator.USERNAME, front.state.accounts["1"].password), since=kept(site, front).since
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert step == 6


REDFISH: dict[str, dict[str, object]] = {
    "DEFAULT": {
        "enabled_hardware_types": "redfish",
        "enabled_boot_interfaces": "redfish-virtual-media",
        "enabled_deploy_interfaces": "direct",
        "enabled_inspect_interfaces": "no-inspect",
        "enabled_management_interfaces": "redfish",
        "enabled_power_interfaces": "redfish",
        **{
            f"enabled_{name}_interfaces": f"no-{name}"
            for name in ("bios", "console", "raid", "rescue", "vendor")
        },
        "enabled_firmware_interfaces": "no-firmware",
    },
    "redfish": {
        "connection_attempts": 1,
        "server_side_retries": 1,
        "auth_type": "basic",
        "use_swift": "false",
    },
}


def test_ironic_finds_the_same_servers_and_says_what_is_wrong(site: Path, fronts: list[Front]) -> None:
    """Ironic's own redfish driver, with the account and the authority that the site made."""
    assert playbook(site, "bmc_setup").returncode == 0
    front, authority = fronts[0], site / "bmc-ca.pem"
    authority.write_text(store(site).bmcs.authority_pem())
    account = kept(site, front).login
    assert account
    with ironic.running(site / "ironic", REDFISH) as lab:
        api = login(lab, lab.password)
        info = {
            "redfish_address": f"https://{front.address}",
            "redfish_system_id": f"/redfish/v1/Systems/{front.server.identity}",
            "redfish_username": account.username,
            "redfish_password": account.password,
            "redfish_verify_ca": str(authority),
        }
        body = {"driver": "redfish", "driver_info": info}
        uuid = api.enrol("gpu-1", body, ["52:54:00:00:00:01"])

        def managed() -> Node:
            api.take(uuid, "manage")
            return api.settled(uuid, lambda what: None, 120)

        for kind, said in (("401", "401"), ("500", "500")):
            front.faults.add(Fault(t.cast("t.Any", kind), path="/Systems"))
            node = managed()
            assert (node.state, said in node.last_error) == ("enroll", True), node
            front.faults.clear()
        assert managed().state == "manageable"


def test_a_virtual_medium_that_a_bmc_refuses_fails_the_deployment_and_says_so(
    site: Path, fronts: list[Front]
) -> None:
    """Kernel, ramdisk and boot loader are a few bytes: the BMC gets the medium, and starts nothing."""
    front, served = fronts[1], site / "served"
    served.mkdir()
    for name in ("kernel", "ramdisk", "esp.img", "disk.raw"):
        (served / name).write_bytes(b"x" * 4096)
    account = front.state.accounts["1"]
    with serving(served) as url:
        media = {name: f"{url}/{name}" for name in ("kernel", "ramdisk")}
        sections: dict[str, dict[str, object]] = {
            **REDFISH,
            "conductor": {"deploy_kernel": media["kernel"], "deploy_ramdisk": media["ramdisk"],
                          "bootloader": f"{url}/esp.img"},
            "deploy": {"http_url": url, "http_root": served, "default_boot_mode": "uefi"},
            "agent": {"require_tls": False, "image_download_source": "http"},
        }  # fmt: skip
        with ironic.running(site / "ironic", sections) as lab:
            api = login(lab, lab.password)
            info = {
                "redfish_address": f"https://{front.address}",
                "redfish_system_id": f"/redfish/v1/Systems/{front.server.identity}",
                "redfish_username": account.username,
                "redfish_password": account.password,
                "redfish_verify_ca": False,
            }
            body = {"driver": "redfish", "driver_info": info, "automated_clean": False,
                    "properties": {"capabilities": "boot_mode:uefi", "cpu_arch": "x86_64"}}  # fmt: skip
            uuid = api.enrol("gpu-2", body, ["52:54:00:00:00:02"])
            for verb in ("manage", "provide"):
                api.take(uuid, verb)
                api.settled(uuid, lambda what: None, 120)
            image = {"source": f"{url}/disk.raw", "sha256": hashlib.sha256(b"x" * 4096).hexdigest()}
            api.change(uuid, {"instance_info": instance_info(image)})
            front.faults.add(Fault("500", path="InsertMedia"))
            api.take(uuid, "active")
            node = api.settled(uuid, lambda what: None, 180)
    assert node.state == "deploy failed", node
    assert "the BMC did not take the virtual medium" in explained(node.last_error), node.last_error


@pytest.mark.long
def test_ironic_has_the_account_that_holds_also_after_a_kill(
    site: Path, fronts: list[Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password goes from the PKI store to Ironic in the run that sets it, and is shown nowhere."""
    authority = site / "bmc-ca.pem"
    node = {
        "driver": "redfish",
        "automated_clean": False,
        "driver_info": {"redfish_address": "https://{bmc_address}", "redfish_verify_ca": str(authority)},
    }
    hosts = json.loads((site / "hosts.yml").read_text())
    (site / "index.json").write_text(mirror_index())
    hosts["all"]["vars"] |= {
        "site_artifacts_index": str(site / "index.json"),
        "site_bare_metal_cloud": "lab",
        "site_bare_metal_node": node,
        "site_bare_metal_inspect": False,
    }
    (site / "hosts.yml").write_text(json.dumps(hosts))
    front, said = fronts[0], ""

    def played(name: str, **arguments: t.Any) -> str:
        nonlocal said
        options = {} if name == "bmc_setup" else {"allow_destructive": True}
        done = playbook(site, name, "--diff", "-vvv", **options, **arguments)
        said += done.stdout + done.stderr
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def power(api: IronicApi, uuid: str, verb: str) -> str:
        """Return what Ironic says when it needs its account."""
        api.take(uuid, verb)
        return api.settled(uuid, lambda what: None, 120).last_error

    with ironic.running(site / "ironic", REDFISH) as lab:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(lab.clouds))
        api = login(lab, lab.password)
        played("bmc_setup")
        authority.write_text(store(site).bmcs.authority_pem())
        played("bare_metal")
        uuid = api.nodes()["gpu-1"][0]
        assert power(api, uuid, "power_on") == ""
        former = passwords(fronts)
        assert "give Ironic the account of its BMC" in played("bmc_setup", rotate=True)
        assert passwords(fronts)[0] != former[0]
        assert power(api, uuid, "power_off") == ""
        # A run is killed after the BMC took a password, and before Ironic heard of it.
        place = Place(Endpoint("gpu-1", front.address), front.state.serial, "", read_factory("").of("none"))
        rotation.rotate(place, store(site).bmcs)
        assert "401" in power(api, uuid, "power_on")
        assert "give Ironic the account of its BMC" in played("bmc_setup", servers="gpu-1")
        assert power(api, uuid, "power_on") == ""
        assert "changed=0" in played("bmc_setup")
        ironic.stop(lab.folder)
        refused = playbook(site, "bmc_setup", rotate=True)
        assert refused.returncode == 2 and "can only be changed when Ironic hears of it" in refused.stdout
    for password in {*former, *passwords(fronts)}:
        assert password not in said
        assert password not in lab.log.read_text()
