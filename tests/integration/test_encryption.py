# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Secrets in a real etcd, encrypted by a real API server: what the database shows, rotation, recall, KMS."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import tempfile
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import Membership
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption import loaded, rotation, stored
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.rewrite import Outcome, rewrite
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    encryption_keys,
    generate_key_file,
    open_store,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    DROP,
    IDENTITY,
    KMS,
    READ,
    RECALL,
    SECRETBOX,
    WRITE,
)

from ironspan.kms.plugin import OK, Plugin
from ironspan.kms.seeds import Seeds
from ironspan.kms.server import serving
from tests.support.key_vault import Vault
from tests.support.key_vault import running as running_vault

from .loopback_cluster import Control, find_programs, running

pytestmark = pytest.mark.lab
SECRETS = "/api/v1/namespaces/default/secrets"
PLAIN = "open-sesame-8471"


class Cluster:
    """One etcd member and one API server, whose encryption goes through its stages."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.file = control.folder / "encryption.json"
        self.etcd = Membership({"etcd-1": control.address}, control.etcd_context(), control.etcd_port)

    @property
    def keys(self) -> encryption_keys.EncryptionKeys:
        """The store's part."""
        return self.control.store.encryption

    def api(self) -> Api:
        """Return a client."""
        return self.control.api(break_glass=True)

    def follow(self) -> None:
        """Do what hosts do: take up the configuration. An API server that starts need not wait a minute."""
        self.file.write_text(self.keys.configuration())
        self.restart()

    def restart(self) -> None:
        """Start the API server again, and wait until it is ready."""
        arguments = t.cast("list[str]", self.control.processes["api"].args)
        flags = [
            f"--encryption-provider-config={self.file}",
            "--encryption-provider-config-automatic-reload=true",
        ]
        more = [flag for flag in flags if flag not in arguments]
        self.control.stop("api")
        self.control.start("api", "kube-apiserver", *arguments[1:], *more)
        self.wait_until_ready(180)

    def wait_until_ready(self, seconds: float) -> None:
        """Wait for the API server."""
        self.control.wait(lambda: self.api().text("/readyz") == "ok", seconds)

    def replace(self) -> None:
        """Put the configuration in the place of the one before, as converge does."""
        new = self.file.with_suffix(".new")
        new.write_text(self.keys.configuration())
        new.replace(self.file)

    def reasons(self, move: str) -> list[str]:
        """Return what forbids a move."""
        return rotation.refusals(
            self.keys.state(),
            move,
            lambda: loaded.not_loaded({"az-1": self.api}, self.keys.configuration()),
            self.secrets,
        )

    def go(self, move: str, kind: str = "") -> None:
        """Enter a stage as the action does, and follow it."""
        assert self.reasons(move) == []
        self.keys.move(move, kind)
        self.follow()

    def rewrite(self, *, everything: bool = False) -> Outcome:
        """Rewrite secrets."""
        return rewrite([self.api()], self.secrets, self.keys.state().writes, everything=everything)

    def end(self) -> None:
        """End the stage drop."""
        assert self.reasons(rotation.END) == []
        self.keys.end_stage()

    def secrets(self) -> list[stored.Secret]:
        """Return how secrets are stored."""
        return list(stored.secrets(self.etcd))

    def make(self, name: str, text: str) -> None:
        """Make a secret."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "data": {"text": base64.b64encode(text.encode()).decode()},
        }
        self.api().apply(f"{SECRETS}/{name}", body)

    def text(self, name: str) -> str:
        """Return what the API says is in a secret."""
        return base64.b64decode(self.api().get(f"{SECRETS}/{name}")["data"]["text"]).decode()

    def written_by(self, name: str) -> str:
        """Return who wrote a secret."""
        return next(secret.provider for secret in self.secrets() if secret.name == name)

    def call(self, path: str, body: Object) -> Object:
        """Ask etcd something."""
        connection = http.client.HTTPSConnection(
            self.control.address, self.control.etcd_port, context=self.control.etcd_context()
        )
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            return t.cast("Object", json.loads(content))

    def value(self, name: str) -> str:
        """Return a secret's value in etcd, base64."""
        key = base64.b64encode(f"/registry/secrets/default/{name}".encode()).decode()
        return str(self.call("/v3/kv/range", {"key": key})["kvs"][0]["value"])

    def put(self, name: str, value: str) -> None:
        """Put a value back into etcd, as a restore does."""
        key = base64.b64encode(f"/registry/secrets/default/{name}".encode()).decode()
        self.call("/v3/kv/put", {"key": key, "value": value})

    def database(self) -> bytes:
        """Return etcd's database file after what is past was compacted away."""
        revision = self.call("/v3/kv/range", {"key": "AA==", "limit": "1"})["header"]["revision"]
        self.call("/v3/kv/compaction", {"revision": revision, "physical": True})
        self.call("/v3/maintenance/defragment", {})
        return (self.control.folder / "etcd-1/data/member/snap/db").read_bytes()


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return find_programs(names=("etcd", "kube-apiserver"))


