# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site from inside a run of ansible-playbook: action and lookup plugins get it from their variables."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.asked_files import problems_of_files
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import (
    Loaded,
    load_from_ansible,
    load_site,
    require_site,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.remembered import Remembered
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import (
    PlannedRun,
    plan_file,
    planned_hosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import slices
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import problems_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem, SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER


def load_from_variables(
    variables: Mapping[str, t.Any], roles_folder: Path = ROLES_FOLDER, is_slice: bool = False
) -> Loaded:
    """Read the inventory of this run; no file is parsed again that Ansible has parsed.

    Args:
        variables: the variables of a task; only ``hostvars`` is used.
        roles_folder: where the roles are.
        is_slice: the inventory is a part of the site's, see slices.py.

    Returns:
        The site (None when there are problems) and all problems.
    """
    # hostvars is the only thing a plugin gets that knows the whole inventory. Its parts have no public names.
    hostvars = variables["hostvars"]
    try:
        manager, loader = hostvars._inventory, hostvars._loader
        extra_vars = hostvars._variable_manager.extra_vars
    except AttributeError:  # another ansible-core: read what the command line names once more
        loader = DataLoader()
        inventories = context.CLIARGS.get("inventory") or ()
        return load_site(inventories, loader, roles_folder, load_extra_vars(loader))
    return load_from_ansible(manager, loader, hostvars, extra_vars, roles_folder, is_slice=is_slice)


def extra_variables(variables: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the variables of the command line.

    Args:
        variables: the variables of a task; only ``hostvars`` is used.
    """
    try:
        return dict(variables["hostvars"]._variable_manager.extra_vars)
    except AttributeError:
        return dict(load_extra_vars(DataLoader()))


def site_of_run(variables: Mapping[str, t.Any], roles_folder: Path = ROLES_FOLDER) -> Site:
    """Return the site of this run; of a slice with a plan, what the slice knows of it.

    It is read and checked by the first action of a run that asks for it, and so is what the run is asked for.

    Raises:
        SiteError: the inventory has problems, the run is asked for something that its operation does not
            declare, or it is a slice and has no plan.
    """
    planned = bool(plan_file(variables))
    is_slice = slices.is_slice(variables, _hosts(variables), planned_hosts(variables))
    if is_slice and not planned:
        job = f"job {variables.get('awx_job_id') or variables.get('tower_job_id') or '(sliced)'}"
        raise SiteError([Problem(job, 0, "(inventory)", slices.MESSAGE, slices.REMEDY)])
    remembered = _remembered(variables, str(roles_folder), is_slice)
    if remembered and (site := remembered.recall()):
        return site
    given = extra_variables(variables)
    asked = problems_of_run(given, variables)
    # A plan has what it was made from.
    asked += [] if planned else problems_of_files(given, variables)
    site, problems = load_from_variables(variables, roles_folder, is_slice)
    if asked:
        raise SiteError([*asked, *problems])
    site = require_site((site, problems))
    if remembered:
        remembered.keep(site)
    return site


def problems_before_reading(
    variables: Mapping[str, t.Any], roles_folder: Path = ROLES_FOLDER
) -> list[Problem]:
    """Return what is wrong with the inventory, and with what a run is asked for that only reads.

    A part of an inventory needs no plan for that, and is checked as far as it goes.

    Args:
        variables: the variables of a task.
        roles_folder: where the roles are.
    """
    if slices.is_slice(variables, _hosts(variables), planned_hosts(variables)) and not plan_file(variables):
        _site, problems = load_from_variables(variables, roles_folder, is_slice=True)
        return [*problems_of_run(extra_variables(variables), variables), *problems]
    try:
        site_of_run(variables, roles_folder)
    except SiteError as error:
        return error.problems
    return []


def plan_of_run(variables: Mapping[str, t.Any], roles_folder: Path = ROLES_FOLDER) -> PlannedRun:
    """Return the plan that this run applies; the first action that asks for it checks it and lays it out.

    Args:
        variables: the variables of a task of a run with a plan.
        roles_folder: where the roles are.

    Raises:
        PlanError: the plan may not be applied.
        SiteError: the inventory has problems.
    """
    run = PlannedRun(RunFolder())
    run.ensure(plan_file(variables), lambda: site_of_run(variables, roles_folder))
    return run


def _remembered(variables: Mapping[str, t.Any], *more: object) -> Remembered | None:
    hostvars = variables["hostvars"]
    try:
        return Remembered(hostvars._inventory, hostvars._variable_manager.extra_vars, *more)
    except AttributeError:  # another ansible-core
        return None


def _hosts(variables: Mapping[str, t.Any]) -> list[str]:
    """Return the names of all hosts of the inventory, whatever the limit."""
    groups = variables.get("groups") or {}
    return [str(name) for name in groups.get("all", ())]
