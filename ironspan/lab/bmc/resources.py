# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a BMC has beside its server: accounts, certificates, network services and logs.

The emulator of sushy-tools has none of these. They follow DMTF's schemas AccountService v1.15,
ManagerAccount v1.12, CertificateService v1.0, ManagerNetworkProtocol v1.9, LogService v1.5, LogEntry v1.15
and Chassis v1.23, as far as ironspan asks for them. No vendor's BMC was at hand to compare with.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Document = dict[str, t.Any]
ROOT = "/redfish/v1"
ACCOUNTS = f"{ROOT}/AccountService"
CERTIFICATES = f"{ROOT}/CertificateService"
PAGE = 50
"""Entries of a log on one page."""


@dataclasses.dataclass(slots=True)
class Account:
    """An account of a BMC."""

    username: str
    password: str = dataclasses.field(repr=False)
    enabled: bool = True
    must_change: bool = False
    """It may do nothing but change its password."""


@dataclasses.dataclass(slots=True)
class State:
    """What a BMC remembers.

    Args:
        serial: serial number of its server.
        accounts: by number.
        model: of the server.
        firmware: version of the BMC's.
        bios: version of the server's.
        least: characters of the shortest password.
        most: characters of the longest one.
        lockout: failed logins after which nobody gets in; 0 for never.
        services: network services and whether they are on.
        locked_services: those that cannot be switched off.
        light: whether the identification light is on.
        entries: of its log: time, severity, message.
        watts_on: what the server draws when it is on.
        watts_off: what it draws when it is off.
    """

    serial: str
    accounts: dict[str, Account]
    model: str = "Lab Server 8"
    firmware: str = "1.02.3"
    bios: str = "1.0.0"
    least: int = 8
    most: int = 20
    lockout: int = 0
    failed: int = 0
    services: dict[str, bool] = dataclasses.field(
        default_factory=lambda: {"IPMI": True, "SNMP": True, "Telnet": False, "SSH": True, "HTTP": True}
    )
    locked_services: frozenset[str] = frozenset()
    light: bool = False
    entries: list[tuple[str, str, str]] = dataclasses.field(
        default_factory=lambda: [("2026-01-01T00:00:00Z", "OK", "The log was cleared.")]
    )
    watts_on: float = 1800.0
    watts_off: float = 90.0


def account_service(state: State) -> Document:
    """Return the service."""
    return {
        "@odata.id": ACCOUNTS,
        "@odata.type": "#AccountService.v1_15_0.AccountService",
        "Id": "AccountService",
        "Name": "Account Service",
        "ServiceEnabled": True,
        "MinPasswordLength": state.least,
        "MaxPasswordLength": state.most,
        "AccountLockoutThreshold": state.lockout,
        "Accounts": {"@odata.id": f"{ACCOUNTS}/Accounts"},
    }


def account(number: str, one: Account) -> Document:
    """Return an account; its password is never readable."""
    return {
        "@odata.id": f"{ACCOUNTS}/Accounts/{number}",
        "@odata.type": "#ManagerAccount.v1_12_0.ManagerAccount",
        "Id": number,
        "Name": f"User {number}",
        "UserName": one.username,
        "Password": None,
        "RoleId": "Administrator",
        "Enabled": one.enabled,
        "PasswordChangeRequired": one.must_change,
    }


def collection(path: str, kind: str, members: t.Iterable[str]) -> Document:
    """Return a collection of resources, by their paths."""
    listed = [{"@odata.id": member} for member in members]
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": f"{kind} Collection",
        "Members@odata.count": len(listed),
        "Members": listed,
    }


def certificate_service() -> Document:
    """Return the service that makes requests and takes certificates."""
    actions = ("GenerateCSR", "ReplaceCertificate")
    return {
        "@odata.id": CERTIFICATES,
        "@odata.type": "#CertificateService.v1_0_5.CertificateService",
        "Id": "CertificateService",
        "Name": "Certificate Service",
        "Actions": {
            f"#CertificateService.{name}": {"target": f"{CERTIFICATES}/Actions/CertificateService.{name}"}
            for name in actions
        },
    }


def network_protocol(manager: str, state: State) -> Document:
    """Return which network services there are."""
    path = f"{manager}/NetworkProtocol"
    return {
        "@odata.id": path,
        "@odata.type": "#ManagerNetworkProtocol.v1_9_0.ManagerNetworkProtocol",
        "Id": "NetworkProtocol",
        "Name": "Manager Network Protocol",
        **{name: {"ProtocolEnabled": on} for name, on in state.services.items()},
        "HTTPS": {
            "ProtocolEnabled": True,
            "Port": 443,
            "Certificates": {"@odata.id": f"{path}/HTTPS/Certificates"},
        },
    }


def log_service(owner: str) -> Document:
    """Return the system event log."""
    path = f"{owner}/LogServices/SEL"
    return {
        "@odata.id": path,
        "@odata.type": "#LogService.v1_5_0.LogService",
        "Id": "SEL",
        "Name": "System Event Log",
        "LogEntryType": "SEL",
        "Entries": {"@odata.id": f"{path}/Entries"},
    }


def log_page(owner: str, state: State, skip: int) -> Document:
    """Return a page of the log."""
    path = f"{owner}/LogServices/SEL/Entries"
    page = state.entries[skip : skip + PAGE]
    found: Document = {
        "@odata.id": path,
        "@odata.type": "#LogEntryCollection.LogEntryCollection",
        "Name": "Log Entries",
        "Members@odata.count": len(state.entries),
        "Members": [
            {
                "@odata.id": f"{path}/{number}",
                "@odata.type": "#LogEntry.v1_15_0.LogEntry",
                "Id": str(number),
                "Name": f"Entry {number}",
                "EntryType": "SEL",
                "Created": created,
                "Severity": severity,
                "Message": message,
            }
            for number, (created, severity, message) in enumerate(page, skip + 1)
        ],
    }
    if skip + PAGE < len(state.entries):
        found["Members@odata.nextLink"] = f"{path}?$skip={skip + PAGE}"
    return found


def power(chassis: str, watts: float) -> Document:
    """Return what a chassis draws."""
    return {
        "@odata.id": f"{chassis}/Power",
        "@odata.type": "#Power.v1_7_1.Power",
        "Id": "Power",
        "Name": "Power",
        "PowerControl": [{"MemberId": "0", "PowerConsumedWatts": watts}],
    }


def error(code: str, message: str, **more: t.Any) -> Document:
    """Return what Redfish answers when something is wrong."""
    info = {"MessageId": f"Base.1.18.{code}", "Message": message, "Severity": "Critical", **more}
    return {"error": {"code": f"Base.1.18.{code}", "message": message, "@Message.ExtendedInfo": [info]}}


Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def new_key(body: Document) -> Key:
    """Make the key that a request for GenerateCSR asks for."""
    if body.get("KeyPairAlgorithm") == "TPM_ALG_RSA":
        return rsa.generate_private_key(65537, int(body.get("KeyBitLength") or 2048))
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    """Return a key for the web server."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def request_pem(key: Key, body: Document) -> str:
    """Return the certificate request."""
    names = [x509.DNSName(str(name)) for name in body.get("AlternativeNames") or ()]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(body["CommonName"]))])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def factory_certificate(key: Key, name: str) -> bytes:
    """Return what a BMC comes with: signed by itself, for nobody in particular."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def sha256_of(certificate: str) -> str:
    """Return the SHA-256 of a certificate's DER form, in hexadecimal digits."""
    return x509.load_pem_x509_certificate(certificate.encode()).fingerprint(hashes.SHA256()).hex()
