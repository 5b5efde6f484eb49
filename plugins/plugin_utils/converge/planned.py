# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run, for the processes that are about one host."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import PlannedRun, plan_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER


def plan_for(variables: Mapping[str, t.Any], roles_folder: Path = ROLES_FOLDER) -> PlannedRun | None:
    """Return the plan that this run applies, laid out; None when it applies none.

    Raises:
        PlanError: the plan may not be applied.
        SiteError: the inventory has problems.
    """
    if not plan_file(variables):
        return None
    # Imported late: it reads inventories, which these processes do not without a plan.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import plan_of_run

    return plan_of_run(variables, roles_folder)
