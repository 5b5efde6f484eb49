# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811  (fixtures are imported by the names of the parameters)
"""What an estate declares can be used: containers and keys, by their names, identities and private endpoints.

The estate is deployed as a site deploys it, and then used with the programs that hosts have: real Azurite and
real RSA keys behind the emulated roles and endpoints.
"""

from __future__ import annotations

import contextlib
import socket
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from azure.core.exceptions import HttpResponseError
from azure.keyvault.keys import KeyClient
from azure.keyvault.keys.crypto import CryptographyClient
from azure.mgmt.msi import ManagedServiceIdentityClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.storage import StorageManagementClient
from azure.storage.blob import BlobServiceClient

from ironspan.azure.keyvault import VaultKeys
from ironspan.azure.private_endpoint import Endpoint, insist_on_private, transport
from ironspan.backup.azure.blob import BlobStore
from ironspan.program.errors import ProgramError, RoleMissing, ServiceError
from tests.support.lab_arm import LabArm
from tests.support.lab_azure import STORAGE, Credential, LabAzure, running_azure  # noqa: F401
from tests.support.lab_estate import POOL, SMALL, run
from tests.unit.backup.store_cases import whole

VAULT = "https://vault.azure.net"
SUFFIX = "blob.core.windows.net"
DATA: dict[str, t.Any] = {
    "azure_pools": [POOL],
    "azure_vault": {"keys": ["kms", "backup"]},
    "azure_backup": {"container": "etcd"},
    "azure_storage": [
        {"name": "weights", "containers": ["models", "runs"], "readers": ["burst"], "writers": ["etcd"]}
    ],
}
PREFIX = "ironspan-example-id-"


@pytest.fixture(scope="module")
def arm(running_azure: LabAzure) -> Iterator[LabArm]:
    """An estate with an account of backups, one of weights, and a vault, deployed once for all tests."""
    manager = LabArm(running_azure)
    running_azure.heal()
    running_azure.do("arm_clear")
    manager.set(limits={"StandardNCadsH100v5Family": 400, "cores": 800})
    assert run(manager, **DATA).problems == []
    yield manager
    running_azure.do("arm_clear")


