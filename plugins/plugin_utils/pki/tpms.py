# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's part in TPMs of hosts: what was recorded of each, one sealed file a host.

It holds no secret. It is sealed because without the store's key nobody can then put another TPM's keys in the
place of a host's.
"""

from __future__ import annotations

import urllib.parse

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder

PREFIX = "tpm-"


class TpmRecords:
    """What a store has of hosts' TPMs.

    Args:
        folder: the store's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def read(self, host: str) -> str:
        """Return what was recorded of a host's TPM, "" when nothing was.

        Raises:
            PkiError: it is damaged, or the key is another one.
        """
        name = _name(host)
        if not (self._folder.exists() and self._folder.has(self._folder.secret_file(name))):
            return ""
        return self._folder.unseal(name).decode()

    def keep(self, host: str, text: str) -> None:
        """Record it in the place of what there was; when this returns it is on the disk."""
        with self._folder.writing():
            self._folder.seal(_name(host), text.encode())


def _name(host: str) -> str:
    return PREFIX + urllib.parse.quote(host, safe="")
