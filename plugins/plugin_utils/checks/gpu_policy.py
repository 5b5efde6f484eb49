# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site says otherwise of what GPUs report and reach: known events and tests, once, with a reason."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import entries

_WITHOUT_FIGURES = ("A01", "A04")
OVERRIDES, REFERENCES = "gpu_policy_overrides", "gpu_policy_references"


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
            entry.problem(error.field, error.message, error.remedy)
            continue
        if event in seen:
            entry.problem("event", f"{event} is there already, as {seen[event]}", "write one class for it")
        seen[event] = entry.path


def check_references(draft: Draft) -> None:
    """Each figure of a preflight stands for itself, and is the only one of its model and test."""
    if not draft.site_value(REFERENCES):
        return
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import PolicyError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.preflight import override

    seen: dict[object, str] = {}
    for entry in entries(draft, REFERENCES):
        value = entry.value.get("value")
        if not entry.text("model") or not entry.text("reason") or not isinstance(value, int) or value < 0:
            continue  # It has been named as empty, or as outside of its range.
        try:
            found = override(entry.value)
        except PolicyError as error:
            entry.problem(error.field, error.message, error.remedy)
            continue
        message = _compares_nothing(found.model, found.test) if found.value else ""
        if message:
            entry.problem("test", message, "write another test, or take the entry out")
            continue
        about = (found.model.lower(), found.test)
        if about in seen:
            message = f"{found.test} of {found.model} is there already, as {seen[about]}"
            entry.problem("model", message, "write one figure for it")
        seen[about] = entry.path


def _compares_nothing(model: str, test: str) -> str:
    """Return why a figure is not compared: A01 has none, A04 that of what is wrong, A10 that of adapters."""
    if test in _WITHOUT_FIGURES:
        return f"{test} is passed or not, and has no figure to reach"
    is_speed = re.fullmatch(r"[0-9]+[Gg]", model) is not None
    if is_speed != (test == "A10"):
        return f"{test} is not of {model}: A10 compares speeds of adapters, such as 10G, and others GPUs"
    return ""


CHECKS = (check_overrides, check_references)
