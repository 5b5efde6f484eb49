# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The emulated Azure through Azure's own libraries: roles, signatures, policies, identities, each fault."""

# ruff: noqa: F811  (fixtures are imported by the names of the parameters)

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.container import Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.management import Management
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.roles import ROLES, judge
from azure.core import MatchConditions
from azure.core.credentials import AccessToken
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceResponseError,
)
from azure.identity import CredentialUnavailableError, ManagedIdentityCredential, WorkloadIdentityCredential
from azure.mgmt.storage import StorageManagementClient
from azure.storage.blob import BlobServiceClient, ContainerClient

from ironspan.lab.azure import settings
from ironspan.lab.azure.tokens import verify
from tests.support.lab_azure import (  # noqa: F401
    MANAGEMENT,
    STORAGE,
    Credential,
    LabAzure,
    azure,
    blobs,
    container,
    forged,
    running_azure,
)

DAY_S = 86400
DAYS = "immutabilityPeriodSinceCreationInDays"
CLIENT = {name: one.client_id for name, one in settings.IDENTITIES.items()}
GROUP, ACCOUNT = settings.RESOURCE_GROUP, settings.ACCOUNT


def code(act: Callable[[], Any]) -> tuple[int | None, str]:
    """Status and Azure's code of a refused request."""
    with pytest.raises(HttpResponseError) as caught:
        act()
    return caught.value.status_code, str(getattr(caught.value, "error_code", "").split(".")[-1])


class Fixed:
    """A credential that always has the same token."""

    def __init__(self, token: str) -> None:
        self.token = token

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken(self.token, int(time.time()) + 600)


def with_token(azure: LabAzure, token: str) -> ContainerClient:
    client = BlobServiceClient(
        azure.account_url, credential=Fixed(token), connection_verify=str(azure.ca), retry_total=0
    )
    return client.get_container_client(settings.CONTAINER)


@pytest.fixture
def management(azure: LabAzure) -> Iterator[Any]:
    """Azure's client of the resource manager; its overloads do not know bodies as they are sent."""
    with StorageManagementClient(
        Credential(azure, "operator", MANAGEMENT),
        settings.SUBSCRIPTION,
        base_url=azure.url("management"),
        connection_verify=str(azure.ca),
        retry_total=0,
    ) as client:
        yield client


# ---- the signature and the role


def test_blobs_of_all_kinds_pass(azure: LabAzure, container: str) -> None:
    client = blobs(azure, container)
    data = bytes(range(256)) * 40_000  # several blocks and several reads
    options: dict[str, Any] = {
        "max_block_size": 4 << 20,
        "max_single_put_size": 1 << 20,
        "max_single_get_size": 1 << 20,
    }
    big = blobs(azure, container, **options).get_blob_client("a folder/bütton")
    big.upload_blob(data, overwrite=False)
    assert big.download_blob().readall() == data
    assert big.download_blob(offset=5, length=7).readall() == data[5:12]
    log = client.get_blob_client("log")
    log.create_append_blob()
    assert log.append_block(b"abc", appendpos_condition=0)["blob_append_offset"] == "0"
    assert code(lambda: log.append_block(b"abc", appendpos_condition=0)) == (
        412,
        "AppendPositionConditionNotMet",
    )
    assert [one.name for one in client.list_blobs()] == ["a folder/bütton", "log"]
    lease = log.acquire_lease(15)
    assert code(lambda: log.acquire_lease(15)) == (409, "LeaseAlreadyPresent")
    lease.release()


@pytest.mark.parametrize(
    ("role", "writes", "reads", "deletes"),
    [
        ("writer", True, True, False),
        ("collector", False, True, True),
        ("reader", False, True, False),
        ("operator", True, True, True),
        ("none", False, False, False),
    ],
)
def test_each_role_may_do_what_it_is_for(
    azure: LabAzure, container: str, role: str, writes: bool, reads: bool, deletes: bool
) -> None:
    blobs(azure, container, "operator").upload_blob("there", b"x")
    client = blobs(azure, container, role)
    denied = (403, "AuthorizationPermissionMismatch")
    actions: list[tuple[bool, Callable[[], Any]]] = [
        (writes, lambda: client.upload_blob("new", b"x")),
        (writes, lambda: client.get_blob_client("log").create_append_blob()),
        (writes, lambda: client.get_blob_client("there").acquire_lease(15).release()),
        (reads, lambda: client.download_blob("there").readall()),
        (reads, lambda: list(client.list_blobs())),
        (deletes, lambda: client.delete_blob("there")),
    ]
    for allowed, act in actions:
        if allowed:
            act()
        else:
            assert code(act) == denied
    assert {one["identity"] for one in azure.requests() if one["status"] < 400} <= {role, "operator"}


