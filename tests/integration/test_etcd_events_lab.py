# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Events in an etcd of their own, on a small cluster: on, started over with a replaced member, off."""

from __future__ import annotations

import json
import re
import time
import typing as t
from collections.abc import Iterator

import pytest

from tests.integration.conftest import Cluster, lab_cluster
from tests.integration.test_cluster_members import watched
from tests.support.playbooks import play
from tests.support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long]

ETCD, EVENTS = 2379, 2389
MEMBERS = ("az-1", "az-2", "az-3")
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
ON = ("-e", json.dumps({"etcd_events_enabled": True}))


class Site(Cluster):
    """The cluster, with events apart unless told otherwise."""

    def site(self, *options: str) -> t.Any:
        """Run site.yml."""
        return super().site(*(options or ON))

    def etcdctl(self, host: str, port: int, command: str) -> str:
        """Run etcdctl against one of the two on a host."""
        settings = f"set -a; . /etc/etcd/etcdctl.env; ETCDCTL_ENDPOINTS=https://127.0.0.1:{port}"
        return self.on(host, f"{settings}; etcdctl {command}")

    def events(self, port: int) -> set[str]:
        """Return the keys of events in one of the two."""
        found = self.etcdctl("az-1", port, "get --prefix /registry/events/ --keys-only")
        return {line for line in found.splitlines() if line}

    def make_event(self, name: str) -> None:
        """Write an event that nobody else writes again.

        API servers go on for a minute with a lease of the store that was before, and are refused.
        """
        made = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Namespace", "name": "default", "namespace": "default"},
        }
        apply = f"echo '{json.dumps(made)}' | {KUBECTL} apply -f -"
        until(lambda: self.on("az-1", apply, check=False).startswith(f"event/{name} "), 180, 1)

    def written(self, name: str, port: int = EVENTS) -> bool:
        """Tell whether one of the two has an event."""
        return f"/registry/events/default/{name}" in self.events(port)

    def cluster_ids(self) -> set[int]:
        """Return the cluster of every member of the etcd for events; there is one where all are together."""
        told = [self.etcdctl(host, EVENTS, "endpoint status -w json") for host in MEMBERS]
        return {json.loads(each)[0]["Status"]["header"]["cluster_id"] for each in told}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Return the cluster: three members, two of them control planes."""
    with lab_cluster(Site, "eventslab", azure=3, rack=1, azure_services=False) as made:
        assert made.first is not None
        assert made.first.status == 0, made.first.output
        yield made


def test_events_are_in_the_second_etcd_and_nothing_else_is(site: Site) -> None:
    site.make_event("first")
    assert site.written("first")
    assert site.events(ETCD) == set()
    everything = site.etcdctl("az-1", EVENTS, "get --prefix / --keys-only").split()
    # The API servers compact what they write, and keep a note of it there.
    assert {key for key in everything if not key.startswith("/registry/events/")} <= {"compact_rev_key"}
    assert len(site.cluster_ids()) == 1


def test_a_second_run_changes_nothing(site: Site) -> None:
    played = site.site()
    assert (played.status, played.changed) == (0, {}), played.output


def test_begun_anew_by_hand(site: Site) -> None:
    site.make_event("mark")
    assert site.written("mark")
    began = time.monotonic()
    with watched(site) as watch:
        played = play("etcd_events_anew", site.inventory, site.folder)
        assert played.status == 0, played.output
        until(lambda: site.on("az-1", f"{KUBECTL} get --raw=/readyz", check=False) == "ok", 120)
    share = len(watch.lost) / watch.asked
    print(json.dumps({"asked": watch.asked, "seconds without": share * (time.monotonic() - began)}))
    assert not site.written("mark")
    assert len(site.cluster_ids()) == 1


def test_a_replaced_member_is_in_the_store_that_begins_with_it(site: Site) -> None:
    site.make_event("mark")
    assert site.written("mark")
    options = ["-e", "ironspan_hosts=az-2", "-e", "ironspan_allow_destructive=true"]
    played = play("member_replace", site.inventory, site.folder, *ON, *options)
    assert played.status == 0, played.output
    assert len(site.cluster_ids()) == 1
    assert not site.written("mark")
    site.make_event("after")
    assert site.written("after")
    report = play("doctor", site.inventory, site.folder, *ON)
    assert not re.search("[✗!] (services|events|drift):", report.output), report.output
    played = site.site()
    assert (played.status, played.changed) == (0, {}), played.output


def test_switched_off_events_are_in_the_store_again(site: Site) -> None:
    played = site.site("-e", json.dumps({"etcd_events_enabled": False}))
    assert played.status == 0, played.output
    site.make_event("off")
    assert site.written("off", ETCD)
    for host in MEMBERS:
        assert site.on(host, "ls -d /var/lib/etcd-events /etc/etcd/events* 2>/dev/null || true") == ""
        assert site.on(host, "systemctl is-active etcd-events || true") == "inactive"
    played = site.site("-e", json.dumps({"etcd_events_enabled": False}))
    assert (played.status, played.changed) == (0, {}), played.output
