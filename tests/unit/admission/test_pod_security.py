# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which namespaces are asked about, and what is made of the API server's warnings."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.pod_security import (
    about_to_be_refused,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import built_in_policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object, _warnings
from urllib3 import HTTPResponse

ADMISSION = Admission(built_in_policy(), from_files=False)
HEAD = 'existing pods in namespace "team" violate the new PodSecurity enforce level "restricted:latest"'
ENFORCE = "pod-security.kubernetes.io/enforce"


class FakeApi:
    """Has namespaces, and warns of the pods of each."""

    def __init__(self, record: Object | None = None) -> None:
        self.record = record
        self.asked: list[tuple[str, t.Mapping[str, str]]] = []

    def find(self, path: str) -> Object | None:
        return self.record

    def get(self, path: str) -> Object:
        spaces = {"team": {}, "kube-system": {}, "own": {ENFORCE: "baseline"}, "kube-flannel": {}}
        return {"items": [{"metadata": {"name": name, "labels": labels}} for name, labels in spaces.items()]}

    def request(self, method: str, path: str, body: Object, kind: str, query: t.Mapping[str, str],
                warnings: list[str]) -> bytes:  # fmt: skip
        assert (method, query) == ("PATCH", {"dryRun": "All"}), "nothing is written"
        self.asked.append((path, body["metadata"]["labels"]))
        warnings += ["unknown field", HEAD, "a (and 2 other pods): runAsNonRoot != true", "b: seccompProfile"]
        return b"{}"


def ask(api: FakeApi, admission: Admission | None = ADMISSION) -> list[str]:
    return about_to_be_refused(t.cast("t.Any", api), admission)


def test_pods_of_namespaces_without_a_level_of_their_own_are_named() -> None:
    api = FakeApi()
    assert ask(api) == ["team/a (and 2 other pods): runAsNonRoot != true", "team/b: seccompProfile"]
    assert api.asked == [("/api/v1/namespaces/team", {ENFORCE: "restricted"})]


def test_nobody_is_asked_where_it_is_in_force_or_will_not_be() -> None:
    assert ask(FakeApi(ADMISSION.record())) == []
    assert ask(FakeApi(), None) == []
    security = ADMISSION.policy.pod_security
    for level in ("none", "privileged"):
        policy = Policy(
            **{name: getattr(ADMISSION.policy, name) for name in Policy.__slots__ if name != "pod_security"},
            pod_security=type(security)(level, security.exemptions),
        )
        assert ask(FakeApi(), Admission(policy, from_files=False)) == []


@pytest.mark.parametrize(
    ("headers", "texts"),
    [
        ([], []),
        (['299 - "a"', '299 - "say \\"b\\" \\\\ c"'], ["a", 'say "b" \\ c']),
        (['299 - "a", 299 ironspan "b, c"'], ["a", "b, c"]),
        (['110 - "stale"', "nonsense"], []),
    ],
)
def test_warnings_of_the_api_server(headers: list[str], texts: list[str]) -> None:
    answer = HTTPResponse(headers=[("Warning", header) for header in headers])  # type: ignore[arg-type]
    assert _warnings(answer) == texts