def test_no_role_but_the_operators_makes_containers(azure: LabAzure) -> None:
    for role in ("writer", "collector", "reader"):
        assert code(partial(azure.client(role).create_container, "another"))[0] == 403


def test_a_forged_signature_is_refused(azure: LabAzure) -> None:
    token = azure.do("token", identity="operator", audience=STORAGE)["token"]
    with_token(azure, token).upload_blob("signed", b"x", overwrite=True)
    assert code(lambda: with_token(azure, forged(token)).download_blob("signed")) == (
        401,
        "InvalidAuthenticationInfo",
    )
    head, _, signature = token.split(".")
    claims = azure.do("token", identity="writer", audience=STORAGE)["token"].split(".")[1]
    assert code(lambda: with_token(azure, f"{head}.{claims}.{signature}").download_blob("signed"))[0] == 401


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"audience": MANAGEMENT}, "Audience"),
        ({"audience": STORAGE, "lifetime_s": -10}, "expired"),
        ({"audience": "https://another.blob.core.windows.net"}, "Audience"),
    ],
)
def test_tokens_for_another_time_or_service_are_refused(
    azure: LabAzure, arguments: dict[str, Any], message: str
) -> None:
    token = azure.do("token", identity="operator", **arguments)["token"]
    with pytest.raises(ClientAuthenticationError, match=message):
        with_token(azure, token).download_blob("x")


def test_keys_and_nothing_at_all_are_refused(azure: LabAzure) -> None:
    for credential, refusal in (
        ("Zm9vYmFy", (403, "KeyBasedAuthenticationNotPermitted")),
        (None, (401, "NoAuthenticationInformation")),
    ):
        client: Any = BlobServiceClient(
            azure.account_url, credential=credential, connection_verify=str(azure.ca), retry_total=0
        )
        assert code(partial(client.get_container_client("etcd").download_blob, "x")) == refusal


# ---- where tokens come from


def use(azure: LabAzure, credential: Any) -> str:
    """Write with a credential; returns the identity that the store saw."""
    client = BlobServiceClient(
        azure.account_url, credential=credential, connection_verify=str(azure.ca), retry_total=0
    )
    client.get_container_client(settings.CONTAINER).upload_blob("who", b"x", overwrite=True)
    return str(azure.requests()[-1]["identity"])


def test_managed_identity_of_a_machine(azure: LabAzure) -> None:
    with azure.managed_identity():
        assert use(azure, ManagedIdentityCredential()) == "writer"
        assert use(azure, ManagedIdentityCredential(client_id=CLIENT["operator"])) == "operator"
        with pytest.raises(HttpResponseError, match="not authorized"):
            use(azure, ManagedIdentityCredential(client_id=CLIENT["reader"]))
        with pytest.raises(CredentialUnavailableError, match="Identity not found"):
            use(azure, ManagedIdentityCredential(client_id=settings.TENANT))


def test_identity_of_an_arc_machine(azure: LabAzure) -> None:
    with azure.arc_machine():
        assert use(azure, ManagedIdentityCredential()) == "writer"
        assert use(azure, ManagedIdentityCredential(client_id=CLIENT["operator"])) == "operator"
    statuses = [one["status"] for one in azure.requests("arc")]
    assert statuses == [401, 200, 401, 200]  # each token is asked for twice: the challenge, the answer


def workload(azure: LabAzure, identity: str, token: Any) -> WorkloadIdentityCredential:
    return WorkloadIdentityCredential(
        tenant_id=settings.TENANT,
        client_id=CLIENT[identity],
        token_file_path=str(token),
        authority=azure.url("login"),
        disable_instance_discovery=True,
        connection_verify=str(azure.ca),
        retry_total=0,
    )


def test_a_service_account_is_exchanged_for_an_identity(azure: LabAzure) -> None:
    token = azure.service_account("writer")
    assert use(azure, workload(azure, "writer", token)) == "writer"
    with pytest.raises(ClientAuthenticationError, match="No matching federated identity"):
        use(azure, workload(azure, "collector", token))
    token.write_text(forged(token.read_text()))
    with pytest.raises(ClientAuthenticationError, match="Signature validation failed"):
        use(azure, workload(azure, "writer", token))


