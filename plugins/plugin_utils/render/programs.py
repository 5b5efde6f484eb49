# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What every program that a role installs has in common: its text or how it is started, and its sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "module_utils" / "_programs"
_PART = re.compile(
    r"^from ansible_collections\.ironspan\.hybrid\.plugins\.module_utils\._programs\.(_\w+) import "
    r"(?:\([^)]*\)|[^\n]*)\n",
    re.MULTILINE,
)
"""How a program that is a single file imports a part."""
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
    """Return the text of a program that is a single file, as it lies in plugins/module_utils/_programs.

    What it imports of the parts there, whose names begin with an underscore, stands in the import's place.
    """
    text = (_FOLDER / f"{name}.py").read_text(encoding="utf-8")
    return _PART.sub(lambda found: _body(found[1]), text)


def _body(part: str) -> str:
    """Return a part without its head: licence, what it is for, and the import from the future."""
    text = (_FOLDER / f"{part}.py").read_text(encoding="utf-8")
    return text.partition("\nfrom __future__ import annotations\n")[2].lstrip("\n")


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


def single(path: str, *arguments: str) -> str:
    """Return the line of a unit that starts a program that is a single file, with the host's Python.

    Args:
        path: of the program on the host.
        arguments: of it; empty ones are left out.
    """
    return " ".join([f"ExecStart=/usr/bin/python3 -IS {path}", *filter(None, arguments)])


def always(
    description: str,
    starts: str,
    lines: str = "",
    *,
    after: Sequence[str] = (),
    before: Sequence[str] = (),
    network: bool = True,
    restart_seconds: int = 5,
    caller: Callable[[], str] | None = None,
) -> str:
    """Return a unit whose program runs as long as the host, and is started again whenever it ends.

    Args:
        description: one line for people.
        starts: the lines that start it.
        lines: further ones of its section Service.
        after: units that it starts after.
        before: units that it starts before.
        network: whether it needs the network.
        restart_seconds: between an end and the next start.
        caller: a ``{% call %}`` block, whose lines come after the others.
    """
    online = "network-online.target"
    orders = [("After", ([online] if network else []) + list(after)), ("Wants", [online] if network else [])]
    orders.append(("Before", list(before)))
    return "\n".join(
        [
            "# Written by ironspan.",
            "[Unit]",
            f"Description={description}",
            *(f"{name}={' '.join(units)}" for name, units in orders if units),
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            "Type=exec",
            starts,
            "Restart=always",
            f"RestartSec={restart_seconds}",
            *f"{lines}{caller() if caller else ''}".splitlines(),
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def sandbox(
    writable: Sequence[str],
    capabilities: str = "CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH",
    families: Sequence[str] = NETWORK,
    umask: str = "0077",
    devices: Sequence[str] = (),
) -> str:
    """Return the lines of a unit that shut a program of root's in.

    Args:
        writable: folders that it may write to; all others it can only read.
        capabilities: what it keeps of root's rights, for all that it starts too.
        families: of the addresses that it may use.
        umask: of the files that it makes.
        devices: that it needs, as systemd's DeviceAllow has them. It gets no other one that is of hardware.
    """
    private = "PrivateDevices=yes"
    needed = ("DevicePolicy=closed", *(f"DeviceAllow={device}" for device in devices))
    lines = (
        f"CapabilityBoundingSet={capabilities}",
        "NoNewPrivileges=yes",
        f"UMask={umask}",
        "ProtectSystem=strict",
        f"ReadWritePaths={' '.join(writable)}",
        f"RestrictAddressFamilies={' '.join(families)}",
        *(line for line in _ALWAYS if line != private),
        *(needed if devices else (private,)),
    )
    return "\n".join(lines)
