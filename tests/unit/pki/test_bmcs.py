# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's part in BMCs: an authority of their own, and accounts by serial number."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, Store, open_store
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.unit.pki.conftest import RequestMaker


@pytest.fixture
def own(tmp_path: Path, key_file: Path) -> Store:
    made = open_store(tmp_path / "pki", key_file)
    made.ensure_cas()
    return made


def test_a_site_without_bmcs_has_no_authority_for_them(own: Store) -> None:
    assert own.bmcs.authority_pem() == ""
    assert own.bmcs.account("SN1") is None
    assert own.ensure_cas() == []


def test_nothing_is_kept_where_there_is_no_store(tmp_path: Path, key_file: Path) -> None:
    store = open_store(tmp_path / "none", key_file)
    assert (store.bmcs.account("SN1"), store.bmcs.authority_pem()) == (None, "")
    assert not (tmp_path / "none").exists()


def test_the_authority_is_made_once_and_signs_what_the_site_says(
    own: Store, make_request: RequestMaker
) -> None:
    assert own.bmcs.ensure_authority()
    pem = own.bmcs.authority_pem()
    assert not own.bmcs.ensure_authority()
    assert own.bmcs.authority_pem() == pem
    authority = x509.load_pem_x509_certificate(pem.encode())
    # The request asks for more; only its key counts.
    signed = x509.load_pem_x509_certificate(own.bmcs.sign(make_request(), ips=("10.20.1.11",)).encode())
    signed.verify_directly_issued_by(authority)
    names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.20.1.11")]
    assert names.get_values_for_type(x509.DNSName) == []
    usage = signed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_the_clusters_authorities_do_not_vouch_for_a_bmc(own: Store) -> None:
    own.bmcs.ensure_authority()
    own_key = x509.load_pem_x509_certificate(own.bmcs.authority_pem().encode()).public_key()
    for name in ("etcd", "kubernetes", "front-proxy"):
        assert x509.load_pem_x509_certificate(own.ca(name).signing_pem.encode()).public_key() != own_key


def test_weak_keys_and_nonsense_are_not_signed(own: Store, make_request: RequestMaker) -> None:
    own.bmcs.ensure_authority()
    weak = rsa.generate_private_key(65537, 1024)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(weak, hashes.SHA256())
    with pytest.raises(PkiError, match="rsa-1024"):
        own.bmcs.sign(request.public_bytes(Encoding.PEM).decode(), ips=("10.20.1.11",))
    with pytest.raises(PkiError, match="not a certificate request"):
        own.bmcs.sign("-----BEGIN CERTIFICATE REQUEST-----\n", ips=("10.20.1.11",))


@pytest.mark.parametrize("serial", ["SN0001", "a/b", "../../store", "x.y", "é"])
def test_accounts_by_serial_number(own: Store, serial: str, tmp_path: Path) -> None:
    own.bmcs.keep_account(serial, b"one", settled=False)
    stamp = own.backup_keys.stamp()
    own.bmcs.keep_account(serial, b"two", settled=True)
    assert own.bmcs.account(serial) == b"two"
    assert own.bmcs.serials() == [serial]
    assert own.backup_keys.stamp() != stamp
    with own.bmcs.locked(serial):
        pass
    assert own.ensure_cas() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pki"]


def test_what_was_swapped_is_found_out(own: Store, tmp_path: Path) -> None:
    own.bmcs.ensure_authority()
    folder = tmp_path / "pki"
    (folder / "authorities" / "bmc.crt").write_text(own.ca("kubernetes").signing_pem)
    with pytest.raises(PkiError, match="is not the store's"):
        own.bmcs.authority_pem()
    with pytest.raises(PkiError, match="is not the store's"):
        own.ensure_cas()


def test_an_account_that_was_damaged_is_found_out(own: Store, tmp_path: Path) -> None:
    own.bmcs.keep_account("SN1", b"one", settled=True)
    own.bmcs.keep_account("SN2", b"two", settled=True)
    one, two = sorted((tmp_path / "pki" / "secrets").glob("bmc-account-*"))
    one.write_bytes(two.read_bytes())
    with pytest.raises(PkiError, match="belongs to another name"):
        own.bmcs.account("SN1")
    with pytest.raises(PkiError):
        own.ensure_cas()
