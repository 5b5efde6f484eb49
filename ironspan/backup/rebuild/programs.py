# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The etcd programs of this host, and what of a snapshot they can open."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

from ironspan.program.errors import ProgramError

Version = tuple[int, int]
_VERSION = re.compile(r"etcd Version: (\d+)\.(\d+)\.(\d+)")
_NUMBERS = re.compile(r"(\d+)\.(\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Programs:
    """Where etcd and etcdutl are."""

    etcd: Path = Path("/usr/local/bin/etcd")
    etcdutl: Path = Path("/usr/local/bin/etcdutl")

    def version(self) -> Version:
        """Return major and minor version of etcd here.

        Raises:
            ProgramError: a program is missing, or does not say its version.
        """
        for path in (self.etcd, self.etcdutl):
            if not path.is_file():
                raise ProgramError(
                    f"{path} is missing.",
                    "Run this on a host of the group etcd or etcd_drill, or install etcd.",
                )
        try:
            shown = subprocess.run(
                [self.etcd, "--version"], capture_output=True, text=True, timeout=30
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProgramError(f"{self.etcd} --version fails: {error}.") from error
        match = _VERSION.search(shown)
        if match is None:
            raise ProgramError(f"{self.etcd} --version does not say its version.")
        return int(match[1]), int(match[2])

    def check_opens(self, etcd_version: str, storage_version: str) -> None:
        """Refuse a snapshot that this etcd is too old for.

        An older etcd does not know what a newer one stored: 3.6 refuses the storage version of 3.7, and
        before storage versions were written, in 3.5, the version of the server is what counts.

        Args:
            etcd_version: of the member that the snapshot came from.
            storage_version: of its database; empty when it had none.

        Raises:
            ProgramError: it is older.
        """
        here = self.version()
        needed = _version(storage_version) or _version(etcd_version)
        if needed and here < needed:
            raise ProgramError(
                f"The snapshot has the storage version {needed[0]}.{needed[1]}, and etcd here is only "
                f"{here[0]}.{here[1]}.",
                f"Install etcd {needed[0]}.{needed[1]} or newer first.",
            )


def _version(text: str) -> Version | None:
    match = _NUMBERS.match(text)
    return (int(match[1]), int(match[2])) if match else None
