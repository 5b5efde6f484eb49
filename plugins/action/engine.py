# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs the module ``ironspan.hybrid.engine``."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.module import ModuleAction


class ActionModule(ModuleAction):
    """The action ``ironspan.hybrid.engine``."""
