# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The KMS v2 plugin with a fake vault: outages, starts without the vault, rotation, revocation, tampering."""

from __future__ import annotations

import base64
import contextlib
import functools
import math
import os
import socket
import typing as t
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ironspan.azure.keyvault import VaultKeys
from ironspan.kms import seeds as seeds_module
from ironspan.kms.metrics import Metrics
from ironspan.kms.plugin import OK, Plugin, Wrapped
from ironspan.kms.protocol import MESSAGES, SERVICE
from ironspan.kms.seeds import Seeds
from ironspan.kms.server import SEALED, serving
from ironspan.program.errors import KeyMissing, ProgramError, ServiceError
from tests.support.clock import Clock
from tests.support.key_vault import NAME, Vault, running

PLACE = "127.0.0.1/keys/etcd-backup"
HOURS = 3600.0
OUTAGE_S = 72 * HOURS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    with running(tmp_path_factory.mktemp("vault")) as vault:
        yield vault


@functools.cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    """Return a key, made once: that is most of what these tests would take."""
    return rsa.generate_private_key(65537, 2048)


def rotate(vault: Vault) -> str:
    """Make a new version of the vault's key and return its name."""
    version = f"{len(vault.versions) + 1:032x}"
    vault.versions[version] = rsa_key(len(vault.versions))
    return version


@pytest.fixture
def vault(server: Vault) -> Iterator[Vault]:
    rotate(server)
    yield server
    server.versions.clear()
    server.disabled.clear()
    server.requests.clear()
    server.refusal = None


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Host:
    """A control plane's disk and clock, on which the plugin can be started again and again."""

    def __init__(self, vault: Vault, folder: Path, clock: Clock) -> None:
        self.vault, self.folder, self.clock = vault, folder, clock
        clock.now = 1_800_000_000.0
        self.seal_key = folder / "seal.key"
        self.write_key(os.urandom(32))

    def write_key(self, key: bytes) -> None:
        """Give the host a key to seal with."""
        self.seal_key.write_bytes(base64.b64encode(key) + b"\n")
        self.seal_key.chmod(0o600)

    def keys(self) -> VaultKeys:
        """Return the vault's keys as the program opens them."""
        return self.vault.keys(self.folder / "public.json", asks=False)

    def start(
        self,
        *,
        probed: bool = True,
        place: str = PLACE,
        failed: t.Callable[[ProgramError], object] = lambda error: None,
    ) -> Plugin:
        """Start the program."""
        seeds = Seeds(self.folder / "seeds", self.seal_key, place)
        plugin = Plugin(self.keys(), place, seeds, OUTAGE_S, self.clock, failed)
        if probed:
            plugin.probe()
        return plugin

    def cut(self) -> None:
        """Let the vault be away."""
        self.vault.refusal = (503, "ServiceUnavailable", "")


@pytest.fixture
def host(vault: Vault, tmp_path: Path, clock: Clock) -> Host:
    return Host(vault, tmp_path, clock)


def test_a_seed_is_wrapped_and_opened(host: Host, vault: Vault) -> None:
    plugin, seed = host.start(), os.urandom(32)
    wrapped = plugin.encrypt(seed)
    version = next(iter(vault.versions))
    assert plugin.status() == (OK, f"{PLACE}/{version}")
    assert wrapped.key_id == f"{PLACE}/{version}"
    assert seed not in wrapped.ciphertext
    assert plugin.decrypt(wrapped) == seed
    (host.folder / "seeds").unlink()
    assert host.start().decrypt(wrapped) == seed, "by the vault itself"


def test_api_servers_start_while_the_vault_is_away(host: Host, vault: Vault) -> None:
    seed = os.urandom(32)
    wrapped = host.start().encrypt(seed)
    host.cut()
    for _ in range(3):
        plugin = host.start()
        assert plugin.status()[0] == OK
        assert plugin.decrypt(wrapped) == seed
        mine = os.urandom(32)
        again = plugin.encrypt(mine)
        assert plugin.decrypt(again) == mine
    unknown = Wrapped(os.urandom(256), wrapped.key_id)
    with pytest.raises(ServiceError) as caught:
        plugin.decrypt(unknown)
    assert caught.value.retryable


def test_what_was_known_is_answered_before_the_first_question(host: Host, vault: Vault) -> None:
    wrapped = host.start().encrypt(b"s" * 32)
    vault.requests.clear()
    plugin = host.start(probed=False)
    assert plugin.status()[0] == OK
    assert plugin.decrypt(wrapped) == b"s" * 32
    assert vault.requests == []


def test_status_and_wrapping_never_wait_for_the_vault(host: Host, vault: Vault) -> None:
    plugin = host.start()
    host.cut()
    plugin.probe()
    vault.requests.clear()
    plugin.status()
    plugin.encrypt(b"s" * 32)
    assert vault.requests == []


