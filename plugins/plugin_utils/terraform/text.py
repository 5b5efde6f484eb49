# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What was filled in, as lines of an inventory."""

from __future__ import annotations

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.fill import Filled
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.found import Found

_WIDE = 200


def as_text(found: Found, filled: Filled) -> str:
    """Return variables as YAML; what is for people stands in comments.

    Args:
        found: what was read.
        filled: what came of it.
    """
    lines = [f"# Of {found.form}: {len(found.known)} resources in Azure."]
    if filled.variables:
        lines.append("# What is filled in, and where it comes from. What was written before stays in it.")
    else:
        lines.append("# There is nothing to fill in.")
    lines += [f"#   {place}: {where}" for place, where in sorted(filled.sources.items())]
    for note in filled.notes:
        first, *more = note.splitlines()
        lines += [f"# ! {first}", *(f"#   {line.strip()}" for line in more)]
    if filled.variables:
        lines.append(
            yaml.safe_dump(filled.variables, sort_keys=True, width=_WIDE, allow_unicode=False).rstrip()
        )
    return "\n".join(lines) + "\n"
