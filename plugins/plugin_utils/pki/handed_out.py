# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What of the store hosts may be sent, by the names that documents use. What is not here leaves it never."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Collection

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import SERVICE_ACCOUNT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.profiles import READ_BY_KUBEADM

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.store import Store

Open = Callable[[], str]


def known(store: Store) -> dict[str, Open]:
    """Return every secret that a document may name, and what opens it; nothing is opened yet."""
    return {
        **{store.secret_name(name): functools.partial(_authority, store, name) for name in READ_BY_KUBEADM},
        store.secret_name(SERVICE_ACCOUNT): store.service_account_key,
        **store.encryption.secrets(),
        **store.backup_keys.secrets(),
        **store.ironic.secrets(),
        **store.events.secrets(),
    }


def secrets(store: Store, names: Collection[str]) -> dict[str, str]:
    """Return secrets by name; only these are opened.

    Args:
        store: the site's store.
        names: what one host's document names. A name that is not, or no longer, in use is left out, and so is
            every one of a store that is not made yet.
    """
    found = known(store) if store.exists() else {}
    return {name: read() for name, read in found.items() if name in names}


def _authority(store: Store, name: str) -> str:
    return store.ca(name).key_pem()
