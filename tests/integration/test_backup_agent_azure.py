# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""The backup agent with a managed identity and real Azurite behind the lab's roles and faults."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironspan.etcd.client import EtcdClient
from ironspan.lab.azure import settings
from tests.support.agent_process import AgentSite, Writer, insist_on_a_whole_log, quick, site, wait
from tests.support.etcd_members import Members
from tests.support.lab_azure import LabAzure, azure, container, running_azure  # noqa: F401


@pytest.fixture
def agents(
    members: Members, azure: LabAzure, container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AgentSite]:
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", azure.url("metadata"))
    store = {
        "kind": "azure",
        "account_url": azure.account_url,
        "container": container,
        "prefix": "backup/",
        "credential": {"kind": "managed_identity", "client_id": settings.IDENTITIES["writer"].client_id},
        "ca": str(azure.ca),
    }
    with site(tmp_path / "site", members.endpoints, stores=[store], program=quick(20)) as made:
        yield made


def test_errors_and_lost_answers_of_the_store_lose_nothing(
    agents: AgentSite, azure: LabAzure, client: EtcdClient
) -> None:
    agents.start("a")
    wait(lambda: agents.found().snapshots, "a snapshot")
    with Writer(client) as writer:
        for kind in ("status", "lost_reply", "reset"):
            azure.fault(kind, comp="appendblock", count=2)
            enough = agents.metric("a", "log_revision") + 50
            wait(functools.partial(agents.beyond, "a", "log_revision", enough), kind)
    insist_on_a_whole_log(agents, client, writer.revision)
    wait(lambda: agents.metric("a", "active") == 1, "it writes still")


def test_an_append_that_was_acknowledged_and_is_not_there_is_written_again(
    agents: AgentSite, azure: LabAzure, client: EtcdClient
) -> None:
    agents.start("a")
    wait(lambda: agents.found().snapshots, "a snapshot")
    with Writer(client) as writer:
        wait(lambda: agents.metric("a", "log_revision") > 0, "the log")
        azure.fault("lying", comp="appendblock", count=1)
        wait(lambda: agents.metric("a", 'errors_total{kind="chain"}'), "it is found out")
    assert "acknowledged" in agents.said("a")
    insist_on_a_whole_log(agents, client, writer.revision)
    # etcd still had what the store had lost.
    assert agents.metric("a", "gaps_total") == 0
    assert len(agents.found().snapshots) == 1


@pytest.mark.long
def test_an_outage_is_spooled_and_caught_up_in_order(
    agents: AgentSite, azure: LabAzure, client: EtcdClient
) -> None:
    agents.start("a")
    wait(lambda: agents.found().snapshots, "a snapshot")
    with Writer(client) as writer:
        azure.fault("status", status=503, retry_after=1)
        wait(lambda: agents.metric("a", "spool_bytes"), "the spool is used")
        shown = agents.metrics("a")
        assert shown["rpo_seconds"] > 1
        assert shown['errors_total{kind="store"}'] > 0
        azure.heal()
        wait(lambda: agents.metric("a", "spool_bytes") == 0, "the spool is empty")
    insist_on_a_whole_log(agents, client, writer.revision)


def test_who_has_the_lease_is_not_disturbed(agents: AgentSite, client: EtcdClient) -> None:
    lease = agents.store().acquire(agents.names.writer, 60, "another")
    agents.start("a")

    def runs() -> bool:
        lease.renew()
        return bool(agents.metrics("a"))

    wait(runs, "it runs")
    time.sleep(1.5)
    assert agents.metric("a", "active") == 0
    assert [item.name for item in agents.store().list("")] == [agents.names.writer]
    lease.release()
    wait(lambda: agents.found().snapshots, "a snapshot")
    client.put(b"/registry/pods/a", b"1")
    insist_on_a_whole_log(agents, client, client.header().revision)


@pytest.mark.long
def test_a_minute_without_the_store_is_caught_up(
    agents: AgentSite, azure: LabAzure, client: EtcdClient
) -> None:
    agents.start("a")
    wait(lambda: agents.found().snapshots, "a snapshot")
    with Writer(client) as writer:
        azure.fault("status", status=503, retry_after=1)
        time.sleep(60)
        shown = agents.metrics("a")
        assert shown["spool_bytes"] > 0
        assert shown["lease_remaining_seconds"] == 0
        assert shown["rpo_seconds"] > 50
        azure.heal()
        wait(lambda: agents.metric("a", "rpo_seconds") < 1, "the log is caught up")
    insist_on_a_whole_log(agents, client, writer.revision)
