# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The settings of the program, as the role control_plane writes them."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ironspan.azure.settings import vault
from ironspan.program import settings
from ironspan.program.listen import Listen, listen
from ironspan.program.settings import Section

DEFAULT_PATH = Path("/etc/ironspan-kms.json")
_MOST_HOURS = 100 * 366 * 24


@dataclass(frozen=True, slots=True)
class Settings:
    """What the program is told.

    Args:
        vault: ``vault_url``, ``key``, ``credential``, ``ca``, ``private``, ``cache`` and ``asks``, see
            ``open_key_vault``.
        socket: path of the socket.
        seeds: file of the seeds.
        seal_key: file of the key that seals them.
        outage_s: seconds without the vault after which known seeds are not opened any more.
        metrics: where they are served.
    """

    vault: Mapping[str, t.Any]
    socket: Path
    seeds: Path
    seal_key: Path
    outage_s: float
    metrics: Listen

    @property
    def place(self) -> str:
        """Vault and name of the key."""
        host = str(self.vault["vault_url"]).partition("://")[2].rstrip("/")
        return f"{host}/keys/{self.vault['key']}"


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read and check the settings file.

    Args:
        path: the file, JSON.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; all problems at once.
    """
    return settings.checked(settings.load(path, "control_plane"), path, _read)


def _read(top: Section) -> Settings:
    return Settings(
        _vault(top.section("vault")),
        socket=Path(top.path("socket")),
        seeds=Path(top.path("seeds")),
        seal_key=Path(top.path("seal_key")),
        outage_s=top.number("outage_hours", 72, 0, _MOST_HOURS) * 3600,
        metrics=listen(top.section("metrics", default={}), 2386),
    )


def _vault(section: Section) -> Mapping[str, t.Any]:
    found = {
        **vault(section),
        "cache": section.path("cache"),
        "asks": section.flag("asks", True),
    }
    section.end()
    return found