@pytest.fixture
def cluster(programs: dict[str, Path], tmp_path: Path) -> Iterator[Cluster]:
    store = open_store(tmp_path / "pki", generate_key_file(tmp_path / "pki.key"))
    store.ensure_cas()
    with running(Control(programs, store, tmp_path)) as control:
        control.start_etcd("etcd-1")
        control.start_api()
        yield Cluster(control)
    shutil.rmtree(tmp_path / "etcd-1", ignore_errors=True)


def test_secrets_are_encrypted_under_a_running_cluster_and_the_database_shows_it(cluster: Cluster) -> None:
    cluster.make("before", PLAIN)
    assert cluster.written_by("before") == IDENTITY
    assert PLAIN.encode() in cluster.database(), "the proof below would prove nothing"
    cluster.go(READ, SECRETBOX)
    cluster.make("meanwhile", PLAIN)
    assert cluster.written_by("meanwhile") == IDENTITY
    cluster.go(WRITE)
    cluster.make("after", PLAIN)
    assert cluster.written_by("after") == "secretbox-1"
    assert cluster.written_by("before") == IDENTITY
    (one, two) = cluster.reasons(DROP)
    assert "default/before is stored with identity still" in one and "default/meanwhile" in two
    outcome = cluster.rewrite()
    assert (outcome.asked, outcome.refused, outcome.left) == (2, [], [])
    assert cluster.rewrite().asked == 0
    database = cluster.database()
    assert PLAIN.encode() not in database
    assert database.count(b"k8s:enc:secretbox:v1:secretbox-1:") >= 3
    cluster.go(DROP)
    cluster.end()
    assert [cluster.text(name) for name in ("before", "meanwhile", "after")] == [PLAIN] * 3


@pytest.mark.long
def test_another_key_and_a_restored_value_of_the_dropped_one(cluster: Cluster) -> None:
    cluster.keys.begin(SECRETBOX)
    cluster.follow()
    cluster.make("one", PLAIN)
    former = cluster.value("one")
    assert base64.b64decode(former).startswith(b"k8s:enc:secretbox:v1:secretbox-1:")
    cluster.go(READ, SECRETBOX)
    # An API server that has not followed forbids the next stage.
    cluster.keys.move(WRITE, "")
    assert "another encryption configuration" in cluster.reasons(DROP)[0]
    cluster.follow()
    assert cluster.rewrite().stored == {"secretbox-2": 1}
    cluster.go(DROP)
    cluster.end()
    assert cluster.text("one") == PLAIN
    cluster.put("one", former)
    with pytest.raises(ApiError):
        cluster.control.api(break_glass=True, patience=0).get(f"{SECRETS}/one")
    cluster.go(RECALL)
    assert cluster.text("one") == PLAIN
    assert cluster.rewrite().stored == {"secretbox-2": 1}
    cluster.go(DROP)
    assert cluster.text("one") == PLAIN


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    with running_vault(tmp_path_factory.mktemp("vault")) as made:
        made.rotate()
        yield made


