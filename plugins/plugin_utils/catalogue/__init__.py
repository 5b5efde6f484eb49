# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Every operation, declared once: refusals, command line, reference page and surveys are read from it.

A module here with the name ``OPERATIONS`` adds its operations. A new operation is such a declaration, its
playbook, and, when it has steps, the module in ``operations`` that works them out.
"""

from __future__ import annotations

import importlib
import pkgutil

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation


def declared() -> dict[str, Operation]:
    """Return all operations by their names, in alphabetical order.

    Raises:
        ValueError: two have the same name.
    """
    found: dict[str, Operation] = {}
    for module in sorted(entry.name for entry in pkgutil.iter_modules(__path__)):
        for operation in getattr(importlib.import_module(f"{__name__}.{module}"), "OPERATIONS", ()):
            if operation.name in found:
                raise ValueError(f"{operation.name} is declared twice, also in {module}.py")
            found[operation.name] = operation
    return dict(sorted(found.items()))


OPERATIONS: dict[str, Operation] = declared()
PLANNED: tuple[str, ...] = tuple(name for name, operation in OPERATIONS.items() if operation.planned)
"""Operations that can be planned, beside ``site``."""


def arguments() -> dict[str, Argument]:
    """Return every argument of any operation by the name of its variable."""
    return {entry.name: entry for operation in OPERATIONS.values() for entry in operation.arguments}
