# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan certs backup-key`` and ``recover``: the PKI store's part in backups of etcd."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

from ironspan.cli import console, inventory
from ironspan.cli.outcome import CommandError, Exit, ending


def register(actions: argparse._SubParsersAction[t.Any]) -> None:
    """Add the subcommands to ``ironspan certs``."""
    added = actions.add_parser(
        "backup-key",
        help="make another key for backups of etcd",
        description="Make another version of the key that backups of etcd are encrypted with. Former "
        "versions stay, because former backups need them. Hosts get it with the next site.yml.",
    )
    added.set_defaults(func=add)
    recovered = actions.add_parser(
        "recover",
        help="rebuild a lost PKI store from its copy beside the backups",
        description="Unpack a bundle of the folder `recovery` in the backup store, or "
        "/etc/ironspan/etcd-backup/recovery.bundle of an etcd host, into the folder that site_pki_store "
        "names. The key of the PKI store is needed; it is in no backup.",
    )
    recovered.add_argument("bundle", help="file of the bundle")
    recovered.set_defaults(func=recover)
    for parser in (added, recovered):
        inventory.add_option(parser)


def add(arguments: argparse.Namespace) -> int:
    """Make another key for backups."""
    display = console.from_arguments(arguments)
    with inventory.opened_store(arguments.inventory) as store:
        version = store.backup_keys.add()
    display.note(f"backup key {version} is made; hosts use it from the next run of playbooks/site.yml")
    return int(Exit.OK)


def recover(arguments: argparse.Namespace) -> int:
    """Rebuild a lost PKI store."""
    site = inventory.read_site(arguments.inventory)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, backup_keys
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.keys import load_key

    display = console.from_arguments(arguments)
    target = pathlib.Path(site.pki_store).expanduser()
    try:
        text = pathlib.Path(arguments.bundle).read_text(encoding="utf-8", errors="replace")
        with ending(Exit.BAD_INPUT, PkiError):
            files = backup_keys.recover(text, load_key(site.pki_key_file or None), target)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", code=Exit.BAD_INPUT) from error
    display.note(f"the PKI store {target} is there again: {len(files)} files")
    return int(Exit.OK)
