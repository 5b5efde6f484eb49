# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Works out what an operation has to do, and refuses what must not be done."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import (
    extra_variables,
    plan_of_run,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import CONSENT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import (
    CONSENT_VARIABLE,
    Context,
    arguments_of,
    bound_to,
    compared_hosts,
    hosts_in_any_order,
    insist_on_the_same,
    insist_on_the_state,
    left_for_site,
    remote_kinds,
    step_groups,
    steps_of,
    targets_of,
    touches_cluster,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.workers import forced
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.once import Use
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import (
    PlannedRun,
    insist_on_a_plan,
    plan_file,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limit import outside
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import (
    OperationError,
    Step,
    unplanned,
    without_consent,
)

TARGETS_GROUP = "__ironspan_targets"
NAMED_GROUP = "__ironspan_named"
COMPARED_GROUP = "__ironspan_compared"


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.operation``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "name": {"type": "str", "required": True},
        "mode": {"type": "str", "choices": ["apply", "plan"], "default": "apply"},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Work out the steps; insist on consent and on the plan."""
        name, planning = arguments["name"], arguments["mode"] == "plan"
        if session.site.is_slice:
            raise OperationError(
                f"{name}.yml works on several hosts in turn, and this job sees a slice of them",
                "run it in a job that is not sliced",
            )
        given = arguments_of(name, extra_variables(self._variables))
        planned = plan_of_run(self._variables) if plan_file(self._variables) and not planning else None
        if planned:
            insist_on_the_same(given, planned.head()["arguments"])
        context = Context(session, self._variables, name)
        if planned:
            insist_on_the_state(name, context, planned.head()["bound"])
        use = Use(context.api(), planned.head()) if planned and forced(context) else None
        if use:
            use.insist_on_the_same_nodes()
        steps = steps_of(name, context)
        if use:
            use.insist_that_something_is_left(steps)
        targets = targets_of(steps)
        # In a check and while planning nothing is destroyed, so it is only shown.
        if not planning and not self._task.check_mode:
            self._insist(session.site, name, steps, planned)
            self._insist_on_reach(session.site, name, targets)
        compared = compared_hosts(name, context, steps) if planning else []
        if planning:
            RunFolder().put_operation(
                {
                    "name": name,
                    "arguments": given,
                    "bound": bound_to(name, context),
                    "steps": [step.as_dict() for step in steps],
                    "hosts": compared,
                    "remote": list(remote_kinds(name)),
                    "cluster": touches_cluster(name),
                }
            )
        named = [host.name for host in context.hosts]
        groups = ((TARGETS_GROUP, targets), (NAMED_GROUP, named), (COMPARED_GROUP, compared))
        for group, hosts in (*groups, *step_groups(name, steps).items()):
            for host in hosts:
                self.add_host(host, parent_group_names=[group])
        for step in steps:
            self.say(f"{step.what}{f' ({step.arithmetic})' if step.arithmetic else ''}")
        return {
            "changed": False,
            "steps": [step.as_dict() for step in steps],
            "hosts": targets,
            "notes": left_for_site(name, steps),
            **({} if steps or compared else {"msg": "Nothing to do."}),
        }

    def _insist_on_reach(self, site: Site, name: str, targets: list[str]) -> None:
        """Refuse to do half of the steps: those left out by a limit may be what the others wait for."""
        left_out = outside(self._variables, [host for host in targets if host in site.hosts])
        if left_out:
            raise OperationError(
                f"{name}.yml has to work on {', '.join(left_out)}, and --limit leaves them out",
                "give no limit; where a playbook takes ironspan_hosts, name the hosts with that",
            )

    def _insist(self, site: Site, name: str, steps: list[Step], planned: PlannedRun | None) -> None:
        consented = value_of(self._variables, CONSENT_VARIABLE)
        if planned:
            free_order = hosts_in_any_order(name)
            more = unplanned(steps, planned.operation(name), hosts_in_any_order=free_order)
            if more:
                raise OperationError(
                    f"the plan does not have: {'; '.join(step.what for step in more)}", "make a new plan"
                )
            free = planned.head()["free"]
            if steps and free is not None and name not in free:
                raise OperationError(
                    f"the plan was not approved, and these steps need it: "
                    f"{'; '.join(step.what for step in steps)}",
                    "make a new plan, and let it be approved",
                )
        elif steps:
            insist_on_a_plan(site.plan.approvals)
        refused = without_consent(steps, consented)
        if refused:
            raise OperationError(
                f"this cannot be undone: {'; '.join(step.what for step in refused)}",
                f"if that is what you want, {CONSENT}",
            )
