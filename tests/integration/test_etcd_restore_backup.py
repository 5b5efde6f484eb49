# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""All members are lost, and the store comes back from what the agent wrote: the real program throughout."""

from __future__ import annotations

import collections.abc
import json
import time

import pytest

from tests.integration.test_etcd_restore import CONSENT, MEMBERS, Restored, restored, words

pytestmark = [pytest.mark.lab, pytest.mark.long]
PROGRAM = "/opt/ironspan/etcd-backup/bin/ironspan-etcd-backup"
SECONDS_TO_STORE = 60


@pytest.fixture(scope="module")
def site() -> collections.abc.Iterator[Restored]:
    with restored("ibackup", etcd_backup=True) as made:
        yield made


def revision(site: Restored) -> int:
    status = json.loads(site.etcdctl("endpoint status -w json"))[0]["Status"]
    return int(status["header"]["revision"])


def wait_for_the_log(site: Restored, wanted: int) -> dict[str, object]:
    """Wait until the backup has a revision."""
    end = time.monotonic() + SECONDS_TO_STORE
    while True:
        listed = json.loads(site.on("az-1", f"{PROGRAM} list --json 2>/dev/null"))["stores"][0]
        if listed["snapshots"] and (listed["log"]["last_revision"] or 0) >= wanted:
            return dict(listed)
        assert time.monotonic() < end, f"revision {wanted} is not in the backup: {listed}"
        time.sleep(1)


def lost_and_restored(site: Restored, moment: str) -> None:
    site.record("moment", moment)
    site.record("noise", moment)
    last = revision(site)
    wait_for_the_log(site, last)
    pods = site.containers("rack-1")
    site.lose(*MEMBERS)
    done = site.restore(*CONSENT)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert site.recorded("moment") == moment
    assert revision(site) > last + 1_000_000_000
    site.insist_on_health()
    assert site.containers("rack-1") == pods


def test_a_point_before_the_first_snapshot_is_refused_and_nothing_stops(site: Restored) -> None:
    wait_for_the_log(site, 1)
    started = [site.on(host, "systemctl show -p MainPID --value etcd") for host in MEMBERS]
    done = site.restore(
        *CONSENT, "-e", "ironspan_force_restore=true", "-e", "ironspan_point=time:2020-01-01T00:00:00Z"
    )
    assert done.returncode == 2, done.stdout
    assert "first snapshot" in words(done)
    assert [site.on(host, "systemctl show -p MainPID --value etcd") for host in MEMBERS] == started
    assert site.asides("az-1") == []


def test_what_is_in_the_log_comes_back(site: Restored) -> None:
    lost_and_restored(site, "one")


def test_backups_go_on_in_another_epoch_and_are_restored_too(site: Restored) -> None:
    lost_and_restored(site, "two")
    listed = wait_for_the_log(site, revision(site))
    epochs = listed["epochs"]
    assert isinstance(epochs, list)
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3]
    site.assert_settled()


def test_another_machine_in_a_members_place_gets_its_agent_and_the_sealed_copy(site: Restored) -> None:
    """Nothing of ironspan is left on az-3, as on a new machine with its name and address."""
    site.on(
        "az-3",
        "systemctl disable --now ironspan-etcd-backup ironspan-etcd-guard.path etcd; "
        "rm -rf /etc/systemd/system/ironspan-etcd-* /etc/ironspan /opt/ironspan /var/lib/ironspan "
        "/etc/etcd /var/lib/etcd/*; systemctl daemon-reload",
        check=False,
    )
    done = site.command(
        "apply",
        "member_replace",
        "-i",
        str(site.inventory),
        "-e",
        "ironspan_hosts=az-3",
        "--allow-destructive",
    )
    assert done.returncode == 0, done.stdout
    site.insist_on_health()
    assert site.on("az-3", "systemctl is-active ironspan-etcd-backup") == "active"
    assert site.on("az-3", "stat -c %a:%U /etc/ironspan/etcd-backup/recovery.bundle") == "600:root"
    site.assert_settled()
