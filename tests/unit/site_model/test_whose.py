# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What belongs to somebody else: folders, vaults, identities, addresses; and people who are too few."""

from __future__ import annotations

from pathlib import Path

import pytest

from .backup_mutations import AZURE, FILE, VAULT
from .conftest import Example
from .mutations import ALL

TENANT, AUDIENCE = "72f988bf-86f1-41af-91ab-2d7cd011db47", "72f988bf-86f1-41af-91ab-2d7cd011db48"
ZERO = "00000000-0000-0000-0000-000000000000"
KEYS = AZURE + VAULT
WRONG = (
    (f"identity_tenant_id: {ZERO}\nidentity_audiences: [{AUDIENCE}]", "is no GUID", "identity_tenant_id"),
    (f"identity_tenant_id: {TENANT}\nidentity_audiences: [{ZERO}]", "is no GUID", ""),
    (f"identity_tenant_id: {TENANT}\nidentity_audiences: [{TENANT}]", "and no application", ""),
    ("admission_service_addresses: [10.20.0.0/24]", "has the API's address 10.20.0.10", ""),
    ("admission_service_addresses: [127.0.0.0/8]", "has no addresses that a service is reached at", ""),
    ("admission_service_addresses: [169.254.0.0/16]", "has no addresses that a service is reached at", ""),
    ("admission_load_balancers: ['system:serviceaccount:metallb-system']", "is no name of a user", ""),
    ("dns_node_cache_address: 169.254.255.255", "is no link-local address", ""),
    (KEYS.replace("vault.azure.net", "vault.azure.net/keys/etcd"), "has a path", "vault_url"),
    (KEYS.replace("keys.vault.azure", "keys.blob.core.windows"), "a name of another service", "vault_url"),
    (KEYS.replace("backups.blob.core", "backups.dfs.core"), "a name of another service", "account_url"),
    (
        KEYS.replace("{kind: managed_identity}", f"{{kind: arc, client_id: {TENANT}}}"),
        "a machine of Arc has its own alone",
        "kind: arc, client_id",
    ),
    (AZURE.replace("windows.net", "windows.net/etcd"), "the container has its own field", "account_url"),
    (FILE.replace("/srv/etcd-backup", "/dev/shm/backup"), "is no place for backups", "path: /dev"),
    (FILE.replace("/srv/etcd-backup", "/run/backup"), "is no place for backups", "path: /run"),
    (f"{FILE}    prefix: ../", "is no prefix", "prefix:"),
    ("etcd_backup_management: {kind: workload_identity}", "token_file: is missing", ""),
    ("etcd_disk_devices: [/dev/disk/by-id]", "is no lasting name of a disk", ""),
)


@pytest.mark.parametrize(("lines", "says", "at"), WRONG)
def test_what_is_of_somebody_else(example: Example, lines: str, says: str, at: str) -> None:
    example.append(ALL, f"{lines}\n")
    found = [problem for problem in example.problems() if says in str(problem)]
    place = example.line(ALL, at or lines.splitlines()[-1])
    assert [problem.line for problem in found] == [place], example.problems()


@pytest.mark.parametrize(
    "lines",
    [
        "admission_service_addresses: [10.20.1.0/24, 203.0.113.0/28, 192.168.0.0/16]",
        "admission_load_balancers: ['system:serviceaccount:metallb-system:controller', metallb]",
        "etcd_disk_devices: [/dev/disk/azure/scsi1/lun0, /dev/disk/by-id/nvme-eui.01000000-part1]",
        KEYS.replace("keys.vault.azure.net", "keys.vault.azure.net:443/"),
    ],
)
def test_what_is_the_sites_own(example: Example, lines: str) -> None:
    example.append(ALL, f"{lines}\n")
    assert example.problems() == []


@pytest.mark.parametrize("variable", ["etcd_heartbeat_ms: 200", "etcd_election_ms: 2000"])
def test_members_of_etcd_with_times_of_their_own(example: Example, variable: str) -> None:
    example.append("host_vars/az-2.yml", f"{variable}\n")
    (problem,) = example.problems()
    assert (Path(problem.file).name, problem.remedy) == ("az-2.yml", "write it once, in group_vars/all.yml")


def test_a_folder_that_is_no_store(example: Example, tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    example.put(ALL, f"site_pki_store: {folder}")
    assert example.problems() == []
    folder.chmod(0o777)
    assert [problem.message for problem in example.problems()] == [f"others can write to {folder}"]
    (folder / "letter.txt").write_text("Dear all")
    (problem,) = example.problems()
    assert problem.message == f"{folder} is not empty and no PKI store: it has letter.txt"
    assert problem.line == example.line(ALL, "site_pki_store")


def test_approvals_by_people_that_there_are(example: Example, tmp_path: Path) -> None:
    signers = tmp_path / "signers"
    example.append(ALL, f"site_plan_approvals: 2\nsite_plan_allowed_signers: {signers}\n")
    said = []
    for text in ("", "ann ssh-ed25519 A\nann ssh-ed25519 B\n# bob\n*@x ssh-ed25519 C\n"):
        said += [(problem.line, problem.message) for problem in example.problems()]
        signers.write_text(text)
    said += [(problem.line, problem.message) for problem in example.problems()]
    line = example.line(ALL, "allowed_signers")
    few = "people, and a plan needs 2 (site_plan_approvals)"
    assert said == [
        (line, f"{signers} cannot be read: No such file or directory"),
        (line, f"{signers} names 0 {few}"),
        (line, f"{signers} names 1 {few}"),
    ]
    signers.write_text("ann,ann@x ssh-ed25519 A\nbob ssh-ed25519 B\n")
    assert example.problems() == []


def test_a_signer_without_a_name(example: Example, tmp_path: Path) -> None:
    """A file of public keys is none of signers: ssh-keygen would find nobody in it."""
    signers = tmp_path / "signers"
    signers.write_text("# who may\nann ssh-ed25519 A\nssh-ed25519 B bob@x\n")
    example.append(ALL, f"site_plan_approvals: 1\nsite_plan_allowed_signers: {signers}\n")
    (problem,) = example.problems()
    assert f"line 3 of {signers} begins with a key" in problem.message
