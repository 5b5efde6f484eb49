# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The keys and certificates of a store, by name and generation: made once, checked whenever they are used.

authorities/NAME.crt and secrets/NAME-key.sealed are the first generation of an authority; later ones have
their number behind the name (NAME-2.crt, NAME-2-key.sealed). The same goes for the service account key.
"""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates, profiles
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import SERVICE_ACCOUNT, suffix
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.header import FROM_COPIES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import UNREADABLE
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

FROM_BACKUP = "from a backup."


class Material:
    """Keys and certificates in a folder.

    Args:
        folder: the store's folder.
        clock: current time, with time zone.
    """

    def __init__(self, folder: Folder, clock: t.Callable[[], datetime.datetime]) -> None:
        self._folder = folder
        self._clock = clock

    def ensure(self, name: str, generation: int, make: bool = True) -> bool:
        """Make what is missing of one generation and prove the rest; False when it was complete.

        To be called while the folder is locked.

        Args:
            name: the authority, or ``service-account``.
            generation: its number.
            make: make it again when nothing of it is there. A store that was complete once has lost it then.

        Raises:
            PkiError: it is lost, damaged, or half of it is missing.
        """
        key = key_name(name, generation)
        if not make and not self._folder.has(self._folder.secret_file(key)):
            raise PkiError(f"The store {self._folder.path} has lost {key}.", FROM_COPIES)
        if name == SERVICE_ACCOUNT:
            return self._ensure_service_account(generation)
        return self._ensure_authority(name, generation)

    def certificate(self, name: str, generation: int) -> x509.Certificate:
        """Return an authority's own certificate."""
        file = certificate_file(name, generation)
        try:
            return x509.load_pem_x509_certificate(self._folder.public(file))
        except UNREADABLE as error:
            raise PkiError(f"{self._folder.path}/{file} is damaged.", "Restore it from a backup.") from error

    def pair(self, name: str, generation: int) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Return an authority's certificate and key, proven to belong together."""
        certificate = self.certificate(name, generation)
        key = _elliptic(self._folder.unseal(key_name(name, generation)), name)
        if key.public_key() != certificate.public_key():
            # Public files are in clear: without this a swapped certificate would be handed to every host.
            raise PkiError(
                f"The certificate of the authority {name} does not belong to its key.",
                f"Restore {self._folder.path}/{certificate_file(name, generation)} {FROM_BACKUP}",
            )
        return certificate, key

    def service_account_key(self, generation: int) -> str:
        """Return the private key that signs service account tokens, PEM."""
        return self._folder.unseal(key_name(SERVICE_ACCOUNT, generation)).decode()

    def service_account_public_key(self, generation: int) -> str:
        """Return the public half of it, PEM."""
        return self._folder.public(public_file(generation)).decode()

    def remove(self, name: str, generation: int, *, whole: bool) -> None:
        """Put the key of a generation aside that is trusted no more.

        Args:
            name: the authority, or ``service-account``.
            generation: its number.
            whole: the certificate too, because the number is used again; otherwise it stays, so that
                what was signed with it can still be named.
        """
        if whole:
            # First: a key without its certificate can be made use of again, the other way round it cannot.
            of_account = name == SERVICE_ACCOUNT
            public = public_file(generation) if of_account else certificate_file(name, generation)
            self._folder.put_aside(public)
        self._folder.put_aside(self._folder.secret_file(key_name(name, generation)))

    def _ensure_authority(self, name: str, generation: int) -> bool:
        sealed = key_name(name, generation)
        has_key = self._folder.has(self._folder.secret_file(sealed))
        if self._folder.has(certificate_file(name, generation)):
            if not has_key:
                raise PkiError(
                    f"The store has the certificate of the authority {name} but not its key.",
                    f"Restore {self._folder.path}/{self._folder.secret_file(sealed)} {FROM_BACKUP}",
                )
            self.pair(name, generation)
            return False
        # The key first: a kill between the two leaves a key that nothing was signed with, and the next run
        # goes on from it.
        if has_key:
            key = _elliptic(self._folder.unseal(sealed), name)
        else:
            key = certificates.new_key()
            self._folder.seal(sealed, certificates.private_pem(key))
        made = certificates.self_signed(
            key,
            # Another name, so that whoever looks an issuer up by its name finds one and not two.
            profiles.AUTHORITIES[name] + suffix(generation),
            f"ironspan site {self._folder.header()['site_uid']}",
            self._clock(),
        )
        self._folder.publish(certificate_file(name, generation), certificates.certificate_pem(made).encode())
        return True

    def _ensure_service_account(self, generation: int) -> bool:
        sealed, file = key_name(SERVICE_ACCOUNT, generation), public_file(generation)
        has_key = self._folder.has(self._folder.secret_file(sealed))
        has_public = self._folder.has(file)
        if has_public and not has_key:
            raise PkiError(
                "The store has the public service account key but not the private one.",
                f"Restore {self._folder.path}/{self._folder.secret_file(sealed)} {FROM_BACKUP}",
            )
        if not has_key:
            # RSA 2048 is what kubeadm makes, and tokens are signed RS256, which every verifier reads.
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            self._folder.seal(sealed, certificates.private_pem(key))
        loaded = serialization.load_pem_private_key(self._folder.unseal(sealed), None)
        public = loaded.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        if not has_public:
            self._folder.publish(file, public)
            return True
        if self._folder.public(file) != public:
            raise PkiError(
                f"{self._folder.path}/{file} does not belong to the store's private key.",
                f"Restore it {FROM_BACKUP}",
            )
        return False


def certificate_file(name: str, generation: int) -> str:
    """Return the file of an authority's certificate, relative to the store's folder."""
    return f"authorities/{name}{suffix(generation)}.crt"


def public_file(generation: int) -> str:
    """Return the file of the public service account key, relative to the store's folder."""
    return f"public/{SERVICE_ACCOUNT}{suffix(generation)}.pub"


def key_name(name: str, generation: int) -> str:
    """Return the name of a generation's key among the store's secrets."""
    return f"{name}{suffix(generation)}-key"


def secret_name(name: str, generation: int) -> str:
    """Return what documents call a key that a control plane host needs."""
    return f"{name}-ca{suffix(generation)}-key" if name != SERVICE_ACCOUNT else key_name(name, generation)


def _elliptic(pem: bytes, name: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"The key of the authority {name} is not an elliptic curve key.")
    return key
