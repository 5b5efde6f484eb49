# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's part in management controllers (BMC) of servers: their accounts, and an authority of their own.

The authority is another one than the cluster's: a BMC's certificate opens nothing in the cluster. It is made
when the first BMC needs it. Accounts are kept by the serial number of the server, one sealed file each.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.header import FROM_COPIES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.profiles import LEAF_LIFETIME
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import (
    UNREADABLE,
    checked_key,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

FIELD = "bmcs"
"""Field of store.json: fingerprint of the authority, and how often an account was changed."""
COMMON_NAME = "bmc-ca"
KEY, CERTIFICATE = "bmc-key", "authorities/bmc.crt"
PREFIX = "bmc-account-"
LOCKS = "bmc-locks"


class BmcSecrets:
    """What a store has for BMCs.

    Args:
        folder: the store's folder.
        clock: current time with time zone.
    """

    def __init__(self, folder: Folder, clock: Callable[[], datetime.datetime]) -> None:
        self._folder = folder
        self._clock = clock

    # -- the authority -----------------------------------------------------------------------------

    def authority_pem(self) -> str:
        """Return the certificate of the authority for BMCs, "" of a site that has none yet.

        Raises:
            PkiError: it is damaged, or another one than store.json says.
        """
        wanted = self._field().get("authority")
        return certificates.certificate_pem(self._certificate(wanted)) if wanted else ""

    def ensure_authority(self) -> bool:
        """Make the authority where there is none; False when it was there.

        Raises:
            PkiError: the store cannot be used.
        """
        with self._folder.writing():
            if self._field().get("authority"):
                self.prove()
                return False
            # The key first: a kill leaves a key that nothing was signed with; the next run goes on from it.
            if not self._folder.has(self._folder.secret_file(KEY)):
                self._folder.seal(KEY, certificates.private_pem(certificates.new_key()))
            uid = self._folder.header()["site_uid"]
            made = certificates.self_signed(self._key(), COMMON_NAME, f"ironspan site {uid}", self._clock())
            self._folder.publish(CERTIFICATE, certificates.certificate_pem(made).encode())
            self._change(authority=certificates.certificate_sha256(made))
        return True

    def sign(self, csr_pem: str, *, dns: Sequence[str] = (), ips: Sequence[str] = ()) -> str:
        """Sign a BMC's certificate for its address, for a year.

        Args:
            csr_pem: its request. Only its key is taken from it: names are those that the site expects.
            dns: its name, where it is reached by one.
            ips: its address.

        Returns:
            The certificate, PEM.

        Raises:
            PkiError: no request, a key that is too weak, or the store cannot be used.
        """
        key = checked_key(csr_pem)
        names = certificates.Names((*dns, *ips)[0], (), dns, ips)
        authority = self._certificate(self._field().get("authority"))
        usages = (ExtendedKeyUsageOID.SERVER_AUTH,)
        made = certificates.issue(authority, self._key(), key, names, usages, LEAF_LIFETIME, self._clock())
        return certificates.certificate_pem(made)

    # -- accounts ----------------------------------------------------------------------------------

    def account(self, serial: str) -> bytes | None:
        """Return what is kept of a server's BMC, None when nothing is.

        Raises:
            PkiError: it is damaged, or the key is another one.
        """
        name = PREFIX + _file_name(serial)
        if not self._folder.exists():
            return None
        return self._folder.unseal(name) if self._folder.has(self._folder.secret_file(name)) else None

    def keep_account(self, serial: str, content: bytes, *, settled: bool) -> None:
        """Keep what is known of a server's BMC; when this returns it is on the disk.

        Args:
            serial: of the server.
            content: what to keep.
            settled: a backup of the store from before would lack something; else it is in between.
        """
        with self._folder.writing():
            self._folder.seal(PREFIX + _file_name(serial), content)
            if settled:
                self._change(changes=int(self._field().get("changes", 0)) + 1)

    def serials(self) -> list[str]:
        """Return the serial numbers of servers of whose BMC something is kept."""
        pattern = self._folder.secret_file(f"{PREFIX}*")
        names = (path.name.removesuffix(".sealed") for path in self._folder.path.glob(pattern))
        return sorted(urllib.parse.unquote(name.removeprefix(PREFIX)) for name in names)

    @contextlib.contextmanager
    def locked(self, serial: str) -> Iterator[None]:
        """Hold a server's lock: two runs must not give one BMC two passwords. Others wait."""
        folder = self._folder.path / LOCKS
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / _file_name(serial)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def prove(self) -> None:
        """Open everything that is kept.

        Raises:
            PkiError: something is lost or damaged.
        """
        wanted = self._field().get("authority")
        if wanted and self._key().public_key() != self._certificate(wanted).public_key():
            raise PkiError(
                "The certificate of the authority for BMCs does not belong to its key.", FROM_COPIES
            )
        for serial in self.serials():
            self.account(serial)

    # -- inside ------------------------------------------------------------------------------------

    def _field(self) -> dict[str, t.Any]:
        found = self._folder.header().get(FIELD, {}) if self._folder.exists() else {}
        if not isinstance(found, dict):
            raise PkiError(f"{self._folder.path}/store.json is damaged.", FROM_COPIES)
        return found

    def _change(self, **fields: t.Any) -> None:
        self._folder.change_header({FIELD: {**self._field(), **fields}})

    def _certificate(self, sha256: str | None) -> x509.Certificate:
        try:
            found = x509.load_pem_x509_certificate(self._folder.public(CERTIFICATE))
        except UNREADABLE as error:
            raise PkiError(f"{self._folder.path}/{CERTIFICATE} is damaged.", FROM_COPIES) from error
        if certificates.certificate_sha256(found) != sha256:
            # It lies in clear: without this a swapped one would be trusted for every BMC.
            raise PkiError(f"{self._folder.path}/{CERTIFICATE} is not the store's.", FROM_COPIES)
        return found

    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self._folder.kept(KEY), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise PkiError("The key of the authority for BMCs is not an elliptic curve key.")
        return key


def _file_name(serial: str) -> str:
    """Return a serial number as part of a file's name."""
    return urllib.parse.quote(serial, safe="")