@pytest.mark.parametrize(("hours", "opens"), [(0, True), (71.9, True), (72.1, False), (-1, False)])
def test_an_outage_has_an_end(host: Host, hours: float, opens: bool) -> None:
    plugin = host.start()
    wrapped = plugin.encrypt(b"s" * 32)
    host.cut()
    host.clock.now += hours * HOURS
    for tried in (plugin, host.start()):
        tried.probe()
        assert (tried.status()[0] == OK) is opens
        if opens:
            assert tried.decrypt(wrapped) == b"s" * 32
        else:
            with pytest.raises(ServiceError):
                tried.decrypt(wrapped)


def test_the_end_of_an_outage_makes_all_well_again(host: Host, vault: Vault) -> None:
    plugin = host.start()
    wrapped = plugin.encrypt(b"s" * 32)
    host.cut()
    host.clock.now += 100 * HOURS
    plugin.probe()
    vault.refusal = None
    plugin.probe()
    assert plugin.status()[0] == OK
    assert plugin.decrypt(wrapped) == b"s" * 32


def test_another_version_is_another_key_id_and_the_old_one_still_opens(host: Host, vault: Vault) -> None:
    plugin = host.start()
    old = plugin.encrypt(b"o" * 32)
    version = rotate(vault)
    plugin.probe()
    new = plugin.encrypt(b"n" * 32)
    assert plugin.status() == (OK, f"{PLACE}/{version}")
    assert new.key_id == f"{PLACE}/{version}" != old.key_id
    (host.folder / "seeds").unlink()
    fresh = host.start()
    assert (fresh.decrypt(old), fresh.decrypt(new)) == (b"o" * 32, b"n" * 32)


def test_a_disabled_key_opens_nothing_any_more_and_seeds_are_forgotten(host: Host, vault: Vault) -> None:
    plugin = host.start()
    wrapped = plugin.encrypt(b"s" * 32)
    vault.disabled.add(next(iter(vault.versions)))
    plugin.probe()
    assert "is disabled" in plugin.status()[0]
    for call in (lambda: plugin.decrypt(wrapped), lambda: plugin.encrypt(b"t" * 32)):
        with pytest.raises(KeyMissing):
            call()
    assert not (host.folder / "seeds").exists()
    host.cut()
    with pytest.raises(ServiceError):
        host.start().decrypt(wrapped)
    vault.refusal = None
    vault.disabled.clear()
    plugin.probe()
    assert plugin.status()[0] == OK
    assert plugin.decrypt(wrapped) == b"s" * 32


def test_a_refusal_of_this_host_is_an_outage_and_no_revocation(host: Host, vault: Vault) -> None:
    plugin = host.start()
    wrapped = plugin.encrypt(b"s" * 32)
    vault.refusal = (403, "Forbidden", "ForbiddenByFirewall")
    plugin.probe()
    assert plugin.status()[0] == OK
    assert plugin.decrypt(wrapped) == b"s" * 32