def test_anybody_can_check_the_tokens(azure: LabAzure) -> None:
    trusted = ssl.create_default_context(cafile=str(azure.ca))

    def get(url: str) -> Any:
        with urllib.request.urlopen(url, context=trusted) as answer:
            return json.load(answer)

    about = get(f"{azure.url('login')}/{settings.TENANT}/v2.0/.well-known/openid-configuration")
    assert about["token_endpoint"] == f"{azure.url('login')}/{settings.TENANT}/oauth2/v2.0/token"
    keys = get(about["jwks_uri"])["keys"]
    token = azure.do("token", identity="reader", audience=STORAGE)["token"]
    assert verify(token, keys, time.time())["oid"] == settings.IDENTITIES["reader"].object_id
    with pytest.raises(urllib.error.HTTPError):
        get(f"{azure.url('login')}/{settings.SUBSCRIPTION}/discovery/v2.0/keys")


def test_an_identity_service_that_is_down(azure: LabAzure) -> None:
    azure.fault("status", service="metadata", status=500)
    with azure.managed_identity(), pytest.raises(AzureError):
        use(azure, ManagedIdentityCredential(retry_total=0))


# ---- policies


def test_a_retention_policy_keeps_blobs_until_its_time_is_over(
    azure: LabAzure, container: str, management: Any
) -> None:
    writer, collector = blobs(azure, container), blobs(azure, container, "collector")
    writer.upload_blob("old", b"1")
    made = management.blob_containers.create_or_update_immutability_policy(
        GROUP, ACCOUNT, container,
        parameters={"properties": {DAYS: 7, "allowProtectedAppendWrites": True}},
    )  # fmt: skip
    assert (made.state, made.immutability_period_since_creation_in_days) == ("Unlocked", 7)
    kept = (409, "BlobImmutableDueToPolicy")
    log = writer.get_blob_client("log")
    log.create_append_blob()
    log.append_block(b"one")
    log.append_block(b"two", appendpos_condition=3)
    writer.upload_blob("new", b"1", overwrite=False)
    for name in ("old", "new", "log"):
        assert code(partial(collector.delete_blob, name)) == kept
    assert code(lambda: writer.upload_blob("old", b"2", overwrite=True)) == kept
    assert code(lambda: writer.upload_blob("old", b"2", overwrite=False)) == (409, "BlobAlreadyExists")
    assert code(lambda: writer.get_blob_client("old").set_blob_metadata({"a": "b"})) == kept
    assert code(lambda: log.create_append_blob()) == kept
    assert code(lambda: azure.client("operator").delete_container(container))[0] == 409
    assert writer.download_blob("old").readall() == b"1"
    azure.do("clock", offset_s=8 * DAY_S)
    assert code(lambda: writer.upload_blob("old", b"2", overwrite=True)) == kept
    collector.delete_blob("old")
    collector.delete_blob("log")
    with pytest.raises(ResourceNotFoundError):
        writer.download_blob("old")


def test_a_locked_policy_only_grows(azure: LabAzure, container: str, management: Any) -> None:
    policies = management.blob_containers
    where = (GROUP, ACCOUNT, container)
    with pytest.raises(ResourceNotFoundError):
        policies.get_immutability_policy(*where)
    made = policies.create_or_update_immutability_policy(*where, parameters={"properties": {DAYS: 2}})
    same = MatchConditions.IfNotModified
    locked = policies.lock_immutability_policy(*where, etag=str(made.etag), match_condition=same)
    assert locked.state == "Locked"
    assert locked.etag != made.etag
    assert policies.get_immutability_policy(*where).etag == locked.etag
    with pytest.raises(HttpResponseError) as stale:
        policies.extend_immutability_policy(
            *where, etag=str(made.etag), match_condition=same, parameters={"properties": {DAYS: 3}}
        )
    assert stale.value.status_code == 412
    longer = policies.extend_immutability_policy(
        *where, etag=str(locked.etag), match_condition=same, parameters={"properties": {DAYS: 3}}
    )
    assert longer.immutability_period_since_creation_in_days == 3
    refused: list[Callable[[], Any]] = [
        lambda: policies.create_or_update_immutability_policy(*where, parameters={"properties": {DAYS: 9}}),
        lambda: policies.delete_immutability_policy(*where, etag=str(longer.etag), match_condition=same),
        lambda: policies.create_or_update_immutability_policy(
            *where,
            parameters={
                "properties": {
                    DAYS: 9, "allowProtectedAppendWrites": True, "allowProtectedAppendWritesAll": True,
                }
            },
        ),
    ]  # fmt: skip
    for act in refused:
        with pytest.raises(HttpResponseError):
            act()
    assert policies.get(*where).has_immutability_policy is True


