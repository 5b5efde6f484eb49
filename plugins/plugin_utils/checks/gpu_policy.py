# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site does otherwise about what GPUs report: known events, one class each, and a reason."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import entries

OVERRIDES = "gpu_policy_overrides"


def check_overrides(draft: Draft) -> None:
    """Each override stands for itself, and is the only one of its event."""
    if not draft.site_value(OVERRIDES):
        return
    # Only sites that have some pay for reading the policy.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import (
        CLASSES,
        PolicyError,
        shipped,
    )

    seen: dict[object, str] = {}
    for entry in entries(draft, OVERRIDES):
        if entry.text("class") not in CLASSES or not entry.text("reason"):
            continue  # It has been named as none of the choices, or as empty.
        try:
            event, _ = shipped().override(entry.value)
        except PolicyError as error:
            entry.problem("event", error.message, error.remedy)
            continue
        if event in seen:
            entry.problem("event", f"{event} is there already, as {seen[event]}", "write one class for it")
        seen[event] = entry.path


CHECKS = (check_overrides,)
