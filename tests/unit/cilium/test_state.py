# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether Cilium has taken its policies: what its operator says, and when it says nothing."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import state
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

Object = dict[str, t.Any]


class Cluster:
    """An API that says one thing after the other; the last one for ever."""

    def __init__(self, *answers: list[Object]) -> None:
        self.answers = list(answers)
        self.waited = 0.0
        self.known_after = 0.0

    def get(self, path: str) -> Object:
        """Return the policies of this moment."""
        if path.endswith("/ciliumclusterwidenetworkpolicies"):
            return {"items": []}
        return {"items": self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}

    def find(self, path: str) -> Object | None:
        """Return the definition of a kind."""
        if self.waited < self.known_after:
            return None if self.waited < self.known_after - 1 else {"status": {}}
        return {"status": {"conditions": [{"type": "Established", "status": "True"}]}}

    def pause(self, seconds: float) -> None:
        """Note how long somebody waited."""
        self.waited += seconds


def api(cluster: Cluster) -> Api:
    """Return the stand-in as what it stands for."""
    return t.cast("Api", cluster)


def policy(name: str, status: str = "", message: str = "") -> Object:
    """Return a policy with the operator's condition; without a status it has said nothing."""
    conditions = [{"type": "Other", "status": "False"}]
    if status:
        conditions.append({"type": "Valid", "status": status, "message": message})
    return {"metadata": {"name": name, "namespace": "team"}, "status": {"conditions": conditions}}


def test_a_rejected_policy_is_named_with_the_reason() -> None:
    cluster = Cluster(
        [policy("good", "True"), policy("bad", "False", "rule must have at least one of Ingress")]
    )
    policies = state.judged(api(cluster), 10, 3, cluster.pause)
    assert [(one.name, one.valid) for one in policies] == [
        ("CiliumNetworkPolicy team/bad", False),
        ("CiliumNetworkPolicy team/good", True),
    ]
    assert state.rejections(policies) == [
        "CiliumNetworkPolicy team/bad: rule must have at least one of Ingress"
    ]
    assert cluster.waited == 3


def test_silence_is_no_consent() -> None:
    cluster = Cluster([policy("new"), {"metadata": {"name": "wide"}}])
    policies = state.judged(api(cluster), 10, 0, cluster.pause)
    assert cluster.waited == 10
    assert state.rejections(policies) == [
        "CiliumClusterwideNetworkPolicy wide: Cilium's operator has not looked at it",
        "CiliumNetworkPolicy team/new: Cilium's operator has not looked at it",
    ]


def test_the_operator_is_given_time() -> None:
    cluster = Cluster([policy("new")], [policy("new")], [policy("new", "True")])
    assert state.rejections(state.judged(api(cluster), 60, 0, cluster.pause)) == []
    assert cluster.waited == 2


def test_what_was_said_of_the_former_text_does_not_count() -> None:
    cluster = Cluster([policy("changed", "True")], [policy("changed", "False", "no")])
    assert state.rejections(state.judged(api(cluster), 60, 3, cluster.pause)) == [
        "CiliumNetworkPolicy team/changed: no"
    ]


def test_no_policies_are_all_in_force() -> None:
    cluster = Cluster([])
    assert state.judged(api(cluster), 60, 0, cluster.pause) == []
    assert cluster.waited == 0


def test_kinds_are_waited_for() -> None:
    cluster = Cluster([])
    cluster.known_after = 5
    state.wait_for_kinds(api(cluster), 60, cluster.pause)
    assert cluster.waited == 5
    cluster.known_after = 1000
    with pytest.raises(ClusterError, match="does not know CiliumNetworkPolicy, CiliumClusterwide"):
        state.wait_for_kinds(api(cluster), 60, cluster.pause)
