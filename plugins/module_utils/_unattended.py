# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes back a trial that nobody confirmed: systemd starts it on the host, from the program that was kept."""

from __future__ import annotations

import typing as t

FOLDER = "/var/lib/ironspan"


def root_of(script: str) -> str:
    """Return the root of the host on which a program lies in the engine's folder.

    Raises:
        SystemExit: it lies elsewhere.
    """
    root, found, _ = script.partition(f"{FOLDER}/")
    if not found:
        raise SystemExit(f"this program runs from {FOLDER} only")
    return root or "/"


def main(argv: t.Sequence[str]) -> int:
    """Undo the trial with this id and number.

    Args:
        argv: the program's path, id of the trial, how often its timer had been set.

    Returns:
        The exit status; systemd tries again after any but 0.
    """
    from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.engine import run

    expired = {"id": argv[1], "arm": int(argv[2])}
    result = run({"mode": "revert", "expired": expired, "root": root_of(argv[0])})
    print(result.get("msg") or "nothing is on trial any more")
    return 1 if result.get("failed") else 0
