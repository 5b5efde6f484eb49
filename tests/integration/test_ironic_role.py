# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer ``ironic`` on a real host: systemd, MariaDB, nginx and Ironic; only its servers are pretended."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import typing as t
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site, require_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import login_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

from ironspan.artifacts import cache
from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.playbooks import BIN, ROOT, Played, play
from tests.support.waiting import until

pytestmark = pytest.mark.lab

HOST = "rack-1"
PROGRAM = "/opt/ironspan/ironic/bin/ironspan-ironic"
BACKUPS, IMAGES = "/var/lib/ironspan-ironic-backup", "/srv/ironspan-ironic"
PLAY = """\
- ansible.builtin.import_playbook: {root}/playbooks/validate.yml
  vars: {{__ironspan_purpose: apply}}
- ansible.builtin.import_playbook: {root}/playbooks/assess.yml
- ansible.builtin.import_playbook: {root}/playbooks/prepare.yml
  vars: {{__ironspan_scope: ":&__ironspan_pending"}}
"""
RESET = """\
- hosts: {host}
  gather_facts: false
  tasks:
    - ironspan.hybrid.converge: {{mode: reset, consent: "{{{{ lookup('ironspan.hybrid.site', 'name') }}}}"}}
"""
SERVERS = """\
name,bmc_address,rack,position,nic1_mac
s1,192.0.2.1,a,1,5c:25:73:00:01:01
s2,192.0.2.2,a,2,5c:25:73:00:01:02
"""
FAKE = {"driver": "fake-hardware", "driver_info": {"address": "{bmc_address}"}}
SETTINGS: dict[str, t.Any] = {
    "ironic_hardware_types": ["fake-hardware"],
    "ironic_images_enabled": False,
    "ironic_workers_count": 50,
    # The lab's hosts share one machine.
    "ironic_settings": {"conductor": {"sync_power_state_interval": 600, "graceful_shutdown_timeout": 1}},
}


KILLER, KILLED = "isir-killer", "/run/isir-killed"
KILL = f"""\
cat >/run/{KILLER} <<'END'
tables() {{ ls /var/lib/mysql/ironic 2>/dev/null | wc -l; }}
until test $(tables) -gt 8 && pkill -KILL -f 'ironspan-ironic (prepare|dbsync)'; do sleep 0.05; done
tables >{KILLED}
END
systemd-run --quiet --unit={KILLER} sh /run/{KILLER}
"""
"""Kills what makes the database as soon as a part of its tables is there; looks all the time, on the host."""
NEVER = """\
for part in backup drill; do
    folder=/run/systemd/system/ironspan-ironic-$part.timer.d
    mkdir -p $folder
    printf '[Timer]\\nOnActiveSec=\\nOnCalendar=2099-01-01\\n' >$folder/never.conf
done
"""
"""Backups and drills are the tests' own. The timers' would come between: some minutes after the first start,
and at each full hour."""


