# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan status``: how the cluster and its members are now, asked of the API and of etcd only."""

from __future__ import annotations

import argparse
import tempfile
import time
import typing as t

from ironspan.cli import console, inventory
from ironspan.cli.outcome import CommandError, Exit


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``status`` command."""
    parser = subparsers.add_parser(
        "status",
        help="the state of the cluster and its hosts",
        description="Ask the API server and the etcd members how they and the nodes are, and Azure what "
        "deploying the site's estate would change, where it has one. No host is contacted and nothing "
        "is made; `ironspan verify` looks deeper.",
    )
    inventory.add_option(parser)
    parser.add_argument("--deep", action="store_true", help="the same as ironspan doctor: look at hosts too")
    parser.add_argument(
        "--html", metavar="FILE", help="also write a page: topology, backups, certificates, runs"
    )
    parser.add_argument(
        "--expected", metavar="FILE", help="expected servers, which the page shows in their racks"
    )
    parser.add_argument("--mapping", metavar="FILE", help="says what the columns of a vendor's list mean")
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 1 when something is not as the inventory wants it."""
    if arguments.deep:
        from ironspan.cli import doctor

        whole: dict[str, t.Any] = {
            "limit": None,
            "extra_vars": [],
            "forks": None,
            "verbose": False,
            "report": None,
        }
        return doctor.run(argparse.Namespace(**{**whole, **vars(arguments)}))
    if arguments.expected and not arguments.html:
        raise CommandError("--expected is for a page", "name it: --html FILE", Exit.BAD_INPUT)
    from ironspan.cli import site_view

    site = inventory.read_site(arguments.inventory)
    places = site_view.racks_of(arguments, site)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session

    from ironspan.pages import site_page

    display = console.from_arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="ironspan-") as private, display:
        session = Session(site, private)

        def write(report: t.Any, error: str = "") -> None:
            if arguments.html:
                view = site_view.view(session, report, error, places, found)
                site_view.write(arguments.html, site_page.page(view))

        found: list[t.Any] = []
        try:
            report = site_view.verified(session)
        except CommandError as error:
            # A site is looked at before there is a cluster, too.
            write(None, error.message)
            raise
        found = _estate(site)
        write(report)
    if display.mode == "json":
        display.event("status", **report.as_json(), estate=[finding._asdict() for finding in found])
    else:
        display.note(f"site {site.name}, API at https://{site.api_endpoint}")
        display.note(report.as_text())
        for finding in found:
            display.note(f"{finding.level}: {finding.what}\n    -> {finding.remedy}")
    wrong = not report.ok or any(finding.level == "problem" for finding in found)
    return int(Exit.FAILED if wrong else Exit.OK)


def _estate(site: t.Any) -> list[t.Any]:
    """Return what is to be said of the site's estate in Azure, nothing where it has none."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_checks import has_estate, told

    if not has_estate(site):
        return []
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.estate_ask import ask_estate

    return list(told(site, ask_estate(site), time.time()))
