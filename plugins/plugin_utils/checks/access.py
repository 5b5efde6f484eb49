# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Access for a limited time: somebody can ask, somebody else approve, and there is something to ask for."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import entries

ROLES = "access_roles"
GROUPS = {"access_requester_groups": "nobody can ask", "access_approver_groups": "nobody can approve"}
"""Both are in the kind's schema too, see roles/access/objects.yml.j2."""


def check_something_is_there(draft: Draft) -> None:
    """With the switch on, requests can be made, approved and granted."""
    if not draft.site_value("access_enabled"):
        return
    for variable, consequence in {ROLES: "nothing can be asked for", **GROUPS}.items():
        if draft.site_value(variable) == []:
            draft.problems.add(
                draft.site_place("access_enabled"),
                variable,
                f"is empty, so {consequence}",
                f"write '{variable}: ...'",
            )


def check_roles(draft: Draft) -> None:
    """Every role is named once."""
    seen = set()
    for entry in entries(draft, ROLES):
        role = entry.text("role")
        if "role" in entry.value and not role.strip():
            entry.problem("role", "is empty", "write the name of a ClusterRole")
        elif role in seen:
            entry.problem("role", f"{role} is there twice", "write it once")
        seen.add(role)


def check_groups(draft: Draft) -> None:
    """Groups are of people: system:authenticated would let every pod approve."""
    for variable in GROUPS:
        names = draft.site_value(variable)
        host = draft.writer(variable)
        for index, name in enumerate(names if isinstance(names, list) else ()):
            if str(name).startswith("system:") or not str(name).strip():
                place = draft.inner_place(host, variable, index) if host else draft.home()
                message = f"{name!r} is no group of people"
                draft.problems.add(
                    place, f"{variable}[{index}]", message, "write one of your identity provider"
                )


CHECKS = (check_something_is_there, check_roles, check_groups)
