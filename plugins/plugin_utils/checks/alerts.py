# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Alerts that launch jobs: one host takes them, and there is a controller to launch at."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

GROUP, HOST = "events", "awx_host"


def check_taken(draft: Draft) -> None:
    """The group has one host at most, and the site a controller."""
    members = draft.members(GROUP)
    if len(members) > 1:
        named = ", ".join(host.name for host in members)
        message = f"has {named}, and each of them would launch every job"
        draft.problems.add(draft.member_place(GROUP, members[1].name), GROUP, message, "leave one host in it")
    if members and not draft.site_value(HOST):
        message = f"is empty, and alerts launch jobs there: {members[0].name} is in the group {GROUP}"
        draft.problems.add(
            draft.site_place(HOST), HOST, message, f"write the URL, or empty the group {GROUP}"
        )


CHECKS = (check_taken,)
