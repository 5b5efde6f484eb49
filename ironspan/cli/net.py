# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan net check``: latency and loss between the places of a site, and what is wrong there."""

from __future__ import annotations

import argparse
import pathlib
import typing as t

from ironspan.cli.apply import add_run_options
from ironspan.cli.asked import answered, tabled
from ironspan.cli.outcome import CommandError, Exit

NET_CHECK = "ironspan.hybrid.net_check"
NET_POLICY = "ironspan.hybrid.net_policy"
AZURE_ROUTES = "ironspan.hybrid.azure_routes"


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``net`` commands."""
    parser = subparsers.add_parser("net", help="what the network between the hosts is like")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="latency, loss, packet sizes, names and tables, asked of the hosts",
        description="Let hosts ask each other (one execution each) and show latency and loss by place, and "
        "what is wrong with what mends it. Nothing is changed. "
        "Exit codes: 0 well, 1 something is wrong, 2 the inventory has problems, 4 nobody answered. "
        "With --from and --to no host is asked: it is worked out whether policies allow this connection, "
        "and by which rule. Exit codes: 0 allowed, 1 denied, 2 there is no such endpoint, 3 not decided.",
    )
    add_run_options(check)
    check.add_argument("--from", dest="source", metavar="NAMESPACE/POD", help="the pod that connects")
    check.add_argument(
        "--to",
        dest="target",
        metavar="TARGET:PORT",
        help="where to: NAMESPACE/POD:PORT, ADDRESS:PORT, SERVICE.NAMESPACE.svc:PORT or NAME:PORT, with /udp "
        "behind it if it is not TCP",
    )
    check.add_argument("--report", metavar="FILE", help="also write everything as JSON to this file")
    check.add_argument("--picture", metavar="FILE", help="also draw it, as SVG, to this file")
    check.set_defaults(func=run)
    shown = commands.add_parser(
        "routes",
        help="routes of a virtual network to the pods of nodes in Azure",
        description="One route for the pods of each node in Azure, as a template for its resource manager. "
        "Nothing is changed, nobody but the cluster's API is asked. See docs/azure-network.md.",
    )
    add_run_options(shown)
    shown.add_argument("--location", required=True, metavar="REGION", help="such as westeurope")
    shown.add_argument("--table", default="", metavar="NAME", help="of the route table")
    shown.add_argument(
        "--managed",
        action="store_true",
        help="Virtual Network Manager keeps the table: 1,000 routes, not 400",
    )
    shown.add_argument("--report", metavar="FILE", help="write the template to this file")
    shown.set_defaults(func=routes)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if arguments.source or arguments.target:
        return verdict(arguments)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.page import page
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.picture import picture

    report, code = answered(arguments, "net_check", NET_CHECK, page)
    if report is not None and arguments.picture:
        pathlib.Path(arguments.picture).write_text(picture(report), encoding="utf-8")
    return code


def verdict(arguments: argparse.Namespace) -> int:
    """Say whether policies allow one connection, and return the exit code."""
    if not (arguments.source and arguments.target):
        raise CommandError("a connection has two ends", "write --from and --to", Exit.BAD_INPUT)
    if arguments.picture:
        raise CommandError("there is no picture of one connection", "leave --picture out", Exit.BAD_INPUT)
    asked = {"ironspan_from": arguments.source, "ironspan_to": arguments.target}
    report, code = tabled(arguments, "net-policy", "net_policy", NET_POLICY, "net-policy", asked)
    return int(report["exit_code"]) if report and code == Exit.OK else int(code)


def routes(arguments: argparse.Namespace) -> int:
    """Show the routes to pods in Azure and write their template, and return the exit code."""
    asked = {
        "ironspan_location": arguments.location,
        "ironspan_table": arguments.table,
        "ironspan_managed": arguments.managed,
    }
    return int(tabled(arguments, "azure-routes", "azure_routes", AZURE_ROUTES, "azure-routes", asked)[1])
