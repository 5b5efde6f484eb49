# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Terraform says there is, beside what an inventory says: filled in, and contradicted, with places."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.azure_estate import called, place_in
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import given
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import plain
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.conflicts import conflicts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.fill import Filled, fill
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.found import Found


def compared(draft: Draft, found: Found) -> tuple[Filled, list[Problem]]:
    """Return what is filled in, and what contradicts.

    Values that their own declarations refuse are problems too: nothing is compared with them.

    Args:
        draft: values of an inventory.
        found: what Terraform says.
    """
    options = draft.specification.options
    names = [name for name in options if name.startswith("azure_")]
    refused = [problem for problem in draft.problems if problem.path.startswith("azure_")]
    written = {
        name: plain(host.values.get(name))
        for name in (*names, "site_api_endpoint")
        if (host := draft.writer(name)) is not None
    }
    if refused:
        return Filled({}, {}, []), sorted(refused)
    variables = {name: value for name in options if (value := draft.site_value(name)) is not None}
    judged = given(variables, {})
    faults = conflicts(found, judged.values, written, judged.estate)
    problems = [
        Problem(*place_in(draft, path), called(path), message, remedy) for path, message, remedy in faults
    ]
    return fill(found, written), sorted(problems)
