# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host is reset only when the site was named, or the host in a run that may destroy, or whose plan does."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import consent
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import ExchangeError


class Planned:
    """A plan that resets w2."""

    def head(self) -> dict[str, t.Any]:
        return {"steps": [{"action": "drain", "target": "w1"}, {"action": "reset", "target": "w2"}]}


@pytest.mark.parametrize(
    ("host", "given", "variables", "accepted"),
    [
        ("w1", "site", {}, True),
        ("w1", "", {}, False),
        ("w1", "other", {"ironspan_allow_destructive": True}, False),
        ("w1", "", {"ironspan_allow_destructive": True}, False),
        ("w1", "w1", {}, False),
        ("w1", "w1", {"ironspan_allow_destructive": True}, True),
        ("w1", "w1", {"ironspan_allow_destructive": "true"}, True),
        ("w1", "w1", {"ironspan_allow_destructive": "no"}, False),
        ("w1", "w2", {"ironspan_allow_destructive": True}, False),
        ("w1", "w1", {"ironspan_plan": "p"}, False),
        ("w2", "w2", {"ironspan_plan": "p"}, True),
    ],
)
def test_consent(
    host: str, given: str, variables: dict[str, t.Any], accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = Planned() if "ironspan_plan" in variables else None
    monkeypatch.setattr(consent, "plan_for", lambda given: planned if given is variables else None)
    if accepted:
        consent.insist_on_consent("site", host, given, variables)
        return
    if given == host:
        consent.insist_on_consent("site", host, given, variables, check_mode=True)
    with pytest.raises(ExchangeError, match="ironspan_reset_site=site"):
        consent.insist_on_consent("site", host, given, variables)
