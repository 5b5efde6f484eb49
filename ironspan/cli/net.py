# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan net check``: latency and loss between the places of a site, and what is wrong there."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

from ironspan.cli.apply import add_run_options
from ironspan.cli.asked import add_report_option, answered, tabled
from ironspan.cli.declared import add_arguments, add_operation, catalogue, given
from ironspan.cli.outcome import CommandError, Exit

NET_CHECK = "ironspan.hybrid.net_check"
NET_POLICY = "ironspan.hybrid.net_policy"
AZURE_ROUTES = "ironspan.hybrid.azure_routes"
ENDS = ("ironspan_from", "ironspan_to")


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``net`` commands."""
    parser = subparsers.add_parser("net", help="what the network between the hosts is like")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="latency, loss, packet sizes, names and tables, asked of the hosts",
        description="Let hosts ask each other (one execution each) and show latency and loss by place, and "
        "what is wrong with what fixes it. Nothing is changed. "
        "Exit codes: 0 well, 1 something is wrong, 2 the inventory has problems, 4 nobody answered. "
        "With --from and --to no host is asked: it is worked out whether policies allow this connection, "
        "and by which rule. Exit codes: 0 allowed, 1 denied, 2 there is no such endpoint, 3 not decided.",
    )
    add_run_options(check)
    policy = catalogue().OPERATIONS["net_policy"]
    ends = [policy.argument(name) for name in ENDS]
    add_arguments(check, (catalogue().common.changed(end, required=False) for end in ends))
    add_report_option(check)
    check.add_argument("--picture", metavar="FILE", help="also draw it, as SVG, to this file")
    check.set_defaults(func=run)
    shown = commands.add_parser(
        "routes",
        help="routes of a virtual network to the pods of nodes in Azure",
        description="One route for the pods of each node in Azure: as the variable azure_pod_routes where "
        "the site has an estate, as a template for Azure's resource manager where it has none. "
        "Nothing is changed, nobody but the cluster's API is asked. See docs/azure-network.md.",
    )
    add_run_options(shown)
    add_operation(shown, "azure_routes", but=(catalogue().common.REPORT.name,))
    add_report_option(shown)
    shown.set_defaults(func=routes)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if given(arguments, "net_policy"):
        return verdict(arguments)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.page import page
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.picture import picture

    report, code = answered(arguments, "net_check", NET_CHECK, page)
    if report is not None and arguments.picture:
        pathlib.Path(arguments.picture).write_text(picture(report), encoding="utf-8")
    return code


def verdict(arguments: argparse.Namespace) -> int:
    """Say whether policies allow one connection, and return the exit code."""
    asked = given(arguments, "net_policy")
    if len(asked) != len(ENDS):
        raise CommandError("a connection has two ends", "write --from and --to", Exit.BAD_INPUT)
    if arguments.picture:
        raise CommandError("there is no picture of one connection", "leave --picture out", Exit.BAD_INPUT)
    report, code = tabled(arguments, "net-policy", "net_policy", NET_POLICY, "net-policy", asked)
    return int(report["exit_code"]) if report and code == Exit.OK else int(code)


def routes(arguments: argparse.Namespace) -> int:
    """Show the routes to pods in Azure and write their template, and return the exit code."""
    asked = given(arguments, "azure_routes")
    return int(tabled(arguments, "azure-routes", "azure_routes", AZURE_ROUTES, "azure-routes", asked)[1])
