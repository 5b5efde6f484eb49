# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer ``events`` on a real host: the packed program under systemd, TLS and tokens of the PKI store.

The controller is away: what is launched is tested with its stand-in (tests/unit/controller). Needs
``ironspan artifacts build --set events``.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import ssl
import tempfile
from collections.abc import Iterator

import pytest
import urllib3
import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site, require_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.alert_checks import ask_alerts

from ironspan.cli import main as command
from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.events import alert
from tests.support.playbooks import ROOT, Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]
HOST, PORT = "rack-1", 2397
PLAY = """\
- ansible.builtin.import_playbook: {root}/playbooks/validate.yml
  vars: {{__ironspan_purpose: apply}}
- ansible.builtin.import_playbook: {root}/playbooks/assess.yml
- ansible.builtin.import_playbook: {root}/playbooks/prepare.yml
  vars: {{__ironspan_scope: ":&__ironspan_pending"}}
"""


class Desk(Cluster):
    """A host that takes alerts, in the inventory of a site whose other hosts are not there."""

    @property
    def inventory(self) -> pathlib.Path:
        """Return the inventory: the lab's, with its rack host in the group ``events``."""
        path = self.folder / "site"
        if not path.is_dir():
            shutil.copytree(self.lab.inventory_path.parent / "group_vars", path / "group_vars")
            self._write(path / "hosts.yml")
        return path

    def _write(self, path: pathlib.Path) -> None:
        found = yaml.safe_load(self.lab.inventory_path.read_text())
        parts = found["all"]["children"]
        parts["on_prem"]["hosts"]["worker-1"] = {"ansible_host": "10.255.255.9"}
        parts["nodes"]["hosts"] = {"worker-1": {}}
        parts["gvisor"]["hosts"] = {}
        parts["events"] = {"hosts": {HOST: {}}}
        # Nothing answers there.
        found["all"]["vars"]["awx_host"] = "https://192.0.2.1"
        path.write_text(yaml.safe_dump(found))

    def converge(self, *options: str) -> Played:
        """Bring the host to what the inventory says."""
        limit = ("--limit", f"{HOST},localhost")
        return play(str(self.folder / "play.yml"), self.inventory, self.folder, *limit, *options)

    def session(self) -> Session:
        """Return the site, as the doctor has it."""
        return Session(require_site(load_site([self.inventory], environment={})), str(self.folder))

    def cli(self, *words: str) -> int:
        """Run a command of ironspan."""
        return command.main([*words, "-i", str(self.inventory)])

    def send(self, token: str) -> tuple[int, str]:
        """Send an alert as Alertmanager does, with what ``awx events-token`` wrote."""
        context = ssl.create_default_context(cafile=str(self.folder / "given" / "ironspan-ca.crt"))
        address = self.session().site.hosts[HOST].address
        with urllib3.PoolManager(ssl_context=context, retries=False, timeout=60) as pool:
            answer = pool.request(
                "POST",
                f"https://{address}:{PORT}/alerts",
                body=json.dumps({"version": "4", "alerts": [alert("EtcdNoLeader")]}),
                headers={"Authorization": f"Bearer {token}"},
            )
        return answer.status, answer.data.decode()

    def given(self) -> str:
        """Return the token that Alertmanager was given."""
        return (self.folder / "given" / "ironspan-token").read_text().strip()


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A host that was brought to what the inventory says, once."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    made = Desk(Lab(lab_name("isevt")), pathlib.Path(tempfile.mkdtemp(prefix="ise-", dir="/tmp")))
    (made.folder / "play.yml").write_text(PLAY.format(root=ROOT))
    try:
        made.lab.up(azure=1, rack=1, azure_services=False)
        first = made.converge()
        assert first.status == 0, first.output
        yield made
    finally:
        made.lab.down()
        shutil.rmtree(made.folder, ignore_errors=True)


def test_it_runs_as_an_account_of_its_own_and_a_second_run_changes_nothing(desk: Desk) -> None:
    assert desk.on(HOST, "systemctl is-active ironspan-events") == "active"
    assert desk.on(HOST, "ps -o user:32= -C ironspan-events -C python3 | sort -u").split() != []
    pid = desk.on(HOST, "systemctl show -P MainPID ironspan-events")
    assert desk.on(HOST, f"stat -c %U /proc/{pid}") == "ironspan-events"
    again = desk.converge()
    assert (again.status, again.changed) == (0, {}), again.output


def test_alertmanager_gets_in_with_what_it_was_given_and_the_doctor_says_what_is_missing(desk: Desk) -> None:
    assert desk.cli("awx", "events-token", "--output", str(desk.folder / "given")) == 0
    assert desk.send("a-token-of-somebody")[0] == 401
    # It is heard; without a token of the controller nothing can be launched.
    assert desk.send(desk.given())[0] == 503
    assert ask_alerts(desk.session()) == {"host": HOST, "error": "", "account": False}
    told = desk.on(HOST, "journalctl -u ironspan-events -o cat --no-pager")
    assert "ironspan awx events-account" in told


def test_the_account_comes_by_the_store_and_no_restart(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = desk.on(HOST, "systemctl show -P MainPID ironspan-events")
    monkeypatch.setattr("sys.stdin", io.StringIO("a-token-of-the-controller\n"))
    assert desk.cli("awx", "events-account") == 0
    done = desk.converge()
    assert done.status == 0, done.output
    assert "a-token-of-the-controller" not in done.output
    assert ask_alerts(desk.session())["account"] is True
    assert (
        desk.on(HOST, "stat -c '%U %G %a' /etc/ironspan/events/controller-token")
        == "root ironspan-events 640"
    )
    assert desk.on(HOST, "systemctl show -P MainPID ironspan-events") == before


def test_another_token_leaves_no_gap(desk: Desk) -> None:
    old = desk.given()
    assert desk.cli("awx", "events-token", "--new", "--output", str(desk.folder / "given")) == 0
    assert desk.given() != old
    assert desk.send(desk.given())[0] == 401
    done = desk.converge()
    assert done.status == 0, done.output
    assert [desk.send(token)[0] for token in (old, desk.given())] == [503, 503]
