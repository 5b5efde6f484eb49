# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A real Azurite on loopback, with TLS, for tests of what speaks to Azure Blob storage.

It checks a token's claims, not its signature; roles, policies and faults are the lab's (ironspan/lab/azure).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import time
import typing as t
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.credentials import AccessToken
from azure.storage.blob import BlobServiceClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ironspan.backup.azure.blob import BlobStore
from ironspan.backup.azure.private_endpoint import transport
from ironspan.backup.azure.transfer import PIECE
from ironspan.lab.azure.install import ensure, installed

ACCOUNT = "devstoreaccount1"
AUDIENCE = "https://storage.azure.com"


class Token:
    """A credential whose tokens have the claims that Azurite looks at, and no signature."""

    def __init__(self, audience: str = AUDIENCE) -> None:
        self.audience = audience

    def get_token(self, *scopes: str, **kwargs: t.Any) -> AccessToken:
        """Return a token that is good for an hour."""
        now = int(time.time())
        claims = {
            "aud": self.audience,
            "iss": f"https://sts.windows.net/{uuid.UUID(int=1)}/",
            "iat": now - 60,
            "nbf": now - 60,
            "exp": now + 3600,
        }
        parts = [_part(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
        return AccessToken(".".join([*parts, _part(b"none")]), now + 3600)


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclasses.dataclass(frozen=True)
class Azurite:
    """A running Azurite: its URL, and the file with the authority of its certificate."""

    url: str
    ca: Path

    def service(self, url: str = "", audience: str = AUDIENCE) -> BlobServiceClient:
        """Return a client such as ``open_azure`` makes, of this server or of a proxy before it."""
        return BlobServiceClient(
            url or self.url,
            credential=Token(audience),
            transport=transport(private=True, ca=str(self.ca), read_s=5),
            retry_total=0,
            max_single_get_size=PIECE,
            max_chunk_get_size=PIECE,
            max_block_size=PIECE,
        )

    def store(self, prefix: str = "", url: str = "") -> BlobStore:
        """Return a store in a container of its own."""
        name = f"c{uuid.uuid4().hex}"
        self.service().create_container(name)
        return BlobStore(self.service(url), name, prefix, delays=(0.01, 0.02))


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for the loopback addresses and its key, and return both files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "azurite")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "server.crt", folder / "server.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Azurite]:
    """Run Azurite with its data in ``folder`` until the block ends.

    Without Azurite in the cache the test is skipped, or fails when IRONSPAN_REQUIRE_LAB is 1.
    """
    program = installed() or (ensure() if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1" else None)
    if program is None:
        pytest.skip("Azurite is not in the cache; `ironspan lab up` installs it")
    folder.mkdir(parents=True, exist_ok=True)
    cert, key = certificate(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(item) for item in (program.node, program.script, "-l", folder / "data")]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--oauth", "basic"]
    command += ["--cert", str(cert), "--key", str(key)]
    command += ["--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    with (folder / "azurite.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait(process, port, folder / "azurite.log")
        yield Azurite(f"https://127.0.0.1:{port}/{ACCOUNT}", cert)
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder / "data", ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    pytest.fail(f"Azurite did not start: {log.read_text(errors='replace')[-2000:]}")
