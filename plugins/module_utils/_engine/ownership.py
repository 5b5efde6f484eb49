# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which paths are the engine's after a document was applied."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.compare import Comparison
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import Document
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.removal import owned_by


def gone(document: Document, comparison: Comparison) -> t.List[str]:
    """Return the paths that the document removes: whatever comes there later is not the engine's."""
    return [
        resource.spec["path"].rstrip("/")
        for resource in document.resources
        if resource.kind.name == "absent" and not comparison.outcomes[resource.id].needs
    ]


def owned_paths(document: Document, comparison: Comparison) -> t.Dict[str, t.List[str]]:
    """Return the paths that the engine is responsible for once the document is applied."""
    owned = {}
    for resource in document.resources:
        if resource.kind.name == "absent" or comparison.outcomes[resource.id].needs:
            continue
        mine = owned_by(resource.spec, comparison.host.note(resource.id))
        if mine:
            owned[resource.id] = mine
    return owned
