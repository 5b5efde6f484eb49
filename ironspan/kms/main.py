# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The program ``ironspan-kms``."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from ironspan.kms import settings
from ironspan.program.errors import ProgramError

FAILED, REFUSED = 1, 2
STATUS_S = 5.0


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="ironspan-kms",
        description="Let API servers of this host wrap their keys with a key of Azure Key Vault.",
        epilog="Exit codes: 0 done or healthy, 1 not healthy, 2 refused.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, run, text in (
        ("run", serve, "answer API servers until ended"),
        ("status", show, "ask the running program how it is"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--settings", type=Path, default=settings.DEFAULT_PATH, metavar="FILE")
        command.set_defaults(func=run)
    return parser


def serve(chosen: settings.Settings) -> int:
    """Answer until SIGTERM or SIGINT."""
    from ironspan.azure.keyvault import open_key_vault
    from ironspan.kms.plugin import Plugin
    from ironspan.kms.seeds import Seeds
    from ironspan.kms.server import serving

    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    seeds = Seeds(chosen.seeds, chosen.seal_key, chosen.place)
    with serving(Plugin(open_key_vault(chosen.vault), chosen.place, seeds, chosen.outage_s), chosen.socket):
        ending.wait()
    return 0


def show(chosen: settings.Settings) -> int:
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
            answer = ask(MESSAGES["StatusRequest"](), timeout=STATUS_S)
        except grpc.RpcError as error:
            details = error.details() if isinstance(error, grpc.Call) else str(error)
            print(json.dumps({"healthz": f"no answer at {chosen.socket}: {details}"}))
            return FAILED
    print(json.dumps({"healthz": answer.healthz, "key_id": answer.key_id}))
    return 0 if answer.healthz == OK else FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parsed = build_parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s", force=True)
    # The Azure SDK logs every request with its headers at this level.
    logging.getLogger("azure").setLevel(logging.WARNING)
    try:
        return int(parsed.func(settings.load(parsed.settings)))
    except ProgramError as error:
        print(f"ironspan-kms: {error}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
