# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan gpu``: what is done about what GPUs report, and the repair of their nodes."""

from __future__ import annotations

import argparse
import json
import sys
import typing as t

from ironspan.cli import gpu_repair, inventory
from ironspan.cli.outcome import CommandError, Exit


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``gpu`` commands."""
    parser = subparsers.add_parser("gpu", help="what GPUs report, what is done about it, nodes in repair")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    policy = commands.add_parser(
        "policy",
        help="the class of every event, beside NVIDIA's catalogue and the device plugin",
        description="Show what is done about each XID, SXID, state of NVML and error of DCGM, beside "
        "NVIDIA's catalogue and what the device plugin does by itself. No host is contacted. "
        "See docs/gpu.md.",
    )
    inventory.add_option(
        policy, "with what this site does otherwise (gpu_policy_overrides); without it as it is shipped"
    )
    policy.add_argument(
        "--differences",
        action="store_true",
        help="only what the site changes, and where the device plugin would do something else",
    )
    policy.add_argument("--json", action="store_true", help="write one JSON object")
    policy.set_defaults(func=show_policy)
    gpu_repair.register(commands)
    order = commands.add_parser(
        "order",
        help="in which order a driver and gVisor are upgraded",
        description="Say in which order driver and gVisor change so that sandboxes with GPUs start after "
        "each step. No host is contacted. Exit code 2 when there is no such order.",
    )
    for end in ("from", "to"):
        order.add_argument(
            f"--{end}",
            dest=end,
            nargs=2,
            required=True,
            metavar=("DRIVER", "GVISOR"),
            help="versions of both",
        )
    order.set_defaults(func=show_order)


def show_policy(arguments: argparse.Namespace) -> int:
    """Show the policy and return the exit code."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import shipped
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.report import page, report

    policy = shipped()
    if arguments.inventory:
        from ironspan.cli.inventory import read_site

        hosts = read_site(arguments.inventory).hosts.values()
        found = [host.variables.get("gpu_policy_overrides") for host in hosts]
        policy = policy.with_overrides(next(filter(None, found), ()))
    shown = report(policy, arguments.differences)
    sys.stdout.write(json.dumps(shown, indent=2) + "\n" if arguments.json else page(shown))
    return int(Exit.OK)


def show_order(arguments: argparse.Namespace) -> int:
    """Show in which order driver and gVisor change, and return the exit code."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import matrix, nvproxy
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

    at, to = tuple(getattr(arguments, "from")), tuple(arguments.to)
    try:
        steps = matrix.upgrade_order(at, to, nvproxy.known_releases())
    except Rejected as error:
        raise CommandError(error.message, error.remedy, Exit.BAD_INPUT) from error
    for number, step in enumerate(steps, start=1):
        what = f"driver {at[0]} -> {step[0]}" if step[0] != at[0] else f"gVisor {at[1]} -> {step[1]}"
        sys.stdout.write(f"{number}. {what}\n")
        at = step
    return int(Exit.OK)
