# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether a plan may be applied to a site, now."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import approvals
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.build import kinds_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan, when
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import PlanPolicy, Site

FUTURE_S = 300
"""How far a plan's time may lie ahead of the controller's clock."""


def approvals_needed(plan: Plan, policy: PlanPolicy) -> int:
    """Return how many people must approve a plan: none when it only changes what needs no approval."""
    return policy.approvals if kinds_of(plan.content) - set(policy.unapproved_kinds) else 0


def check(plan: Plan, path: Path, site: Site, now: float, operation: str = "") -> list[str]:
    """Insist that a plan is for this site, has not expired and is approved.

    Args:
        plan: read from its file, so its digest is right.
        path: that file; signatures are beside it.
        site: from the inventory, its uid from the PKI store.
        now: seconds since 1970.
        operation: what the run does, empty when it does not say (a phase alone).

    Returns:
        The names of those who approved.

    Raises:
        PlanError: with what is wrong first.
    """
    content = plan.content
    again = "make a new plan"
    if content["site"]["name"] != site.name:
        raise PlanError(
            f"the plan is for the site {content['site']['name']!r}, this inventory is {site.name!r}",
            "give the inventory that the plan was made with",
        )
    if content["site"]["uid"] != site.uid:
        raise PlanError(
            f"the plan is for another {site.name!r}: its identity is not the one in {site.pki_store}", again
        )
    if operation and content["operation"] != operation:
        raise PlanError(
            f"the plan is for {content['operation']}.yml, this run is {operation}.yml",
            f"apply it with 'ironspan apply', or with playbooks/{content['operation']}.yml",
        )
    if now >= content["expires"]:
        raise PlanError(f"the plan expired at {when(content['expires'])}", again)
    if content["created"] > now + FUTURE_S:
        raise PlanError(
            f"the plan was made at {when(content['created'])}, which is still to come",
            "correct the clock of this machine, or of the one that made the plan",
        )
    needed = approvals_needed(plan, site.plan)
    if not needed:
        return []
    found = approvals.check(plan.data, path, Path(site.plan.allowed_signers).expanduser())
    if len(found.names) < needed:
        void = f" ({'; '.join(found.void)})" if found.void else ""
        have = ", ".join(found.names) or "nobody"
        raise PlanError(
            f"the plan needs {needed} approvals and has {len(found.names)}: {have}{void}",
            f"let allowed signers run: ironspan approve {path}",
        )
    return found.names
