# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The declarations of operations, read before Ansible is there."""

from __future__ import annotations

import functools
import sys
import typing as t


@functools.cache
def catalogue() -> t.Any:
    """Return the package of declarations, with its module ``common``.

    Parsers are made of it at every start. Commands that load Ansible's plugins do so later, and its loader
    insists on being the first to import the collection: so what was imported here is forgotten again.
    """
    before = set(sys.modules)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue as found
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue import common  # noqa: F401

    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "ansible_collections":
            del sys.modules[name]
    return found
