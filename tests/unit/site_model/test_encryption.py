# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what a site says about the encryption of secrets, one each."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, Mutation
from .test_mutations import test_mutation as check_mutation

VAULT = """
control_plane_secrets_encryption: key_vault
control_plane_key_vault:
  vault_url: https://acme.vault.azure.net
  key: etcd-secrets
  credential: {kind: managed_identity}
  outage_hours: 24
"""
_URL = "vault_url: https://acme.vault.azure.net"


def wrong(name: str, old: str, new: str, says: str, at: str = "") -> Mutation:
    """Return a mistake in a text that is right and added to the inventory."""
    assert old in VAULT, name
    where = at or next(line.strip() for line in new.splitlines() if line.strip())
    return Mutation(name, ((ALL, "", VAULT.replace(old, new, 1)),), ALL, where, says, 1)


MISTAKES = (
    wrong("no such way", "key_vault\n", "aescbc\n", "one of", "control_plane_secrets_encryption: aescbc"),
    wrong(
        "a vault without a name of the key",
        "  key: etcd-secrets\n",
        "",
        "is missing",
        "control_plane_key_vault:",
    ),
    wrong("an address without https", _URL, "vault_url: http://acme.vault.azure.net", "not of the form"),
    wrong(
        "a key in the address", _URL, "vault_url: https://x.vault.azure.net/?sig=a", "has a key or signature"
    ),
    wrong("too many hours", "outage_hours: 24", "outage_hours: 99999", "99999 is outside 0 to 87600"),
    wrong("an authority that is no path", "  outage_hours: 24", "  ca: vault.pem", "is no path on a host"),
    wrong(
        "metrics at a name",
        "  outage_hours: 24\n",
        "control_plane_kms_metrics_address: localhost\n",
        "'localhost' is no IP address",
    ),
    wrong(
        "flags of one's own beside it",
        "  outage_hours: 24\n",
        "control_plane_api_server_args:\n  encryption-provider-config: /etc/mine.yaml\n",
        "control_plane_secrets_encryption sets it",
        "encryption-provider-config: /etc/mine.yaml",
    ),
)


@pytest.mark.parametrize("mutation", MISTAKES, ids=lambda mutation: mutation.name)
def test_mistakes(example: Example, mutation: Mutation) -> None:
    check_mutation(example, mutation)


def test_a_vault_that_is_not_named_at_all(example: Example) -> None:
    example.append(ALL, "\ncontrol_plane_secrets_encryption: key_vault\n")
    problems = example.problems()
    assert {problem.path for problem in problems} == {
        f"control_plane_key_vault.{name}" for name in ("vault_url", "key", "credential")
    }
    assert all(problem.line for problem in problems)


@pytest.mark.parametrize("text", [VAULT, "\ncontrol_plane_secrets_encryption: secretbox\n"])
def test_what_is_right(example: Example, text: str) -> None:
    example.append(ALL, text)
    assert example.problems() == []


def test_control_planes_that_disagree(example: Example) -> None:
    example.append(ALL, "\ncontrol_plane_secrets_encryption: secretbox\n")
    example.append("host_vars/az-3.yml", "control_plane_secrets_encryption: none\n")
    (problem,) = example.problems()
    assert "another one for az-3 than for az-1" in problem.message
    assert problem.file.endswith("az-3.yml")
