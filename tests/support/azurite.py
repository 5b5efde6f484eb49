# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Azure on loopback for tests: a real Azurite, alone or behind the lab's roles, policies and faults.

Azurite checks a token's claims, not its signature; ``emulated`` puts ironspan.lab.azure before it.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import typing as t
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from azure.core.credentials import AccessToken, TokenCredential
from azure.storage.blob import BlobServiceClient

from ironspan.backup.azure.blob import BlobStore
from ironspan.backup.azure.private_endpoint import transport
from ironspan.backup.azure.transfer import PIECE
from ironspan.lab.azure import certificates, control, settings
from ironspan.lab.azure.install import ensure, installed
from ironspan.lab.azure.process import Config
from ironspan.lab.errors import LabError

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
    """A blob service: the URL of its account, and the file with the authority of its certificate."""

    url: str
    ca: Path

    def service(self, credential: TokenCredential | None = None) -> BlobServiceClient:
        """Return a client such as ``open_azure`` makes."""
        return BlobServiceClient(
            self.url,
            credential=credential or Token(),
            transport=transport(private=True, ca=str(self.ca), read_s=2),
            retry_total=0,
            max_single_get_size=PIECE,
            max_chunk_get_size=PIECE,
            max_block_size=PIECE,
        )

    def store(self, prefix: str = "") -> BlobStore:
        """Return a store in a container of its own."""
        name = f"c{uuid.uuid4().hex}"
        self.service().create_container(name)
        return BlobStore(self.service(), name, prefix, delays=(0.01, 0.02))


@dataclasses.dataclass(frozen=True)
class Emulated(Azurite):
    """The lab's Azure: where its services are, and its folder, by which it takes commands."""

    folder: Path
    login: str
    management: str

    def tell(self, do: str, **arguments: t.Any) -> dict[str, t.Any]:
        """Give it a command, such as ``fault`` (see ironspan.lab.azure.control)."""
        return control.request(self.folder, do, **arguments)

    def token(self, identity: str, audience: str = AUDIENCE) -> str:
        """Return a signed token of one of the lab's identities."""
        return str(self.tell("token", identity=identity, audience=audience)["token"])

    def as_role(self, identity: str, container: str = settings.CONTAINER) -> BlobStore:
        """Return the store as an identity with one role sees it."""
        credential = Signed(self, identity)
        return BlobStore(self.service(credential), container, delays=(0.01, 0.02))


class Signed:
    """A credential of one of the lab's identities."""

    def __init__(self, azure: Emulated, identity: str) -> None:
        self.azure, self.identity = azure, identity

    def get_token(self, *scopes: str, **kwargs: t.Any) -> AccessToken:
        """Return a token for the first scope."""
        audience = scopes[0].removesuffix("/.default")
        return AccessToken(self.azure.token(self.identity, audience), int(time.time()) + 3600)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Azurite]:
    """Run Azurite with its data in ``folder`` until the block ends.

    Without Azurite in the cache the test is skipped, or fails when IRONSPAN_REQUIRE_LAB is 1.
    """
    program = installed() or (ensure() if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1" else None)
    if program is None:
        pytest.skip("Azurite is not in the cache; `ironspan lab up` installs it")
    certificates.ensure(folder, ["localhost"], ["127.0.0.1"])
    cert, key = certificates.server(folder)
    port = free_port()
    command = [program.node, program.script, "-l", folder / "data", "--blobHost", "127.0.0.1"]
    command += ["--blobPort", port, "--oauth", "basic", "--cert", cert, "--key", key]
    command += ["--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    # A key that nobody learns: clients come with tokens.
    accounts = {"AZURITE_ACCOUNTS": f"{settings.ACCOUNT}:{base64.b64encode(os.urandom(64)).decode()}"}
    with _process(command, folder / "azurite.log", accounts) as process:
        _wait(process, lambda: socket.create_connection(("127.0.0.1", port), 1).close())
        yield Azurite(f"https://127.0.0.1:{port}/{settings.ACCOUNT}", certificates.authority(folder))
    shutil.rmtree(folder / "data", ignore_errors=True)


@contextlib.contextmanager
def emulated(folder: Path) -> Iterator[Emulated]:
    """Run the lab's Azure on loopback until the block ends."""
    with running(folder) as azurite:
        ports = {service: free_port() for service in ("store", "login", "management", "metadata", "arc")}
        port = azurite.url.split(":")[2].partition("/")[0]
        endpoints = {service: ["127.0.0.1", number] for service, number in ports.items()}
        Config(endpoints, ["127.0.0.1", int(port)]).save(folder)
        made = Emulated(
            f"https://127.0.0.1:{ports['store']}/{settings.ACCOUNT}",
            azurite.ca,
            folder,
            f"https://127.0.0.1:{ports['login']}",
            f"https://127.0.0.1:{ports['management']}",
        )
        with _process([sys.executable, "-m", "ironspan.lab.azure", folder], folder / "azure.log") as process:
            _wait(process, lambda: _ready(made))
            yield made


def _ready(azure: Emulated) -> None:
    if not azure.tell("status")["ready"]:
        raise LabError("not yet")


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def _process(
    command: Sequence[object], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield process
    except TimeoutError as error:
        pytest.fail(f"{error}: {log.read_text(errors='replace')[-2000:]}")
    finally:
        process.terminate()
        process.wait(30)


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], None]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, LabError):
            ready()
            return
        time.sleep(0.05)
    raise TimeoutError(f"{process.args!r} did not start")
