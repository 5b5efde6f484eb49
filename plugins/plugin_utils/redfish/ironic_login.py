# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""With which account Ironic asks a server's BMC: the one that the site keeps in the PKI store (docs/bmc.md).

Ironic shows no password, so nobody can compare one. The node says instead since when the account that it was
given is in use, which changes with every rotation and tells nothing.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.kept import kept_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, Step

SINCE = "ironspan_bmc_since"
"""In ``extra`` of a node."""
_DRIVER = "redfish"
Standing = t.Literal["none", "changing", "former", "current"]
TELL = Step("tell", "give Ironic the account of its BMC", seconds=1)


class Accounts(t.Protocol):
    """Where accounts are kept: ``Store.bmcs`` (plugin_utils/pki/bmcs.py)."""

    def account(self, serial: str) -> bytes | None:
        """Return what is kept, None for nothing."""


STORE, KEY = "site_pki_store", "site_pki_key_file"
VARIABLES = (STORE, KEY)


class BmcLogins:
    """The accounts.

    Args:
        accounts: where they are kept; None for nowhere.
    """

    def __init__(self, accounts: Accounts | None = None) -> None:
        self._accounts = accounts

    @classmethod
    def of(cls, variables: Mapping[str, t.Any]) -> BmcLogins:
        """Return those of a site; its key is asked for once an account is needed."""
        store = str(variables.get(STORE) or "")
        return cls(open_store(store, variables.get(KEY) or None).bmcs if store else None)

    def node(self, node: Mapping[str, t.Any], serial: str) -> dict[str, t.Any]:
        """Return what is wanted of a node with the time of its account; no secret.

        Args:
            node: as the site wants all nodes.
            serial: serial number of its server, "" where none is declared.

        Raises:
            BmcError: what is kept is damaged.
            PkiError: the store cannot be read.
        """
        asks = node.get("driver") == _DRIVER
        kept = kept_of(self._accounts.account(serial) if self._accounts and serial and asks else None)
        if kept.login is None:
            return dict(node)
        return {**node, "extra": {**(node.get("extra") or {}), SINCE: kept.since}}

    def enrolled(self, node: Mapping[str, t.Any], serial: str) -> dict[str, t.Any]:
        """Return what a wanted node is enrolled with: itself, and the account with its password.

        Args:
            node: what is wanted, as ``node`` returned it.
            serial: serial number of its server.
        """
        if SINCE not in (node.get("extra") or {}):
            return dict(node)
        return {**node, "driver_info": {**(node.get("driver_info") or {}), **self._login(serial)}}

    def changed(self, differences: Mapping[str, t.Any], serial: str) -> dict[str, t.Any]:
        """Return what is changed of a node, with its account where that is another one now.

        Args:
            differences: of the wanted node from the one that is there, by path.
            serial: serial number of its server.
        """
        if f"extra/{SINCE}" not in differences:
            return dict(differences)
        return {**differences, **{f"driver_info/{key}": value for key, value in self._login(serial).items()}}

    def standing(self, serial: str, extra: t.Any) -> Standing:
        """Tell whether Ironic has the account that holds.

        Args:
            serial: of the server.
            extra: of its node, as Ironic has it.

        Raises:
            BmcError: what is kept is damaged.
        """
        kept = kept_of(self._accounts.account(serial) if self._accounts and serial else None)
        if kept.pending is not None:
            return "changing"
        if kept.login is None:
            return "none"
        told = extra.get(SINCE) if isinstance(extra, Mapping) else None
        return "current" if told == kept.since else "former"

    def tell(self, api: IronicApi, uuid: str, serial: str) -> None:
        """Give Ironic the account that holds now.

        Raises:
            RemoteError: there is none, or Ironic refused.
            BmcError: what is kept is damaged.
        """
        standing = self.standing(serial, None)
        if standing not in ("former", "current") or self._accounts is None:
            raise RemoteError(
                "no account of its BMC holds: none is kept, or a change of its password was begun",
                "run ironspan bmc setup for it",
            )
        since = kept_of(self._accounts.account(serial)).since
        api.change(uuid, self.changed({f"extra/{SINCE}": since}, serial), secret=True)

    def _login(self, serial: str) -> dict[str, str]:
        kept = kept_of(self._accounts.account(serial) if self._accounts else None)
        if kept.login is None:
            return {}
        return {"redfish_username": kept.login.username, "redfish_password": kept.login.password}
