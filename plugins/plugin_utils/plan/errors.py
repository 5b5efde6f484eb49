# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Why a plan is not made or not applied."""

from __future__ import annotations


class PlanError(Exception):
    """A plan cannot be used.

    Args:
        message: what is wrong, without a full stop.
        remedy: what to do about it, an imperative clause.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy
