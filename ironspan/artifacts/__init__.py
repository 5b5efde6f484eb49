# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The mirror: everything a site's hosts download, in one folder, filled from one lock file.

``ensure`` is what other parts call; ``ironspan.artifacts.mirror`` serves the folder.
"""

from __future__ import annotations

import collections.abc
import pathlib
import typing as t

__all__ = ["ensure"]


def ensure(
    source: t.Literal["auto", "upstream", "go"] = "auto",
    only: collections.abc.Collection[str] | None = None,
    progress: collections.abc.Callable[[str, str, str], None] | None = None,
) -> pathlib.Path:
    """Fill the mirror with what the lock file names; what is there and right is left alone.

    Args:
        source: upstream (official downloads), go (built from Go modules), or auto: keep what is
            there by either, download the rest if upstream's names resolve and its digests are pinned,
            else build it.
        only: items (NAME, NAME/VERSION or image reference); None for all that this machine needs.
        progress: told what happens: (item, start/done/skip/fail, detail).

    Returns:
        The mirror folder; its index is ``index.json`` there.

    Raises:
        CommandError: the run could not begin (exit 2), or an item failed (exit 1; the others are done).
    """
    from ironspan.artifacts import cache, fill, lock_file
    from ironspan.cli.outcome import CommandError

    place = cache.Cache()
    filling = fill.Filling(lock_file.load(), place, source, None, progress or _quiet)
    failed = [result for result in filling.run(only) if result.state == "fail"]
    if failed:
        details = "\n".join(f"  {result.key}: {result.detail}" for result in failed)
        raise CommandError(
            f"{len(failed)} artefact(s) could not be made:\n{details}",
            "The others are done; run it again to go on.",
        )
    return place.mirror


def _quiet(what: str, state: str, detail: str) -> None:
    """Show nothing."""
