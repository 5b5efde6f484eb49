# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An etcd of their own for events: nobody else says where events go."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft

ENABLED, ARGUMENTS, FLAG = "etcd_events_enabled", "control_plane_api_server_args", "etcd-servers-overrides"


def check_flag(draft: Draft) -> None:
    """The flag of the API servers is written here or by the site, not by both."""
    if not draft.site_value(ENABLED):
        return
    for host in draft.members("control_plane"):
        if FLAG in (host.values.get(ARGUMENTS) or {}):
            draft.problems.add(
                draft.inner_place(host, ARGUMENTS, FLAG),
                f"{ARGUMENTS}.{FLAG}",
                f"says where events go, and so does {ENABLED}",
                f"take it out, or write {ENABLED}: false",
            )
            return


CHECKS = (check_flag,)