class Rack(Cluster):
    """A host for Ironic, in the inventory of a site whose other hosts are not there."""

    SETTINGS: t.ClassVar[dict[str, t.Any]] = SETTINGS

    @property
    def inventory(self) -> pathlib.Path:
        """Return the inventory: the lab's, with its rack host in the group ``ironic``."""
        path = self.folder / "site"
        if not path.is_dir():
            path.mkdir()
            shutil.copytree(self.lab.inventory_path.parent / "group_vars", path / "group_vars")
            found = yaml.safe_load(self.lab.inventory_path.read_text())
            parts = found["all"]["children"]
            parts["on_prem"]["hosts"]["worker-1"] = {"ansible_host": "10.255.255.9"}
            parts["nodes"]["hosts"] = {"worker-1": {}}
            parts["gvisor"]["hosts"] = {}
            parts["ironic"] = {"hosts": {HOST: {}}}
            found["all"]["vars"].update(self.SETTINGS)
            (path / "hosts.yml").write_text(yaml.safe_dump(found))
        return path

    def converge(self, *options: str) -> Played:
        """Bring the host to what the inventory says."""
        return play(
            str(self.folder / "play.yml"),
            self.inventory,
            self.folder,
            "--limit",
            f"{HOST},localhost",
            *options,
        )

    def login(self) -> dict[str, t.Any]:
        """Return how the controller reaches Ironic, as ``ironspan bare-metal`` works it out."""
        site = require_site(load_site([self.inventory], environment={}))
        return login_of({"site": site})

    def api(self, **changed: t.Any) -> IronicApi:
        """Return Ironic's API."""
        login = self.login()
        return connected(**{**login, "auth": {**login["auth"], **changed}})

    def answers(self) -> bool:
        """Return whether the API answers, with a conductor that is alive."""
        try:
            return bool(self.api().conductors())
        except Exception:  # whatever is wrong with it
            return False

    def answering(self) -> None:
        """Wait until it does."""
        until(self.answers)


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    """One host, on which a first run was killed in the middle of Ironic's first start."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    made = Rack(Lab(lab_name("isir")), pathlib.Path(tempfile.mkdtemp(prefix="isi-", dir="/tmp")))
    (made.folder / "play.yml").write_text(PLAY.format(root=ROOT))
    try:
        made.lab.up(azure=1, rack=1, azure_services=False)
        made.on(HOST, NEVER)
        made.on(HOST, KILL)
        first = made.converge()
        made.on(HOST, f"systemctl stop {KILLER}", check=False)
        second = made.converge() if first.status else first
        assert second.status == 0, second.output
        made.answering()
        yield made
    finally:
        made.lab.down()
        shutil.rmtree(made.folder, ignore_errors=True)


def test_a_first_start_that_was_killed_is_finished_by_the_next(rack: Rack) -> None:
    assert int(rack.on(HOST, f"cat {KILLED}")) > 8
    journal = rack.on(HOST, "journalctl -u ironspan-ironic -o cat --no-pager")
    assert "signal" in journal or "KILL" in journal, journal[-3000:]
    assert rack.on(HOST, "systemctl is-active ironspan-ironic ironspan-ironic-web") == "active\nactive"


def test_a_second_run_changes_nothing(rack: Rack) -> None:
    again = rack.converge()
    assert (again.status, again.changed) == (0, {}), again.output


def test_the_api_has_tls_and_a_password_and_nothing_else_opens_it(rack: Rack) -> None:
    assert rack.api().conductors() == {HOST}
    with pytest.raises(RemoteError, match="401"):
        rack.api(password="not-the-one").conductors()
    login = rack.login()
    url = login["auth"]["endpoint"]
    address = (url.split(":")[1].strip("/"), 6385)
    with socket.create_connection(address, 10) as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname=address[0])
    answer = rack.on(
        HOST, f"curl -s -o /dev/null -w '%{{http_code}}' {url.replace('https', 'http')}/v1/nodes"
    )
    assert answer == "400"
    listening = rack.on(HOST, "ss -Hltnp")
    assert not [line for line in listening.splitlines() if "mariadbd" in line or "python" in line], listening


def test_who_may_read_what_on_the_host(rack: Rack) -> None:
    found = rack.on(
        HOST,
        "stat -c '%n %U %a' /etc/ironspan-ironic/password /etc/ironspan-ironic/keys/1.key "
        "/run/ironspan-ironic/htpasswd /etc/ironspan-ironic/web/server.key /etc/ironspan-ironic/ironic.conf "
        + BACKUPS,
    )
    modes = {
        pathlib.Path(name).name: f"{owner} {mode}" for name, owner, mode in map(str.split, found.splitlines())
    }
    assert modes == {
        "password": "root 600", "1.key": "root 600", "htpasswd": "ironspan-ironic 600",
        "server.key": "root 640", "ironic.conf": "root 640", pathlib.Path(BACKUPS).name: "root 700",
    }  # fmt: skip
    password = rack.login()["auth"]["password"]
    kept = rack.on(
        HOST, "cat /var/lib/ironspan/state.json /var/lib/ironspan/journal/*; journalctl -o cat --no-pager"
    )
    assert password not in kept
    assert "$2b$" in rack.on(HOST, "cat /run/ironspan-ironic/htpasswd")


def test_only_get_is_served_and_nothing_is_listed(rack: Rack) -> None:
    address = rack.login()["auth"]["endpoint"].split(":")[1].strip("/")
    rack.on(HOST, "install -D -m 644 /etc/hostname /var/lib/ironspan-ironic/media/redfish/boot-x.iso")

    def answer(path: str, *options: str) -> str:
        ask = f"curl -s -o /dev/null -w '%{{http_code}}' {' '.join(options)} http://{address}:8088{path}"
        return rack.on(HOST, ask)

    assert answer("/media/redfish/boot-x.iso") == "200"
    assert [answer(path) for path in ("/media/redfish/", "/media/", "/images/", "/")] == [
        "403",
        "403",
        "403",
        "404",
    ]
    assert answer("/media/../ironic.sqlite", "--path-as-is") in ("400", "404")
    assert answer("/media/redfish/boot-x.iso", "-X", "DELETE") == "405"


def test_servers_are_brought_up_without_a_cloud_in_the_inventory(rack: Rack) -> None:
    (rack.folder / "racks.csv").write_text(SERVERS)
    told = {
        "site_bare_metal_node": FAKE,
        "site_bare_metal_inspect": False,
        "ironspan_expected": str(rack.folder / "racks.csv"),
    }
    told["ironspan_allow_destructive"] = True
    done = play("bare_metal", rack.inventory, rack.folder, "-e", json.dumps(told))
    assert done.status == 0, done.output
    assert {name: node.state for name, (_, node) in rack.api().nodes().items()} == {
        "s1": "available",
        "s2": "available",
    }
    assert rack.login()["auth"]["password"] not in done.output


def test_the_inventory_plugin_asks_the_sites_own_ironic(rack: Rack) -> None:
    """Nothing says where it is but the site itself. Once it is down, nothing runs on a part of the hosts."""
    told = {
        "site_bare_metal_node": FAKE,
        "site_bare_metal_inspect": False,
        "site_bare_metal_image": {
            "source": "http://192.0.2.1/disk.raw",
            "sha256": "ab" * 32,
            "format": "raw",
        },
        "site_bare_metal_racks": {"a": {"network": "10.30.1.0/24", "first": "10.30.1.11"}},
        "site_bare_metal_account": {"authorized_keys": ["ssh-ed25519 AAAA operator"]},
        "site_bare_metal_known_hosts": str(rack.folder / "known_hosts"),
        "ironspan_expected": str(rack.folder / "racks.csv"),
        "ironspan_allow_destructive": True,
    }
    done = play("bare_metal", rack.inventory, rack.folder, "-e", json.dumps(told))
    assert done.status == 0, done.output
    site = rack.folder / "with-plugin"
    shutil.copytree(rack.inventory, site)
    plugin = {"plugin": "ironspan.hybrid.ironic", "expected": str(rack.folder / "racks.csv")}
    (site / "ironic.yml").write_text(json.dumps(plugin))

    def listed() -> dict[str, t.Any]:
        command = [str(BIN / "ansible-inventory"), "-i", str(site), "--list"]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found: dict[str, t.Any] = json.loads(ran.stdout)
        return found

    assert listed()["rack_a"]["hosts"] == ["s1", "s2"]
    rack.on(HOST, "systemctl stop ironspan-ironic-web")
    try:
        (reason,) = listed()["_meta"]["hostvars"][HOST]["__ironspan_unread"].values()
    finally:
        rack.on(HOST, "systemctl start ironspan-ironic-web")
        rack.answering()
    assert "Ironic does not answer" in str(reason) and "site.yml --limit ironic" in str(reason)


def test_a_database_that_goes_away_and_comes_back_is_gone_on_with(rack: Rack) -> None:
    restarts = "systemctl show -P NRestarts ironspan-ironic"
    before = rack.on(HOST, restarts)
    rack.on(HOST, "systemctl stop mariadb")
    with pytest.raises(RemoteError):
        rack.api().nodes()
    rack.on(HOST, "systemctl start mariadb")
    until(rack.answers)
    assert set(rack.api().nodes()) == {"s1", "s2"}
    assert rack.on(HOST, restarts) == before


def backed_up(rack: Rack) -> str:
    return str(json.loads(rack.on(HOST, f"{PROGRAM} backup --json"))["file"])


def test_a_backup_is_made_whole_unreadable_and_proven(rack: Rack) -> None:
    rack.on(HOST, "systemctl start ironspan-ironic-backup && systemctl start ironspan-ironic-drill")
    said = json.loads(rack.on(HOST, f"{PROGRAM} backups --json"))
    assert said["backup"]["ok"] and said["drill"]["ok"]
    assert said["drill"]["file"] == said["backups"][0]["file"]
    assert said["drill"]["tables"] > 20 and said["drill"]["rows"] >= 2
    file = f"{BACKUPS}/{said['backups'][0]['file']}"
    assert rack.on(HOST, f"stat -c '%U %a' {file}") == "root 600"
    assert rack.on(HOST, f"zcat -f {file} | grep -c redfish_address", check=False) == "0"
    assert rack.on(HOST, f"ls -A {BACKUPS} | grep -c unfinished", check=False) == "0"
    assert "ironspan_ironic_drill" not in rack.on(HOST, "ls /var/lib/mysql")


def test_a_backup_that_differs_from_the_live_database_fails_the_drill(rack: Rack) -> None:
    backed_up(rack)
    change = "UPDATE nodes SET description = 'changed behind its back' WHERE name = 's2'"
    rack.on(HOST, f'mariadb ironic -e "{change}"')
    failed = rack.on(
        HOST, "systemctl start ironspan-ironic-drill; journalctl -u ironspan-ironic-drill -o cat", check=False
    )
    assert "is not the live database: table nodes: row" in failed
    assert "differs, and was not written since" in failed
    # This is what the doctor names.
    assert "ironspan-ironic-drill" in rack.on(HOST, "systemctl list-units --failed --plain --no-legend")
    backed_up(rack)
    rack.on(HOST, "systemctl start ironspan-ironic-drill")


FLIP = r"dd if={0} bs=1 skip=2000 count=1 status=none | tr '\000-\377' '\001-\377\000'"
"""Prints another byte than the one that is there, which may be any."""
DAMAGES = (
    (f"{FLIP} | dd of={{0}} bs=1 seek=2000 conv=notrunc status=none", "is not what was written"),
    ("truncate -s -20 {}", "its end is missing"),
    ("sed -i '1s/39.0.0/38.0.0/' {}", "is not what was written"),
    ("truncate -s 100 {}", "is no backup of Ironic, or it is damaged"),
)


def test_a_damaged_backup_is_refused_and_nothing_is_changed(rack: Rack) -> None:
    file = backed_up(rack)
    said = rack.on(HOST, f"{PROGRAM} restore {file} 2>&1; echo $?", check=False)
    assert "Ironic runs" in said and said.endswith("\n2"), said
    rack.on(HOST, f"systemctl stop ironspan-ironic; cp {file} /root/whole")
    for damage, message in DAMAGES:
        rack.on(HOST, f"cp /root/whole {file}; {damage.format(file)}")
        for command in ("drill", f"restore {file}"):
            said = rack.on(HOST, f"{PROGRAM} {command} 2>&1; echo $?", check=False)
            assert message in said and not said.endswith("\n0"), (damage, said)
    rack.on(HOST, f"systemctl start ironspan-ironic; rm {file}")
    rack.answering()
    assert set(rack.api().nodes()) == {"s1", "s2"}


def test_what_was_lost_comes_back_with_a_restore(rack: Rack) -> None:
    file = backed_up(rack)
    uuid = rack.api().nodes()["s1"][0]
    # It runs: only what is being mended may be forgotten then.
    rack.api()._ask("PUT", f"/nodes/{uuid}/maintenance", {})
    rack.api().take(uuid, "delete")
    assert set(rack.api().nodes()) == {"s2"}
    rack.on(
        HOST, f"systemctl stop ironspan-ironic; {PROGRAM} restore {file}; systemctl start ironspan-ironic"
    )
    rack.answering()
    assert rack.api().nodes()["s1"][0] == uuid
    again = rack.converge()
    assert (again.status, again.changed) == (0, {}), again.output


def test_an_upgrade_that_is_cut_off_goes_back_to_its_copy_and_on(rack: Rack) -> None:
    """Another version was here last: a copy is made; a change that was begun is taken back first."""
    file = backed_up(rack)
    state = "/var/lib/ironspan-ironic"
    begun = json.dumps({"backup": pathlib.Path(file).name})
    rack.on(HOST, f"systemctl stop ironspan-ironic; echo '{begun}' > {state}/changing.json")
    rack.on(HOST, "mariadb ironic -e 'DROP TABLE node_history'; systemctl start ironspan-ironic")
    rack.answering()
    assert "was cut off" in rack.on(HOST, "journalctl -u ironspan-ironic -o cat --no-pager")
    assert "node_history" in rack.on(HOST, "mariadb ironic -N -e 'SHOW TABLES'")
    assert json.loads(rack.on(HOST, f"cat {state}/prepared.json")) == {"version": "39.0.0"}
    assert rack.on(HOST, f"ls {state}/changing.json", check=False) == ""


def test_a_full_folder_of_backups_is_named(rack: Rack) -> None:
    full = f"mount -t tmpfs -o size=8k tmpfs {BACKUPS}; head -c 8192 /dev/zero > {BACKUPS}/of-somebody"
    said = rack.on(
        HOST, f"{full}; {PROGRAM} backup 2>&1; echo $?; ls -A {BACKUPS}; umount {BACKUPS}", check=False
    )
    assert BACKUPS in said and "No space left on device" in said, said
    assert f"Free or add space below {BACKUPS}" in said
    assert ".backup" not in said.rpartition("\n1")[2], said


@pytest.mark.long
def test_images_are_served_by_digest_and_a_full_folder_is_named(rack: Rack) -> None:
    """The mirror's own Ironic stands for all images: it is large, and every mirror of this test has it."""
    index = json.loads(cache.Cache().index_path.read_text())
    program = index["artifacts"]["ironic/39.0.0/amd64"]
    for name in (
        "server-disk/2026.11.21",
        *(f"agent-{part}/13.0.0" for part in ("kernel", "ramdisk", "esp")),
    ):
        index["artifacts"][f"{name}/amd64"] = program
    (rack.folder / "index.json").write_text(json.dumps(index))
    told = (
        "-e",
        json.dumps({"ironic_images_enabled": True, "site_artifacts_index": str(rack.folder / "index.json")}),
    )
    rack.on(HOST, f"mount -t tmpfs -o size=8m tmpfs {IMAGES}")
    full = rack.converge(*told)
    assert full.status != 0 and "Make room on this file system" in full.output and IMAGES in full.output, (
        full.output
    )
    assert "deploy_kernel" not in rack.on(HOST, "cat /etc/ironspan-ironic/ironic.conf")
    rack.on(HOST, f"umount {IMAGES}")
    done = rack.converge(*told)
    assert done.status == 0, done.output
    address = rack.login()["auth"]["endpoint"].split(":")[1].strip("/")
    url = f"http://{address}:8088/images/{program['sha256']}/disk.raw"
    assert rack.on(HOST, f"curl -sf {url} | sha256sum").split()[0] == program["sha256"]
    without = rack.converge()
    assert without.status == 0 and rack.on(HOST, f"ls {IMAGES}") == "", without.output


