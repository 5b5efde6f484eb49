# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan awx events-*``: the two secrets of ``ironspan-events``, in the site's PKI store."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys
import typing as t

from ironspan.cli import inventory
from ironspan.cli.outcome import CommandError, Exit, ending

TOKEN, AUTHORITY = "ironspan-token", "ironspan-ca.crt"
_ACCOUNT = re.compile(r"[\x21-\x7e]{8,4096}")
"""A token as controllers make them: one word."""


def register(commands: argparse._SubParsersAction[t.Any]) -> None:
    """Add the commands."""
    token = commands.add_parser(
        "events-token",
        help="write what Alertmanager reaches ironspan-events with: token and authority",
        description="Write two files: ironspan-token, which Alertmanager shows to ironspan-events, and "
        "ironspan-ca.crt, which it checks ironspan-events with. With --new another token is made first: run "
        "site.yml, then give it to Alertmanager. The token before stays good until the next --new.",
    )
    inventory.add_option(token, "of the site")
    token.add_argument("-o", "--output", required=True, metavar="FOLDER", help="folder for both files")
    token.add_argument("--new", action="store_true", help="make another token first")
    token.set_defaults(func=write_token)
    account = commands.add_parser(
        "events-account",
        help="keep the token that ironspan-events has at the controller; it is read from standard input",
        description="Keep the token of an account of the team 'events' in the PKI store. It is read from "
        "standard input, so that it is in no list of processes. site.yml brings it to the host.",
    )
    inventory.add_option(account, "of the site")
    account.set_defaults(func=keep_account)


def _store(arguments: argparse.Namespace) -> t.Any:
    site = inventory.read_site(arguments.inventory)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store

    store = open_store(site.pki_store, site.pki_key_file or None)
    if not store.exists():
        raise CommandError(
            f"the site has no PKI store in {site.pki_store}", "run playbooks/site.yml first", Exit.BAD_INPUT
        )
    return store


def write_token(arguments: argparse.Namespace) -> int:
    """Write what Alertmanager needs, and return the exit code."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError

    folder = pathlib.Path(arguments.output)
    with ending(Exit.FAILED, PkiError):
        store = _store(arguments)
        try:
            # Before there is another token: one that could not be written would have helped nobody.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                raise PermissionError(None, os.strerror(13), str(folder))
            if arguments.new:
                store.events.another()
            write_file(folder / AUTHORITY, store.ca("kubernetes").certificate_pem.encode())
            write_file(folder / TOKEN, f"{store.events.token()}\n".encode(), 0o600)
        except OSError as error:
            message = f"{error.filename} cannot be written: {error.strerror}"
            raise CommandError(message, "name another folder", Exit.BAD_INPUT) from error
    sys.stdout.write(f"{folder} has {TOKEN} and {AUTHORITY}. Bring both to /etc/alertmanager.\n")
    if arguments.new:
        sys.stdout.write("Run site.yml first: the host of the group events does not have this token yet.\n")
    return int(Exit.OK)


def keep_account(arguments: argparse.Namespace) -> int:
    """Keep the token of the program's account, and return the exit code."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError

    token = sys.stdin.readline().strip()
    if not _ACCOUNT.fullmatch(token):
        raise CommandError(
            "standard input has no token",
            "make one with scope write for an account of the team events, and give it as one line",
            Exit.BAD_INPUT,
        )
    with ending(Exit.FAILED, PkiError):
        kept = _store(arguments).events.keep_account(token)
    told = "It is kept. Run site.yml, which brings it to the host." if kept else "It was kept already."
    sys.stdout.write(f"{told}\n")
    return int(Exit.OK)
