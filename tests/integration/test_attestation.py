# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A real software TPM (swtpm) through the real tpm2-tools: the host's program and the controller's judgement.

It has no firmware that measures, so the test extends PCRs as one would. What is not here is a real TPM's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _attest, _entry
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.attestation import ask
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import tpm_accept
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.attested import Attestor
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import ExchangeError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file, open_store

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

    @property
    def policy(self) -> ask.Policy:
        return ask.Policy("require", PCRS, self.tcti)

    @property
    def document(self) -> dict[str, t.Any]:
        """What the controller's document says of the host."""
        return {"resources": [{"id": "node/join", "kind": "kubeadm", "attestation": self.policy._asdict()}]}


def run(program: str, parameters: dict[str, t.Any]) -> dict[str, t.Any]:
    """Run a program of the engine, as a host does."""
    return dict(_entry.PROGRAMS[program](parameters, False, False))


def free_ports() -> int:
    """Return the first of two neighbouring ports that nothing listens on: tpm2-tools expect them so."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + 1))
                return port


@contextlib.contextmanager
def swtpm(state: Path) -> Iterator[Tpm]:
    """Run a TPM with this state: a seed of its own when the folder is new."""
    state.mkdir(exist_ok=True)
    port = free_ports()
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
            for _ in range(300):
                with (
                    contextlib.suppress(ConnectionRefusedError),
                    socket.create_connection(("127.0.0.1", port + 1)),
                ):
                    break
                assert process.poll() is None, "swtpm has ended"
                time.sleep(0.02)
            yield Tpm(f"swtpm:host=127.0.0.1,port={port}")
        finally:
            process.terminate()


@pytest.fixture
def tpm(tmp_path: Path) -> Iterator[Tpm]:
    with swtpm(tmp_path / "tpm") as running:
        yield running


@pytest.fixture
def attestor(tmp_path: Path) -> Attestor:
    key = generate_key_file(tmp_path / "key")
    open_store(tmp_path / "pki", key).ensure_cas()
    return Attestor("rack-1", run, Credentials(str(tmp_path / "pki"), str(key)))


def test_from_the_first_look_to_changed_firmware_and_back(tmp_path: Path, attestor: Attestor) -> None:
    """Nothing measured; accepted, and it joins; new firmware is refused; accepted again. Its TPM stays."""
    with swtpm(tmp_path / "tpm") as tpm:
        with pytest.raises(ActionableError, match="nothing was measured"):
            tpm_accept.look(attestor, tpm.policy, "anna")
        tpm.boot()
        with pytest.raises(ExchangeError, match="nobody has accepted"):
            attestor(tpm.document, ["node/join"])
        first = tpm_accept.look(attestor, tpm.policy, "anna")
        attestor.keep(first.now)
        assert attestor(tpm.document, ["node/join"]) == []
    with swtpm(tmp_path / "tpm") as tpm:
        tpm.boot("1.1")
        with pytest.raises(
            ExchangeError, match=r"than anna accepted on .*: PCR 0 \(firmware\) is \w+ and was \w+;"
        ):
            attestor(tpm.document, ["node/join"])
        seen = tpm_accept.look(attestor, tpm.policy, "boris")
        assert [line[:16] for line in seen.lines] == ["PCR 0 (firmware)"]
        assert (seen.now.endorsement, seen.now.key) == (first.now.endorsement, first.now.key)
        attestor.keep(seen.now)
        assert attestor(tpm.document, ["node/join"]) == []
        tpm.extend(7, "Secure Boot off")
        with pytest.raises(ExchangeError, match=r"than boris accepted on .*: PCR 7"):
            attestor(tpm.document, ["node/join"])


def test_another_machine_with_the_same_software_is_refused(
    tmp_path: Path, tpm: Tpm, attestor: Attestor
) -> None:
    tpm.boot()
    attestor.keep(tpm_accept.look(attestor, tpm.policy, "anna").now)
    with swtpm(tmp_path / "other") as other:
        other.boot()
        with pytest.raises(ExchangeError, match="not signed by the TPM that was recorded"):
            attestor(other.document, ["node/join"])
        seen = tpm_accept.look(attestor, other.policy)
        assert seen.lines[0].startswith("it is another TPM") and len(seen.lines) == 1
    assert attestor(tpm.document, ["node/join"]) == []


def test_keys_of_two_tpms_are_not_taken_for_one(tmp_path: Path, tpm: Tpm) -> None:
    """An endorsement key that is known to be good does not make a key of another TPM good."""
    tpm.boot()
    with swtpm(tmp_path / "other") as other:
        other.boot()
        genuine = run("attest", {"tcti": tpm.tcti, "endorsement": True})["attestation"]["ek"]

        def mixed(parameters: dict[str, t.Any]) -> dict[str, t.Any]:
            answer = run("attest", {**parameters, "tcti": other.tcti})
            answer.get("attestation", {}).update(ek=genuine)
            return answer

        with pytest.raises(ActionableError, match="activatecredential ended with"):
            ask.introduce(other.policy, mixed, "anna")


def test_an_rsa_key_is_attested_too(tpm: Tpm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TPM that cannot make the first kind of key is asked for the second, and from then on for that."""
    tpm.boot()
    monkeypatch.setattr(_attest, "SCHEMES", {**_attest.SCHEMES, "ecdsa": "ecc638:ecdsa-sha256:null"})
    record = ask.introduce(tpm.policy, lambda parameters: run("attest", parameters), "anna")
    assert record.algorithm == "rsassa"
    assert ask.measure(record, tpm.policy, lambda parameters: run("attest", parameters)) == record.pcrs


@pytest.mark.parametrize(
    ("path", "says"),
    [("/nowhere", "install the package tpm2-tools"), ("", "tpm2 createprimary ended with")],
)
def test_a_host_without_a_tpm_says_so(monkeypatch: pytest.MonkeyPatch, path: str, says: str) -> None:
    if path:
        monkeypatch.setenv("PATH", path)
    answer = run("attest", {"tcti": "swtpm:host=127.0.0.1,port=1", "nonce": "00", "pcrs": [0]})
    assert (answer["failed"], answer["changed"]) == (True, False)
    assert says in answer["msg"]
