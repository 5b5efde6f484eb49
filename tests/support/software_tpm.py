# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A software TPM: swtpm, which the real tpm2-tools speak to. It has no firmware, so tests measure a boot."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import typing as t
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.module_utils import _attest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import ask, keys

from ironspan.lab.ports import free_ports
from tests.support.tpm_maker import Maker
from tests.support.waiting import until

PCRS = (0, 2, 4, 7)


class Tpm(t.NamedTuple):
    """A software TPM that runs."""

    tcti: str

    def extend(self, number: int, what: str) -> None:
        """Measure something, as firmware does."""
        digest = hashlib.sha256(what.encode()).hexdigest()
        environment = {**os.environ, "TPM2TOOLS_TCTI": self.tcti}
        subprocess.run(["tpm2", "pcrextend", f"{number}:sha256={digest}"], env=environment, check=True)

    def boot(self, firmware: str = "1.0") -> None:
        """Measure a whole boot."""
        for number in PCRS:
            self.extend(number, f"{firmware} of {number}" if number == 0 else f"part {number}")

    def certify(self, maker: Maker) -> None:
        """Put the certificate of its endorsement key where makers do, readable by everybody."""
        key = keys.endorsement_key(
            bytes.fromhex(_attest.attest({"tcti": self.tcti, "endorsement": True})["ek"])
        )
        certificate = maker.certify(key.key)
        attributes = "platformcreate|ppwrite|ppread|ownerread|authread|no_da"
        size = str(len(certificate) + 100)
        environment = {**os.environ, "TPM2TOOLS_TCTI": self.tcti}
        define = ["tpm2", "nvdefine", _attest.CERTIFICATE, "-C", "p", "-s", size, "-a", attributes]
        subprocess.run(define, env=environment, check=True, stdout=subprocess.DEVNULL)
        write = ["tpm2", "nvwrite", _attest.CERTIFICATE, "-C", "p", "-i", "-"]
        # Makers fill the space up, with zeros or ones.
        subprocess.run(write, env=environment, check=True, input=certificate + b"\xff" * 100)

    @property
    def policy(self) -> ask.Policy:
        return ask.Policy("require", PCRS, self.tcti)

    @property
    def document(self) -> dict[str, t.Any]:
        """What the controller's document says of the host."""
        return {"resources": [{"id": "node/join", "kind": "kubeadm", "attestation": self.policy._asdict()}]}


def neighbours() -> int:
    """Return the first of two neighbouring ports that nothing listens on: tpm2-tools expect them so."""
    while True:
        port, other = free_ports(2)
        if other == port + 1:
            return port


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, "swtpm has ended"
    try:
        with socket.create_connection(("127.0.0.1", port)):
            return True
    except ConnectionRefusedError:
        return False


@contextlib.contextmanager
def swtpm(state: Path) -> Iterator[Tpm]:
    """Run a TPM with this state: a seed of its own when the folder is new."""
    state.mkdir(exist_ok=True)
    port = neighbours()
    words = [
        "swtpm",
        "socket",
        "--tpm2",
        "--tpmstate",
        f"dir={state}",
        "--flags",
        "not-need-init,startup-clear",
    ]
    for option, number in (("--server", port), ("--ctrl", port + 1)):
        words += [option, f"type=tcp,port={number},bindaddr=127.0.0.1"]
    with subprocess.Popen(words) as process:
        try:
            until(lambda: _listens(process, port + 1), pause=0.02)
            yield Tpm(f"swtpm:host=127.0.0.1,port={port}")
        finally:
            process.terminate()