class Host:
    """The plugin beside the API server."""

    def __init__(self, vault: Vault, folder: Path) -> None:
        self.vault, self.folder = vault, folder
        self.socket = folder / "kms.sock"
        key = folder / "seal.key"
        key.write_bytes(base64.b64encode(os.urandom(32)))
        key.chmod(0o600)

    @contextlib.contextmanager
    def running(self) -> Iterator[Plugin]:
        """Run the plugin until the block ends."""
        place = f"{self.vault.url.partition('://')[2]}/keys/etcd-backup"
        seeds = Seeds(self.folder / "seeds", self.folder / "seal.key", place)
        keys = self.vault.keys(self.folder / "public.json", asks=False)
        plugin = Plugin(keys, place, seeds, 3600)
        plugin.probe()
        with serving(plugin, self.socket):
            yield plugin


@pytest.fixture
def host(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    # The path of a socket may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="kms-") as folder:
        made = Host(vault, Path(folder))
        monkeypatch.setattr(encryption_keys, "ENDPOINT", f"unix://{made.socket}")
        yield made
        vault.refusal = None


@pytest.mark.long
def test_a_key_in_a_vault_its_outage_and_its_rotation(cluster: Cluster, host: Host, vault: Vault) -> None:
    with host.running():
        cluster.keys.begin(KMS)
        cluster.follow()
        cluster.make("one", PLAIN)
        (secret,) = cluster.secrets()
        first = next(iter(vault.versions))
        assert secret.provider == "kms-1" and secret.key_id.endswith(f"/keys/etcd-backup/{first}")
        assert PLAIN.encode() not in cluster.database()
    vault.refusal = (503, "ServiceUnavailable", "")
    with host.running() as plugin:
        assert plugin.status()[0] == OK
        cluster.restart()
        assert cluster.text("one") == PLAIN, "the API server has just started, and the vault is away"
        cluster.make("two", PLAIN)
    vault.refusal = None
    second = vault.rotate()
    with host.running():
        cluster.restart()
        outcome = cluster.rewrite(everything=True)
        assert (outcome.refused, outcome.left) == ([], [])
        ((label, count),) = outcome.stored.items()
        assert label.endswith(f"/{second})") and count == 2
        assert cluster.text("one") == cluster.text("two") == PLAIN


@pytest.mark.long
def test_an_api_server_takes_up_a_configuration_without_a_restart(cluster: Cluster) -> None:
    cluster.keys.begin(SECRETBOX)
    cluster.follow()
    process = cluster.control.processes["api"].pid
    cluster.keys.move(READ, SECRETBOX)
    cluster.replace()
    assert loaded.wait({"az-1": cluster.api}, cluster.keys.configuration()) == []
    assert cluster.control.processes["api"].pid == process


@pytest.mark.long
def test_an_api_server_that_a_restored_value_keeps_from_being_ready_is_fixed_by_recall(
    cluster: Cluster,
) -> None:
    cluster.keys.begin(SECRETBOX)
    cluster.follow()
    cluster.make("one", PLAIN)
    former = cluster.value("one")
    for move in (READ, WRITE, DROP):
        cluster.go(move, SECRETBOX)
        assert cluster.rewrite().left == []
    cluster.end()
    arguments = t.cast("list[str]", cluster.control.processes["api"].args)
    cluster.control.stop("api")
    cluster.put("one", former)
    cluster.control.start("api", "kube-apiserver", *arguments[1:])
    log = cluster.control.folder / "api.log"
    cluster.control.wait(lambda: "no matching key was found" in log.read_text())
    cluster.keys.move(RECALL, "")
    cluster.replace()
    cluster.wait_until_ready(loaded.LONGEST_WAIT_S)
    assert cluster.text("one") == PLAIN
