# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands that talk to the cluster as the person who runs them, with their own kubeconfig."""

from __future__ import annotations

import argparse
import collections.abc
import contextlib
import pathlib
import tempfile
import typing as t

from ironspan.cli import console
from ironspan.cli.outcome import CommandError, Exit


def add_kubeconfig(command: argparse.ArgumentParser) -> None:
    """Add the options that say who one is."""
    command.add_argument("--kubeconfig", default="", help="yours (KUBECONFIG, or ~/.kube/config)")
    command.add_argument("--context", default="", help="its context (the current one)")


@contextlib.contextmanager
def visit(
    arguments: argparse.Namespace, missing: str
) -> collections.abc.Iterator[tuple[console.Console, t.Any]]:
    """Talk to the API server as that person; its refusals become the command's.

    Args:
        arguments: of the command line.
        missing: what to do where what is asked for is not there.

    Yields:
        The display, and a client of the API.
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access.login import personal_api
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
        ApiError,
        ClusterError,
    )

    display = console.from_arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="ironspan-") as private, display:
        try:
            yield display, personal_api(arguments.kubeconfig, arguments.context, pathlib.Path(private))
        except ApiError as error:
            remedy = missing if error.status == 404 else error.remedy
            raise CommandError(error.message, remedy, Exit.FAILED) from error
        except ClusterError as error:
            raise CommandError(error.message, error.remedy, Exit.FAILED) from error


def printable(text: str) -> str:
    """Return what others wrote without what a terminal obeys."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
