# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether a plan may be applied to a site, now."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import approvals
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.build import kinds_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan, when
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import PlanPolicy, Site

FUTURE_S = 300
"""How far a plan's time may lie ahead of the controller's clock."""


def stricter(plan: Plan, policy: PlanPolicy) -> PlanPolicy:
    """Return the stricter of the policy that a plan was made under and that of the inventory.

    Whoever altered the plan can only make it stricter; whoever gives another inventory as well.

    Args:
        plan: the plan.
        policy: of the inventory.
    """
    made = plan.content["policy"]
    kinds = [
        {str(kind) for kind in kinds}
        for count, kinds in (
            (policy.approvals, policy.unapproved_kinds),
            (made["approvals"], made["unapproved_kinds"]),
        )
        if count
    ]
    return dataclasses.replace(
        policy,
        approvals=max(policy.approvals, made["approvals"]),
        unapproved_kinds=tuple(sorted(set.intersection(*kinds))) if kinds else (),
    )


def approvals_needed(plan: Plan, policy: PlanPolicy) -> int:
    """Return how many people must approve a plan.

    None only where the site has kinds that need no approval and the plan says that it changes nothing else.
    That is a claim: such a plan is held to these kinds by what is really done, see ``free_kinds``.
    """
    policy = stricter(plan, policy)
    free = set(policy.unapproved_kinds)
    return 0 if free and kinds_of(plan.content) <= free else policy.approvals


def free_kinds(plan: Plan, policy: PlanPolicy, names: Sequence[str]) -> list[str] | None:
    """Return the only kinds that a plan may change, because too few people approved it; None for no limit.

    Args:
        plan: the plan, which ``check`` has accepted.
        policy: of the inventory.
        names: of those who approved it.
    """
    policy = stricter(plan, policy)
    return None if len(names) >= policy.approvals else sorted(policy.unapproved_kinds)


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
    expires = min(content["expires"], content["created"] + int(site.plan.expires_hours * 3600))
    if now >= expires:
        raise PlanError(f"the plan expired at {when(expires)}", again)
    if content["created"] > now + FUTURE_S:
        raise PlanError(
            f"the plan was made at {when(content['created'])}, which is still to come",
            "correct the clock of this machine, or of the one that made the plan",
        )
    return _approved_by(plan, path, site)


def _approved_by(plan: Plan, path: Path, site: Site) -> list[str]:
    """Return who approved; signatures are of the whole file, and checked wherever approvals are asked for."""
    policy = stricter(plan, site.plan)
    if not policy.approvals:
        return []
    if not policy.allowed_signers:
        raise PlanError(
            f"the plan was made where {policy.approvals} approvals are needed, and this inventory does not "
            "say whose (site_plan_allowed_signers)",
            "give the inventory that the plan was made with (-i)",
        )
    needed = approvals_needed(plan, site.plan)
    found = approvals.check(plan.data, path, Path(policy.allowed_signers).expanduser())
    if len(found.names) < needed:
        void = f" ({'; '.join(found.void)})" if found.void else ""
        have = ", ".join(found.names) or "nobody"
        raise PlanError(
            f"the plan needs {needed} approvals and has {len(found.names)}: {have}{void}",
            f"let allowed signers run: ironspan approve {shlex.quote(str(path))}",
        )
    return found.names
