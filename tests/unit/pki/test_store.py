# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import datetime
import json
import multiprocessing
import os
import shutil
import signal
import ssl
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import (
    PkiError,
    Store,
    generate_key_file,
    kubeconfig,
    open_store,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import files as files_module
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.handed_out import known, secrets
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .conftest import RequestMaker

NAMES = ("etcd", "kubernetes", "front-proxy", "service-account")


@pytest.fixture
def copy(store: Store, tmp_path: Path) -> Path:
    """A copy of the store that a test may damage."""
    shutil.copytree(store.path, tmp_path / "pki")
    return tmp_path / "pki"


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_made_once(tmp_path: Path, key_file: Path) -> None:
    store = open_store(tmp_path / "site" / "pki", key_file)
    assert not store.exists()
    assert store.ensure_cas() == ["store", *NAMES, "backup-key"]
    before = content(store.path)
    assert open_store(store.path, key_file).ensure_cas() == []
    assert content(store.path) == before
    assert store.path.stat().st_mode & 0o777 == 0o700
    for path in (store.path / "secrets").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def test_no_secret_is_in_clear(store: Store) -> None:
    for name, data in content(store.path).items():
        assert b"PRIVATE" not in data, name
    secrets = [store.ca(name).key_pem() for name in ("etcd", "kubernetes", "front-proxy")]
    for secret in [*secrets, store.service_account_key()]:
        raw = base64.b64decode("".join(secret.splitlines()[1:-1]))
        for name, data in content(store.path).items():
            assert raw[-40:] not in data, name


def test_public_parts_need_no_key(store: Store) -> None:
    without = open_store(store.path, None, {})
    assert without.ca("etcd").sha256 == store.ca("etcd").sha256
    assert without.site_uid() == store.site_uid()
    assert without.service_account_public_key().startswith("-----BEGIN PUBLIC KEY-----")
    with pytest.raises(PkiError, match="no key for the PKI store"):
        without.ca("etcd").key_pem()


def test_key_pairs_belong_together(store: Store) -> None:
    for name in ("etcd", "kubernetes", "front-proxy"):
        authority = store.ca(name)
        public = x509.load_pem_x509_certificate(authority.certificate_pem.encode()).public_key()
        assert load_pem_private_key(authority.key_pem().encode(), None).public_key() == public
    private = load_pem_private_key(store.service_account_key().encode(), None)
    assert private.public_key() == load_pem_public_key(store.service_account_public_key().encode())


def test_control_plane_gets_no_etcd_authority(copy: Path, key_file: Path) -> None:
    store = open_store(copy, key_file)  # asking for what a backup needs writes the bundle
    names = set(known(store))
    planes = {"kubernetes-ca-key", "front-proxy-ca-key", "service-account-key"}
    backups = {"backup-key-1", "backup-writer-1", "backup-drill-1", f"recovery-{store.backup_keys.stamp()}"}
    assert names == planes | backups
    assert store.ca("etcd").key_pem() not in secrets(store, names).values()
    assert set(secrets(store, [*planes, "etcd-ca-key", "etcd-key"])) == planes


def test_wrong_key_changes_nothing(copy: Path, tmp_path: Path) -> None:
    before = content(copy)
    wrong = open_store(copy, generate_key_file(tmp_path / "other.key"))
    for action in (wrong.ensure_cas, wrong.ca("etcd").key_pem, wrong.service_account_key):
        with pytest.raises(PkiError, match=r"the key given is .* Give the key that the store was made with"):
            action()
    assert content(copy) == before


@pytest.mark.parametrize(
    "missing", ["authorities/etcd.crt", "public/service-account.pub", "secrets/etcd-key.sealed"]
)
def test_wrong_key_does_not_fill_gaps(copy: Path, tmp_path: Path, missing: str) -> None:
    (copy / missing).unlink()
    before = content(copy)
    with pytest.raises(PkiError):
        open_store(copy, generate_key_file(tmp_path / "other.key")).ensure_cas()
    assert content(copy) == before


def test_every_altered_secret_is_refused(copy: Path, key_file: Path) -> None:
    for path in sorted((copy / "secrets").iterdir()):
        good = path.read_bytes()
        for position in range(0, len(good), 7):
            altered = bytearray(good)
            altered[position] ^= 0x10
            path.write_bytes(altered)
            with pytest.raises(PkiError):
                open_store(copy, key_file).ensure_cas()
        path.write_bytes(good)
    assert open_store(copy, key_file).ensure_cas() == []


def test_swapped_files_are_refused(copy: Path, key_file: Path) -> None:
    for folder in ("secrets", "authorities"):
        paths = sorted((copy / folder).iterdir())
        for first in paths:
            for second in paths:
                if first == second:
                    continue
                kept = second.read_bytes()
                second.write_bytes(first.read_bytes())
                with pytest.raises(PkiError, match=r"another name|does not belong"):
                    open_store(copy, key_file).ensure_cas()
                second.write_bytes(kept)


@pytest.mark.parametrize("name", [*(f"{name}-key" for name in NAMES), "backup-key-1"])
def test_lost_key_is_never_replaced(copy: Path, key_file: Path, name: str) -> None:
    (copy / "secrets" / f"{name}.sealed").unlink()
    before = content(copy)
    with pytest.raises(PkiError, match="Restore"):
        open_store(copy, key_file).ensure_cas()
    assert content(copy) == before


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"schema": 1}', '{"schema": 1, "site_uid": 5, "key_id": ""}']
)
def test_damaged_header_is_refused(copy: Path, key_file: Path, text: str) -> None:
    (copy / "store.json").write_text(text)
    with pytest.raises(PkiError, match=r"store\.json is damaged"):
        open_store(copy, key_file).ensure_cas()