def test_a_legal_hold_keeps_everything(azure: LabAzure, container: str, management: Any) -> None:
    blobs(azure, container).upload_blob("x", b"1")
    management.blob_containers.set_legal_hold(GROUP, ACCOUNT, container, legal_hold={"tags": ["case1"]})
    azure.do("clock", offset_s=10_000 * DAY_S)
    collector = blobs(azure, container, "collector")
    assert code(lambda: collector.delete_blob("x")) == (409, "BlobImmutableDueToLegalHold")
    management.blob_containers.clear_legal_hold(GROUP, ACCOUNT, container, legal_hold={"tags": ["case1"]})
    collector.delete_blob("x")


def test_the_account_says_that_it_is_private_and_keyless(management: Any) -> None:
    account = management.storage_accounts.get_properties(GROUP, ACCOUNT)
    assert (account.allow_shared_key_access, account.public_network_access) == (False, "Disabled")
    with pytest.raises(ResourceNotFoundError):
        management.storage_accounts.get_properties(GROUP, "another")
    with pytest.raises(ResourceNotFoundError):
        management.blob_containers.get(GROUP, ACCOUNT, "not-there")


def test_only_the_operator_manages(azure: LabAzure) -> None:
    for identity, audience, status in (("writer", MANAGEMENT, 403), ("operator", STORAGE, 401)):
        client = StorageManagementClient(
            Credential(azure, identity, audience), settings.SUBSCRIPTION, base_url=azure.url("management"),
            connection_verify=str(azure.ca), retry_total=0,
        )  # fmt: skip
        with pytest.raises(HttpResponseError) as caught:
            client.storage_accounts.get_properties(GROUP, ACCOUNT)
        assert caught.value.status_code == status


# ---- faults


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_error_status_does_nothing_and_asks_for_patience(
    azure: LabAzure, container: str, status: int
) -> None:
    client = blobs(azure, container)
    azure.fault("status", status=status, retry_after=7, method="PUT", prefix=f"/{container}/a")
    with pytest.raises(HttpResponseError) as caught:
        client.upload_blob("a1", b"x")
    assert caught.value.status_code == status
    response: Any = caught.value.response
    assert response.headers["Retry-After"] == "7"
    client.upload_blob("b1", b"x")
    assert [one.name for one in client.list_blobs()] == ["b1"]


def test_the_sdks_own_retries_get_over_a_fault_that_ends(azure: LabAzure, container: str) -> None:
    azure.fault("status", status=503, retry_after=0, count=2, method="PUT")
    blobs(azure, container, retry_total=3, initial_backoff=0, increment_base=0).upload_blob("a", b"x")
    assert [one["status"] for one in azure.requests() if one["path"].endswith("/a")] == [503, 503, 201]


@pytest.mark.parametrize(("kind", "stored"), [("reset", False), ("outage", False), ("lost_reply", True)])
def test_a_cut_connection_says_nothing_of_what_was_stored(
    azure: LabAzure, container: str, kind: str, stored: bool
) -> None:
    client = blobs(azure, container)
    azure.fault(kind)
    with pytest.raises(ServiceResponseError):
        client.upload_blob("a", b"x" * 100_000)
    azure.heal()
    assert client.get_blob_client("a").exists() is stored


def test_a_lost_answer_to_an_append_leaves_the_block(azure: LabAzure, container: str) -> None:
    log = blobs(azure, container).get_blob_client("log")
    log.create_append_blob()
    azure.fault("lost_reply", comp="appendblock", count=1)
    with pytest.raises(ServiceResponseError):
        log.append_block(b"abc", appendpos_condition=0)
    assert log.get_blob_properties().size == 3
    assert code(lambda: log.append_block(b"abc", appendpos_condition=0))[0] == 412


def test_a_truncated_download_is_noticed(azure: LabAzure, container: str) -> None:
    client = blobs(azure, container)
    client.upload_blob("a", b"x" * 100_000)
    azure.fault("truncated", method="GET", after_bytes=99_999)
    with pytest.raises(HttpResponseError, match="IncompleteRead"):
        client.download_blob("a").readall()


def test_a_lie_is_believed(azure: LabAzure, container: str) -> None:
    client = blobs(azure, container)
    log = client.get_blob_client("log")
    log.create_append_blob()
    azure.fault("lying", prefix=f"/{container}/")
    client.upload_blob("a", b"x")
    assert log.append_block(b"abc", appendpos_condition=0)["blob_append_offset"] == "0"
    azure.heal()
    assert not client.get_blob_client("a").exists()
    assert log.get_blob_properties().size == 0


