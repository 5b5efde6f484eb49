# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""Azure Blob storage as a store: real Azurite behind the lab's roles, policies and faults."""

from __future__ import annotations

import functools
import os
import typing as t
from collections.abc import Callable, Iterator

import pytest

from ironspan.azure.private_endpoint import transport
from ironspan.azure.transfer import PIECE
from ironspan.backup.azure import blob
from ironspan.backup.azure.blob import BlobStore, open_azure
from ironspan.backup.check_store import as_text, check_store
from ironspan.backup.errors import PositionConflict
from ironspan.backup.store import Store
from ironspan.lab.azure import settings
from ironspan.program.errors import AlreadyThere, Forbidden, LeaseLost, NotThere, RoleMissing, ServiceError
from tests.support.lab_azure import LabAzure, azure, container, running_azure  # noqa: F401
from tests.unit.backup.store_cases import StoreCases, whole

MIB = 1 << 20
AsRole = Callable[..., BlobStore]
IMPATIENT = 4.0
"""Seconds without an answer, where a test wants none."""
DELAYS = (0.01, 0.02)
LOG = "lab/log"


@pytest.fixture(autouse=True)
def _no_sleep_in_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits a second before it reads a broken answer again."""
    monkeypatch.setattr("azure.storage.blob._download.time.sleep", lambda seconds: None)


@pytest.fixture
def as_role(azure: LabAzure, container: str) -> AsRole:
    """The container as an identity sees it."""

    def make(identity: str, read_s: float = 60) -> BlobStore:
        way = transport(private=True, ca=str(azure.ca), read_s=read_s)
        return BlobStore(azure.client(identity, transport=way), container, "pre/", delays=DELAYS)

    return make


@pytest.fixture
def store(as_role: AsRole) -> BlobStore:
    return as_role("writer")


@pytest.fixture
def log(store: BlobStore) -> BlobStore:
    """A store with an object that has 3 bytes and can be extended."""
    store.create_append(LOG)
    store.append(LOG, b"one", 0)
    return store


class TestBlobStore(StoreCases):
    @pytest.fixture
    def store(self, as_role: AsRole) -> Store:
        return as_role("operator")


def test_a_listing_of_several_pages(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob, "PAGE", 2)
    names = [f"lab/{number}" for number in range(5)]
    for name in names:
        store.put(name, [b"x"])
    assert [item.name for item in store.list("lab/")] == names


def test_a_large_object_goes_in_pieces_and_comes_back(store: BlobStore, azure: LabAzure) -> None:
    part = os.urandom(MIB)
    store.put("lab/a", (part for _ in range(18)))
    staged = [one for one in azure.requests() if one["comp"] == "block"]
    assert len(staged) == 5
    assert whole(store, "lab/a") == part * 18
    assert b"".join(store.read("lab/a", PIECE - 3, 6)) == (part * 5)[PIECE - 3 : PIECE + 3]


@pytest.mark.parametrize(
    ("name", "more"), [("lab/a", {}), ("lab/log", {"offset": 1}), ("lab/log", {"offset": 1, "length": 9})]
)
def test_a_small_object_is_read_by_one_request(
    log: BlobStore, azure: LabAzure, name: str, more: dict[str, int]
) -> None:
    log.put("lab/a", [b"one"])
    before = len(azure.requests())
    assert b"".join(log.read(name, **more)) == b"one"[more.get("offset", 0) :]
    assert [one["method"] for one in azure.requests()[before:]] == ["GET"]


FAULTS: list[tuple[str, dict[str, t.Any], Callable[[BlobStore], object]]] = [
    ("lost_reply", {"method": "PUT", "comp": ""}, lambda store: store.put("lab/a", [b"data"])),
    (
        "lost_reply",
        {"method": "PUT", "comp": "blocklist"},
        lambda store: store.put("lab/a", [b"d", bytes(PIECE)]),
    ),
    ("reset", {"method": "PUT", "comp": "block"}, lambda store: store.put("lab/a", [b"d", bytes(PIECE)])),
    ("status", {"method": "PUT", "comp": "block"}, lambda store: store.put("lab/a", [b"d", bytes(PIECE)])),
    ("status", {"status": 429, "retry_after": 0}, lambda store: store.put("lab/a", [b"data"])),
    ("lost_reply", {"method": "PUT", "comp": ""}, lambda store: store.create_append("lab/a")),
    ("outage", {}, lambda store: list(store.list("lab/"))),
    ("hang", {"comp": "list"}, lambda store: list(store.list("lab/"))),
    ("lost_reply", {"comp": "lease"}, lambda store: store.acquire("lab/writer", 15, "az-1")),
]


@pytest.mark.parametrize(("kind", "fault", "work"), FAULTS)
def test_a_fault_that_passes_is_not_seen(
    as_role: AsRole,
    azure: LabAzure,
    kind: str,
    fault: dict[str, t.Any],
    work: Callable[[BlobStore], object],
) -> None:
    store = as_role("writer", IMPATIENT) if kind == "hang" else as_role("writer")
    number = azure.fault(kind, count=1, **fault)
    work(store)
    (hit,) = [one for one in azure.do("status")["faults"] if one["id"] == number]
    assert hit["hits"] == 1


def test_a_lost_answer_does_not_hide_another_writers_object(store: BlobStore, azure: LabAzure) -> None:
    store.put("lab/a", [b"theirs"])
    azure.fault("lost_reply", method="PUT", count=1)
    with pytest.raises(AlreadyThere):
        store.put("lab/a", [b"ours"])
    assert whole(store, "lab/a") == b"theirs"


@pytest.mark.parametrize("after_bytes", [None, 0])
def test_a_truncated_answer_is_read_again(
    store: BlobStore,
    azure: LabAzure,
    after_bytes: int | None,
) -> None:
    data = os.urandom(6 * MIB)
    store.put("lab/a", [data])
    azure.fault("truncated", method="GET", count=2, after_bytes=after_bytes)
    assert whole(store, "lab/a") == data
    azure.fault("truncated", method="GET", after_bytes=after_bytes)
    with pytest.raises(ServiceError) as caught:
        whole(store, "lab/a")
    assert caught.value.retryable


def test_what_lasts_is_told_with_the_time_to_wait(store: BlobStore, azure: LabAzure) -> None:
    azure.fault("status", status=503, retry_after=60)
    with pytest.raises(ServiceError, match="ServerBusy") as caught:
        store.put("lab/a", [b"x"])
    assert (caught.value.retryable, caught.value.retry_after) == (True, 60)
    (fault,) = azure.do("status")["faults"]
    assert fault["hits"] == 1


@pytest.mark.parametrize("kind", ["status", "reset", "hang", "outage"])
def test_an_append_is_not_repeated_and_can_be_sent_again(
    log: BlobStore, as_role: AsRole, azure: LabAzure, kind: str
) -> None:
    store = as_role("writer", IMPATIENT) if kind == "hang" else log
    azure.fault(kind, comp="appendblock")
    with pytest.raises(ServiceError) as caught:
        store.append(LOG, b"two", 3)
    assert caught.value.retryable
    (fault,) = azure.do("status")["faults"]
    assert fault["hits"] == 1
    azure.heal()
    assert log.append(LOG, b"two", 3) == 6
    assert whole(log, LOG) == b"onetwo"


def test_an_append_that_landed_unseen_is_settled(log: BlobStore, azure: LabAzure) -> None:
    azure.fault("lost_reply", comp="appendblock", count=1)
    with pytest.raises(ServiceError) as caught:
        log.append(LOG, b"two", 3)
    assert caught.value.retryable
    assert log.append(LOG, b"two", 3) == 6
    assert whole(log, LOG) == b"onetwo"


def test_an_unknown_outcome_does_not_claim_another_writers_append(
    log: BlobStore,
    as_role: AsRole,
    azure: LabAzure,
) -> None:
    azure.fault("reset", comp="appendblock", count=1)
    with pytest.raises(ServiceError):
        log.append(LOG, b"two", 3)
    as_role("writer").append(LOG, b"TWO", 3)
    with pytest.raises(PositionConflict) as caught:
        log.append(LOG, b"two", 3)
    assert caught.value.actual == 6


def test_a_store_that_lies_is_found_out(log: BlobStore, azure: LabAzure) -> None:
    azure.fault("lying", method="PUT", comp="", count=1)
    with pytest.raises(ServiceError, match="does not have its 4 bytes") as caught:
        log.put("lab/a", [b"data"])
    assert caught.value.retryable
    azure.fault("lying", comp="appendblock", count=1)
    assert log.append(LOG, b"two", 3) == 6
    with pytest.raises(PositionConflict) as conflict:
        log.append(LOG, b"three", 6)
    assert conflict.value.actual == 3


def test_a_writer_under_a_policy(
    log: BlobStore,
    as_role: AsRole,
    azure: LabAzure,
    container: str,
) -> None:
    azure.do("policy", container=container, days=2, append="append")
    log.put("lab/a", [b"whole"])
    assert log.append(LOG, b"two", 3) == 6
    lease = log.acquire("lab/writer", 15, "az-1")
    lease.renew()
    lease.release()
    with pytest.raises(AlreadyThere):
        log.put("lab/a", [b"another"])
    with pytest.raises(RoleMissing, match="garbage collector"):
        log.delete("lab/a")
    collector = as_role("collector")
    with pytest.raises(Forbidden, match="retention policy") as caught:
        collector.delete("lab/a")
    assert not isinstance(caught.value, RoleMissing)
    azure.do("clock", offset_s=3 * 86400)
    collector.delete("lab/a")
    with pytest.raises(NotThere):
        log.size("lab/a")


@pytest.mark.parametrize(
    ("identity", "role"), [("reader", "writer"), ("collector", "writer"), ("none", "writer")]
)
def test_a_missing_role_is_named(as_role: AsRole, identity: str, role: str) -> None:
    with pytest.raises(RoleMissing, match=f"ironspan backup {role}"):
        as_role(identity).put("lab/a", [b"x"])


def test_a_missing_container_is_named(azure: LabAzure) -> None:
    store = BlobStore(azure.client("writer"), "nowhere", delays=())
    for ask in (lambda: store.put("a", [b"x"]), lambda: list(store.list("")), lambda: store.size("a")):
        with pytest.raises(ServiceError, match="The container nowhere is not in the account"):
            ask()


def test_an_expired_token_is_explained(store: BlobStore, azure: LabAzure) -> None:
    azure.do("lifetime", seconds=-600)
    with pytest.raises(Forbidden, match="does not accept the identity's token"):
        store.size("lab/a")


def test_an_account_that_is_nowhere_is_explained(azure: LabAzure) -> None:
    service = azure.client("writer")
    nowhere = type(service)("https://nobody.blob.invalid", credential=service.credential, retry_total=0)
    with pytest.raises(ServiceError, match=r"nobody\.blob\.invalid") as caught:
        BlobStore(nowhere, "etcd", delays=()).size("lab/a")
    assert caught.value.retryable


@pytest.fixture
def whole_settings(azure: LabAzure, container: str) -> dict[str, t.Any]:
    return {
        "kind": "azure",
        "account_url": azure.account_url,
        "container": container,
        "prefix": "pre/",
        "ca": str(azure.ca),
        "private": True,
    }


@pytest.fixture(params=["managed_identity", "arc", "workload_identity"])
def identified(
    request: pytest.FixtureRequest,
    azure: LabAzure,
    whole_settings: dict[str, t.Any],
) -> Iterator[dict[str, t.Any]]:
    """Settings with a credential that is proven as on a machine of its kind."""
    client_id = settings.IDENTITIES["writer"].client_id
    credential = {"kind": request.param, "client_id": client_id, "tenant_id": "", "token_file": ""}
    if request.param == "managed_identity":
        with azure.managed_identity():
            yield {**whole_settings, "credential": credential}
    elif request.param == "arc":
        with azure.arc_machine():
            yield {**whole_settings, "credential": credential}
    else:
        token = {
            "tenant_id": settings.TENANT,
            "token_file": str(azure.service_account()),
            "authority": azure.url("login"),
        }
        yield {**whole_settings, "credential": {**credential, **token}}


def test_every_kind_of_identity_opens_the_store(identified: dict[str, t.Any]) -> None:
    store = open_azure(identified)
    store.put("lab/a", [b"x"])
    assert whole(store, "lab/a") == b"x"


def test_an_identity_that_nobody_proves(
    whole_settings: dict[str, t.Any], azure: LabAzure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob, "BlobStore", functools.partial(BlobStore, delays=DELAYS))
    credential = {"kind": "managed_identity", "client_id": "00000000-0000-0000-0000-000000000009"}
    with (
        azure.managed_identity(),
        pytest.raises(ServiceError, match="There is no token for the managed identity"),
    ):
        open_azure({**whole_settings, "credential": credential}).size("lab/a")


CHECKED = [
    ("writer", True, []),
    ("reader", True, ["create an object, whole"]),
    ("operator", True, ["this identity may not delete"]),
    ("writer", False, ["a policy retains what is written"]),
]


@pytest.mark.parametrize(("identity", "policy", "missing"), CHECKED)
def test_check_store(
    as_role: AsRole,
    azure: LabAzure,
    container: str,
    identity: str,
    policy: bool,
    missing: list[str],
) -> None:
    if policy:
        azure.do("policy", container=container, days=1, append="append")
    findings = list(check_store(as_role(identity), "lab", "az-1"))
    assert [finding.check for finding in findings if finding.ok is False] == missing
    assert all(finding.detail and finding.remedy for finding in findings if finding.ok is False)
    assert ("MISSING" in as_text(findings)) is bool(missing)


def test_a_second_lease_is_refused_for_as_long_as_the_first_is_renewed(store: BlobStore) -> None:
    lease = store.acquire("lab/writer", 15, "az-1")
    with pytest.raises(LeaseLost, match="az-2 did not get the lease"):
        store.acquire("lab/writer", 15, "az-2")
    lease.release()
