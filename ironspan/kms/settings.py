# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The settings of the program, as the role control_plane writes them."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ironspan.program.errors import ProgramError

DEFAULT_PATH = Path("/etc/ironspan-kms.json")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the program is told.

    Args:
        vault: ``vault_url``, ``key``, ``credential``, ``ca``, ``private``, ``cache`` and ``fresh_s``, see
            ``open_key_vault``.
        socket: path of the socket.
        seeds: file of the seeds.
        seal_key: file of the key that seals them.
        outage_s: seconds without the vault after which known seeds are not opened any more.
    """

    vault: dict[str, t.Any]
    socket: Path
    seeds: Path
    seal_key: Path
    outage_s: float

    @property
    def place(self) -> str:
        """Vault and name of the key."""
        host = str(self.vault["vault_url"]).partition("://")[2].rstrip("/")
        return f"{host}/keys/{self.vault['key']}"


def load(path: Path) -> Settings:
    """Read the settings.

    Raises:
        ProgramError: the file cannot be read, or is not what the role writes.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        vault = dict(content["vault"])
        if not str(vault["vault_url"]).startswith("https://") or not vault["key"]:
            raise ValueError("no vault")
        return Settings(
            vault,
            Path(content["socket"]),
            Path(content["seeds"]),
            Path(content["seal_key"]),
            float(content["outage_hours"]) * 3600,
        )
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}.", "Run playbooks/site.yml.") from None
    except (ValueError, KeyError, TypeError):
        raise ProgramError(
            f"{path} is not what the role control_plane writes.", "Run playbooks/site.yml."
        ) from None
