# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where the emulated Azure listens: what its two processes and who starts them have to agree on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ironspan.lab import files

#: Where the agent of an Arc machine leaves its challenge.
ARC_FOLDER = "/var/opt/azcmagent/tokens"
#: What a fault can do to a request.
KINDS = {
    "status": "answers with an error status and Retry-After, does nothing",
    "delay": "waits, then does as asked",
    "hang": "never answers, until it is healed",
    "slow": "bodies pass at a few bytes per second, in both directions",
    "truncated": "the answer's body is cut off in the middle, and with it the connection",
    "reset": "the connection is cut while the request's body is under way; nothing is done",
    "lost_reply": "does as asked, then cuts the connection instead of answering",
    "lying": "answers success and does nothing",
    "stale_list": "listings lack what was written since the fault began",
    "outage": "every connection is cut at once",
}
SERVICES = ("store", "login", "metadata", "arc", "management")
#: One address in the place of all private endpoints, where nobody gives them addresses of their own.
PRIVATE = "private"


@dataclass
class Config:
    """Where everything listens; kept in the folder as config.json."""

    #: Service -> [address, port]. TLS services that share one are told apart by the Host header.
    endpoints: dict[str, list[Any]]
    #: Where Azurite listens.
    azurite: list[Any]
    #: Network namespace to listen in; empty for the own one.
    namespace: str = ""
    #: The lab whose hosts Arc machines are; empty: the Arc machine is this one.
    lab: str = ""
    #: Whether the lab's Azure network is that of an estate, whose data plane this is.
    estate: bool = False
    #: Address of an Arc machine -> its name in the lab.
    machines: dict[str, str] = field(default_factory=dict)
    #: Where challenges of Arc machines lie.
    arc_folder: str = ARC_FOLDER

    def save(self, folder: Path) -> None:
        """Write it where the process looks for it."""
        files.write_if_changed(folder / "config.json", json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Config:
        """Read what `save` wrote."""
        return cls(**json.loads((folder / "config.json").read_text()))


def state_folder(lab: Path) -> Path:
    """Where the emulated Azure of the lab in folder `lab` keeps everything."""
    return lab / "azure"


def authority(folder: Path) -> Path:
    """The certificate that clients have to trust."""
    return folder / "ca.crt"


def server(folder: Path) -> tuple[Path, Path]:
    """The endpoints' certificate and its key."""
    return folder / "keys" / "server.crt", folder / "keys" / "server.key"
