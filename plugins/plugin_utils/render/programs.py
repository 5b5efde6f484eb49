# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What every program that a role installs has in common: its text or how it is started, and its sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "module_utils" / "_programs"
_ALWAYS = (
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectClock=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "SystemCallArchitectures=native",
)
NETWORK = ("AF_UNIX", "AF_INET", "AF_INET6")


def program(name: str) -> str:
    """Return the text of a program that is a single file, as it lies in plugins/module_utils/_programs."""
    return (_FOLDER / f"{name}.py").read_text(encoding="utf-8")


def starts(path: str, command: str) -> str:
    """Return the lines of a unit that start a packed program (docs/artifacts.md).

    Args:
        path: of the program on the host.
        command: its arguments.
    """
    return (
        "# Outside the sandbox: it may not write where its own code lies.\n"
        f"ExecStartPre=+{path} --unpack\n"
        f"ExecStart={path} {command}"
    )


def sandbox(
    writable: Sequence[str],
    capabilities: str = "CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH",
    families: Sequence[str] = NETWORK,
    umask: str = "0077",
) -> str:
    """Return the lines of a unit that shut a program of root's in.

    Args:
        writable: folders that it may write to; all others it can only read.
        capabilities: what it keeps of root's rights, for all that it starts too.
        families: of the addresses that it may use.
        umask: of the files that it makes.
    """
    lines = (
        f"CapabilityBoundingSet={capabilities}",
        "NoNewPrivileges=yes",
        f"UMask={umask}",
        "ProtectSystem=strict",
        f"ReadWritePaths={' '.join(writable)}",
        f"RestrictAddressFamilies={' '.join(families)}",
        *_ALWAYS,
    )
    return "\n".join(lines)
