# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The store's part in ``ironspan-events``: the token of Alertmanager, and the program's at the controller.

The bearer token is made when the first host of the group ``events`` is rendered. Hosts get the newest one and
the one before it, so that Alertmanager can be given another one without a gap. The token of the controller is
an account's, and is kept when somebody brings it. Both are numbered: a document says which one it means.
"""

from __future__ import annotations

import functools
import secrets
import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.folder import Folder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.header import FROM_COPIES
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import KEY_BYTES

FIELD = "events"
"""Field of store.json: the number of the newest bearer token, and of the newest token of the controller."""
TOKEN, ACCOUNT = "events-token", "events-account"


class Names(t.TypedDict):
    """What documents name. ``account`` is empty while there is no token of the controller."""

    token: str
    account: str


class EventSecrets:
    """What a store has for ``ironspan-events``.

    Args:
        folder: the store's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def ensure(self) -> bool:
        """Make the bearer token where there is none; False when it was there.

        Raises:
            PkiError: the store cannot be used, or has lost one.
        """
        if self._numbers()[TOKEN]:
            return False
        with self._folder.writing():
            if not self._numbers()[TOKEN]:
                self._another()
        return True

    def another(self) -> None:
        """Make another bearer token. The one before it stays good until the next one is made.

        Raises:
            PkiError: the store cannot be used, or has lost one.
        """
        with self._folder.writing():
            self._another()

    def keep_account(self, token: str) -> bool:
        """Keep the token of an account of the controller; False when it is the one that is kept already.

        Args:
            token: of an account of the team ``events``.

        Raises:
            PkiError: the store cannot be used, or has lost one.
        """
        with self._folder.writing():
            number = self._numbers()[ACCOUNT]
            if number and self._opened(f"{ACCOUNT}-{number}").strip() == token:
                return False
            self._keep(ACCOUNT, number + 1, f"{token}\n")
        return True

    def token(self) -> str:
        """Return the newest bearer token.

        Raises:
            PkiError: the store has none, or has lost it.
        """
        number = self._numbers()[TOKEN]
        if not number:
            raise PkiError(
                "The PKI store has no token for Alertmanager.",
                "Put a host into the group events and run playbooks/site.yml, which makes it.",
            )
        return self._opened(f"{TOKEN}-{number}").split("\n")[0]

    def names(self) -> Names:
        """Return the names of what is there: of the first bearer token for a store that has none yet."""
        numbers = self._numbers()
        account = f"{ACCOUNT}-{numbers[ACCOUNT]}" if numbers[ACCOUNT] else ""
        return {"token": f"{TOKEN}-{numbers[TOKEN] or 1}", "account": account}

    def secrets(self) -> dict[str, Callable[[], str]]:
        """Return what opens each secret, by the name documents use; nothing is opened yet."""
        there = [f"{kind}-{number}" for kind, number in self._numbers().items() if number]
        return {name: functools.partial(self._opened, name) for name in there}

    def prove(self) -> None:
        """Open everything that is in use.

        Raises:
            PkiError: something is lost or damaged.
        """
        for read in self.secrets().values():
            read()

    def _another(self) -> None:
        number = self._numbers()[TOKEN]
        lines = [secrets.token_urlsafe(KEY_BYTES), *([self.token()] if number else [])]
        self._keep(TOKEN, number + 1, "".join(f"{line}\n" for line in lines))

    def _keep(self, kind: str, number: int, content: str) -> None:
        # The secret first: a kill leaves one that nothing uses, and the next one takes its place.
        self._folder.seal(f"{kind}-{number}", content.encode("ascii"))
        self._folder.change_header({FIELD: {**self._numbers(), kind: number}})

    def _numbers(self) -> dict[str, int]:
        found = self._folder.header().get(FIELD, {}) if self._folder.exists() else {}
        if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
            raise PkiError(f"{self._folder.path}/store.json is damaged.", FROM_COPIES)
        return {TOKEN: 0, ACCOUNT: 0} | found

    def _opened(self, name: str) -> str:
        return self._folder.kept(name).decode("ascii")
