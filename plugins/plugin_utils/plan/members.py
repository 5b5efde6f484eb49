# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""etcd members and control planes in a plan: changed in one run, because they wait for each other."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

Verdict = dict[str, t.Any]


def changes_membership(answer: Mapping[str, t.Any]) -> bool:
    """Tell whether anything is to be done in a layer whose hosts depend on each other.

    Args:
        answer: an assessment, or a host's entry in a plan.
    """
    entries = (*(answer.get("changes") or ()), *(answer.get("pending") or ()))
    return any(str(entry["resource"]).split("/", 1)[0] in all_layers().dependent for entry in entries)


def members_of(hosts: Mapping[str, Mapping[str, t.Any]]) -> set[str]:
    """Return the hosts of a plan that it changes as members."""
    return {name for name, entry in hosts.items() if changes_membership(entry)}


def slice_verdict(answer: Mapping[str, t.Any], elsewhere: Sequence[str]) -> Verdict:
    """Judge whether a slice may change a host; a verdict like those of the module.

    Args:
        answer: the host's assessment of now.
        elsewhere: members that the plan changes and that are not in this slice.
    """
    ok = not (elsewhere and changes_membership(answer))
    others = ", ".join(elsewhere[:10])
    return {
        "check": "slice",
        "ok": ok,
        "found": f"a member to be changed, with others in other slices: {others}"
        if not ok
        else "independent",
        "wanted": "all members that the plan changes in one run, which takes them in turn",
        "remedy": ""
        if ok
        else "Apply the plan to them in a job that is not sliced (limit etcd:control_plane:localhost), "
        "then run the slices again.",
    }
