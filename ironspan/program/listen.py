# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where a program answers, as its settings say it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ironspan.program.settings import Section

_ADDRESS = re.compile(r"[0-9A-Fa-f.:]+")


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a program answers.

    Args:
        address: IP address of this host.
        port: TCP port.
        certificate, key: PEM files, for TLS; plain HTTP when empty. Read once: new ones need a restart.
    """

    address: str
    port: int
    certificate: str = ""
    key: str = ""


def listen(section: Section, port: int) -> Listen:
    """Read ``metrics`` of a settings file.

    Args:
        section: that part of the file.
        port: where the file names none.
    """
    found = Listen(
        section.text("address", _ADDRESS, "an IP address of this host", default="127.0.0.1"),
        section.number("port", port, 1, 65535),
        section.path("certificate", default=""),
        section.path("key", default=""),
    )
    if bool(found.certificate) != bool(found.key):
        section.problem("certificate", "and key go together; write both or none")
    section.end()
    return found
