# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The file that hands servers over to ``site.yml``: a source of Ansible's inventory, written by a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import (
    Standing,
    as_file,
    handed_over,
    said_of_held,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Left, RemoteError

_NAMED = 5


class InventoryFile:
    """The file.

    Args:
        path: where it is; ``~`` is the operator's home.
        expected: returns all servers that are expected, also those that a run is not about.
    """

    def __init__(self, path: str, expected: Callable[[], Sequence[ExpectedServer]]) -> None:
        self._path = Path(path).expanduser()
        self._expected = expected

    def brought(self, standings: Mapping[str, Standing], check: bool) -> Left:
        """Make the file what servers are now.

        Args:
            standings: of every server that Ironic knows.
            check: write nothing.

        Raises:
            RemoteError: it cannot be written, or a server that runs would vanish from it.
        """
        servers = self._expected()
        before = self._read()
        self._insist_on_all(before, servers, standings)
        handed = handed_over(servers, standings)
        after = as_file(handed).decode()
        if after != before and not check:
            try:
                write_file(self._path, after.encode())
            except OSError as error:
                raise RemoteError(
                    f"{self._path} cannot be written: {error.strerror}", "correct site_bare_metal_inventory"
                ) from None
        return Left(str(self._path), before, after, tuple(said_of_held(handed.held)))

    def _read(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            remedy = "correct site_bare_metal_inventory"
            raise RemoteError(f"{self._path} cannot be read: {reason}", remedy) from None

    def _insist_on_all(
        self, before: str, servers: Sequence[ExpectedServer], standings: Mapping[str, Standing]
    ) -> None:
        """Refuse a list of expected servers that is only a part: hosts of the others would vanish."""
        there = standings.keys() - {server.name for server in servers}
        lost = [
            name
            for name in _hosts(before)
            if name in there and standings[name].state == "active" and standings[name].record.deployed
        ]
        if lost:
            more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
            raise RemoteError(
                f"{self._path} would lose {', '.join(lost[:_NAMED])}{more}, which run in Ironic and do not "
                "stand in the file of expected servers",
                "name the file that lists all servers, or retire them first",
            )


def _hosts(text: str) -> list[str]:
    """Return the hosts of a file that was written before; none when it is something else."""
    try:
        return [str(name) for name in yaml.safe_load(text)["all"]["children"]["on_prem"]["hosts"]]
    except (yaml.YAMLError, KeyError, TypeError):
        return []
