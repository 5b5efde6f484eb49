# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keys of a vault (a small fake one): rotation, outages, versions that were deleted or disabled."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest

from ironspan.azure.keyvault import FRESH_S, VaultKeys, open_key_vault
from ironspan.backup.crypto import new_data_key
from ironspan.backup.stores import open_keys
from ironspan.program.errors import KeyMissing, ProgramError, ServiceError
from tests.support.clock import Clock
from tests.support.key_vault import NAME, Vault, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    with running(tmp_path_factory.mktemp("vault")) as vault:
        yield vault


@pytest.fixture
def vault(server: Vault) -> Iterator[Vault]:
    server.rotate()
    yield server
    server.versions.clear()
    server.disabled.clear()
    server.requests.clear()
    server.refusal = None


@pytest.fixture
def keys(vault: Vault, tmp_path: pathlib.Path, clock: Clock) -> VaultKeys:
    return vault.keys(tmp_path / "cache" / "key.json", clock=clock)


def test_what_is_wrapped_here_is_opened_by_the_vault(vault: Vault, keys: VaultKeys) -> None:
    data_key = new_data_key()
    version, wrapped = keys.wrap(data_key)
    assert version == keys.current == next(iter(vault.versions))
    assert data_key not in wrapped
    assert keys.unwrap(version, wrapped) == data_key


def test_wrapping_asks_the_vault_once_an_hour(vault: Vault, keys: VaultKeys, clock: Clock) -> None:
    for _ in range(5):
        keys.wrap(new_data_key())
    assert len(vault.requests) == 1
    clock.now += FRESH_S
    keys.wrap(new_data_key())
    assert len(vault.requests) == 2


def test_a_rotation_counts_within_the_hour_and_old_versions_still_open(
    vault: Vault, keys: VaultKeys, clock: Clock
) -> None:
    data_key = new_data_key()
    old, wrapped = keys.wrap(data_key)
    new = vault.rotate()
    assert keys.current == old
    clock.now += FRESH_S
    assert keys.current == new
    assert keys.unwrap(old, wrapped) == data_key


def test_an_outage_of_the_vault_stops_no_backup(
    vault: Vault, keys: VaultKeys, clock: Clock, tmp_path: pathlib.Path
) -> None:
    data_key = new_data_key()
    version = keys.current
    vault.refusal = (503, "ServiceUnavailable", "")
    clock.now += 10 * FRESH_S
    wrapped = keys.wrap(data_key)
    restarted = vault.keys(tmp_path / "cache" / "key.json")
    again = restarted.wrap(data_key)
    assert wrapped[0] == again[0] == version
    with pytest.raises(ServiceError) as caught:
        keys.unwrap(*wrapped)
    assert caught.value.retryable
    vault.refusal = None
    assert keys.unwrap(*wrapped) == keys.unwrap(*again) == data_key


def test_an_outage_before_the_first_answer_is_told(vault: Vault, keys: VaultKeys) -> None:
    vault.refusal = (500, "InternalServerError", "")
    with pytest.raises(ServiceError) as caught:
        keys.wrap(new_data_key())
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("change", "works"),
    [({}, True), ({"id": "https://other.vault.azure.net/keys/etcd-backup/1"}, False), ({"n": None}, False)],
)
def test_only_the_key_of_this_vault_is_taken_from_the_file(
    vault: Vault, keys: VaultKeys, tmp_path: pathlib.Path, change: dict[str, str | None], works: bool
) -> None:
    version = keys.current
    file = tmp_path / "cache" / "key.json"
    kept = {**json.loads(file.read_text()), **change}
    file.write_text(json.dumps({name: value for name, value in kept.items() if value is not None}))
    vault.refusal = (503, "ServiceUnavailable", "")
    restarted = vault.keys(file)
    if works:
        assert restarted.current == version
    else:
        with pytest.raises(ServiceError):
            restarted.wrap(new_data_key())


def test_a_file_that_cannot_be_written_stops_no_backup(vault: Vault, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    keys = vault.keys(tmp_path / "file" / "key.json")
    assert keys.wrap(new_data_key())[0] == next(iter(vault.versions))


def test_the_file_holds_nothing_secret(vault: Vault, keys: VaultKeys, tmp_path: pathlib.Path) -> None:
    keys.wrap(new_data_key())
    kept = json.loads((tmp_path / "cache" / "key.json").read_text())
    assert set(kept) == {"id", "version", "n", "e"}
    assert int(kept["n"], 16) == vault.versions[kept["version"]].public_key().public_numbers().n


def test_a_disabled_version_does_not_wrap_and_does_not_open(
    vault: Vault, keys: VaultKeys, clock: Clock
) -> None:
    wrapped = keys.wrap(new_data_key())
    vault.disabled.add(wrapped[0])
    clock.now += FRESH_S
    for ask in (lambda: keys.wrap(new_data_key()), lambda: keys.unwrap(*wrapped)):
        with pytest.raises(KeyMissing, match=f"--id {vault.url}/keys/{NAME}/{wrapped[0]} --enabled true"):
            ask()


def test_a_deleted_version_is_recovered_by_command(vault: Vault, keys: VaultKeys) -> None:
    wrapped = keys.wrap(new_data_key())
    vault.versions.clear()
    with pytest.raises(KeyMissing, match="az keyvault key recover"):
        keys.unwrap(*wrapped)


def test_another_key_does_not_open_it(vault: Vault, keys: VaultKeys) -> None:
    _, wrapped = keys.wrap(new_data_key())
    with pytest.raises(KeyMissing, match="does not open"):
        keys.unwrap(vault.rotate(), wrapped)


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("ForbiddenByRbac", "Key Vault Crypto Service Encryption User"),
        ("AccessDenied", "may not use it"),
        ("ForbiddenByFirewall", "refuses this network"),
        ("ForbiddenByConnection", "private endpoint"),
        ("KeyDisabled", "is disabled"),
    ],
)
def test_refusals_of_the_vault(vault: Vault, keys: VaultKeys, inner: str, text: str) -> None:
    vault.refusal = (403, "Forbidden", inner)
    with pytest.raises(ProgramError, match=text):
        keys.unwrap("1", b"x" * 256)


def test_a_vault_is_opened_by_its_settings_and_refuses_keys() -> None:
    settings = {"kind": "key_vault", "vault_url": "https://127.0.0.1:9", "key": NAME, "ca": ""}
    credential = {"kind": "managed_identity", "client_id": ""}
    assert isinstance(open_keys({**settings, "credential": credential}), VaultKeys)
    with pytest.raises(ProgramError, match="client_secret holds a key"):
        open_key_vault({**settings, "credential": {**credential, "client_secret": "x"}})
