# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The keywords of sshd that are known, against those of the OpenSSH of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.ssh_settings import KEYWORDS, fault

SSHD = Path("/usr/sbin/sshd")
Asked = Callable[[str], str]
READ = 'mount -t tmpfs sshd /run && mkdir /run/sshd && exec "$@"'
"""sshd wants its folder in /run also where it only reads; it gets one in a mount namespace of its own."""
pytestmark = pytest.mark.skipif(
    not SSHD.exists() or os.geteuid() != 0, reason="needs root, and apt-get install -y openssh-server"
)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Return what reads settings as sshd does, and returns its own."""
    folder = tmp_path_factory.mktemp("sshd")
    key, file = folder / "key", folder / "sshd_config"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)

    def asked(settings: str) -> str:
        file.write_text(f"HostKey {key}\n{settings}\n")
        command: list[str | Path] = ["unshare", "--mount", "sh", "-c", READ, "sh", SSHD, "-T", "-f", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else f"refused: {done.stderr}"

    return asked


def test_every_keyword_of_sshd_is_known(sshd: Asked) -> None:
    found = {line.split()[0] for line in sshd("").splitlines()}
    assert len(found) > 50, found
    assert found - KEYWORDS.keys() == set()


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("PermitRootLogin", "prohibit-password"),
        ("PermitRootLogin", "maybe"),
        ("PermitRootLogni", "no"),
        ("GatewayPorts", "clientspecified"),
        ("Compression", "delayed"),
        ("Compression", "fast"),
        ("MaxAuthTries", "3"),
        ("MaxAuthTries", "many"),
        ("ClientAliveInterval", "5m"),
        ("ClientAliveInterval", "soon"),
        ("LogLevel", "VERBOSE"),
        ("LogLevel", "LOUD"),
        ("PermitTunnel", "point-to-point"),
        ("X11Forwarding", "off"),
        ("X11Forwarding", "true"),
        ("Ciphers", "aes256"),
        ("Ciphers", "aes256-ctr,aes128-ctr"),
        ("Ciphers", "-*cbc*"),
        ("MACs", "hmac-md6"),
        ("KexAlgorithms", "curve25519"),
        ("HostKeyAlgorithms", "+ssh-rsa"),
        ("PubkeyAcceptedAlgorithms", "ed25519"),
        ("MaxStartups", "10:30"),
        ("MaxStartups", "10:30:60"),
        ("RekeyLimit", "lots"),
        ("RekeyLimit", "1G 1h"),
        ("SyslogFacility", "SSH"),
        ("SyslogFacility", "local0"),
        ("StreamLocalBindMask", "999"),
        ("Subsystem", "sftp"),
    ],
)
def test_what_sshd_refuses_is_refused(sshd: Asked, keyword: str, value: str) -> None:
    assert (fault(keyword, value) is not None) is sshd(f"{keyword} {value}").startswith("refused: ")
