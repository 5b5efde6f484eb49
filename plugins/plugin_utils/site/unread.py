# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sources of an inventory that could not be asked.

Ansible only warns of a source that fails, and goes on with what is left: a run that believes there are no
servers. So our own inventory plugins do not fail but leave a mark, and every run is refused by it.
"""

from __future__ import annotations

import contextlib
import contextvars
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError

VARIABLE = "__ironspan_unread"
"""Variable of the group ``all``: file of a source to what went wrong."""

_WITHOUT = contextvars.ContextVar("ironspan_without_plugins", default=False)


@contextlib.contextmanager
def without_plugins() -> Iterator[None]:
    """Read inventories without what our own plugins add: for a plugin that has to know its site."""
    token = _WITHOUT.set(True)
    try:
        yield
    finally:
        _WITHOUT.reset(token)


def is_without_plugins() -> bool:
    """Return whether an inventory is read so just now."""
    return _WITHOUT.get()


def read[T](source: Callable[[], T], path: str, inventory: t.Any, warn: Callable[[str], object]) -> T | None:
    """Return what a source says, None where it could not be asked: that is marked.

    Whatever goes wrong is marked, an answer of a form that nobody expects too. It may not look like no hosts.

    Args:
        source: asks.
        path: file of the source.
        inventory: of Ansible, takes the mark.
        warn: tells people.
    """
    try:
        return source()
    except Exception as error:
        known = isinstance(error, ActionableError) or type(error).__module__.startswith("ansible.")
        said = str(error) if known else f"its answer cannot be read ({type(error).__name__}: {error})"
        warn(f"{path}: {said}")
        inventory.set_variable("all", VARIABLE, {path: said})
        return None


def marked(variables: Mapping[str, t.Any]) -> Iterator[tuple[str, str]]:
    """Yield file and reason of each source that could not be asked.

    Args:
        variables: of the group ``all``, as inventory plugins set them.
    """
    marks = variables.get(VARIABLE)
    if isinstance(marks, Mapping):
        yield from ((str(file), str(reason)) for file, reason in marks.items())