def test_newer_format_is_refused(copy: Path, key_file: Path) -> None:
    (copy / "store.json").write_text('{"schema": 4, "site_uid": "0123456789abcdef", "key_id": "x"}')
    with pytest.raises(PkiError, match="has format 4; this version reads 3"):
        open_store(copy, key_file).site_uid()


def test_lost_header_is_never_replaced(copy: Path, key_file: Path) -> None:
    (copy / "store.json").unlink()
    with pytest.raises(PkiError, match="is not a PKI store, yet it is not empty"):
        open_store(copy, key_file).ensure_cas()


def test_folder_others_may_write_is_refused(copy: Path, key_file: Path) -> None:
    copy.chmod(0o770)
    with pytest.raises(PkiError, match="chmod go-w"):
        open_store(copy, key_file).ensure_cas()


def test_store_that_was_never_made(tmp_path: Path, key_file: Path) -> None:
    store = open_store(tmp_path / "none", key_file)
    for action in (store.site_uid, lambda: store.ca("etcd"), store.service_account_public_key):
        with pytest.raises(PkiError, match=r"has no .*site\.yml"):
            action()
    with pytest.raises(PkiError, match=r"no authority 'x'.*etcd, kubernetes, front-proxy"):
        store.ca("x")


def _killed_at(step: int, path: Path, key_file: Path) -> None:
    """Die by SIGKILL at the n-th moment that matters: between writing a temporary file and renaming it."""
    left = step
    synchronise = os.fsync

    def count(descriptor: int) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        synchronise(descriptor)

    files_module.os.fsync = count  # type: ignore[attr-defined]
    open_store(path, key_file).ensure_cas()


def test_killed_at_every_step_then_resumed(tmp_path: Path, key_file: Path) -> None:
    context = multiprocessing.get_context("fork")
    for step in range(60):
        path = tmp_path / str(step)
        process = context.Process(target=_killed_at, args=(step, path, key_file))
        process.start()
        process.join()
        store = open_store(path, key_file)
        kept = {name: data for name, data in content(path).items() if not name.split("/")[-1].startswith(".")}
        store.ensure_cas()
        after = content(path)
        assert len(after) == 14
        assert not [name for name in after if ".writing-" in name]
        for name in ("store.json", "store.json.newest"):
            kept.pop(name, None)  # written again to count the backup keys, and to say that all is there
        assert {name: after[name] for name in kept} == kept
        assert store.ensure_cas() == []
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    else:
        pytest.fail("the store was never completed")
    assert step == 42, "13 files, two of them five times, each synchronised twice (file and folder)"


def _make(path: Path, key_file: Path, results: t.Any) -> None:
    results.put(open_store(path, key_file).ensure_cas())


def test_two_at_once_make_one_store(tmp_path: Path, key_file: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_make, args=(tmp_path / "pki", key_file, results)) for _ in range(3)]
    for process in processes:
        process.start()
    made = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(map(len, made)) == [0, 0, 6]


