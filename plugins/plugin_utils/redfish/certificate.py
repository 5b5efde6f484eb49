# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The certificate of a BMC's web server: a request for it made by the BMC, and the signed one installed.

The key never leaves the BMC. What the request says of names is not looked at: the site signs the address that
it expects there, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.connection import (
    Deadline,
    Endpoint,
    Trust,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    Broken,
    Refused,
    Unproven,
    Unreachable,
    Untrusted,
)

RESTARTS_S = 300.0
"""How long a web server may take to come back with another certificate; some BMCs restart as a whole."""
_PAUSE_S = 2.0
_SUBJECT = {
    "Country": "XX",
    "State": "none",
    "City": "none",
    "Organization": "ironspan",
    "OrganizationalUnit": "BMC",
}
"""What the schema of GenerateCSR insists on. None of it is signed."""


def requested(bmc: Bmc) -> str:
    """Let the BMC make a key, and return its certificate request, PEM.

    Raises:
        Refused: it cannot.
        BmcError: it cannot be asked.
    """
    collection = _collection(bmc)
    target = _target(bmc, "GenerateCSR")
    address = bmc.endpoint.address
    answer: Document = {}
    # A P-256 key, and where the BMC knows no such keys one of RSA.
    for algorithm in (
        {"KeyPairAlgorithm": "TPM_ALG_ECDSA", "KeyCurveId": "TPM_ECC_NIST_P256"},
        {"KeyPairAlgorithm": "TPM_ALG_RSA", "KeyBitLength": 2048},
    ):
        body = {
            **_SUBJECT,
            **algorithm,
            "CommonName": address,
            "AlternativeNames": [address],
            "CertificateCollection": {"@odata.id": collection},
        }
        try:
            answer = bmc.post(target, body, "make a key and a certificate request")
            break
        except Refused:
            if "KeyCurveId" not in algorithm:
                raise
    found = answer.get("CSRString")
    if not isinstance(found, str) or "BEGIN CERTIFICATE REQUEST" not in found:
        raise Broken(f"{bmc.name}: the BMC answered no certificate request", "update its firmware")
    return found


def install(bmc: Bmc, certificate_pem: str) -> None:
    """Give the BMC the signed certificate. Whether it shows it, ``shown`` says.

    Raises:
        BmcError: it did not take it, or its web server went away while it answered.
    """
    members = bmc.members(_collection(bmc), "list its certificates")
    if not members:
        bmc.post(
            _collection(bmc),
            {"CertificateString": certificate_pem, "CertificateType": "PEM"},
            "take its certificate",
        )
        return
    body = {
        "CertificateString": certificate_pem,
        "CertificateType": "PEM",
        "CertificateUri": {"@odata.id": str(members[0]["@odata.id"])},
    }
    bmc.post(_target(bmc, "ReplaceCertificate"), body, "take its certificate")


def insist_on_shown(
    endpoint: Endpoint,
    trust: Trust,
    sha256: str,
    within_s: float = RESTARTS_S,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the BMC shows a certificate, and insist that the site's authority vouches for it.

    Args:
        endpoint: where the BMC is.
        trust: with the site's authority.
        sha256: of the certificate.
        within_s: how long its web server may take.
        pause: waits so many seconds, for tests.

    Raises:
        Unproven: it shows another one.
        Untrusted: it is shown and not taken.
    """
    deadline = Deadline(within_s)
    found = "nothing"
    while True:
        try:
            found, _ = connection.shown_certificate(endpoint, connection.REQUEST_S)
            if found == sha256:
                return connection.insist_on_signed(endpoint, trust, found, connection.REQUEST_S)
        except Unreachable:
            found = "nothing"
        except Untrusted:
            if found == sha256:
                raise
        if not deadline.left:
            raise Unproven(
                f"{endpoint.name}: the BMC took its certificate, and shows {found} after {within_s:.0f} s",
                "restart the BMC, and run it again",
            )
        pause(_PAUSE_S)


def _collection(bmc: Bmc) -> str:
    """Return the certificates of the BMC's web server: Managers/X/NetworkProtocol/HTTPS/Certificates."""
    for manager in bmc.managers():
        link = manager.get("NetworkProtocol")
        if isinstance(link, dict) and link.get("@odata.id"):
            https = bmc.get(str(link["@odata.id"])).get("HTTPS")
            inside = https.get("Certificates") if isinstance(https, dict) else None
            if isinstance(inside, dict) and inside.get("@odata.id"):
                return str(inside["@odata.id"])
    raise Refused(
        f"{bmc.name}: the BMC does not let its certificate be changed by Redfish",
        "update its firmware, or leave the certificate that is pinned (docs/bmc.md)",
    )


def _target(bmc: Bmc, action: str) -> str:
    link = bmc.root.get("CertificateService")
    path = link.get("@odata.id") if isinstance(link, dict) else None
    actions = bmc.get(str(path)).get("Actions") if path else None
    entry = actions.get(f"#CertificateService.{action}") if isinstance(actions, dict) else None
    target = entry.get("target") if isinstance(entry, dict) else None
    if not target:
        raise Refused(
            f"{bmc.name}: the BMC's CertificateService has no action {action}",
            "update its firmware, or leave the certificate that is pinned (docs/bmc.md)",
        )
    return str(target)
