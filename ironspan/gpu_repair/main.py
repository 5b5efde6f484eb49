# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-gpu-repair``."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence

from ironspan.gpu_repair import settings
from ironspan.program import command

LEASE = "ironspan-gpu-repair"
PAUSE_S, DEADLINE_S = 0.5, 120.0
"""A pass watches for two seconds itself, so that a fault is seen within three."""


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="ironspan-gpu-repair",
        description="Cordon, drain, repair and test GPU nodes, and let those back in that pass.",
        epilog="Exit codes: 0 done, 1 failed, 2 refused.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands.add_parser("run", help="work until told to end").set_defaults(func=run)
    command.add_common(commands, settings.DEFAULT_PATH)
    return parser


def run(chosen: settings.Settings, _: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT."""
    from ironspan.gpu_repair.controller import Controller, open_api
    from ironspan.gpu_repair.metrics import Metrics
    from ironspan.kubernetes.lease import ClusterLeases
    from ironspan.program.leader import Leadership
    from ironspan.program.service import Step, serve

    metrics, api = Metrics(), open_api(chosen)
    leadership = Leadership(ClusterLeases(api, settings.NAMESPACE), LEASE, socket.gethostname())
    controller = Controller(
        api, chosen, leadership.held, told=lambda passed: metrics.passed(passed, len(chosen.nodes))
    )
    return serve(
        metrics, chosen.metrics, Step("pass", controller.one_pass, PAUSE_S, DEADLINE_S), leadership=leadership
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return command.run(build_parser(), settings.load, arguments)


if __name__ == "__main__":
    sys.exit(main())
