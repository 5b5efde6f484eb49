# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``key_and_csr``: a private key that is made on its host and never leaves it.

The signing request is made when a ``certificate`` resource needs one; nothing of it is kept on disk.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import signature
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)

GENERATE = {
    "ecdsa-p256": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "rsa-2048": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
}
# How the DER of a public key of each algorithm begins (RFC 5480, RFC 8017).
PUBLIC_PREFIX = {
    "ecdsa-p256": bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107"),
    "rsa-2048": bytes.fromhex("30820122300d06092a864886f70d010101"),
}
NAME = re.compile(r"[A-Za-z0-9 _.:@*-]{1,64}")
"""What a name may hold: enough for ``system:node:az-1``, nothing that OpenSSL's configuration expands."""


def pem_blocks(text: str, label: str = "CERTIFICATE") -> t.List[bytes]:
    """Return the DER of each PEM block with this label, in order; damaged ones are left out."""
    blocks = []
    pattern = f"-----BEGIN {label}-----(.*?)-----END {label}-----"
    for body in re.findall(pattern, text, re.DOTALL):
        try:
            blocks.append(base64.b64decode("".join(body.split()), validate=True))
        except (binascii.Error, ValueError):
            continue
    return blocks


def public_key(host: Host, key_path: str) -> t.Optional[bytes]:
    """Return the public half of a key file as DER, None when the file holds no usable key."""
    try:
        key = paths.read(host.path(key_path))
    except FileNotFoundError:
        return None
    status, text, _ = host.run(["openssl", "pkey", "-pubout"], check=False, stdin=key)
    blocks = pem_blocks(text, "PUBLIC KEY")
    return blocks[0] if status == 0 and blocks else None


def fingerprint(der: bytes) -> str:
    """Return the SHA-256 of some DER as hexadecimal digits."""
    return hashlib.sha256(der).hexdigest()


def request_configuration(csr: t.Mapping[str, t.Any]) -> str:
    """Return the OpenSSL configuration for a signing request.

    Args:
        csr: common_name, organizations, dns, ips; each may be absent.

    Raises:
        ResourceError: a name holds characters that have no place there.
    """
    organizations = list(csr.get("organizations") or [])
    names = [f"DNS:{name}" for name in csr.get("dns") or []] + [
        f"IP:{address}" for address in csr.get("ips") or []
    ]
    common_name = csr.get("common_name") or ""
    for value in [common_name, *organizations, *names]:
        if not NAME.fullmatch(value.split(":", 1)[1] if value in names else value):
            raise ResourceError(
                f"{value!r} cannot stand in a certificate request",
                "Use letters, digits and . : @ * _ - only, at most 64 characters.",
            )
    lines = ["[req]", "prompt = no", "utf8 = yes", "string_mask = utf8only", "distinguished_name = subject"]
    if names:
        lines.append("req_extensions = extensions")
    lines.append("[subject]")
    lines += [f"{number}.O = {organization}" for number, organization in enumerate(organizations)]
    lines.append(f"CN = {common_name}")
    if names:
        lines += ["[extensions]", f"subjectAltName = {', '.join(names)}"]
    return "\n".join(lines) + "\n"


def certificate_request(host: Host, key_path: str, csr: t.Mapping[str, t.Any]) -> str:
    """Make a signing request (PEM) with a key of this host.

    Args:
        host: the host.
        key_path: the key's path in the document.
        csr: what to ask for: common_name, organizations, dns, ips.
    """
    configuration = request_configuration(csr).encode()
    # Not by its path, which may lead elsewhere by the time that OpenSSL opens it.
    with paths.reading(host.path(key_path)) as stream:
        key = stream.fileno()
        argv = ["openssl", "req", "-new", "-sha256", "-key", f"/dev/fd/{key}", "-config", "/dev/stdin"]
        return host.run(argv, stdin=configuration, pass_fds=(key,))[1]


class KeyAndCsrKind:
    """Makes the key with ``openssl genpkey``, readable by its owner only from its first byte on."""

    name = "key_and_csr"
    fields: t.Mapping[str, Field] = {
        "key_path": Field((str,), required=True),
        "algorithm": Field((str,), default="ecdsa-p256", choices=tuple(GENERATE)),
        **accounts.ownership_fields("0600"),
        "csr": Field((dict,), required=True),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Check the names of the request and the key's mode before anything is touched."""
        problems = []
        unknown = sorted(set(spec["csr"]) - {"common_name", "organizations", "dns", "ips"})
        if unknown:
            problems.append(
                f"csr: unknown {', '.join(unknown)}; it takes common_name, organizations, dns and ips"
            )
        try:
            request_configuration(spec["csr"])
        except ResourceError as error:
            problems.append(f"csr: {error.message}; {error.remedy}")
        problems += accounts.mode_mistakes(spec)
        if not accounts.mode_mistakes(spec) and int(spec["mode"], 8) & 0o007:
            problems.append(f"mode: {spec['mode']} lets everybody at a private key; use 0600 or 0640")
        return problems

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Look at mode and owner, and at the key itself only if its file changed since the last look."""
        path = spec["key_path"]
        seen = signature(host, path)
        note = host.note(spec["id"])
        if seen is None:
            self._remember(spec, host, None, "")
            return Change("create", {"key": None}, {"key": spec["algorithm"]}, "no key yet")
        public = note.get("public") if note.get("signature") == seen else None
        usable = bool(public) and note.get("algorithm") == spec["algorithm"]
        if not public:
            der = public_key(host, path)
            usable = der is not None and der.startswith(PUBLIC_PREFIX[spec["algorithm"]])
            public = fingerprint(der) if der is not None else ""
        if not usable:
            self._remember(spec, host, None, "")
            return Change(
                "update",
                {"key": "of no use"},
                {"key": spec["algorithm"]},
                "not a usable key of this algorithm",
            )
        self._remember(spec, host, seen, public)
        before, after = accounts.differences(spec, paths.there(host.path(path)), host)
        return Change("update", before, after, "other mode or owner") if after else None

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Make a key, or correct its mode and owner."""
        path = spec["key_path"]
        host.backup(path)
        if "key" not in change.after:
            accounts.set_ownership(host.path(path), spec, host)
        else:
            self._generate(spec, host)
        der = public_key(host, path)
        self._remember(spec, host, signature(host, path), fingerprint(der) if der else "")

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the key's file comes back by itself."""

    def _generate(self, spec: Spec, host: Host) -> None:
        real = host.path(spec["key_path"])
        accounts.make_folders(os.path.dirname(spec["key_path"]), host)
        owner = accounts.resolve(spec, host)
        # OpenSSL writes no file itself: it would open it by its path.
        key = host.run(["openssl", "genpkey", *GENERATE[spec["algorithm"]]])[1]
        files.write_atomically(real, key.encode("ascii"), int(spec["mode"], 8), owner)

    def _remember(self, spec: Spec, host: Host, seen: t.Optional[t.List[int]], public: str) -> None:
        # Certificates of this key find here what they need to know about it.
        value = {
            "key_path": spec["key_path"],
            "csr": spec["csr"],
            "algorithm": spec["algorithm"],
            "signature": seen,
            "public": public,
        }
        if host.note(spec["id"]) != value:
            host.remember(spec["id"], value)


KIND = KeyAndCsrKind()
