# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers as remote things of a real Ironic: from a BMC's address to an operating system, and faults.

The hardware is pretended (fake-hardware); where a server shall fail, it is one with Redfish whose BMC is not
there. What an inspection said is put into Ironic's own database, since pretended hardware says nothing.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import subprocess
import typing as t
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
    racks_of,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.drift import drift_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import Consent, Outcome, bring
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State, Step
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)

from ironspan.lab import ironic
from ironspan.lab.ironic import USER, Ironic
from tests.support import metal_site
from tests.support.metal_site import ACCOUNT, FAKE, IMAGE, RACKS
from tests.support.playbooks import BIN, ROOT, play

pytestmark = pytest.mark.lab
REDFISH = {
    "driver": "redfish",
    "driver_info": {"redfish_address": "http://127.0.0.1:1", "redfish_username": "admin"},
    "boot_interface": "redfish-virtual-media",
    "deploy_interface": "direct",
    **{f"{name}_interface": f"no-{name}" for name in ("bios", "raid", "firmware", "inspect", "rescue")},
}
ALLOWED = Consent(True)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    both = {"enabled_hardware_types": "fake-hardware,redfish"}
    for name in ("bios", "console", "raid", "firmware", "inspect", "rescue"):
        both[f"enabled_{name}_interfaces"] = f"fake,no-{name}"
    for name in ("power", "management", "vendor"):
        both[f"enabled_{name}_interfaces"] = "fake,redfish"
    both["enabled_boot_interfaces"] = "fake,redfish-virtual-media"
    both["enabled_deploy_interfaces"] = "fake,direct"
    sections: dict[str, dict[str, object]] = {
        "DEFAULT": {**both},
        "redfish": {"connection_attempts": 1, "connection_retry_interval": 1},
    }
    with ironic.running(tmp_path_factory.mktemp("ironic"), sections) as found:
        yield found


@pytest.fixture
def api(lab: Ironic) -> IronicApi:
    return connected(
        auth_type="http_basic",
        auth={"endpoint": lab.url, "username": USER, "password": lab.password},
        baremetal_endpoint_override=lab.url,
    )


class Servers:
    """Expected servers of one test, and what is wanted of them.

    Args:
        prefix: two hexadecimal digits, so that tests do not share addresses.
        count: how many.
        more: columns beside those that every server has, with one value each.
    """

    def __init__(self, folder: Path, prefix: str, count: int, more: Mapping[str, str] | None = None) -> None:
        self.file = folder / f"servers-{prefix}.csv"
        more = more or {}
        rows = [",".join(("name", "bmc_address", "rack", "position", "nic1_mac", *more))]
        for number in range(1, count + 1):
            own = [
                f"s{prefix}-{number}",
                f"192.0.2.{number}",
                "a",
                str(number),
                f"5c:25:73:00:{prefix}:{number:02x}",
            ]
            rows.append(",".join((*own, *(value.format(number) for value in more.values()))))
        self.file.write_text("\n".join(rows) + "\n")

    def wanted(
        self, *, image: bool = False, inspect: bool = False, **nodes: Mapping[str, t.Any]
    ) -> dict[str, State]:
        """Return what is wanted; ``nodes`` are those of single servers, by the end of their name."""
        return {
            server.name: wanted_node(
                server,
                nodes.get(f"n{server.name.rpartition('-')[2]}", FAKE),
                racks_of(RACKS),
                IMAGE if image else {},
                inspect,
            )
            for server in expected_servers(str(self.file))
        }


@pytest.fixture
def kind(api: IronicApi, tmp_path: Path) -> BareMetalServer:
    return BareMetalServer(lambda: api, Account.of(ACCOUNT), KnownHosts(str(tmp_path / "known_hosts")))


def quiet(text: str) -> None:
    """Say nothing."""


def brought(kind: BareMetalServer, wanted: Mapping[str, State]) -> Outcome:
    return bring(kind, wanted, ALLOWED, quiet)


def states(api: IronicApi, wanted: Mapping[str, State]) -> list[str | None]:
    nodes = api.nodes()
    return [nodes[name][1].state for name in wanted]


class Counted:
    """A session that counts what is asked."""

    def __init__(self, session: t.Any) -> None:
        self.session = session
        self.asked: list[str] = []

    def request(self, path: str, method: str, **options: t.Any) -> t.Any:
        self.asked.append(f"{method} {path.partition('?')[0]}")
        return self.session.request(path, method, **options)


