# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A kubeconfig for emergencies, encrypted so that several people together can open it, and no one alone.

Everyone has a passphrase of their own. The key is derived from all of them (scrypt, RFC 7914, then HKDF,
RFC 5869), and the kubeconfig is sealed with it as the PKI store seals its secrets.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import secrets
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, certificates, sealing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.kubeconfig import made_kubeconfig
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

GROUP = "ironspan:break-glass"
LONGEST_DAYS = 90
SHORTEST_PASSPHRASE = 16
WORK = 2**17
"""scrypt's N, with r=8 and p=1: 128 MiB and about half a second for each guess (OWASP, password storage)."""
_LARGEST_WORK = 2**20
_FORMAT = "ironspan-break-glass-1"
_BLOCK, _PARALLEL = 8, 1


class Sealed(t.NamedTuple):
    """A sealed kubeconfig.

    Args:
        text: the content of its file, JSON.
        user: who its certificate is, in the audit log.
        expires: when the certificate ends.
    """

    text: str
    user: str
    expires: datetime.datetime


def make(
    store: Store,
    endpoint: str,
    address: str,
    passphrases: t.Mapping[str, str],
    days: int,
    now: datetime.datetime,
    work: int = WORK,
) -> Sealed:
    """Make a client certificate for emergencies and seal it.

    Args:
        store: whose authority signs.
        endpoint: HOST:PORT of the API.
        address: the address to dial, "" for the endpoint's own host.
        passphrases: by the name of who keeps it; all of them are needed to open.
        days: how long the certificate lives, at most 90.
        now: the time, with time zone.
        work: scrypt's N.

    Raises:
        PkiError: a passphrase is short or used twice, or the store cannot be used.
    """
    _check(passphrases, days)
    authority, identity = store.ca("kubernetes"), secrets.token_hex(4)
    names = certificates.Names(f"{GROUP}:{identity}", [GROUP])
    lifetime = datetime.timedelta(days=days)
    config = made_kubeconfig(
        x509.load_pem_x509_certificate(authority.signing_pem.encode()),
        t.cast("t.Any", serialization.load_pem_private_key(authority.key_pem().encode(), None)),
        authority.certificate_pem,
        endpoint,
        address,
        lifetime,
        now,
        names,
    )
    expires = now + lifetime
    header = {
        "format": _FORMAT,
        "user": names.common_name,
        "expires": f"{expires:%Y-%m-%dT%H:%M:%SZ}",
        "work": work,
        "salts": {name: secrets.token_hex(16) for name in sorted(passphrases)},
    }
    sealed = sealing.seal(_key(header, passphrases), _name(header), json.dumps(config).encode())
    text = json.dumps({**header, "sealed": base64.b64encode(sealed).decode()}, indent=1)
    return Sealed(text + "\n", names.common_name, expires)


def keepers(text: str) -> list[str]:
    """Return the names of those whose passphrases open a sealed kubeconfig.

    Raises:
        PkiError: it is none.
    """
    return list(_parsed(text)[0]["salts"])


def unseal(text: str, passphrases: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Open a sealed kubeconfig.

    Args:
        text: the content of its file.
        passphrases: by name, of all who keep one.

    Raises:
        PkiError: a passphrase is missing or wrong, or the file was altered.
    """
    header, sealed = _parsed(text)
    missing = [name for name in header["salts"] if name not in passphrases]
    if missing:
        raise PkiError(f"The passphrase of {', '.join(missing)} is missing.", "All of them are needed.")
    try:
        opened = sealing.unseal(_key(header, passphrases), _name(header), sealed)
    except PkiError:
        raise PkiError(
            "The sealed kubeconfig does not open: a passphrase is wrong, or the file was altered.",
            "Type the passphrases again, each by the name that it was given for.",
        ) from None
    return dict(json.loads(opened))


def _check(passphrases: t.Mapping[str, str], days: int) -> None:
    if not 1 <= days <= LONGEST_DAYS:
        raise PkiError(f"A sealed certificate lives 1 to {LONGEST_DAYS} days, not {days}.")
    if not passphrases:
        raise PkiError("Nobody is named who keeps a passphrase.", "Name at least one with --keeper.")
    for name, passphrase in passphrases.items():
        if len(passphrase) < SHORTEST_PASSPHRASE:
            raise PkiError(
                f"The passphrase of {name} is shorter than {SHORTEST_PASSPHRASE} characters.",
                "Take five or more random words.",
            )
    if len(set(passphrases.values())) < len(passphrases):
        raise PkiError(
            "Two people have the same passphrase.", "Everyone needs one that the others do not know."
        )


def _parsed(text: str) -> tuple[dict[str, t.Any], bytes]:
    try:
        header = json.loads(text)
        sealed = base64.b64decode(header.pop("sealed"), validate=True)
        salts = {str(name): bytes.fromhex(salt) for name, salt in header["salts"].items()}
        work = header["work"]
        # A forged file must not make the program take all memory there is.
        usable = isinstance(work, int) and 2 <= work <= _LARGEST_WORK and work & (work - 1) == 0 and salts
        if header["format"] != _FORMAT or not usable:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PkiError(
            "This is no sealed kubeconfig of this version.", "Name the file that was sealed."
        ) from None
    return header, sealed


def _key(header: t.Mapping[str, t.Any], passphrases: t.Mapping[str, str]) -> bytes:
    parts = [
        hashlib.scrypt(
            passphrases[name].encode(),
            salt=bytes.fromhex(salt),
            n=header["work"],
            r=_BLOCK,
            p=_PARALLEL,
            maxmem=256 * header["work"] * _BLOCK,
            dklen=32,
        )
        for name, salt in sorted(header["salts"].items())
    ]
    return HKDF(hashes.SHA256(), 32, None, _FORMAT.encode()).derive(b"".join(parts))


def _name(header: t.Mapping[str, t.Any]) -> str:
    """Return what is authenticated with the secret: everything else of the file."""
    return json.dumps(header, sort_keys=True)
