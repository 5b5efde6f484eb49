# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-events``."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence

from ironspan.events import settings
from ironspan.program import command
from ironspan.program.errors import ProgramError

PAUSE_S, DEADLINE_S = 60.0, 300.0


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="ironspan-events",
        description="Take alerts from Alertmanager and launch job templates of a controller for them.",
        epilog="Exit codes: 0 done, 1 failed, 2 refused.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands.add_parser("run", help="work until told to end").set_defaults(func=run)
    commands.add_parser("table", help="which alert launches what").set_defaults(func=table)
    command.add_common(commands, settings.DEFAULT_PATH)
    return parser


def table(chosen: settings.Settings, arguments: argparse.Namespace) -> None:
    """Print which alert launches what."""
    rows = {name: one.template for name, one in sorted(chosen.reactions.items())}
    command.answer(arguments, rows, "\n".join(f"{name:28} {template}" for name, template in rows.items()))


def run(chosen: settings.Settings, _: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import Api, ControllerError

    from ironspan.events.launcher import Launcher, Unreachable, controller_token
    from ironspan.events.metrics import Metrics
    from ironspan.events.receiver import Receiver
    from ironspan.program.http import Server
    from ironspan.program.service import Step, serve

    metrics = Metrics()
    launcher = Launcher(chosen, metrics.told)

    def ask() -> None:
        """Ask the controller who the token is: an expired one is seen before an alert needs it."""
        try:
            Api(chosen.host, controller_token(chosen), chosen.ca_file).get("me/")
        except ControllerError as error:
            raise Unreachable(error.message, error.remedy) from error

    try:
        server = Server(chosen.listen)
    except OSError as error:
        raise ProgramError(
            f"Alerts cannot be taken at {chosen.listen.address}, port {chosen.listen.port}: "
            f"{error.strerror or error}.",
            "Set listen in the settings to an address, a port, a certificate and a key that can be used.",
        ) from error
    server.set_app(Receiver(launcher.take, chosen.token_file, metrics.failed))
    thread = threading.Thread(target=server.serve_forever, name="alerts", daemon=True)
    thread.start()
    try:
        return serve(metrics, chosen.metrics, Step("controller", ask, PAUSE_S, DEADLINE_S))
    finally:
        server.shutdown()
        server.server_close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return command.run(build_parser(), settings.load, arguments)


if __name__ == "__main__":
    sys.exit(main())
