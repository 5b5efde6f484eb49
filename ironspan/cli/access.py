# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan access``: ask for a role for some time, approve, list, end; and the sealed kubeconfig."""

from __future__ import annotations

import argparse
import datetime
import getpass
import json
import os
import pathlib
import sys
import typing as t

from ironspan.cli import access_review, console, inventory
from ironspan.cli.outcome import CommandError, Exit
from ironspan.cli.personal import add_kubeconfig, printable, visit

MISSING = "Turn it on with access_enabled: docs/access.md."


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``access`` command."""
    parser = subparsers.add_parser(
        "access",
        help="access for a limited time: request, approve, list, revoke; and the one for emergencies",
        description="Ask for a role for some time; others approve; it ends by itself. Every command uses "
        "your own kubeconfig, and the API server decides what you may do (docs/access.md).",
    )
    actions = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    asked = actions.add_parser("request", help="ask for a role")
    asked.add_argument("role", help="name of the ClusterRole")
    asked.add_argument("--reason", required=True, help="what it is needed for; a ticket's number for example")
    asked.add_argument("--for", dest="duration", default="1h", help="how long: 30m, 8h, 2d (1h)")
    asked.add_argument("-n", "--namespace", default="", help="where; the whole cluster without it")
    asked.set_defaults(func=request)
    approved = actions.add_parser("approve", help="approve what somebody else asked for")
    approved.add_argument("--yes", action="store_true", help="do not show it and ask first")
    approved.set_defaults(func=approve)
    revoked = actions.add_parser("revoke", help="take a request back, or end what was granted for it")
    revoked.set_defaults(func=revoke)
    shown = actions.add_parser("list", help="all requests, the newest first")
    shown.set_defaults(func=show)
    for action in (approved, revoked):
        action.add_argument("name", help="name of the request")
    for action in (asked, approved, revoked, shown):
        add_kubeconfig(action)
    access_review.register(actions)
    sealed = actions.add_parser(
        "seal",
        help="make a kubeconfig for emergencies that several people open together",
        description="Make a client certificate of the group ironspan:break-glass and encrypt it with the "
        "passphrases of all keepers. Whoever uses it raises an alarm.",
    )
    sealed.add_argument("file", help="where to write it")
    sealed.add_argument(
        "--keeper", action="append", default=[], metavar="NAME", help="who types a passphrase"
    )
    sealed.add_argument("--days", type=int, default=30, help="how long it can be used, at most 90 (30)")
    inventory.add_option(sealed)
    sealed.set_defaults(func=seal)
    opened = actions.add_parser("unseal", help="open a sealed kubeconfig")
    opened.add_argument("file", help="the sealed file")
    opened.add_argument("kubeconfig", help="file to write; it must not be there yet")
    opened.set_defaults(func=unseal)
    for action in (sealed, opened):
        action.add_argument(
            "--passphrase-file",
            action="append",
            default=[],
            metavar="NAME=FILE",
            help="read a keeper's passphrase from the first line of a file instead of the terminal",
        )


def request(arguments: argparse.Namespace) -> int:
    """Ask for a role."""
    with visit(arguments, MISSING) as (display, api):
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import requests

        try:
            seconds = requests.seconds_of(arguments.duration)
        except ValueError as error:
            raise CommandError(str(error), code=Exit.BAD_INPUT) from error
        asked = requests.Asked(arguments.role, arguments.reason, seconds, arguments.namespace)
        made = requests.ask(api, asked)
        name = made["metadata"]["name"]
        _tell(display, "requested", f"{name}: now others approve it: ironspan access approve {name}", name)
    return int(Exit.OK)


def approve(arguments: argparse.Namespace) -> int:
    """Approve a request."""
    with visit(arguments, MISSING) as (display, api):
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import requests

        seen = requests.found(api, arguments.name)
        if not arguments.yes:
            _confirm(requests.row_of(seen))
        approvals = requests.approve(api, seen)["status"]["approvals"]
        _tell(display, "approved", f"{arguments.name}: approved by {', '.join(approvals)}", arguments.name)
    return int(Exit.OK)


def revoke(arguments: argparse.Namespace) -> int:
    """Take a request back, or end a grant."""
    with visit(arguments, MISSING) as (display, api):
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import requests

        requests.revoke(api, arguments.name)
        text = f"{arguments.name}: deleted; what was granted for it ends within seconds"
        _tell(display, "revoked", text, arguments.name)
    return int(Exit.OK)


def show(arguments: argparse.Namespace) -> int:
    """List all requests."""
    with visit(arguments, MISSING) as (display, api):
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import requests

        for row in requests.listed(api):
            if display.mode == "json":
                display.event("request", **row._asdict())
                continue
            for line in _lines(row):
                display.note(line)
    return int(Exit.OK)


def seal(arguments: argparse.Namespace) -> int:
    """Make a sealed kubeconfig."""
    from ironspan.cli.inventory import read_site

    site = read_site(arguments.inventory)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import sealed
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError, open_store

    display = console.from_arguments(arguments)
    address = site.api_address if site.api_address != site.api_host else ""
    now = datetime.datetime.now(datetime.UTC)
    try:
        store = open_store(site.pki_store, site.pki_key_file or None)
        if not store.exists():
            raise CommandError(f"there is no PKI store {site.pki_store}", code=Exit.BAD_INPUT)
        passphrases = _passphrases(arguments.keeper, arguments.passphrase_file, twice=True)
        made = sealed.make(store, site.api_endpoint, address, passphrases, arguments.days, now)
        write_file(pathlib.Path(arguments.file), made.text.encode())
    except PkiError as error:
        raise CommandError(error.message, error.remedy, Exit.BAD_INPUT) from error
    except OSError as error:
        raise CommandError(f"{arguments.file}: {error.strerror}", code=Exit.BAD_INPUT) from error
    display.note(f"{arguments.file}: {made.user}, usable until {made.expires:%Y-%m-%d %H:%M} UTC")
    return int(Exit.OK)


def unseal(arguments: argparse.Namespace) -> int:
    """Open a sealed kubeconfig."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import sealed
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError

    display = console.from_arguments(arguments)
    try:
        text = pathlib.Path(arguments.file).read_text(encoding="utf-8", errors="replace")
        names = sealed.keepers(text)
        config = sealed.unseal(text, _passphrases(names, arguments.passphrase_file, twice=False))
        descriptor = os.open(arguments.kubeconfig, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(config, file)
    except PkiError as error:
        raise CommandError(error.message, error.remedy, Exit.BAD_INPUT) from error
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", code=Exit.BAD_INPUT) from error
    display.note(f"{arguments.kubeconfig}: whatever is done with it raises an alarm; delete it afterwards")
    return int(Exit.OK)


def _passphrases(names: list[str], files: list[str], *, twice: bool) -> dict[str, str]:
    """Return everyone's passphrase, from files or typed at the terminal, unseen."""
    if twice_named := sorted({name for name in names if names.count(name) > 1}):
        # Else fewer people than it looks like would open it.
        message = f"{', '.join(twice_named)} is named twice"
        raise CommandError(message, "Name everyone who keeps a passphrase once.", Exit.BAD_INPUT)
    if not all("=" in text for text in files):
        raise CommandError("--passphrase-file lacks a keeper's name", "Write NAME=FILE.", Exit.BAD_INPUT)
    given = dict(text.partition("=")[::2] for text in files)
    if unknown := [name for name in given if name not in names]:
        raise CommandError(f"{', '.join(unknown)} keeps no passphrase of it", code=Exit.BAD_INPUT)
    found = {}
    for name in names:
        if name in given:
            found[name] = _first_line(given[name])
            continue
        if not sys.stdin.isatty():
            raise CommandError(
                f"the passphrase of {name} is missing", "use --passphrase-file", Exit.BAD_INPUT
            )
        found[name] = getpass.getpass(f"passphrase of {name}: ")
        if twice and getpass.getpass("once more: ") != found[name]:
            raise CommandError("that was another passphrase", code=Exit.BAD_INPUT)
    return found


def _first_line(file: str) -> str:
    """Return the first line of a file with a passphrase."""
    try:
        lines = pathlib.Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CommandError(f"{file}: {reason}", code=Exit.BAD_INPUT) from None
    return lines[0] if lines else ""


def _lines(row: t.Any) -> list[str]:
    until = f" until {row.expires}" if row.expires else f" for {row.minutes} minutes"
    approved = f", approved by {', '.join(row.approved_by)}" if row.approved_by else ""
    text = f"{row.name}  {row.state}: {row.user}: {row.role} in {row.where}{until}{approved}"
    return [printable(text), printable(f"    {row.reason}")]


def _confirm(row: t.Any) -> None:
    """Show what is about to be approved; it is approved only as it was shown."""
    if not sys.stdin.isatty():
        raise CommandError("nobody can be asked at this terminal", "add --yes", Exit.BAD_INPUT)
    print("\n".join(_lines(row)))
    if input("approve this? [y/N] ").strip().lower() not in ("y", "yes"):
        raise CommandError("not approved", code=Exit.BAD_INPUT)


def _tell(display: console.Console, event: str, text: str, name: str) -> None:
    if display.mode == "json":
        display.event(event, name=name)
    else:
        display.note(text)
