# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Approvals: detached OpenSSH signatures beside the plan, by keys of the site's allowed signers.

PLAN.sig.d/NAME.sig is what `ssh-keygen -Y sign -n ironspan-plan` writes; nothing else is needed to make or
to check one.
"""

from __future__ import annotations

import hashlib
import subprocess
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

NAMESPACE = "ironspan-plan"
_TIMEOUT_S = 120
"""A key with a passphrase waits for somebody to type it."""


class Approvals(t.NamedTuple):
    """Who approved, and signatures that count for nothing with the reason."""

    names: list[str]
    void: list[str]


def folder_of(plan: Path) -> Path:
    """Return the folder of a plan's signatures."""
    return plan.with_name(f"{plan.name}.sig.d")


def _ssh_keygen(*arguments: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments], input=data, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise PlanError("there is no program ssh-keygen", "install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise PlanError(f"ssh-keygen did not answer in {_TIMEOUT_S} seconds") from None


def sign(data: bytes, plan: Path, key: Path) -> Path:
    """Sign a plan and put the signature beside it.

    Args:
        data: the bytes of the plan file, as they were read and checked.
        plan: the plan file.
        key: private key, or a public one whose private key an agent holds.

    Returns:
        The signature's file; one key has one, signing again replaces it.

    Raises:
        PlanError: the key cannot be used.
    """
    done = _ssh_keygen("-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key), data=data)
    if done.returncode or b"BEGIN SSH SIGNATURE" not in done.stdout:
        reason = done.stderr.decode(errors="replace").strip() or "ssh-keygen gave no reason"
        raise PlanError(f"{key} does not sign: {reason}", "name a key of yours with --key")
    folder = folder_of(plan)
    folder.mkdir(exist_ok=True)
    file = folder / f"{_name_of(key)}.sig"
    write_file(file, done.stdout)
    return file


def _name_of(key: Path) -> str:
    """Return a file name that is the same for the same key: part of the SHA-256 of its public half."""
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        words = public.read_bytes().split()[:2]
    except OSError:
        done = _ssh_keygen("-y", "-f", str(key), data=b"")
        words = done.stdout.split()[:2]
    return hashlib.sha256(b" ".join(words)).hexdigest()[:16]


def check(data: bytes, plan: Path, allowed_signers: Path) -> Approvals:
    """Check all signatures beside a plan.

    Args:
        data: the bytes of the plan file.
        plan: the plan file, which tells where its signatures are.
        allowed_signers: file in the form of ssh-keygen(1), ALLOWED SIGNERS. Its principals are the names.

    Returns:
        Names of those who approved, each once however many keys signed.

    Raises:
        PlanError: the file of allowed signers is not there.
    """
    if not allowed_signers.is_file():
        raise PlanError(
            f"there is no file of allowed signers {allowed_signers}", "correct site_plan_allowed_signers"
        )
    names: set[str] = set()
    void = []
    for signature in sorted(folder_of(plan).glob("*.sig")):
        name, reason = _signer(data, signature, allowed_signers)
        if name:
            names.add(name)
        else:
            void.append(f"{signature.name}: {reason}")
    return Approvals(sorted(names), void)


def _signer(data: bytes, signature: Path, allowed_signers: Path) -> tuple[str, str]:
    """Return who made a signature, or why it does not count."""
    found = _ssh_keygen("-Y", "find-principals", "-f", str(allowed_signers), "-s", str(signature), data=b"")
    lines = sorted(found.stdout.decode(errors="replace").split("\n"))
    principals = [line.split(",")[0].strip() for line in lines if line.strip()]
    if found.returncode or not principals:
        return "", "its key is not among the allowed signers now"
    # A key on several lines is still one person: the first name stands for all.
    name = principals[0]
    if set(name) & set("*?!"):
        return "", f"the allowed signer {name!r} is a pattern; write one name there"
    checked = _ssh_keygen(
        "-Y",
        "verify",
        "-n",
        NAMESPACE,
        "-f",
        str(allowed_signers),
        "-I",
        name,
        "-s",
        str(signature),
        data=data,
    )
    if checked.returncode:
        return "", "it is not a signature of this plan that is valid now"
    return name, ""
