# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's part in a site's own Ironic: the password of its API, and the keys of its backups.

Both are made when the first host of the group ``ironic`` is rendered, and numbered from 1. The newest
password is the one in use. Keys stay: a backup opens with the one that it was made with.
"""

from __future__ import annotations

import base64
import functools
import secrets
import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.header import FROM_COPIES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import KEY_BYTES

FIELD = "ironic"
"""Field of store.json: the newest password and the newest key."""
PASSWORD, KEY = "ironic-password", "ironic-backup-key"
SEEN = "ironic-password-seen"
"""The number of the password that Ironic was seen to have, once it was changed."""
USER = "ironspan"
"""Of the API."""


class Names(t.TypedDict):
    """What documents name: secrets by their names, no secret itself."""

    password: str
    keys: list[dict[str, t.Any]]


class IronicSecrets:
    """What a store has for Ironic.

    Args:
        folder: the store's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def ensure(self) -> bool:
        """Make password and key where there are none; False when they were there.

        Raises:
            PkiError: the store cannot be used, or has lost one.
        """
        if self._numbers():
            return False
        with self._folder.writing():
            # The secrets first: a kill leaves some that nothing uses; they are used then.
            for kind in (PASSWORD, KEY):
                if not self._folder.has(self._folder.secret_file(f"{kind}-1")):
                    self._folder.seal(f"{kind}-1", _new(kind))
            self._folder.change_header({FIELD: {PASSWORD: 1, KEY: 1}})
        return True

    def add(self, kind: str) -> int:
        """Make another password or key, which is used from then on, and return its number.

        Args:
            kind: PASSWORD or KEY.
        """
        self.ensure()
        with self._folder.writing():
            numbers = self._numbers()
            number = numbers[kind] + 1
            self._folder.seal(f"{kind}-{number}", _new(kind))
            seen = {SEEN: numbers.get(SEEN, numbers[PASSWORD])} if kind == PASSWORD else {}
            self._folder.change_header({FIELD: {**numbers, **seen, kind: number}})
        return number

    def change_password(self) -> bool:
        """Make another password, unless a change is under way already; False then.

        A change is under way until ``password_changed`` is called, also when the run that began it is gone.
        """
        self.ensure()
        if self.is_changing():
            return False
        self.add(PASSWORD)
        return True

    def is_changing(self) -> bool:
        """Tell whether the newest password is one that Ironic was not yet seen to have."""
        numbers = self._numbers()
        return bool(numbers) and numbers[PASSWORD] > numbers.get(SEEN, numbers[PASSWORD])

    def password_changed(self) -> None:
        """Note that Ironic was seen to have the newest password, and no other one."""
        with self._folder.writing():
            numbers = self._numbers()
            self._folder.change_header({FIELD: {**numbers, SEEN: numbers[PASSWORD]}})

    def former_password(self) -> str:
        """Return the password before the newest one, "" when there was none."""
        number = self._numbers().get(PASSWORD, 1) - 1
        return self._opened(f"{PASSWORD}-{number}") if number else ""

    def exists(self) -> bool:
        """Tell whether there is a password, without a look at it. Raises PkiError: the store is damaged."""
        return bool(self._numbers())

    def password(self) -> str:
        """Return the password of the API.

        Raises:
            PkiError: the store has none, or has lost it.
        """
        if not self._numbers():
            raise PkiError(
                "The PKI store has no password for the site's own Ironic.",
                "Run playbooks/site.yml with --limit ironic, which makes it and brings Ironic up.",
            )
        return self._opened(self.names()["password"])

    def names(self) -> Names:
        """Return the names of what is there: those of the first ones for a store that has none yet."""
        numbers = self._numbers() or {PASSWORD: 1, KEY: 1}
        keys = [{"name": f"{KEY}-{number}", "version": number} for number in range(1, numbers[KEY] + 1)]
        return {"password": f"{PASSWORD}-{numbers[PASSWORD]}", "keys": keys}

    def secrets(self) -> dict[str, Callable[[], str]]:
        """Return what opens each secret, by the name documents use; nothing is opened yet."""
        if not self._numbers():
            return {}
        names = self.names()
        every = [names["password"], *(str(key["name"]) for key in names["keys"])]
        return {name: functools.partial(self._opened, name) for name in every}

    def prove(self) -> None:
        """Open everything that is kept.

        Raises:
            PkiError: something is lost or damaged.
        """
        for read in self.secrets().values():
            read()

    def _numbers(self) -> dict[str, int]:
        found = self._folder.header().get(FIELD, {}) if self._folder.exists() else {}
        whole = isinstance(found, dict) and all(type(found.get(kind)) is int for kind in (PASSWORD, KEY))
        if found and not whole:
            raise PkiError(f"{self._folder.path}/store.json is damaged.", FROM_COPIES)
        return t.cast("dict[str, int]", found)

    def _opened(self, name: str) -> str:
        return self._folder.kept(name).decode("ascii")


def _new(kind: str) -> bytes:
    if kind == PASSWORD:
        return secrets.token_urlsafe(KEY_BYTES).encode() + b"\n"
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