def test_from_nothing_to_available_and_then_nothing_is_left_to_do(
    api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    stranger = api.enrol("stranger", {"driver": "fake-hardware"}, [])
    wanted = Servers(tmp_path, "01", 4).wanted()
    before = api.nodes()["stranger"]
    with pytest.raises(RemoteError, match=r"need consent: make it available.*; nothing was changed"):
        bring(kind, wanted, Consent(), quiet)
    assert not api.nodes().keys() & wanted.keys()
    outcome = brought(kind, wanted)
    assert (outcome.problems, states(api, wanted)) == ([], ["available"] * 4)
    counted = Counted(api._session)
    again = brought(BareMetalServer(lambda: IronicApi(counted), Account("", ()), KnownHosts("")), wanted)
    assert (again.done, again.problems) == ([], [])
    assert counted.asked == ["GET /nodes", "GET /ports"]
    assert api.nodes()["stranger"] == before
    assert stranger == before[0]


def test_what_was_changed_by_hand_is_set_again_and_what_stands_beside_it_stays(
    api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    wanted = Servers(tmp_path, "02", 1).wanted()
    brought(kind, wanted)
    uuid = api.nodes()["s02-1"][0]
    api.change(uuid, {"driver_info": {"address": "192.0.2.99", "beside": "it"}})
    api._ask("DELETE", f"/ports/{api._ask('GET', '/ports?address=5c:25:73:00:02:01')['ports'][0]['uuid']}")
    assert brought(kind, wanted).done == ["set its driver_info/address", "add its ports 5c:25:73:00:02:01"]
    entry = api.entries("driver_info")["s02-1"][0]
    assert entry["driver_info"] == {"address": "192.0.2.1", "beside": "it"}
    assert brought(kind, wanted).done == []


def test_an_operating_system_comes_with_an_address_and_a_host_key_that_is_known_before(
    api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    wanted = Servers(tmp_path, "03", 2).wanted(image=True)
    outcome = brought(kind, wanted)
    assert (outcome.problems, states(api, wanted)) == ([], ["active", "active"])
    lines = (tmp_path / "known_hosts").read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == ["10.30.1.11,s03-1", "10.30.1.12,s03-2"]
    info = api.entries("instance_info")["s03-1"][0]["instance_info"]
    assert info["image_os_hash_value"] == IMAGE["sha256"]
    assert "PRIVATE" not in json.dumps(info)
    assert brought(kind, wanted).done == []


class Killed(BaseException):
    """The run ends here."""


class Dying(BareMetalServer):
    """Ends the run after so many requests that change something."""

    left = 0

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        if self.left == 0:
            assert self._api is not None
            # The request went out, nobody waits for what becomes of it.
            if step.verb not in ("enrol", "wait", "active", "compare"):
                self._api.take(self._uuids[name], step.verb)
            raise Killed
        self.left -= 1
        super().do(name, step, wanted, found, say)


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_killed_run_is_gone_on_with_from_any_state(
    api: IronicApi, kind: BareMetalServer, tmp_path: Path, after: int
) -> None:
    wanted = Servers(tmp_path, f"1{after}", 1).wanted(image=True)
    dying = Dying(lambda: api, Account.of(ACCOUNT), KnownHosts(str(tmp_path / "known_hosts")))
    dying.left = after
    with pytest.raises(Killed):
        brought(dying, wanted)
    outcome = brought(kind, wanted)
    assert (outcome.problems, states(api, wanted)) == ([], ["active"])


def test_half_of_a_batch_fails_and_the_others_finish(
    api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    wanted = Servers(tmp_path, "04", 4).wanted(n2=REDFISH, n4=REDFISH)
    outcome = brought(kind, wanted)
    assert states(api, wanted) == ["available", "enroll", "available", "enroll"]
    assert len(outcome.problems) == 2
    for problem in outcome.problems:
        assert "'make it manageable' ended in 'enroll'" in problem
        assert "the BMC does not answer (Ironic says: " in problem
        assert "done before: make it known to Ironic" in problem


def test_a_port_that_is_another_servers_holds_the_server(
    api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    api.enrol("has-it", {"driver": "fake-hardware"}, ["5c:25:73:00:05:01"])
    wanted = Servers(tmp_path, "05", 2).wanted()
    outcome = brought(kind, wanted)
    assert ["the port 5c:25:73:00:05:01 of s05-1 is another node's" in text for text in outcome.problems] == [
        True
    ]
    assert states(api, wanted) == ["enroll", "available"]


def measure(lab: Ironic, uuid: str, mac: str, serial: str, gpus: int) -> None:
    """Put into Ironic's database what an inspection would have said."""
    inventory = {
        "system_vendor": {"serial_number": serial},
        "memory": {"physical_mb": 1 << 20},
        "interfaces": [{"name": "eno1", "mac_address": mac}],
    }
    devices = [
        {"vendor_id": "10de", "product_id": "2330", "class": "030200", "bus": f"0000:{n:02x}:00.0"}
        for n in range(gpus)
    ]
    with sqlite3.connect(lab.folder / "ironic.sqlite", timeout=30) as database:
        (number,) = database.execute("select id from nodes where uuid = ?", (uuid,)).fetchone()
        database.execute("delete from node_inventory where node_id = ?", (number,))
        # Another inspection than the one before, which may have been compared already.
        later = "update nodes set inspection_finished_at = datetime('now', '+1 minute') where id = ?"
        database.execute(later, (number,))
        database.execute(
            "insert into node_inventory (version, node_id, inventory_data, plugin_data) values (?, ?, ?, ?)",
            ("1.0", number, json.dumps(inventory), json.dumps({"pci_devices": devices})),
        )


def test_what_differs_from_what_was_declared_is_held_with_slot_and_part(
    lab: Ironic, api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    more = {"serial": "SN{}", "gpu_count": "8", "gpu_model": "H100"}
    servers = Servers(tmp_path, "06", 4, more)
    first = brought(kind, servers.wanted(inspect=True))
    assert [text.partition(": was not")[0].rpartition(")")[2] for text in first.problems] == [": server"] * 4
    uuids = {name: api.nodes()[name][0] for name in servers.wanted()}
    for name, serial, gpus in (
        ("s06-1", "SN1", 8),
        ("s06-2", "SN2", 7),
        ("s06-3", "SN4", 8),
        ("s06-4", "SN4", 8),
    ):
        measure(lab, uuids[name], f"5c:25:73:00:06:0{name[-1]}", serial, gpus)
    outcome = brought(kind, servers.wanted(inspect=True, image=True))
    assert states(api, uuids) == ["active", "manageable", "manageable", "active"]  # type: ignore[arg-type]
    found = drift_of(api, servers.wanted(inspect=True, image=True))
    assert {(one.server, one.part) for one in found} == {
        ("s06-2", "GPU"), ("s06-2", "Ironic"), ("s06-3", "server"), ("s06-3", "Ironic"),
    }  # fmt: skip
    seven, wrong = outcome.problems
    assert "s06-2 (a U2): GPU: 7 of 8 H100 measured" in seven
    assert "s06-3 (a U3): server: this is s06-4, which belongs into a U4" in wrong


def test_a_server_in_maintenance_is_named_with_the_reason_and_the_others_finish(
    api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    wanted = Servers(tmp_path, "07", 2).wanted()
    uuid = api.enrol("s07-1", {**FAKE, "driver_info": {"address": "192.0.2.1"}}, ["5c:25:73:00:07:01"])
    api._ask("PUT", f"/nodes/{uuid}/maintenance", {"reason": "fan"})
    (problem,) = brought(kind, wanted).problems
    assert "s07-1: it is in maintenance: fan; end its maintenance" in problem
    assert states(api, wanted) == ["enroll", "available"]


def test_a_conductor_that_starts_anew_is_waited_for(
    lab: Ironic, api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    """What it was at fails in its own words, and the next run goes on from there."""
    wanted = Servers(tmp_path, "08", 3).wanted(image=True)
    dying = Dying(lambda: api, Account.of(ACCOUNT), KnownHosts(str(tmp_path / "known_hosts")))
    dying.left = 7
    with pytest.raises(Killed):
        brought(dying, wanted)
    ironic.stop(lab.folder)
    ironic.start(lab.folder)
    for _ in range(3):
        outcome = brought(kind, wanted)
        if not outcome.problems:
            break
    assert (outcome.problems, states(api, wanted)) == ([], ["active"] * 3)


def with_ends(wanted: Mapping[str, State], **ends: t.Any) -> dict[str, State]:
    return {name: {**state, **ends} for name, state in wanted.items()}


RETIRED: dict[str, t.Any] = {
    "goal": "retired", "inspect": False, "image": {}, "host": {}, "clean": ["bios.factory_reset"],
}  # fmt: skip


def test_a_redeployed_server_gets_a_key_of_its_own_and_only_the_named_one_is_wiped(
    api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    wanted = Servers(tmp_path, "20", 2).wanted(image=True)
    brought(kind, wanted)
    before = sorted((tmp_path / "known_hosts").read_text().splitlines())
    stays = api.times(api.nodes()["s20-2"][0])
    named = with_ends({"s20-1": wanted["s20-1"]}, redeploy=True)
    with pytest.raises(RemoteError, match="need consent: write the operating system again; "):
        bring(kind, named, Consent(), quiet)
    assert sorted((tmp_path / "known_hosts").read_text().splitlines()) == before
    assert brought(kind, named).done == ["write the operating system again"]
    after = sorted((tmp_path / "known_hosts").read_text().splitlines())
    assert states(api, wanted) == ["active", "active"]
    assert (before[0] != after[0], before[1] == after[1], len(after)) == (True, True, 2)
    assert api.times(api.nodes()["s20-2"][0]) == stays


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
def test_a_killed_redeployment_is_gone_on_with(
    lab: Ironic, api: IronicApi, kind: BareMetalServer, tmp_path: Path, after: int
) -> None:
    """It is taken down, inspected and compared again, since it may stand somewhere else now."""
    servers = Servers(tmp_path, f"2{after + 1}", 1, {"serial": "SN{}"})
    wanted = servers.wanted(image=True)
    brought(kind, wanted)
    (name,) = wanted
    mac = wanted[name]["macs"][0]
    named = with_ends(servers.wanted(image=True, inspect=True), redeploy=True)
    measure(lab, api.nodes()[name][0], mac, "SN1", 0)
    dying = Dying(lambda: api, Account.of(ACCOUNT), KnownHosts(str(tmp_path / "known_hosts")))
    dying.left = after
    with pytest.raises(Killed):
        brought(dying, named)
    for _ in range(2):
        outcome = brought(kind, named)
        if not outcome.problems:
            break
        # Pretended hardware has nothing to say when it is inspected.
        measure(lab, api.nodes()[name][0], mac, "SN1", 0)
    assert (outcome.problems, states(api, wanted)) == ([], ["active"])


def test_a_retired_server_is_taken_down_marked_and_erased_with_a_proof(
    api: IronicApi, tmp_path: Path
) -> None:
    known = KnownHosts(str(tmp_path / "known_hosts"))
    kind = BareMetalServer(lambda: api, Account.of(ACCOUNT), known, proofs=tmp_path / "erased")
    wanted = Servers(tmp_path, "30", 2).wanted(image=True)
    brought(kind, wanted)
    retired = with_ends({"s30-1": wanted["s30-1"]}, **RETIRED)
    with pytest.raises(RemoteError, match="need consent: take its operating system down"):
        bring(kind, retired, Consent(), quiet)
    assert states(api, wanted) == ["active", "active"]
    outcome = brought(kind, retired)
    assert outcome.problems == []
    nodes = api.nodes()
    assert (nodes["s30-1"][1].state, nodes["s30-1"][1].retired) == ("manageable", True)
    assert (nodes["s30-2"][1].state, nodes["s30-2"][1].retired) == ("active", False)
    (file,) = (tmp_path / "erased").iterdir()
    proof = json.loads(file.read_text())
    assert (proof["server"], proof["node"], proof["asked"]) == ("s30-1", nodes["s30-1"][0], RETIRED["clean"])
    assert (proof["ironic"]["state"], proof["ironic"]["last_error"]) == ("manageable", None)
    assert brought(kind, retired).done == []
    assert len(list((tmp_path / "erased").iterdir())) == 1
    unknown = Servers(tmp_path, "31", 1).wanted()
    (problem,) = brought(kind, with_ends(unknown, **RETIRED)).problems
    assert "s31-1: Ironic does not know it" in problem


def test_a_conductor_that_is_not_heard_of_holds_its_servers(
    lab: Ironic, api: IronicApi, kind: BareMetalServer, tmp_path: Path
) -> None:
    wanted = Servers(tmp_path, "32", 2).wanted()
    api.enrol("s32-1", {**FAKE, "driver_info": {"address": "192.0.2.1"}}, ["5c:25:73:00:32:01"])

    def heard(when: str) -> None:
        with sqlite3.connect(lab.folder / "ironic.sqlite", timeout=30) as database:
            database.execute("update conductors set updated_at = datetime('now', ?)", (when,))

    heard("-3 days")
    try:
        (problem,) = bring(kind, {"s32-1": wanted["s32-1"]}, ALLOWED, quiet).problems
    finally:
        heard("0 days")
    assert "s32-1: no conductor looks after it" in problem
    assert (brought(kind, wanted).problems, states(api, wanted)) == ([], ["available"] * 2)


def test_the_playbook_plans_asks_for_consent_and_brings_servers_up(
    lab: Ironic, api: IronicApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(lab.clouds))
    monkeypatch.setenv("IRONSPAN_PKI_KEY", base64.b64encode(bytes(32)).decode())
    servers = Servers(tmp_path, "09", 2)
    inventory = metal_site.site(tmp_path)
    book = str(ROOT / "playbooks" / "bare_metal.yml")

    def played(*options: str) -> tuple[int, str]:
        run = play(book, inventory, tmp_path, "-e", f"ironspan_expected={servers.file}", *options)
        return run.status, run.output

    status, output = played()
    assert status == 2 and "these steps need consent: make it available" in output, output
    assert "s09-1" not in api.nodes()
    status, output = played("-e", "ironspan_servers=s09-3")
    assert status == 2 and "has no server 's09-3'; write s09-" in output, output
    handed = tmp_path / "site" / "servers.yml"
    status, output = played("--check", "--diff")
    assert (status, handed.exists()) == (0, False), output
    assert "+          ansible_host: 10.30.1.11" in output, output
    status, output = played("-e", "ironspan_allow_destructive=true")
    assert status == 0, output
    assert [api.nodes()[f"s09-{n}"][1].state for n in (1, 2)] == ["active", "active"]

    def written() -> tuple[bytes, list[str]]:
        times = [api.times(api.nodes()[f"s09-{n}"][0])["provision_updated_at"] for n in (1, 2)]
        return (tmp_path / "known_hosts").read_bytes(), times

    # Consent is there, and nothing is done all the same.
    before = written()
    status, output = played("-e", "ironspan_allow_destructive=true")
    assert status == 0 and "changed=0" in output, output
    assert written() == before
    run = play("server_drift", inventory, tmp_path, "-e", f"ironspan_expected={servers.file}")
    assert run.status == 0 and "all 2 servers are as they are declared" in run.output, run.output
    servers.file.write_text(servers.file.read_text().replace("192.0.2.2,a,2,", "192.0.2.2,a,20,"))
    report = tmp_path / "drift.json"
    options = ("-e", f"ironspan_expected={servers.file}", "-e", f"ironspan_report={report}")
    run = play("server_drift", inventory, tmp_path, *options)
    assert run.status == 2, run.output
    (drift,) = json.loads(report.read_text())["drift"]
    assert (drift["server"], drift["part"]) == ("s09-2", "place")
    servers.file.write_text(servers.file.read_text().replace("192.0.2.2,a,20,", "192.0.2.2,a,2,"))
    assert_taken_over(tmp_path / "site", servers, lab)


def said(*command: object) -> tuple[int, str]:
    """Run one of the installed commands in the repository."""
    name, *rest = map(str, command)
    ran = subprocess.run([BIN / name, *rest], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr


def plain(value: t.Any) -> t.Any:
    """Return what ansible-inventory prints, without the marks of texts that are no templates."""
    if not isinstance(value, dict):
        return value
    return value.get("__ansible_unsafe", {name: plain(inner) for name, inner in value.items()})


def assert_taken_over(site: Path, servers: Servers, lab: Ironic) -> None:
    """Check that the inventory is taken as it is, and that the plugin says what the file says."""
    status, output = said("ironspan", "validate", "-i", site)
    assert status == 0, output
    first = json.loads(said("ansible-inventory", "-i", site, "--list")[1])
    host = first["_meta"]["hostvars"]["s09-1"]
    assert (host["ansible_host"], host["site_rack"]) == ("10.30.1.11", "a")
    assert host["site_measured_labels"] == {"ironspan.io/rack": "a"}
    (site / "servers.yml").unlink()
    (site / "ironic.yml").write_text(
        json.dumps({"plugin": "ironspan.hybrid.ironic", "expected": str(servers.file), "cloud": "lab"})
    )
    status, output = said("ironspan", "validate", "-i", site)
    assert status == 0, output
    second = json.loads(said("ansible-inventory", "-i", site, "--list")[1])
    for name in ("s09-1", "s09-2"):
        assert plain(second["_meta"]["hostvars"][name]) == first["_meta"]["hostvars"][name]
    members = [
        {name: sorted(found.get("hosts", ())) for name, found in one.items()} for one in (first, second)
    ]
    assert members[0] == members[1]
    # The cloud is that of the site, when the plugin's file has none.
    (site / "ironic.yml").write_text(
        json.dumps({"plugin": "ironspan.hybrid.ironic", "expected": str(servers.file)})
    )
    assert json.loads(said("ansible-inventory", "-i", site, "--list")[1]) == second
    ironic.stop(lab.folder)
    try:
        status, output = said("ironspan", "validate", "-i", site)
    finally:
        ironic.start(lab.folder)
    assert status == 2 and "its hosts are not known before it answers" in output, output
