# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The action of a module that needs none: it runs the module, and its worker ends with the run."""

from __future__ import annotations

from ansible.plugins.action.normal import ActionModule
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

bind_children()  # here, because the main process imports this file before it starts workers


class ModuleAction(ActionModule):  # type: ignore[misc]
    """What Ansible itself does with a module that has no action."""
