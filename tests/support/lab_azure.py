# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The lab's Azure on loopback, without a lab: Azurite behind the proxy, and where tokens come from.

A test module asks for the fixtures by importing them:

    from tests.support.lab_azure import azure, container  # noqa: F401
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import importlib
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import Connection
from azure.core.credentials import AccessToken
from azure.storage.blob import BlobServiceClient, ContainerClient

from ironspan.lab.azure import client, install, launch, settings
from ironspan.lab.azure.config import PRIVATE, SERVICES, Config, authority
from ironspan.lab.azure.tokens import Signer
from ironspan.lab.errors import LabError
from ironspan.lab.ports import free_ports

STORAGE = "https://storage.azure.com"
MANAGEMENT = "https://management.azure.com"
PATIENCE_S = 180.0
"""Of tests, with a service that has to share the processors."""


@dataclasses.dataclass(frozen=True)
class Credential:
    """A credential for the Azure SDK that asks the running service itself; `identity` is a role's name."""

    azure: LabAzure
    identity: str
    audience: str = STORAGE

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        token = self.azure.do("token", identity=self.identity, audience=self.audience)["token"]
        return AccessToken(token, int(time.time()) + 3600)


@dataclasses.dataclass(frozen=True)
class LabAzure:
    """A running emulated Azure.

    Attributes:
        folder: its folder: configuration, logs, ca.crt.
        ports: service -> TCP port on 127.0.0.1.
    """

    folder: Path
    ports: dict[str, int]

    @property
    def ca(self) -> Path:
        """The certificate to trust."""
        return authority(self.folder)

    @property
    def account_url(self) -> str:
        """The account's URL, with the account in its path because no name leads here."""
        return f"{self.url('store')}/{settings.ACCOUNT}"

    def url(self, service: str) -> str:
        """The URL of a service."""
        scheme = "http" if service in ("metadata", "arc") else "https"
        return f"{scheme}://127.0.0.1:{self.ports[service]}"

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Give a command (see ironspan.lab.azure.control)."""
        return client.request(self.folder, command, PATIENCE_S, **arguments)

    def fault(self, kind: str, **settings: Any) -> int:
        """Begin a fault (fields of ironspan.lab.azure.faults.Fault); returns its number."""
        return int(self.do("fault", kind=kind, **settings)["id"])

    def heal(self) -> None:
        """End all faults."""
        self.do("heal")

    def requests(self, service: str = "store") -> list[dict[str, Any]]:
        """The last requests to a service, oldest first: method, path, comp, status, identity."""
        return [one for one in self.do("requests")["requests"] if one["service"] == service]

    def client(self, identity: str = "writer", **options: Any) -> BlobServiceClient:
        """An SDK client that acts as an identity (a role's name) and, unless told so, never retries."""
        return BlobServiceClient(
            self.account_url,
            credential=Credential(self, identity),
            connection_verify=str(self.ca),
            **{"retry_total": 0, "connection_timeout": 60, "read_timeout": 60, **options},
        )

    def management(self, identity: str = "operator") -> Connection:
        """How its resource manager is spoken to by an identity (a role's name)."""
        return Connection(Credential(self, identity, MANAGEMENT), self.url("management"), ca=str(self.ca))

    @contextlib.contextmanager
    def managed_identity(self) -> Iterator[None]:
        """Make ManagedIdentityCredential ask this metadata service."""
        with _environment(AZURE_POD_IDENTITY_AUTHORITY_HOST=self.url("metadata")):
            yield

    @contextlib.contextmanager
    def arc_machine(self) -> Iterator[None]:
        """Make ManagedIdentityCredential believe that this is an Arc machine with this agent."""
        endpoint = f"{self.url('arc')}/metadata/identity/oauth2/token"
        folder = str(self.folder / "arc")
        msal: Any = importlib.import_module("msal.managed_identity")
        with pytest.MonkeyPatch.context() as patch:
            # Both libraries take challenges from the agent's own folder only, which is not ours to write.
            patch.setattr("azure.identity._credentials.azure_arc._get_key_file_path", lambda: folder)
            patch.setitem(msal._supported_arc_platforms_and_their_prefixes, "linux", folder)
            with _environment(IDENTITY_ENDPOINT=endpoint, IMDS_ENDPOINT=self.url("arc")):
                yield

    def service_account(self, identity: str = "writer", lifetime_s: int = 600) -> Path:
        """Make a cluster's service account that may act as `identity`; returns the file with its token."""
        issuer, subject = "https://issuer.lab.internal", "system:serviceaccount:default:backup"
        signer = Signer.at(self.folder / "keys" / "cluster.pem")
        self.do(
            "federate",
            client_id=settings.IDENTITIES[identity].client_id,
            issuer=issuer,
            subject=subject,
            keys=[signer.jwk()],
        )
        now = int(time.time())
        claims = {"aud": "api://AzureADTokenExchange", "iss": issuer, "sub": subject}
        token = signer.sign({**claims, "iat": now, "nbf": now, "exp": now + lifetime_s})
        path = self.folder / f"token-{identity}"
        path.write_text(token)
        return path


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield


def azurite() -> install.Azurite:
    """Azurite, installed if need be; else the test is skipped, or fails when IRONSPAN_REQUIRE_LAB is 1."""
    try:
        return install.ensure()
    except LabError as error:
        if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


@contextlib.contextmanager
def running() -> Iterator[LabAzure]:
    """Run the emulated Azure on loopback; everything of it is gone afterwards."""
    programs = azurite()
    # A short path: a Unix socket's name has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="azure-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        listening = (*SERVICES, PRIVATE)
        *ports, below = free_ports(len(listening) + 1)
        where: dict[str, list[Any]] = {
            service: ["127.0.0.1", port] for service, port in zip(listening, ports, strict=True)
        }
        config = Config(where, ["127.0.0.1", below], machines={"127.0.0.1": ""}, arc_folder=f"{folder}/arc")
        launch.prepare(folder, config)
        processes = []
        for log, command in (
            ("azurite.log", launch.azurite_command(programs, folder, config)),
            ("azure.log", launch.process_command(folder)),
        ):
            output = stack.enter_context((folder / log).open("wb"))
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **launch.azurite_environment()},
            )
            processes.append(process)
            stack.callback(_end, process)
        try:
            launch.wait_ready(folder, lambda: all(one.poll() is None for one in processes), PATIENCE_S)
        except LabError as error:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))
            pytest.fail(f"{error}\n{logs}")
        yield LabAzure(folder, dict(zip(listening, ports, strict=True)))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.fixture(scope="session")
def running_azure() -> Iterator[LabAzure]:
    """One emulated Azure for the whole run: it takes two seconds to start."""
    with running() as service:
        yield service


@pytest.fixture
def azure(running_azure: LabAzure) -> Iterator[LabAzure]:
    """The emulated Azure without faults, with the machine's own clock and no versions."""
    running_azure.heal()
    running_azure.do("requests", clear=True)
    yield running_azure
    running_azure.heal()
    running_azure.do("clock", offset_s=0)
    running_azure.do("policy", versioning=False)
    running_azure.do("lifetime", seconds=3600)


@pytest.fixture
def container(azure: LabAzure) -> str:
    """The name of a fresh container without any policy."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    azure.client("operator").create_container(name)
    return name


def blobs(azure: LabAzure, container: str, identity: str = "writer", **options: Any) -> ContainerClient:
    """A client for one container that acts as an identity."""
    return azure.client(identity, **options).get_container_client(container)


def forged(token: str) -> str:
    """The same token with a signature that nobody made."""
    head, claims, signature = token.split(".")
    altered = bytearray(base64.urlsafe_b64decode(signature + "=="))
    altered[-1] ^= 1
    return f"{head}.{claims}.{base64.urlsafe_b64encode(altered).rstrip(b'=').decode()}"
