# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Checks the whole inventory and writes every host's document, without contacting a host."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import (
    extra_variables,
    problems_before_reading,
    site_of_run,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue import OPERATIONS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import CONSENT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import PREFIX
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.many_hosts import prepare
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.wanted import without_effect
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
    CONSENT_VARIABLE,
    named_hosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.scope import rendered_hosts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import site_lock
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.build import lost_in_the_cluster
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import (
    PlannedRun,
    claimed_digest,
    insist_on_a_plan,
    plan_file,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import slices
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import (
    value_of,
    warnings_of_run,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limit import LEFT_OUT, limited_to
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import (
    Problem,
    SiteError,
    said_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

PURPOSES = ("read", "check", "plan", "apply", "reset")
CHECK = "check"
SHOWN = 50
"""Expressions that a check names."""
MOVED = "The inventory was changed after the plan was made; the plan is applied as it is."

bind_children()
prepare()  # both here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.validate``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True
    _VALID_ARGS = frozenset({"roles_folder", "purpose", "operation", "leaving"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Validate; the message has all problems, the result a summary."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        roles_folder = Path(self._task.args.get("roles_folder") or ROLES_FOLDER)
        purpose = self._task.args.get("purpose") or CHECK
        if purpose not in PURPOSES:
            raise AnsibleActionFail(f"purpose is {purpose!r}; write one of {', '.join(PURPOSES)}")
        given = extra_variables(task_vars or {})
        outdated = warnings_of_run(given)
        if purpose == "read":
            problems = problems_before_reading(task_vars or {}, roles_folder)
            named = {"site": str((task_vars or {}).get("site_name") or "")}
            return {**result, **named, **_refused(problems), **_warned(outdated)}
        changing = purpose in ("apply", "reset") and not self._task.check_mode
        # A reset and a plan have nothing that needs localhost but what runs under any limit.
        hints = [LEFT_OUT] if purpose == "apply" and limited_to(task_vars or {}) is not None else []
        hints += outdated
        file = plan_file(task_vars or {}) if purpose != "reset" else ""
        try:
            site = site_of_run(task_vars or {}, roles_folder)
            site.leaving = frozenset(host.name for host in named_hosts(site, self._task.args.get("leaving")))
            if site.is_slice and not file:
                raise PlanError(slices.MESSAGE, slices.REMEDY)
            if purpose == "apply" and changing and not file:
                insist_on_a_plan(site.plan.approvals)
            if changing:
                shared = claimed_digest(file) if site.is_slice else ""
                site_lock.take_for_run(RunFolder().path, site.pki_store, shared)
            if file:
                operation = str(self._task.args.get("operation") or "")
                return {**result, **_planned(file, site, changing, operation, hints, task_vars or {})}
            renderer, authorities = renderer_for(
                site, roles_folder, make=purpose != CHECK and not self._task.check_mode
            )
            operation = str(self._task.args.get("operation") or "")
            only = rendered_hosts(operation, site, task_vars or {}, planning=purpose == "plan")
            documents = RunFolder().write(site, renderer, only=only)
            authorities.uid()  # a site whose documents nobody needs is given its identity here
            hints += without_effect(site, authorities.encryption())
            if _brings_new_hosts(operation) or "store" in authorities.made:
                RunFolder().expect_bare_hosts()
        except PlanError as error:
            return {**result, "failed": True, "msg": f"{error}; no host was contacted."}
        except SiteError as error:
            return {**result, **_refused(error.problems)}
        return {
            **result,
            "changed": bool(authorities.made),
            "site": site.name,
            "hosts": len(site.hosts),
            "places": places_of(site),
            "documents": documents,
            "made": authorities.made,
            **(_expressions(site) if purpose == CHECK else {}),
            **_warned(hints),
        }


def places_of(site: Site) -> dict[str, dict[str, list[str]]]:
    """Return the hosts of a site by side of the link and rack, for reports."""
    places: dict[str, dict[str, list[str]]] = {}
    for host in site.hosts.values():
        places.setdefault(host.site_group, {}).setdefault(host.rack, []).append(host.name)
    return places


def _expressions(site: Site) -> dict[str, t.Any]:
    """Return what a check says of values that are computed; nothing where there are none."""
    found = site.expressions
    if not found:
        return {}
    count = "1 value is an expression" if len(found) == 1 else f"{len(found)} values are expressions"
    notes = [
        f"{count}, computed here whenever the inventory is read:",
        *(f"  {each}" for each in found[:SHOWN]),
    ]
    notes += [f"  and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return {"expressions": list(found), "notes": notes}


def _brings_new_hosts(operation: str) -> bool:
    declared = OPERATIONS.get(operation)
    return declared is not None and declared.new_hosts


def _refused(problems: Sequence[Problem]) -> dict[str, t.Any]:
    """Return the failure that names all problems; nothing when there are none."""
    if not problems:
        return {"changed": False}
    asked = all(problem.path.startswith(PREFIX) for problem in problems)
    return {"failed": True, "msg": said_of(problems, "what is asked for" if asked else "the inventory")}


def _warned(warnings: list[str]) -> dict[str, t.Any]:
    return {"warnings": warnings} if warnings else {}


def insist_on_consent(content: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any]) -> None:
    """Refuse here, before any host is contacted, what a phase at the end of the run would refuse."""
    lost = lost_in_the_cluster(content)
    if lost and not value_of(variables, CONSENT_VARIABLE):
        raise PlanError(
            f"the plan deletes objects of the cluster, and what is in brackets is lost: {', '.join(lost)}",
            f"if that is what you want, {CONSENT}",
        )


def _planned(
    file: str,
    site: Site,
    changing: bool,
    operation: str,
    hints: list[str],
    variables: t.Mapping[str, t.Any],
) -> dict[str, t.Any]:
    run = PlannedRun(RunFolder())
    plan = run.lay_out(file, site, keeping=changing, operation=operation)
    head = run.head()
    if changing and operation == SITE:
        insist_on_consent(plan.content, variables)
    warnings = [*hints, *([MOVED] if head["inventory_moved"] else [])]
    return {
        "changed": False,
        "site": site.name,
        "hosts": len(site.hosts),
        "places": places_of(site),
        "documents": len(plan.hosts),
        "made": [],
        "plan": plan.digest,
        "approved_by": head["approved_by"],
        "inventory_moved": head["inventory_moved"],
        "kept": head["kept"],
        "slice": site.is_slice,
        **_warned(warnings),
    }
