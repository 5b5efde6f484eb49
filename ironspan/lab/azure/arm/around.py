# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is asked beside resources: versions of images, and budgets, which the lab keeps and nobody watches."""

from __future__ import annotations

import re

from ironspan.lab.azure.arm.errors import ArmError, not_found
from ironspan.lab.azure.arm.state import State
from ironspan.lab.azure.arm.web import Answer, Asked

_VERSIONS = re.compile(
    r"(?P<place>/subscriptions/[^/]+/providers/Microsoft\.Compute/locations/(?P<location>[^/]+))/publishers"
    r"/(?P<publisher>[^/]+)/artifacttypes/vmimage/offers/(?P<offer>[^/]+)/skus/(?P<sku>[^/]+)/versions\Z",
    re.IGNORECASE,
)
_BUDGET = re.compile(
    r"/subscriptions/[^/]+/providers/Microsoft\.Consumption/budgets/(?P<name>[^/]+)\Z", re.IGNORECASE
)
#: Versions of every image that there is here, the newest first.
_IMAGES = ("24.04.202610140", "24.04.202609020")
_CATEGORIES, _GRAINS = ("Cost",), ("Monthly", "Quarterly", "Annually")


class Around:
    """Answers such requests."""

    def __init__(self, state: State) -> None:
        self._state = state

    def answer(self, asked: Asked) -> Answer | None:
        """Answer a request; None when it is about something else."""
        if asked.method == "GET" and (found := _VERSIONS.match(asked.path)):
            most = int(asked.query.get("$top") or len(_IMAGES))
            listed = [
                {"id": f"{asked.path}/{one}", "name": one, "location": found["location"]}
                for one in _IMAGES[:most]
            ]
            # A bare list: this one has no pages.
            return Answer(200, listed)
        budget = _BUDGET.match(asked.path)
        return self._budget(asked, budget["name"]) if budget is not None else None

    def _budget(self, asked: Asked, name: str) -> Answer:
        budgets = self._state.budgets
        if asked.method == "PUT":
            about = asked.body.get("properties") or {}
            period = about.get("timePeriod") or {}
            good = about.get("category") in _CATEGORIES and about.get("timeGrain") in _GRAINS
            # A budget begins on the first of a month (Azure REST reference, Budgets - Create Or Update).
            if not good or not about.get("amount") or str(period.get("startDate"))[8:10] != "01":
                raise ArmError(400, "400", "Invalid budget: category, amount, time grain or start date.")
            new = name not in budgets
            budgets[name] = {"id": asked.path, "name": name, "properties": about}
            return Answer(201 if new else 200, budgets[name])
        if name not in budgets:
            raise not_found(asked.path)
        if asked.method == "DELETE":
            del budgets[name]
            return Answer(200, None)
        return Answer(200, budgets[name])
