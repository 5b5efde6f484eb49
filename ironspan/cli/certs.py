# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan certs``: when certificates end, renewing them, their authorities, requests of kubelets."""

from __future__ import annotations

import argparse
import collections.abc
import json
import pathlib
import shlex
import sys
import tempfile
import typing as t

from ironspan.cli import backup_keys, console, inventory
from ironspan.cli.apply import add_run_options, ansible_arguments
from ironspan.cli.asked import add_report_option, tabled
from ironspan.cli.declared import add_operation, given
from ironspan.cli.outcome import CommandError, Exit, ending

REPORT = "ironspan.hybrid.certificates_report"
STAGE = "ironspan.hybrid.authority_stage"
ENVIRONMENT = "IRONSPAN_PKI_KEY"
TIMER_MINUTES = 10
"""A kubelet waits 15 minutes for an answer before it asks again (client-go, certificate manager)."""


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``certs`` command."""
    parser = subparsers.add_parser(
        "certs",
        help="when certificates end; renew them, change their authorities",
        description="Certificates of the whole cluster. Without a subcommand: show them, exit code 1 when "
        "something is due or wrong.",
    )
    _show_options(parser)
    parser.set_defaults(func=show)
    actions = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND")
    shown = actions.add_parser("show", help="every certificate and when it ends")
    _show_options(shown)
    shown.set_defaults(func=show)
    renewed = actions.add_parser(
        "renew", help="renew what is about to end", description="Run playbooks/certs_renew.yml."
    )
    add_run_options(renewed)
    add_operation(renewed, "certs_renew")
    renewed.add_argument("--days", type=int, help="what ends within as many days (as the inventory says)")
    renewed.set_defaults(func=renew)
    rotated = actions.add_parser(
        "rotate",
        help="change an authority or the service account key for another, a stage at a time",
        description="Run playbooks/ca_rotate.yml. Start with the stage trust, go on with next.",
    )
    add_operation(rotated, "ca_rotate")
    add_run_options(rotated)
    rotated.set_defaults(func=rotate)
    approved = actions.add_parser(
        "approve",
        help="decide about kubelets' pending requests for serving certificates",
        description="Approve what matches the inventory, deny and name everything else. Exit code 1 when "
        "something was denied.",
    )
    inventory.add_option(approved)
    approved.add_argument("--check", action="store_true", help="decide, but tell nobody")
    approved.add_argument(
        "--print-units", action="store_true", help="print a systemd service and timer that run this command"
    )
    approved.set_defaults(func=approve)
    rekeyed = actions.add_parser(
        "rekey",
        help="encrypt the PKI store with another key",
        description="Make a key in a new file unless it is there, and encrypt every secret with it.",
    )
    rekeyed.add_argument("new_key_file", help="file of the new key")
    inventory.add_option(rekeyed)
    rekeyed.set_defaults(func=rekey)
    forgotten = actions.add_parser(
        "forget",
        help="delete secrets that the PKI store has put aside",
        description="Delete what the folder `former` of the PKI store has: secrets under the store's former "
        "keys, and keys of authorities that nobody trusts any more. First everything that the store needs is "
        "opened; what the store may not have itself stays. Back the store up before.",
    )
    inventory.add_option(forgotten)
    forgotten.set_defaults(func=forget)
    backup_keys.register(actions)


def _show_options(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    # The command itself fails when something is due.
    add_operation(parser, "certs", but=("ironspan_fail_when_due",))
    add_report_option(parser)


def show(arguments: argparse.Namespace) -> int:
    """Run playbooks/certs.yml and show its table."""
    asked = given(arguments, "certs")
    report, code = tabled(arguments, "certs", "certs", REPORT, "certificates", asked)
    if code == Exit.OK and report and not report["ok"]:
        return int(Exit.FAILED)
    return int(code)


def renew(arguments: argparse.Namespace) -> int:
    """Run playbooks/certs_renew.yml."""
    variables = given(arguments, "certs_renew")
    if arguments.days is not None:
        variables["site_certificate_renew_days"] = arguments.days
    options = [*ansible_arguments(arguments), *(["-e", json.dumps(variables)] if variables else [])]
    from ironspan.cli.playbook import run_playbook

    display = console.from_arguments(arguments)
    code, _ = run_playbook("certs", "certs_renew", options, display, arguments.verbose)
    return int(code)


def rotate(arguments: argparse.Namespace) -> int:
    """Run playbooks/ca_rotate.yml."""
    asked = given(arguments, "ca_rotate")
    from ironspan.cli.playbook import run_playbook

    display = console.from_arguments(arguments)
    options = [*ansible_arguments(arguments), "-e", json.dumps(asked)]
    code, running = run_playbook("certs", "ca_rotate", options, display, arguments.verbose)
    outcome = running.run.results.get(STAGE, {})
    if display.mode != "json" and "followed" in outcome:
        display.note(standing(asked["ironspan_authority"], outcome))
    return int(code)


def standing(authority: str, outcome: collections.abc.Mapping[str, t.Any]) -> str:
    """Return where the change of an authority stands, in a sentence or two."""
    if not outcome["stage"]:
        return f"{authority}: the change is complete"
    stage = f"{authority} is in the stage {outcome['stage']}"
    if outcome["followed"]:
        return f"{stage}, and all hosts have followed; the next one is {outcome['next']}"
    return "\n".join([f"{stage}; before the next one:", *(f"  {text}" for text in outcome["reasons"])])


def approve(arguments: argparse.Namespace) -> int:
    """Decide about the pending requests once, with an identity that may do nothing else."""
    if arguments.print_units:
        print(units(arguments.inventory))
        return int(Exit.OK)
    site = inventory.read_site(arguments.inventory)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import csr
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import (
        Session,
        node_addresses,
    )
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError

    display = console.from_arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="ironspan-") as private, display:
        try:
            with ending(Exit.BAD_INPUT, PkiError):
                api = Session(site, private).approver_api()
                outcome = csr.approve_pending(api, node_addresses(site), dry_run=arguments.check)
        except ClusterError as error:
            raise CommandError(str(error), code=Exit.HOSTS) from error
    for verdict in (*outcome.approved, *outcome.denied):
        reason = verdict.reason
        if display.mode == "json":
            display.event("decided", **verdict._asdict(), approved=not reason)
        else:
            display.note(f"{verdict.node or '?'}: {verdict.request}: {reason or 'approved'}")
    return int(Exit.FAILED if outcome.denied else Exit.OK)


def rekey(arguments: argparse.Namespace) -> int:
    """Encrypt the PKI store with another key."""
    new = pathlib.Path(arguments.new_key_file).resolve()
    display = console.from_arguments(arguments)
    with inventory.opened_store(arguments.inventory) as store:
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import generate_key_file

        if not new.exists():
            generate_key_file(new)
        store.change_key(new)
    display.note(f"the PKI store {store.path} is encrypted with the key in {new}")
    display.note(f"now name that file in site_pki_key_file, or put its content into {ENVIRONMENT}")
    display.note("the secrets under the former key are kept in its folder former; back the store up, then")
    display.note("delete them with: ironspan certs forget")
    return int(Exit.OK)


def forget(arguments: argparse.Namespace) -> int:
    """Delete what the PKI store has put aside."""
    display = console.from_arguments(arguments)
    with inventory.opened_store(arguments.inventory) as store:
        gone, left = store.forget()
    display.note(f"{len(gone)} secrets that were put aside are deleted")
    for name in left:
        display.note(f"{store.path}/{name} stays: the store may not have what is in it")
    return int(Exit.OK)


def units(inventories: list[str]) -> str:
    """Return a systemd service and its timer that approve requests every few minutes.

    Args:
        inventories: as given on the command line; empty means the project's own.
    """
    command = [str(pathlib.Path(sys.argv[0]).resolve()), "certs", "approve", "--plain"]
    for name in inventories:
        command += ["-i", str(pathlib.Path(name).resolve())]
    return f"""\
# /etc/systemd/system/ironspan-approve.service
[Unit]
Description=Decide about kubelets' requests for serving certificates
After=network-online.target

[Service]
Type=oneshot
ExecStart={shlex.join(command)}
# The key of the PKI store, where the inventory does not name its file:
# LoadCredential= or EnvironmentFile= with IRONSPAN_PKI_KEY
NoNewPrivileges=yes
PrivateTmp=yes

# /etc/systemd/system/ironspan-approve.timer
[Unit]
Description=Decide about kubelets' requests for serving certificates every {TIMER_MINUTES} minutes

[Timer]
OnBootSec=2min
OnUnitActiveSec={TIMER_MINUTES}min

[Install]
WantedBy=timers.target"""
