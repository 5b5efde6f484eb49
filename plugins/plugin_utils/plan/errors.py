# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Why a plan is not made or not applied."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError


class PlanError(ActionableError):
    """A plan cannot be used; the message is a clause without a full stop, the remedy an imperative one."""
