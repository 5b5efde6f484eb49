# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs that see a part of the inventory only: jobs that AWX sliced.

AWX gives slice N of M every M-th host by name, in an inventory that has no other hosts (its
``Inventory.get_script_data``). Groups and their variables stay, so ``etcd`` may be there and empty, or hold
one member of three. Nothing tells a job that it is a slice, but a sliced job template is started as a
workflow that has the template's own name.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping

from ansible.module_utils.parsing.convert_bool import boolean

VARIABLE = "ironspan_slice"
"""Says it outright: for other controllers than AWX, and for workflows with the name of a template."""
_AWX_NAMES = ("awx_workflow_job_name", "awx_job_template_name")
_TOWER_NAMES = ("tower_workflow_job_name", "tower_job_template_name")

MESSAGE = "this job sees a slice of the inventory, and what a host shall be depends on all hosts"
REMEDY = (
    "make a plan in a job that is not sliced, and apply it in the slices with ironspan_plan; "
    f"if this is no slice, write {VARIABLE}: false in the job's variables"
)


def said_to_be(variables: Mapping[str, t.Any]) -> bool | None:
    """Return what the variables of a run say: a slice, none, or None when they leave it open."""
    if variables.get(VARIABLE) is not None:
        return bool(boolean(variables[VARIABLE], strict=False))
    for workflow, template in (_AWX_NAMES, _TOWER_NAMES):
        if variables.get(workflow) and variables.get(workflow) == variables.get(template):
            return True
    return None


def is_slice(variables: Mapping[str, t.Any], hosts: Collection[str], planned: Collection[str]) -> bool:
    """Tell whether a run is a slice.

    Args:
        variables: of the run.
        hosts: names of all hosts of its inventory.
        planned: names of all hosts that the plan of the run knows, empty when it has none.
    """
    said = said_to_be(variables)
    return bool(planned and set(planned) - set(hosts)) if said is None else said