def test_what_the_vault_opened_before_its_key_was_disabled_is_forgotten_too(
    host: Host, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is still on the way when the probe finds that the key is disabled."""
    wrapped = host.start().encrypt(b"s" * 32)
    (host.folder / "seeds").unlink()
    plugin = host.start()
    really = plugin._keys.unwrap

    def late(version: str, content: bytes) -> bytes:
        opened = really(version, content)
        monkeypatch.undo()
        vault.disabled.add(version)
        plugin.probe()
        return opened

    monkeypatch.setattr(plugin._keys, "unwrap", late)
    with pytest.raises(KeyMissing):
        plugin.decrypt(wrapped)
    assert not (host.folder / "seeds").exists()


def test_nothing_works_before_the_vault_was_reached_once(host: Host) -> None:
    host.cut()
    plugin = host.start()
    for call in (plugin.status, lambda: plugin.encrypt(b"s" * 32)):
        with pytest.raises(ServiceError):
            call()


def test_what_another_vault_has_wrapped_is_refused_by_name(host: Host) -> None:
    plugin = host.start()
    with pytest.raises(ProgramError, match=r"other\.vault\.azure\.net/keys/etcd/1"):
        plugin.decrypt(Wrapped(b"x" * 256, "other.vault.azure.net/keys/etcd/1"))


def test_the_file_shows_no_seed_and_only_its_owner_reads_it(host: Host) -> None:
    seed = os.urandom(32)
    wrapped = host.start().encrypt(seed)
    content = (host.folder / "seeds").read_bytes()
    assert (host.folder / "seeds").stat().st_mode & 0o777 == 0o600
    for secret in (seed, base64.b64encode(seed), wrapped.ciphertext, PLACE.encode()):
        assert secret not in content


@pytest.mark.parametrize("damage", ["bit", "end", "key", "vault", "format", "empty"])
def test_a_file_that_is_not_this_hosts_and_vaults_is_no_cache(host: Host, damage: str) -> None:
    wrapped = host.start().encrypt(b"s" * 32)
    path, place = host.folder / "seeds", PLACE
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[len(content) // 2] ^= 1
    elif damage == "end":
        del content[-1]
    elif damage == "key":
        host.write_key(os.urandom(32))
    elif damage == "vault":
        place = "other.vault.azure.net/keys/etcd"
    else:
        content[:] = b"" if damage == "empty" else b"{}" + content
    path.write_bytes(content)
    host.cut()
    plugin = host.start(place=place)
    with pytest.raises(ServiceError):
        plugin.decrypt(Wrapped(wrapped.ciphertext, f"{place}/1"))


def test_the_seeds_used_last_are_kept(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "MOST", 3)
    plugin = host.start()
    made = [plugin.encrypt(bytes([number]) * 32) for number in range(3)]
    plugin.decrypt(made[0])
    made.append(plugin.encrypt(b"n" * 32))
    host.cut()
    fresh = host.start()
    assert [fresh.decrypt(made[index])[:1] for index in (0, 2, 3)] == [b"\0", b"\2", b"n"]
    with pytest.raises(ServiceError):
        fresh.decrypt(made[1])


@pytest.mark.parametrize(("mode", "content"), [(0o644, b"A" * 43 + b"="), (0o600, b"A"), (0o600, b"AAAA")])
def test_a_key_that_is_none_is_refused(tmp_path: Path, mode: int, content: bytes) -> None:
    file = tmp_path / "seal.key"
    file.write_bytes(content)
    file.chmod(mode)
    with pytest.raises(ProgramError, match=str(file)):
        Seeds(tmp_path / "seeds", file, PLACE)


def test_a_disk_that_is_full_stops_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: t.Any) -> t.NoReturn:
        raise OSError(28, "No space left on device")

    plugin = host.start()
    monkeypatch.setattr(os, "fsync", full)
    wrapped = plugin.encrypt(b"s" * 32)
    assert plugin.decrypt(wrapped) == b"s" * 32


def others(host: Host, folder: Path) -> Host:
    """Return another control plane, which has the same key to seal with or not: it does not matter."""
    folder.mkdir()
    return Host(host.vault, folder, host.clock)


def test_what_a_host_makes_while_the_vault_is_away_another_one_opens(host: Host, tmp_path: Path) -> None:
    other = others(host, tmp_path / "other")
    first, second = host.start(), other.start()
    # What is in the cluster both have read: the other one's seed.
    shared = second.encrypt(b"o" * 32)
    assert first.decrypt(shared) == b"o" * 32
    host.cut()
    for _ in range(3):
        made = host.start().encrypt(os.urandom(32))
        assert host.start().decrypt(made) == other.start().decrypt(made)
        assert other.start().decrypt(made._replace(sealed=b"")), "it is kept"


def test_what_is_sealed_for_others_is_of_no_use_without_a_former_seed(host: Host, tmp_path: Path) -> None:
    plugin = host.start()
    assert plugin.encrypt(b"a" * 32).sealed == b"", "nobody else knows anything of this host's yet"
    plugin.decrypt(others(host, tmp_path / "other").start().encrypt(b"o" * 32))
    made = plugin.encrypt(b"s" * 32)
    assert made.sealed and b"s" * 8 not in made.sealed
    stranger = others(host, tmp_path / "stranger")
    stranger.start()
    host.cut()
    with pytest.raises(ServiceError):
        stranger.start().decrypt(made)


@pytest.mark.parametrize("damage", ["bit", "short", "of another"])
def test_a_seed_that_was_sealed_otherwise_is_none(host: Host, tmp_path: Path, damage: str) -> None:
    other = others(host, tmp_path / "other")
    plugin, second = host.start(), other.start()
    plugin.decrypt(second.encrypt(b"o" * 32))
    made, another = plugin.encrypt(b"s" * 32), plugin.encrypt(b"t" * 32)
    sealed = bytearray(another.sealed if damage == "of another" else made.sealed)
    if damage == "bit":
        sealed[-1] ^= 1
    elif damage == "short":
        del sealed[-1]
    host.cut()
    with pytest.raises(ServiceError):
        second.decrypt(made._replace(sealed=bytes(sealed)))


def test_a_key_that_is_disabled_is_not_opened_by_what_was_sealed(host: Host, tmp_path: Path) -> None:
    other = others(host, tmp_path / "other")
    plugin, second = host.start(), other.start()
    plugin.decrypt(second.encrypt(b"o" * 32))
    made = plugin.encrypt(b"s" * 32)
    host.vault.disabled.add(next(iter(host.vault.versions)))
    second.probe()
    host.cut()
    with pytest.raises(ProgramError):
        other.start().decrypt(made)


def test_with_another_version_the_vault_alone_opens_what_is_made(host: Host, tmp_path: Path) -> None:
    other = others(host, tmp_path / "other")
    plugin, second = host.start(), other.start()
    plugin.decrypt(second.encrypt(b"o" * 32))
    rotate(host.vault)
    plugin.probe()
    made = plugin.encrypt(b"s" * 32)
    assert made.sealed == b""
    second.probe()
    plugin.decrypt(second.encrypt(b"n" * 32))
    assert plugin.encrypt(b"t" * 32).sealed


@pytest.mark.parametrize("read", [1, 9])
def test_few_seeds_are_sealed_with_at_a_time(host: Host, tmp_path: Path, read: int) -> None:
    other = others(host, tmp_path / "other").start()
    plugin = host.start()
    for number in range(read):
        plugin.decrypt(other.encrypt(bytes([number]) * 32))
    assert len(plugin.encrypt(b"s" * 32).sealed) == 76 * min(read, 8)


class Client:
    """What an API server sends."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def ask(self, name: str, **fields: t.Any) -> t.Any:
        """Call a method of the plugin."""
        call = self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=MESSAGES[f"{name}Request"].SerializeToString,
            response_deserializer=MESSAGES[f"{name}Response"].FromString,
        )
        return call(MESSAGES[f"{name}Request"](**fields), timeout=120)