def test_authority_near_its_end_cuts_leaves_and_then_refuses(
    tmp_path: Path, key_file: Path, make_request: RequestMaker, now: datetime.datetime
) -> None:
    moment = now
    store = open_store(tmp_path / "pki", key_file, clock=lambda: moment)
    store.ensure_cas()
    end = now + datetime.timedelta(hours=87600)
    moment = end - datetime.timedelta(days=10)
    pem = store.sign(make_request(names=None), "etcd-client", {"common_name": "az-1"})
    assert x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc == end
    moment = end
    with pytest.raises(PkiError, match="expired on 2036-11-18"):
        store.sign(make_request(names=None), "etcd-client", {"common_name": "az-1"})


def test_admin_kubeconfig(store: Store, tmp_path: Path) -> None:
    made = store.admin_kubeconfig("api.lab.internal:8443", 0.5, "10.98.0.13")
    cluster, user = made["clusters"][0]["cluster"], made["users"][0]["user"]
    assert cluster["server"] == "https://10.98.0.13:8443"
    assert cluster["tls-server-name"] == "api.lab.internal"
    assert (
        base64.b64decode(cluster["certificate-authority-data"]).decode()
        == store.ca("kubernetes").certificate_pem
    )
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    assert certificate.subject.rfc4514_string() == "CN=ironspan:controller,O=kubeadm:cluster-admins"
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    remaining = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(minutes=29) < remaining <= datetime.timedelta(minutes=30)
    pair = tmp_path / "pair.pem"
    pair.write_bytes(
        base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"])
    )
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(pair)


def test_break_glass_is_asked_for(store: Store) -> None:
    user = store.admin_kubeconfig("api:6443", break_glass=True)["users"][0]["user"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [group.value for group in groups] == ["system:masters"]


@pytest.mark.parametrize("hours", [0, -1, 1.01, 24])
def test_controller_certificates_are_short(store: Store, hours: float) -> None:
    with pytest.raises(PkiError, match="at most 1 hour"):
        store.admin_kubeconfig("api:6443", hours)
    with pytest.raises(PkiError, match="at most 1 hour"):
        store.client_pair("etcd-client", "ironspan", hours)


@pytest.mark.parametrize(
    ("endpoint", "address", "url"),
    [
        ("api.lab.internal:8443", "", "https://api.lab.internal:8443"),
        ("api.lab.internal:8443", "10.0.0.1", "https://10.0.0.1:8443"),
        ("10.0.0.2:6443", "", "https://10.0.0.2:6443"),
        ("[fd00::1]:6443", "", "https://[fd00::1]:6443"),
        ("api:6443", "fd00::2", "https://[fd00::2]:6443"),
    ],
)
def test_server_url(endpoint: str, address: str, url: str) -> None:
    assert kubeconfig.server_url(endpoint, address) == url


@pytest.mark.parametrize(
    "endpoint",
    ["", "api", "api:", ":6443", "api:0", "api:65536", "https://api:6443", "api:6443/x", "fd00::1:6443"],
)
def test_malformed_endpoint(endpoint: str) -> None:
    with pytest.raises(PkiError, match="Write HOST:PORT"):
        kubeconfig.parse_endpoint(endpoint)


def test_another_identity_keeps_keys_and_authorities(tmp_path: Path, key_file: Path) -> None:
    store = open_store(tmp_path / "pki", key_file)
    store.ensure_cas()
    former, authority, key = store.site_uid(), store.ca("etcd").sha256, store.service_account_key()
    renewed = store.renew_site_uid()
    assert renewed != former
    assert store.site_uid() == renewed
    assert store.ensure_cas() == []
    assert (store.ca("etcd").sha256, store.service_account_key()) == (authority, key)


def test_members_of_a_store_of_before_do_not_ask_for_the_name_of_peers(copy: Path, key_file: Path) -> None:
    own = open_store(copy, key_file)
    assert own.peers_named(), "from the beginning in a new store"
    header = json.loads((copy / "store.json").read_text())
    (copy / "store.json.newest").unlink()
    for field in ("peers_named", "changes", "complete"):
        del header[field]
    (copy / "store.json").write_text(json.dumps(header))
    assert own.ensure_cas() == []
    assert not own.peers_named()
    stamp = own.trust_stamp(), own.backup_keys.stamp()
    own.name_peers()
    assert own.peers_named()
    assert (own.trust_stamp(), own.backup_keys.stamp()) == stamp
