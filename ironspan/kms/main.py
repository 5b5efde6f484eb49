# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-kms``."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from collections.abc import Sequence

from ironspan.kms import settings
from ironspan.program import command, process
from ironspan.program.errors import ProgramError

LOG = logging.getLogger(__name__)
STATUS_S = 5.0
VAULT_LATE_S = 300.0
"""The vault is asked once a minute."""


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="ironspan-kms",
        description="Let API servers of this host wrap their keys with a key of Azure Key Vault.",
        epilog="Exit codes: 0 done or healthy, 1 failed or not healthy, 2 refused.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, run, text in (
        ("run", serve, "answer API servers until ended"),
        ("status", show, "ask the running program how it is"),
    ):
        commands.add_parser(name, help=text).set_defaults(func=run)
    command.add_common(commands, settings.DEFAULT_PATH)
    return parser


def serve(chosen: settings.Settings, _: argparse.Namespace) -> None:
    """Answer until SIGTERM or SIGINT."""
    from ironspan.azure.keyvault import open_key_vault
    from ironspan.kms.metrics import VAULT_STEP, Metrics
    from ironspan.kms.plugin import Plugin
    from ironspan.kms.seeds import Seeds
    from ironspan.kms.server import serving

    ending, metrics = process.ending(), Metrics()
    seeds = Seeds(chosen.seeds, chosen.seal_key, chosen.place)
    plugin = Plugin(open_key_vault(chosen.vault), chosen.place, seeds, chosen.outage_s, failed=metrics.failed)
    metrics.watch(VAULT_STEP, plugin.since_opened, max(chosen.outage_s, VAULT_LATE_S))
    with contextlib.ExitStack() as stack:
        stack.enter_context(serving(plugin, chosen.socket, metrics=metrics))
        try:
            stack.enter_context(metrics.serving(chosen.metrics))
        except ProgramError as error:
            # API servers come first: they cannot start without this program.
            LOG.error("%s", error)
        ending.wait()


def show(chosen: settings.Settings, _: argparse.Namespace) -> int:
    """Print what the program answers an API server."""
    import grpc

    from ironspan.kms.plugin import OK
    from ironspan.kms.protocol import MESSAGES, SERVICE

    with grpc.insecure_channel(f"unix:{chosen.socket}") as channel:
        ask = channel.unary_unary(
            f"/{SERVICE}/Status",
            request_serializer=MESSAGES["StatusRequest"].SerializeToString,
            response_deserializer=MESSAGES["StatusResponse"].FromString,
        )
        try:
            said = ask(MESSAGES["StatusRequest"](), timeout=STATUS_S)
        except grpc.RpcError as error:
            details = error.details() if isinstance(error, grpc.Call) else str(error)
            print(json.dumps({"healthz": f"no answer at {chosen.socket}: {details}"}))
            return command.FAILED
    print(json.dumps({"healthz": said.healthz, "key_id": said.key_id}))
    return 0 if said.healthz == OK else command.FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return command.run(build_parser(), settings.load, arguments)


if __name__ == "__main__":
    sys.exit(main())