def test_metrics_say_how_it_goes(host: Host, vault: Vault, tmp_path: Path) -> None:
    metrics = Metrics()
    plugin = host.start(probed=False, failed=metrics.failed)
    assert plugin.since_opened() == math.inf, "not opened yet"
    plugin.probe()
    assert plugin.since_opened() == 0
    host.cut()
    host.clock.now += 90
    plugin.probe()
    assert plugin.since_opened() == 90
    assert host.start(probed=False).since_opened() == 90, "it is remembered"
    vault.refusal = None
    vault.disabled.update(vault.versions)
    plugin.probe()
    assert plugin.since_opened() == math.inf, "the key is not to be used"
    counted = functools.partial(metrics.registry.get_sample_value, "ironspan_kms_errors_total")
    assert (counted({"kind": "service"}), counted({"kind": "key"})) == (1, 1)
    vault.disabled.clear()
    plugin.probe()
    assert plugin.since_opened() == 0
    path = tmp_path / "kms.sock"
    with (
        serving(plugin, path, 60, metrics),
        grpc.insecure_channel(f"unix:{path}") as channel,
        contextlib.suppress(grpc.RpcError),
    ):
        Client(channel).ask("Status")
        Client(channel).ask("Decrypt", ciphertext=b"x", key_id="elsewhere/keys/k/1")
    asked = functools.partial(metrics.registry.get_sample_value, "ironspan_kms_requests_total")
    assert asked({"method": "Status", "outcome": "ok"}) == 1
    assert asked({"method": "Decrypt", "outcome": "failed"}) == 1


def test_over_the_socket(host: Host, vault: Vault, tmp_path: Path) -> None:
    path = tmp_path / "kms.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))  # closing it leaves the file, as a kill does
    assert path.is_socket()
    with serving(host.start(), path, probe_s=60), grpc.insecure_channel(f"unix:{path}") as channel:
        client = Client(channel)
        assert path.stat().st_mode & 0o077 == 0
        status = client.ask("Status")
        assert (status.version, status.healthz) == ("v2", OK)
        answer = client.ask("Encrypt", plaintext=b"s" * 32, uid="1")
        assert answer.key_id == status.key_id
        fields = {"ciphertext": answer.ciphertext, "key_id": answer.key_id, "uid": "2"}
        assert client.ask("Decrypt", **fields).plaintext == b"s" * 32
        again = client.ask("Encrypt", plaintext=b"t" * 32, uid="3")
        assert list(again.annotations) == [SEALED]
        fields = {"ciphertext": again.ciphertext, "key_id": again.key_id, "annotations": again.annotations}
        assert client.ask("Decrypt", **fields).plaintext == b"t" * 32
        with pytest.raises(grpc.RpcError) as caught:
            client.ask("Decrypt", ciphertext=b"x", key_id="elsewhere/keys/k/1", annotations={"a.b.c": b"1"})
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        assert "elsewhere/keys/k/1" in str(caught.value.details())
    assert NAME in PLACE
