# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""SSH identities of a lab: one key for the operator, one host key per host, all known beforehand."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

from ironspan.lab import files
from ironspan.lab.commands import run
from ironspan.lab.layout import DOMAIN, LabHost, Layout


def folder(lab: Path) -> Path:
    """Where the keys of the lab in folder `lab` are."""
    return lab / "ssh"


def private_key(lab: Path) -> Path:
    """The operator's private key: opens this lab's hosts and nothing else."""
    return folder(lab) / "id_ed25519"


def known_hosts(lab: Path) -> Path:
    """The host keys of this lab's hosts."""
    return folder(lab) / "known_hosts"


def host_key(lab: Path, host: str) -> Path:
    """A host's private key as the lab keeps it, to be put into the host."""
    return folder(lab) / "hosts" / host


def ensure(lab: Path, layout: Layout) -> None:
    """Make the keys that are missing and write known_hosts."""
    folder(lab).mkdir(mode=0o700, exist_ok=True)
    (folder(lab) / "hosts").mkdir(mode=0o700, exist_ok=True)
    _keypair(private_key(lab), f"ironspan-lab-{layout.name}")
    lines = []
    for host in layout.hosts:
        key = of_host(lab, host.name)
        public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
        lines.append(f"{host.address},{host.name},{host.name}.{DOMAIN} {public}\n")
    files.write_if_changed(known_hosts(lab), "".join(lines), 0o600)
    store_key = lab / "pki.key"
    if not store_key.exists():
        files.write_atomic(store_key, base64.b64encode(secrets.token_bytes(32)).decode() + "\n", 0o600)


def of_host(lab: Path, host: str) -> Path:
    """Return a host's private key, made when it is missing."""
    path = host_key(lab, host)
    _keypair(path, host)
    return path


def know(lab: Path, host: LabHost) -> Path:
    """Return a file of known hosts for a host that is not one of the layout's."""
    public = " ".join(of_host(lab, host.name).with_suffix(".pub").read_text().split()[:2])
    path = folder(lab) / f"known_hosts_{host.name}"
    files.write_if_changed(path, f"{host.address} {public}\n", 0o600)
    return path


def forget(lab: Path, host: str) -> None:
    """Delete the key of a host that is gone: one of the same name is another host."""
    known = folder(lab) / f"known_hosts_{host}"
    for path in (host_key(lab, host).with_suffix(".pub"), host_key(lab, host), known):
        path.unlink(missing_ok=True)


def _keypair(path: Path, comment: str) -> None:
    if path.with_suffix(".pub").exists():
        return  # written after the private half, so both are there
    path.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def ssh_options(lab: Path, known: Path | None = None) -> list[str]:
    """Options that make `ssh` use this lab's keys and nothing of the user's.

    Args:
        lab: Its folder.
        known: File of known hosts; by default that of the lab's own hosts.
    """
    return [
        "-F", "/dev/null",
        "-i", str(private_key(lab)),
        "-o", f"UserKnownHostsFile={known or known_hosts(lab)}",
        "-o", "GlobalKnownHostsFile=/dev/null",
        "-o", "StrictHostKeyChecking=yes",
        "-o", "IdentitiesOnly=yes",
        "-o", "PreferredAuthentications=publickey",
        # Of the handshake too: a host that is off says so at once, and a busy one takes its time.
        "-o", "ConnectTimeout=20",
        "-o", "LogLevel=ERROR",
    ]  # fmt: skip
