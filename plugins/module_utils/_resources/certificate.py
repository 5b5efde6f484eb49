# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``certificate``: a certificate for a key of this host, signed by the controller."""

from __future__ import annotations

import base64
import calendar
import functools
import hashlib
import ipaddress
import os
import re
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import (
    read_text,
    signature,
    write_file,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.key_and_csr import (
    certificate_request,
    fingerprint,
    pem_blocks,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import accounts, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    Pending,
    ResourceError,
    Spec,
    State,
)

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAY = 86400
DESCRIBE = [
    "openssl", "x509", "-noout", "-nameopt", "multiline,utf8,-esc_msb", "-subject", "-enddate", "-pubkey",
    "-ext", "subjectAltName,authorityKeyIdentifier,subjectKeyIdentifier",
]  # fmt: skip


def parse_date(text: str) -> int:
    """Return the Unix time of OpenSSL's "Nov 21 20:19:58 2027 GMT".

    Raises:
        ValueError: it is not such a date.
    """
    month, day, clock, year, zone = text.split()
    if zone != "GMT" or month not in MONTHS:
        raise ValueError(f"not a date of a certificate: {text!r}")
    hour, minute, second = (int(part) for part in clock.split(":"))
    return calendar.timegm((int(year), MONTHS.index(month) + 1, int(day), hour, minute, second))


def normal_name(name: str) -> str:
    """Return a subject alternative name so that two spellings compare equal: "dns:a.b" or "ip:10.0.0.1"."""
    sort, _, value = name.strip().partition(":")
    if sort in ("IP Address", "IP"):
        return f"ip:{ipaddress.ip_address(value.strip())}"
    return f"{sort.lower()}:{value.strip().lower()}"


def wanted_facts(csr: t.Mapping[str, t.Any]) -> State:
    """Return what a certificate for this request says: common_name, organizations and names, each sorted."""
    names = [f"DNS:{name}" for name in csr.get("dns") or []] + [
        f"IP:{address}" for address in csr.get("ips") or []
    ]
    return {
        "common_name": csr.get("common_name") or "",
        "organizations": sorted(csr.get("organizations") or []),
        "names": sorted({normal_name(name) for name in names}),
    }


def parse_description(text: str) -> State:
    """Read what ``openssl x509`` prints with the options of ``DESCRIBE``.

    Args:
        text: its output.

    Returns:
        common_name, organizations, names, not_after (Unix time), public (SHA-256 of the public key's DER),
        subject_key and authority_key (key identifiers of its own and of its issuer's key, "" without).

    Raises:
        ValueError: the text describes no certificate.
    """
    facts: State = {"common_name": "", "organizations": [], "names": [], "not_after": 0}
    facts.update(subject_key="", authority_key="")
    section = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            section = line.strip()
            if line.startswith("notAfter="):
                facts["not_after"] = parse_date(line.partition("=")[2])
            continue
        if section.startswith("subject="):
            field, _, value = line.partition("=")
            if field.strip() == "commonName":
                facts["common_name"] = value.strip()
            elif field.strip() == "organizationName":
                facts["organizations"].append(value.strip())
        elif section.startswith("X509v3 Subject Alternative Name"):
            facts["names"] += [normal_name(name) for name in line.split(", ")]
        elif section.startswith(("X509v3 Authority Key", "X509v3 Subject Key")):
            # OpenSSL 1.1 writes "keyid:" before that of the issuer, and may write more below it.
            which = "authority_key" if "Authority" in section else "subject_key"
            facts[which] = facts[which] or line.strip().replace("keyid:", "").replace(":", "").lower()
    public = pem_blocks(text, "PUBLIC KEY")
    if not public or not facts["not_after"]:
        raise ValueError("no certificate is described")
    facts["organizations"].sort()
    facts["names"] = sorted(set(facts["names"]))
    facts["public"] = fingerprint(public[0])
    return facts


def difference(
    facts: State, csr: t.Mapping[str, t.Any], public: str, issuer: str, renew_before_days: int
) -> t.Tuple[State, State, str]:
    """Compare a certificate with what it shall be.

    Args:
        facts: of the certificate, with ``issuer_sha256``.
        csr: the request.
        public: fingerprint of the key's public half.
        issuer: SHA-256 of the issuing CA's DER.
        renew_before_days: how long before its end it is renewed.

    Returns:
        before, after and the reason; all empty if there is no difference.
    """
    before: State = {}
    after: State = {}
    reasons = []
    for field, value in wanted_facts(csr).items():
        if facts[field] != value:
            before[field], after[field] = facts[field], value
            reasons.append(f"other {field.replace('_', ' ')}")
    if facts["public"] != public:
        before["public"], after["public"] = facts["public"], public or "of a new key"
        reasons.append("not for this key")
    if facts.get("issuer_sha256") != issuer:
        before["issuer_sha256"], after["issuer_sha256"] = facts.get("issuer_sha256"), issuer
        reasons.append("other issuer")
    if facts["not_after"] - time.time() < renew_before_days * DAY:
        before["not_after"], after["not_after"] = _date(facts["not_after"]), "renewed"
        reasons.append("expired" if facts["not_after"] < time.time() else "expires soon")
    return before, after, ", ".join(reasons)


class CertificateKind:
    """Asks the controller for a certificate when the one on disk is missing, wrong or about to end."""

    name = "certificate"
    fields: t.Mapping[str, Field] = {
        "path": Field((str,), required=True),
        "key": Field((str,), required=True),
        "profile": Field((str,), required=True),
        "issuer_sha256": Field((str,), required=True),
        **accounts.ownership_fields("0644"),
        "renew_before_days": Field((int,), default=30),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Check the mode and the issuer's digest."""
        problems = accounts.mode_mistakes(spec)
        if not re.fullmatch(r"[0-9a-f]{64}", spec["issuer_sha256"]):
            problems.append("issuer_sha256: not a SHA-256 of 64 hexadecimal digits")
        return problems

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare without running a program while the file is the one seen last time.

        Raises:
            Pending: a certificate is needed and was not carried; the request is offered if the key exists.
        """
        change = self._compare(spec, host)
        if change is not None and change.reason != OWNERSHIP:
            key = self._key(spec, host)
            # A certificate that was carried satisfies compare at once; else the request goes out.
            try:
                host.certificate(spec["id"])
            except Pending:
                if key.get("public"):
                    host.offer_csr(spec["id"], certificate_request(host, key["key_path"], key["csr"]))
                raise
        return change

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Write the carried certificate, if it is for this key and says what was asked for."""
        host.backup(spec["path"])
        if change.reason == OWNERSHIP:
            accounts.set_ownership(host.path(spec["path"]), spec, host)
        else:
            chain = host.certificate(spec["id"])
            key = self._key(spec, host)
            facts = describe(host, chain)
            facts["issuer_sha256"] = spec["issuer_sha256"]
            before, _, reason = difference(facts, key["csr"], key["public"], spec["issuer_sha256"], 0)
            if before:
                raise ResourceError(
                    f"the certificate that was signed for {spec['id']} does not fit: {reason}",
                    "Run again for a fresh request; check the controller's clock if it expired.",
                )
            accounts.make_folders(os.path.dirname(spec["path"]), host)
            owner = accounts.resolve(spec, host)
            write_file(host, spec["path"], chain.encode(), int(spec["mode"], 8), owner)
            facts["content"] = hashlib.sha256(chain.encode()).hexdigest()
            host.remember(spec["id"], facts)
        self._remember_signature(spec, host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the file comes back by itself."""

    def _compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        key = self._key(spec, host)
        if signature(host, spec["path"]) is None:
            return Change("create", {"certificate": None}, wanted_facts(key["csr"]), "no certificate yet")
        facts = self._facts(spec, host)
        if facts is None:
            return Change(
                "update", {"certificate": "unreadable"}, wanted_facts(key["csr"]), "not a certificate"
            )
        before, wanted, reason = difference(
            facts, key["csr"], key["public"], spec["issuer_sha256"], spec["renew_before_days"]
        )
        if wanted:
            return Change("update", before, wanted, reason)
        before, wanted = accounts.differences(spec, paths.there(host.path(spec["path"])), host)
        return Change("update", before, wanted, OWNERSHIP) if wanted else None

    def _facts(self, spec: Spec, host: Host) -> t.Optional[State]:
        note = host.note(spec["id"])
        if note.get("signature") == signature(host, spec["path"]):
            return note
        text = read_text(host, spec["path"]) or ""
        content = hashlib.sha256(text.encode()).hexdigest()
        if note.get("content") != content:
            try:
                note = describe(host, text)
            except (ResourceError, ValueError):
                return None
            note["content"] = content
            note["issuer_sha256"] = self._issuer(spec, host, text)
        host.remember(spec["id"], note)
        self._remember_signature(spec, host)
        return note

    def _issuer(self, spec: Spec, host: Host, chain: str) -> str:
        """Return the wanted issuer's digest if it is proven that it signed this certificate, else ""."""
        beside = read_text(host, os.path.join(os.path.dirname(spec["path"]), "ca.crt")) or ""
        for der in pem_blocks(chain)[1:] + pem_blocks(beside):
            if fingerprint(der) == spec["issuer_sha256"]:
                # Whether it has expired is asked apart.
                argv = ["openssl", "verify", "-partial_chain", "-no_check_time", "-CAfile", "/dev/stdin"]
                with paths.reading(host.path(spec["path"])) as stream:
                    leaf = stream.fileno()
                    argv.append(f"/dev/fd/{leaf}")
                    status, _, _ = host.run(argv, check=False, stdin=_as_pem(der).encode(), pass_fds=(leaf,))
                return fingerprint(der) if status == 0 else ""
        return ""

    def _remember_signature(self, spec: Spec, host: Host) -> None:
        note = dict(host.note(spec["id"]))
        note["signature"] = signature(host, spec["path"])
        host.remember(spec["id"], note)

    def _key(self, spec: Spec, host: Host) -> State:
        key = host.note(spec["key"])
        if "csr" not in key:
            raise ResourceError(
                f"{spec['id']} names the key {spec['key']}, which is no key_and_csr before it",
                "Declare the key_and_csr resource first and name its id.",
            )
        return key


OWNERSHIP = "other mode or owner"


def describe(host: Host, chain: str) -> State:
    """Return the facts of a text's first certificate.

    Raises:
        ResourceError: OpenSSL does not take it for one.
        ValueError: it is not described as expected.
    """
    _, text, _ = host.run(DESCRIBE, stdin=chain.encode())
    return parse_description(text)


def issuer_by_key(host: Host, facts: t.Mapping[str, t.Any], ca_path: str, wanted: str) -> str:
    """Return the wanted issuer's SHA-256 if a certificate names its key as the one that signed it, else "".

    For what the cluster signs itself, with keys that this host trusts. That the signature is right is seen by
    whoever is shown the certificate.

    Args:
        host: the host.
        facts: of the certificate.
        ca_path: file with the issuer, maybe among others.
        wanted: SHA-256 of the issuer's DER.
    """
    for der in pem_blocks(read_text(host, ca_path) or ""):
        if fingerprint(der) == wanted:
            key = host.cached(f"subject key {wanted}", functools.partial(describe, host, _as_pem(der)))
            return wanted if facts["authority_key"] and facts["authority_key"] == key["subject_key"] else ""
    return ""


def _as_pem(der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


def _date(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))


KIND = CertificateKind()
