# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What pods have to reach of an estate, as entries of ``egress_allow``.

An entry opens something to pods, so somebody answers for it until a day: these two come from people.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.endpoints import services
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate


def missing_entries(
    estate: Estate, written: Iterable[Mapping[str, t.Any]], owner: str, expires: str
) -> list[dict[str, t.Any]]:
    """Return the entries that are not written yet: accounts of weights, and what others made.

    The vault and the backup's account are none of pods' business.

    Args:
        estate: of the site.
        written: entries of ``egress_allow``.
        owner: who answers for the new ones.
        expires: their last day.
    """
    known = {str(entry.get("destination") or "").lower() for entry in written}
    return [
        {
            "destination": one.host,
            "ports": list(one.ports),
            "owner": owner,
            "reason": f"private endpoint of {one.what}",
            "expires": expires,
        }
        for one in services(estate)
        if one.pods and one.host not in known
    ]