def test_a_stale_listing_lacks_what_is_new(azure: LabAzure, container: str) -> None:
    client = blobs(azure, container)
    client.upload_blob("before", b"x")
    azure.fault("stale_list")
    client.upload_blob("since", b"x")
    assert [one.name for one in client.list_blobs()] == ["before"]
    assert client.get_blob_client("since").exists()
    azure.heal()
    assert [one.name for one in client.list_blobs()] == ["before", "since"]


def test_a_slow_store_is_a_slow_store(azure: LabAzure, container: str) -> None:
    client = blobs(azure, container)
    azure.fault("slow", rate_bytes_s=20_000, method="PUT")
    began = time.monotonic()
    client.upload_blob("a", b"x" * 10_000)
    assert time.monotonic() - began >= 0.5  # the rate is never exceeded
    assert client.download_blob("a").readall() == b"x" * 10_000


def test_a_store_that_never_answers_runs_into_the_clients_timeout(azure: LabAzure, container: str) -> None:
    azure.fault("hang", method="GET")
    with pytest.raises(ServiceResponseError, match="timed out"):
        blobs(azure, container, read_timeout=1).download_blob("a")


def test_the_resource_manager_has_faults_of_its_own(azure: LabAzure, container: str, management: Any) -> None:
    azure.fault("status", service="management", status=429, retry_after=1)
    with pytest.raises(HttpResponseError) as caught:
        management.blob_containers.get(GROUP, ACCOUNT, container)
    assert caught.value.status_code == 429
    azure.heal()
    assert management.blob_containers.get(GROUP, ACCOUNT, container).name == container


def test_an_existing_container_is_said_to_exist(azure: LabAzure, container: str) -> None:
    with pytest.raises(ResourceExistsError):
        azure.client("operator").create_container(container)


# ---- versions


@pytest.fixture
def versioning(azure: LabAzure) -> None:
    azure.do("policy", versioning=True)  # the fixture azure switches it off again


def test_what_is_replaced_or_deleted_stays_as_a_version(
    azure: LabAzure, container: str, versioning: None
) -> None:
    client = blobs(azure, container, "operator")
    first = client.get_blob_client("a").upload_blob(b"one")["version_id"]
    client.upload_blob("a", b"second", overwrite=True)
    client.delete_blob("a")
    assert [one.name for one in client.list_blobs()] == []
    kept = [one for one in client.list_blobs(include=["versions"]) if one.name == "a"]
    assert [one.size for one in kept] == [3, 6]
    assert kept[0].version_id == first
    old = client.get_blob_client("a", version_id=str(kept[0].version_id))
    assert old.download_blob().readall() == b"one"
    assert old.download_blob(offset=1, length=1).readall() == b"n"
    assert old.get_blob_properties().size == 3
    old.delete_blob()
    assert [one.size for one in client.list_blobs(include=["versions"])] == [6]


def test_a_write_that_is_refused_leaves_no_version(azure: LabAzure, container: str, versioning: None) -> None:
    client = blobs(azure, container)
    client.upload_blob("a", b"one")
    with pytest.raises(ResourceExistsError):
        client.upload_blob("a", b"two", overwrite=False)
    assert [one.is_current_version for one in client.list_blobs(include=["versions"])] == [True]


def test_a_version_that_is_retained_cannot_be_deleted(
    azure: LabAzure, container: str, versioning: None
) -> None:
    client = blobs(azure, container, "operator")
    client.upload_blob("a", b"one")
    client.upload_blob("a", b"two", overwrite=True)
    azure.do("policy", container=container, days=5)
    former = next(one for one in client.list_blobs(include=["versions"]) if not one.is_current_version)
    old = client.get_blob_client("a", version_id=str(former.version_id))
    assert code(old.delete_blob) == (409, "BlobImmutableDueToPolicy")
    assert old.download_blob().readall() == b"one"


# ---- roles, as the resource manager shows them


def test_roles_are_those_that_the_playbook_wants(azure: LabAzure, container: str) -> None:
    wanted = Wanted(settings.SUBSCRIPTION, GROUP, ACCOUNT, container, 1)
    manager = Management(azure.management(), settings.SUBSCRIPTION)
    names = {"writers": "writer", "collectors": "collector", "readers": "reader"}
    for role in (role for role in ROLES if role.key in names):
        principal = settings.IDENTITIES[names[role.key]].object_id
        assert judge(role, principal, manager.assigned(wanted, principal) or []) == ""
    nobody = settings.IDENTITIES["none"].object_id
    assert manager.assigned(wanted, nobody) == []
    powerful = settings.IDENTITIES["operator"].object_id
    assert judge(ROLES[0], powerful, manager.assigned(wanted, powerful) or []) != ""