@pytest.mark.long
def test_another_password_is_used_from_then_on_also_when_its_change_was_killed(rack: Rack) -> None:
    former = rack.login()["auth"]["password"]
    site = require_site(load_site([rack.inventory], environment={}))
    secrets = open_store(site.pki_store, site.pki_key_file).ironic
    # A run was killed between the store and the host.
    assert secrets.change_password()
    with pytest.raises(RemoteError, match=r"HTTP 401.*playbooks/site\.yml --limit ironic brings it"):
        rack.api().conductors()
    new = rack.login()["auth"]["password"]
    done = play("ironic_password", rack.inventory, rack.folder)
    assert done.status == 0 and former not in done.output and new not in done.output, done.output
    assert "the former one opens nothing" in done.output, done.output
    assert (rack.login()["auth"]["password"], secrets.is_changing()) == (new, False)
    assert rack.api().conductors() == {HOST}
    with pytest.raises(RemoteError, match="401"):
        rack.api(password=former).conductors()


def test_a_reset_removes_its_own_and_leaves_backups(rack: Rack) -> None:
    rack.on(HOST, "touch /srv/ironspan-ironic/of-somebody-else")
    book = rack.folder / "reset.yml"
    book.write_text(RESET.format(host=HOST))
    done = play(str(book), rack.inventory, rack.folder)
    assert done.status == 0, done.output
    paths = f"/etc/ironspan-ironic /opt/ironspan/ironic /var/lib/ironspan-ironic {IMAGES} {BACKUPS}"
    left = rack.on(HOST, f"ls -d {paths} 2>/dev/null", check=False)
    assert left.split() == ["/srv/ironspan-ironic", BACKUPS]
    assert rack.on(HOST, "ls /etc/systemd/system | grep -c ironspan-ironic", check=False) == "0"
    assert (
        rack.on(HOST, "systemctl is-active ironspan-ironic ironspan-ironic-web", check=False).split()
        == ["inactive"] * 2
    )
