# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which values of an inventory are computed, for people who want to know before they let it be read."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.expressions import first_expression
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import shown
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.resolve import needs_template


def expressions_of(draft: Draft) -> tuple[str, ...]:
    """Return which values of an inventory are expressions: where each stands, and what is written.

    Args:
        draft: the site; secrets are left out.
    """
    options = draft.specification.options
    found = {}
    for key, value in draft.inventory.every_setting():
        secret = str(key) in options and options[str(key)].no_log
        if (
            isinstance(value, str | Mapping | list)
            and needs_template(value)
            and (text := first_expression(value))
        ):
            place = draft.setting_place(key, value)
            found[place, str(key)] = "an expression" if secret else text
    return tuple(
        f"{shown(place.file)}:{place.line}: {name}: {text}" for (place, name), text in sorted(found.items())
    )
