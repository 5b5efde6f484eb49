# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the actions that talk to the cluster have in common."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Sequence

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import (
    plan_of_run,
    site_of_run,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_report
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ClusterError,
    UnreachableError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import (
    insist_on_a_plan,
    plan_file,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.limit import limited_to
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError, said_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]
PATIENCE_OF_A_CHECK = 2.0
"""Seconds that a check waits for an API that may not have been built yet."""

bind_children()  # here, because the main process imports this file before it starts workers


class ClusterAction(ActionBase):  # type: ignore[misc]
    """An action that runs on the controller only, once for the whole site.

    A subclass has ``ARGUMENTS`` (an argument spec) and ``visit``.
    """

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {}
    CHANGES_THE_SITE = False
    """Whether it applies what the inventory declares, which a plan fixes and approvals are for."""
    planned: dict[str, t.Any] | None = None
    _variables: t.Mapping[str, t.Any] = {}  # replaced, never changed

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Check the arguments, open the site, do the work; errors become messages with a remedy."""
        result: Result = super().run(tmp, task_vars)
        self._variables = task_vars or {}
        _, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENTS)
        try:
            patience = PATIENCE_OF_A_CHECK if self._task.check_mode else 3600
            session = Session(site_of_run(task_vars or {}), constants.DEFAULT_LOCAL_TMP, patience)
            if session.site.is_slice:
                self._know_the_rest(task_vars or {}, session)
            self.planned = self._planned(task_vars or {}, session)
            if self._task.check_mode and not session.store.exists():
                return {**result, "changed": False, "msg": "Not checked: this site was not built yet."}
            result.update(self.visit(session, arguments))
        except UnreachableError as error:
            if not self._task.check_mode:
                return {**result, "failed": True, "msg": str(error)}
            # What would be built by the phases before is not there in a check.
            result.update(changed=False, msg=f"Not checked: {error}")
        except SiteError as error:
            result.update(failed=True, refused=True, msg=said_of(error.problems))
        except (ClusterError, PkiError, PlanError) as error:
            result.update(failed=True, msg=str(error))
        return result

    def _know_the_rest(self, variables: dict[str, t.Any], session: Session) -> None:
        """Tell the session of a slice what its inventory does not: the plan has it."""
        cluster = plan_of_run(variables).head()["cluster"]
        if "addresses" not in cluster or "api_address" not in cluster:
            raise PlanError("the plan does not have what slices need", "make a new plan")
        session.site.api_address = cluster["api_address"]
        session.other_addresses = cluster["addresses"]

    def _planned(self, variables: dict[str, t.Any], session: Session) -> dict[str, t.Any] | None:
        """Return what the plan of this run says of the cluster, None without one."""
        if not self.CHANGES_THE_SITE:
            return None
        if plan_file(variables):
            head = plan_of_run(variables).head()
            return {**head["cluster"], "free": head["free"]}
        if not self._task.check_mode:
            insist_on_a_plan(session.site.plan.approvals)
        return None

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Do the work.

        Args:
            session: the site's cluster.
            arguments: checked, defaults filled in.

        Returns:
            What to add to the result.
        """
        raise NotImplementedError

    def is_about(self, host: str, site: Site) -> bool:
        """Tell whether this run may change a host: not outside of its slice, or of ``--limit``."""
        limited = limited_to(self._variables)
        return (not site.is_slice or host in site.hosts) and (limited is None or host in limited)

    def group(self, name: str, layer: str = "") -> list[str]:
        """Return the hosts that this run has put into a group, of which a layer may be part of the name."""
        return list((self._variables.get("groups") or {}).get(name.format(layer=layer)) or ())

    def say(self, text: str) -> None:
        """Show progress while the task runs."""
        Display().display(f"  {text}")

    def reported(self, report: t.Any, text: str, file: str) -> Result:
        """Show a report that nothing was changed for, and write it where somebody asked for it.

        Args:
            report: for programs.
            text: the same for people, in lines.
            file: where to write it, empty for nowhere.
        """
        for line in text.splitlines():
            self.say(line)
        write_report(file, report)
        return {"changed": False, "report": report, "text": text}


def seconds(value: t.Any, name: str, least: int = 1, most: int = 3600) -> int:
    """Return a number of seconds in range, or fail the action."""
    if not least <= int(value) <= most:
        raise AnsibleActionFail(f"{name} is {value}; write {least} to {most} seconds")
    return int(value)


def insist_on_nodes(names: Sequence[str], known: Collection[str]) -> None:
    """Fail the action when the argument ``hosts`` names hosts that are no nodes.

    Args:
        names: what was given.
        known: the site's nodes.
    """
    unknown = [name for name in names if name not in known]
    if unknown:
        raise AnsibleActionFail(
            f"hosts has {', '.join(unknown)}; list hosts of the groups control_plane and nodes"
        )
