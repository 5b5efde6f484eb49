# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A server's ramdisk that is not booted: it reads the medium in its BMC, and does what the agent there would.

Everything that it knows comes from the medium: where Ironic is, the authority that vouches for it, the token.
What it is told to write it fetches and checks; there is no disk.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import hashlib
import ipaddress
import json
import pathlib
import shlex
import shutil
import ssl
import subprocess
import threading
import typing as t
import urllib.request

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ironspan.lab.bmc import resources
from tests.support.fake_agent import Agent, Secured

CONFIGURATION, AUTHORITY = "/EFI/debian/grub.cfg", "/etc/ironic-python-agent/ironic.crt"


class Medium:
    """A medium that Ironic has made, as an ISO image.

    Args:
        image: its file.
    """

    def __init__(self, image: pathlib.Path) -> None:
        self._image = image
        lines = [line.split() for line in self.read(CONFIGURATION).decode().splitlines()]
        kernel = next(words for words in lines if words and words[0].startswith("linux"))
        pairs = [word.partition("=") for word in shlex.split(" ".join(kernel))]
        self.parameters = {name: value for name, _, value in pairs}

    def read(self, path: str) -> bytes:
        """Return a file of the medium."""
        command = ["isoinfo", "-i", str(self._image), "-R", "-x", path]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        assert found, f"{path} is not on the medium"
        return found


class Ramdisk(Agent):
    """The agent of a medium, on an address of this machine.

    Args:
        medium: it.
        address: of this machine, where Ironic reaches it.
        mac: of the server's port.
        folder: for its certificate.
    """

    def __init__(self, medium: Medium, address: str, mac: str, folder: pathlib.Path) -> None:
        certificate, key = _own(address, folder)
        trust = ssl.create_default_context(cadata=medium.read(AUTHORITY).decode())
        secured = Secured(address, medium.parameters["ipa-agent-token"], trust, certificate, key)
        super().__init__(medium.parameters["ipa-api-url"], mac, {}, secured)
        self.image, self.sha256, self.config_drive = "", "", b""

    def write(self, told: t.Mapping[str, t.Any]) -> str | None:
        """Fetch the image as the agent does, and keep its digest and the config drive."""
        (self.image,) = told["image_info"]["urls"]
        digest = hashlib.sha256()
        try:
            with self.fetched(self.image) as answer:
                while chunk := answer.read(1 << 20):
                    digest.update(chunk)
        except OSError as error:
            return f"Unable to download {self.image}: {error}"
        self.sha256 = digest.hexdigest()
        drive = told["configdrive"]
        if drive.startswith("https://"):
            with self.fetched(drive) as answer:
                drive = answer.read().decode()
        self.config_drive = gzip.decompress(base64.b64decode(drive))
        return None if self.sha256 == told["image_info"]["os_hash_value"] else "the image is another one"


class Server(threading.Thread):
    """A pretended server that starts from the medium in its BMC whenever it gets power.

    Args:
        emulator: address of the BMCs' emulator.
        uuid: of the server.
        start: makes the agent of a medium.
        folder: for the medium.
    """

    def __init__(
        self, emulator: str, uuid: str, start: t.Callable[[Medium], Ramdisk], folder: pathlib.Path
    ) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.media: list[str] = []
        """URLs of the media that it started from."""
        self.agents: list[Ramdisk] = []
        """Of each of them."""
        self._emulator, self._uuid, self._start, self._folder = emulator, uuid, start, folder

    def run(self) -> None:
        """Wait for power and a medium, and run its agent until the power goes; again, until the end."""
        while not self.over.wait(0.5):
            medium = self._asked(f"Systems/{self._uuid}/VirtualMedia/Cd")
            if not (medium["Inserted"] and self._has_power()):
                continue
            file = self._folder / "medium.iso"
            try:
                with _unchecked(medium["Image"]) as answer, file.open("wb") as written:
                    shutil.copyfileobj(answer, written)
            except OSError:
                continue  # ejected, and removed, since it was seen
            agent = self._start(Medium(file))
            file.unlink()
            self.media.append(medium["Image"])
            self.agents.append(agent)
            with agent:
                while self._has_power() and not self.over.wait(0.5):
                    pass

    def _has_power(self) -> bool:
        return str(self._asked(f"Systems/{self._uuid}")["PowerState"]) == "On"

    def _asked(self, path: str) -> dict[str, t.Any]:
        """Ask until there is an answer: without this thread a server would never start."""
        while True:
            try:
                with _unchecked(f"{self._emulator}/redfish/v1/{path}") as answer:
                    found: dict[str, t.Any] = json.load(answer)
                    return found
            except OSError:
                if self.over.wait(0.5):
                    raise


def _unchecked(url: str) -> t.Any:
    """Return an answer of anybody, as BMCs take media."""
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_ANYBODY))
    return urllib.request.build_opener(*handlers).open(url, timeout=60)


_ANYBODY = ssl.create_default_context()
_ANYBODY.check_hostname = False
_ANYBODY.verify_mode = ssl.CERT_NONE


def _own(address: str, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Make the certificate that an agent makes for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=True
        )
        .sign(key, hashes.SHA256())
    )
    made = folder / "agent.crt", folder / "agent.key"
    made[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made[1].write_bytes(resources.key_pem(key))
    return made
