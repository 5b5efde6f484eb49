# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Finds, reads and checks a lock file."""

from __future__ import annotations

import pathlib

import yaml

from ironspan.artifacts.lock import Lock
from ironspan.artifacts.lock_checks import Reader
from ironspan.cli.outcome import CommandError, Exit

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def default_path() -> pathlib.Path:
    """Return where the lock file lies: in the package, or in the repository around it."""
    here = pathlib.Path(__file__).resolve()
    for folder in (here.parent, here.parents[2], pathlib.Path.cwd()):
        if (folder / "artifacts.lock.yml").is_file():
            return folder / "artifacts.lock.yml"
    raise CommandError(
        "there is no artifacts.lock.yml",
        "Run the command in a checkout of ironspan, or name the file with --lock.",
        Exit.BAD_INPUT,
    )


def load(path: pathlib.Path | None = None) -> Lock:
    """Read and check a lock file.

    Args:
        path: the file; None for the one that belongs to this installation.

    Returns:
        The lock, every reference in it resolved.

    Raises:
        CommandError: unreadable, or wrong; the message lists every problem (exit 2).
    """
    source = path if path is not None else default_path()
    try:
        return parse(source.read_text(encoding="utf-8"), source)
    except OSError as error:
        raise CommandError(f"cannot read {source}: {error.strerror}", "", Exit.BAD_INPUT) from error


def parse(text: str, source: pathlib.Path = pathlib.Path("artifacts.lock.yml")) -> Lock:
    """Check the text of a lock file; see ``load``."""
    try:
        data = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise CommandError(f"{source} is not YAML: {error}", "", Exit.BAD_INPUT) from error
    reader = Reader()
    lock = reader.lock(data, source)
    if reader.problems:
        raise CommandError(
            f"{source} has {len(reader.problems)} problem(s):\n"
            + "\n".join(f"  {one}" for one in reader.problems),
            "docs/artifacts.md describes every field.",
            Exit.BAD_INPUT,
        )
    return lock