@pytest.fixture(scope="module")
def estate(arm: LabArm) -> Estate:
    """The same, as the site declares it."""
    found = declared({**SMALL, **DATA})
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _private_names(arm: LabArm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names lead to private endpoints as the zones of the estate say, and nowhere else."""
    really = socket.getaddrinfo

    def resolve(host: t.Any, *arguments: t.Any, **named: t.Any) -> t.Any:
        if str(host).endswith((f".{SUFFIX}", ".vault.azure.net", ".vaultcore.azure.net")):
            if host not in arm.show()["names"]:
                raise socket.gaierror(socket.EAI_NONAME, f"no zone has {host}")
            host = "127.0.0.1"
        return really(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def container(arm: LabArm, account: str, name: str, who: str, door: str = "private") -> BlobStore:
    """Return a container as the backup's programs open it, for an identity of the estate."""
    port = arm.azure.ports[door]
    service = BlobServiceClient(
        f"https://{account}.{SUFFIX}:{port}",
        credential=Credential(arm.azure, f"{PREFIX}{who}", STORAGE),
        transport=transport(private=True, ca=str(arm.azure.ca), read_s=20),
        retry_total=0,
    )
    return BlobStore(service, name, "site/", delays=(0.01,))


def key(arm: LabArm, estate: Estate, purpose: str, who: str, cache: Path) -> VaultKeys:
    """Return a key of the estate's vault as programs on hosts open it."""
    assert estate.vault
    url = f"https://{estate.vault.name}.vault.azure.net:{arm.azure.ports['private']}"
    name, identity = estate.vault.keys[purpose], Credential(arm.azure, f"{PREFIX}{who}", VAULT)
    options: dict[str, t.Any] = {
        "transport": transport(private=True, ca=str(arm.azure.ca), read_s=20),
        "retry_total": 0,
        # The challenge is for the vault's name without a port.
        "verify_challenge_resource": False,
    }

    def cryptography(version: str) -> CryptographyClient:
        return CryptographyClient(f"{url}/keys/{name}/{version}", identity, **options)

    return VaultKeys(KeyClient(url, identity, **options), name, cryptography, cache, delays=(0.01,))


@contextlib.contextmanager
def refused(*kinds: type[Exception]) -> Iterator[None]:
    with pytest.raises(kinds):
        yield


def test_the_account_of_backups_takes_those_of_members_and_of_nobody_else(
    arm: LabArm, estate: Estate
) -> None:
    assert estate.backup
    account, name = estate.backup.account, estate.backup.container
    insist_on_private(Endpoint.of(f"https://{account}.{SUFFIX}"))
    member = container(arm, account, name, "etcd-1")
    member.put("2026/snapshot", [b"etcd"])
    other = container(arm, account, name, "etcd-2")
    assert [one.name for one in other.list("")] == ["2026/snapshot"]
    assert whole(other, "2026/snapshot") == b"etcd"
    with refused(RoleMissing):
        member.delete("2026/snapshot")
    stranger = container(arm, account, name, "control-plane-1")
    with refused(RoleMissing):
        stranger.put("x", [b"x"])
    with refused(RoleMissing):
        whole(stranger, "2026/snapshot")
    # What it has in one container says nothing of another.
    with refused(RoleMissing):
        container(arm, account, "weights", "etcd-1").put("x", [b"x"])


def test_nothing_comes_to_an_account_by_its_public_side_or_without_its_endpoint(
    arm: LabArm, estate: Estate
) -> None:
    assert estate.backup
    account, name = estate.backup.account, estate.backup.container
    with refused(ProgramError):
        container(arm, account, name, "etcd-1", door="store").put("x", [b"x"])
    last = arm.azure.requests()[-1]
    assert (last["status"], last["method"]) == (403, "PUT")
    network = arm.client(NetworkManagementClient)
    network.private_endpoints.begin_delete(
        "ironspan-example-data", "ironspan-example-endpoint-backup"
    ).result()
    with refused(ServiceError):
        insist_on_private(Endpoint.of(f"https://{account}.{SUFFIX}"))
    with refused(ServiceError):
        container(arm, account, name, "etcd-1").put("x", [b"x"])
    assert run(arm, **DATA).problems == []
    container(arm, account, name, "etcd-1").put("x", [b"x"])


@pytest.mark.long
def test_a_role_that_ended_counts_no_more(arm: LabArm, estate: Estate) -> None:
    assert estate.backup
    store = container(arm, estate.backup.account, estate.backup.container, "etcd-3")
    store.put("one", [b"1"])
    identities = arm.client(ManagedServiceIdentityClient).user_assigned_identities
    who = identities.get("ironspan-example-data", f"{PREFIX}etcd-3").principal_id
    arm.set(role_ends={str(who): 1.0})
    # Azure ends it by itself; here with the next request of anybody.
    assert any("lacks" in what or "create" in what for what in run(arm, check=True, **DATA).done)
    with refused(RoleMissing):
        store.put("two", [b"2"])
    assert run(arm, **DATA).problems == []
    store.put("two", [b"2"])


def test_what_a_policy_keeps_nobody_overwrites_and_former_versions_stay(arm: LabArm, estate: Estate) -> None:
    assert estate.backup
    account, name = estate.backup.account, estate.backup.container
    store = container(arm, account, name, "etcd-1")
    store.put("kept", [b"1"])
    blobs = arm.client(StorageManagementClient).blob_containers
    where = ("ironspan-example-data", account, name)
    blobs.create_or_update_immutability_policy(
        *where, parameters={"properties": {"immutabilityPeriodSinceCreationInDays": 3}}
    )
    service = BlobServiceClient(
        f"https://{account}.{SUFFIX}:{arm.azure.ports['private']}",
        credential=Credential(arm.azure, f"{PREFIX}etcd-1", STORAGE),
        connection_verify=str(arm.azure.ca),
        retry_total=0,
    )
    client = service.get_blob_client(name, "site/kept")
    with pytest.raises(HttpResponseError) as caught:
        client.upload_blob(b"2", overwrite=True)
    assert "BlobImmutableDueToPolicy" in str(caught.value)
    assert whole(store, "kept") == b"1"


def test_weights_are_read_by_whom_the_site_names_and_written_by_others(arm: LabArm, estate: Estate) -> None:
    (weights,) = estate.storage
    writer = container(arm, weights.account, "models", "etcd-1")
    writer.put("llm", [b"weights"])
    reader = container(arm, weights.account, "models", "burst")
    assert whole(reader, "llm") == b"weights"
    with refused(RoleMissing):
        reader.put("llm2", [b"x"])
    writer.delete("llm")
    # Containers of one name in two accounts are two.
    assert [*container(arm, weights.account, "runs", "burst").list("")] == []
    with refused(RoleMissing):
        container(arm, weights.account, "models", "control-plane-2").put("x", [b"x"])


def test_a_key_of_the_vault_is_used_by_whose_it_is(arm: LabArm, estate: Estate, tmp_path: Path) -> None:
    mine = key(arm, estate, "backup", "etcd-1", tmp_path / "one")
    version, wrapped = mine.wrap(b"k" * 32)
    assert mine.unwrap(version, wrapped) == b"k" * 32
    # Another member reads what this one has wrapped: the private half is the vault's.
    assert key(arm, estate, "backup", "etcd-2", tmp_path / "two").unwrap(version, wrapped) == b"k" * 32
    for purpose, who in (("kms", "etcd-1"), ("backup", "control-plane-1"), ("backup", "burst")):
        with refused(ProgramError):
            key(arm, estate, purpose, who, tmp_path / f"{purpose}-{who}").wrap(b"k" * 32)
    kms = key(arm, estate, "kms", "control-plane-3", tmp_path / "kms")
    assert kms.unwrap(*kms.wrap(b"s" * 32)) == b"s" * 32
    with refused(ProgramError):
        kms.unwrap(version, wrapped)
