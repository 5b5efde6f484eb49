# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks the TPM of a host for its keys and for a quote over what was booted; calls ``tpm2`` of tpm2-tools.

Nothing is kept in the TPM or on the disk: both keys are primary keys of the endorsement hierarchy, which a
TPM makes again, the same each time, from its seed. They outlive a new operating system and a cleared TPM.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths

TOOL = "tpm2"
SECONDS = 120
"""For one command: some TPMs take half a minute for an RSA key."""
SCHEMES = {"ecdsa": "ecc256:ecdsa-sha256:null", "rsassa": "rsa2048:rsassa-sha256:null"}
"""Kinds of attestation keys, the first that the TPM can make is used."""
ATTRIBUTES = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign|noda"
"""Of the attestation key: it never leaves the TPM and signs only what the TPM itself says."""
CERTIFICATE = "0x01c00002"
"""Where a TPM keeps the certificate of its RSA endorsement key (TCG EK Credential Profile, 2.2.1.4)."""
Found = t.Dict[str, t.Any]


class TpmError(Exception):
    """The TPM did not do it; the text says what, and what it said."""


class _Tpm:
    """Commands to a TPM, with files in a folder that goes away.

    Args:
        tcti: how it is reached, as tpm2-tools write it.
        folder: for what commands read and write.
    """

    def __init__(self, tcti: str, folder: str) -> None:
        self._environment = {**os.environ, "TPM2TOOLS_TCTI": tcti, "LC_ALL": "C"}
        self._folder = folder

    def run(self, *words: str) -> None:
        """Run one command. Raises TpmError."""
        try:
            done = subprocess.run(
                [TOOL, words[0], "-Q", *words[1:]],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            )
        except FileNotFoundError:
            raise TpmError(f"there is no program {TOOL}: install the package tpm2-tools") from None
        except (OSError, subprocess.SubprocessError) as error:
            raise TpmError(f"{TOOL} {words[0]}: {error}") from None
        if done.returncode:
            said = done.stdout.decode("utf-8", "replace").strip()[-400:]
            raise TpmError(f"{TOOL} {words[0]} ended with {done.returncode}: {said or 'it said nothing'}")

    def key(self, *words: str) -> None:
        """Make a key; its place in the TPM is made free again, because it has few. Raises TpmError."""
        self.run(*words)
        self.run("flushcontext", "-t")

    def read(self, name: str) -> str:
        """Return what a command has written, as hexadecimal digits."""
        return paths.read(os.path.join(self._folder, name)).hex()

    def write(self, name: str, content: str) -> None:
        """Write what a command reads."""
        files.write_atomically(os.path.join(self._folder, name), bytes.fromhex(content), 0o600)


def attest(parameters: t.Mapping[str, t.Any]) -> Found:
    """Do what the controller asks of the TPM.

    Args:
        parameters: ``tcti``; ``algorithm``, a kind of SCHEMES, empty for the first that works; ``nonce``,
            which the quote shall have, in hexadecimal digits, with ``pcrs``, the numbers of what it is over;
            ``endorsement``, whether the endorsement key is told, with its certificate; ``credential``, to be
            opened with both keys.

    Returns:
        ``algorithm`` and ``ak``; ``quote``, ``signature`` and ``pcrs`` (their values by number) with a nonce;
        ``ek`` and ``certificate`` when they were asked for, the latter empty where the TPM has none;
        ``secret`` with a credential. All bytes in hexadecimal digits, as the TPM writes them.

    Raises:
        TpmError: there is no TPM, or it refuses.
    """
    with tempfile.TemporaryDirectory(prefix="ironspan-tpm-") as folder:
        tpm = _Tpm(str(parameters.get("tcti") or ""), folder)
        algorithm = _attestation_key(tpm, str(parameters.get("algorithm") or ""))
        found: Found = {"algorithm": algorithm, "ak": tpm.read("ak.pub")}
        if parameters.get("nonce"):
            found.update(_quote(tpm, str(parameters["nonce"]), parameters["pcrs"]))
        if parameters.get("endorsement") or parameters.get("credential"):
            tpm.key("createek", "-G", "rsa", "-c", "ek.ctx", "-u", "ek.pub")
            found["ek"] = tpm.read("ek.pub")
        if parameters.get("endorsement"):
            found["certificate"] = _certificate(tpm)
        if parameters.get("credential"):
            found["secret"] = _opened(tpm, str(parameters["credential"]))
        return found


def _attestation_key(tpm: _Tpm, algorithm: str) -> str:
    """Make the attestation key, and return its kind."""
    kinds = [algorithm] if algorithm in SCHEMES else list(SCHEMES)
    for kind in kinds:
        words = ("createprimary", "-C", "e", "-g", "sha256", "-G", SCHEMES[kind], "-a", ATTRIBUTES)
        try:
            tpm.key(*words, "-c", "ak.ctx")
            break
        except TpmError:
            if kind == kinds[-1]:
                raise
    tpm.key("readpublic", "-c", "ak.ctx", "-f", "tss", "-o", "ak.pub")
    return kind


def _quote(tpm: _Tpm, nonce: str, pcrs: t.Sequence[int]) -> Found:
    numbers = sorted({int(number) for number in pcrs})
    selection = "sha256:" + ",".join(str(number) for number in numbers)
    files = ("-m", "quote", "-s", "signature", "-o", "values", "-F", "values")
    tpm.key("quote", "-c", "ak.ctx", "-l", selection, "-q", nonce, "-g", "sha256", *files)
    values = tpm.read("values")
    size = 64
    parts = [values[place : place + size] for place in range(0, len(values), size)]
    return {
        "quote": tpm.read("quote"),
        "signature": tpm.read("signature"),
        "pcrs": {str(number): value for number, value in zip(numbers, parts)},
    }


def _certificate(tpm: _Tpm) -> str:
    """Return the certificate that the maker put beside the endorsement key, empty where there is none."""
    try:
        tpm.run("nvread", CERTIFICATE, "-C", CERTIFICATE, "-o", "certificate")
    except TpmError:
        return ""
    return tpm.read("certificate")


def _opened(tpm: _Tpm, credential: str) -> str:
    """Return the secret of a credential, which only the TPM that has both keys can open."""
    tpm.write("credential", credential)
    tpm.run("startauthsession", "--policy-session", "-S", "session.ctx")
    try:
        tpm.run("policysecret", "-S", "session.ctx", "-c", "e")
        words = ("activatecredential", "-c", "ak.ctx", "-C", "ek.ctx", "-i", "credential", "-o", "secret")
        tpm.run(*words, "-P", "session:session.ctx")
    finally:
        tpm.run("flushcontext", "session.ctx")
        tpm.run("flushcontext", "-t")
    return tpm.read("secret")
