# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan serve``: the page of the site in this machine's browser, with the progress of runs."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import tempfile
import threading
import time
import typing as t

from ironspan.cli import console, inventory
from ironspan.cli.outcome import CommandError, Exit

FRESH_S = 20.0
"""How long an answer of the cluster is shown before it is asked again."""


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``serve`` command."""
    parser = subparsers.add_parser(
        "serve",
        help="the page of the site in a browser, with the progress of runs",
        description="Show the site, the runs that go on and the reports of those that ended, in a browser on "
        "this machine. It reads only: nothing can be started or changed. "
        "From elsewhere: ssh -L 8470:127.0.0.1:8470.",
    )
    inventory.add_option(parser)
    parser.add_argument("--address", default="127.0.0.1", help="a loopback address (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8470, help="port, 0 for one that is free (8470)")
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command until it is interrupted."""
    from ironspan.cli.page_server import PageServer, insist_on_loopback

    insist_on_loopback(arguments.address)
    if not 0 <= arguments.port <= 65535:
        raise CommandError(f"{arguments.port} is no port", "write one from 0 to 65535", Exit.BAD_INPUT)
    site = inventory.read_site(arguments.inventory)
    display = console.from_arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="ironspan-") as private:
        try:
            server = PageServer(arguments.address, arguments.port, Pages(site, private))
        except OSError as error:
            where = f"{arguments.address} port {arguments.port}"
            raise CommandError(
                f"{where}: {error.strerror}", "choose another with --port", Exit.BAD_INPUT
            ) from error
        display.note(f"open {server.url}")
        display.note("The key in it is new at each start. Ctrl-C ends it.")
        if display.mode == "json":
            display.event("serving", url=server.url)
        with server, contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        server.ending.set()
    return int(Exit.OK)


class Pages:
    """What the server shows.

    Args:
        site: from the inventory.
        private: folder for a client key.
        clock: Unix time.
    """

    def __init__(self, site: t.Any, private: str, clock: t.Callable[[], float] = time.time) -> None:
        self.name: str = site.name
        self._site = site
        self._private = private
        self._clock = clock
        self._lock = threading.Lock()
        self._page = ""
        self._made = float("-inf")
        self._of = ""

    def site(self) -> str:
        """Return the page of the site; the cluster is asked at most every 20 s, and when a run has ended."""
        with self._lock:
            ended = self.ended()
            if self._clock() - self._made > FRESH_S or ended != self._of:
                self._page, self._made, self._of = self._ask(), self._clock(), ended
            return self._page

    def _ask(self) -> str:
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session

        from ironspan.cli import site_view
        from ironspan.pages import site_page

        session = Session(self._site, self._private)
        report, error = None, ""
        try:
            report = site_view.verified(session)
        except CommandError as wrong:
            error = wrong.message
        return site_page.page(site_view.view(session, report, error, ()), links=True)

    def run(self, name: str) -> str | None:
        """Return the report of a run."""
        from ironspan.cli import run_record
        from ironspan.pages import run_page

        record = run_record.read(self._folder() / f"{name}{run_record.DATA}")
        return run_page.page(record) if record else None

    def live(self) -> str:
        """Return what goes on from this controller, or who else changes the site."""
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import site_lock

        from ironspan.cli import site_view
        from ironspan.pages import site_page
        from ironspan.pages.markup import join

        holder = site_lock.holder_of(site_lock.lock_file(self._site.pki_store))
        return str(join([site_page.running(site_view.running_here(self.name), holder, self._clock())]))

    def ended(self) -> str:
        """Return the name of the run that ended last."""
        from ironspan.cli import run_record

        return next((path.name for path in run_record.records(self._folder(), 1)), "")

    def _folder(self) -> pathlib.Path:
        from ironspan.cli.playbook import log_folder

        return log_folder()
