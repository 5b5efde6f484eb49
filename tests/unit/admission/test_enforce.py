# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The order in which policies come into force, with a stand-in for the API server."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission import always, simulate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission import enforce as module
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import API_VERSION, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import built_in_policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

ALWAYS = always.always(always.KEEPERS, ["198.51.100.0/28"], [], others=True)
ADMISSION = Admission(built_in_policy(), from_files=False)
KINDS = {
    "validatingadmissionpolicies": "ValidatingAdmissionPolicy",
    "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
    "mutatingadmissionpolicies": "MutatingAdmissionPolicy",
    "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
}


class FakeApi:
    """Keeps objects by path."""

    def __init__(self) -> None:
        self.kept: dict[str, Object] = {}

    def find(self, path: str) -> Object | None:
        if path in (f"/apis/{API_VERSION}", "/api/v1"):
            kinds = {**KINDS, "configmaps": "ConfigMap"}
            return {
                "resources": [
                    {"kind": kind, "name": name, "namespaced": kind == "ConfigMap"}
                    for name, kind in kinds.items()
                ]
            }
        return self.kept.get(path)

    def get(self, path: str, **query: str) -> Object:
        plural = path.rpartition("/")[2]
        terms = [each.partition("=") for each in query["labelSelector"].split(",")]
        items = [
            item
            for name, item in self.kept.items()
            if name.split("/")[-2] == plural
            and all(
                key in item["metadata"]["labels"] and (not sign or item["metadata"]["labels"][key] == value)
                for key, sign, value in terms
            )
        ]
        return {"kind": KINDS.get(plural, "") + "List", "items": items}

    def apply(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        if not dry_run:
            self.kept[path] = body
        return body

    def delete(self, path: str, body: Object) -> bool:
        return self.kept.pop(path, None) is not None


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[simulate.Outcome]:
    """Outcomes of the trials to come; the last one again and again."""
    outcomes = [simulate.Outcome([], [], 1, 0)]
    monkeypatch.setattr(simulate, "simulate", lambda *_: outcomes[-1])
    return outcomes


def enforce(api: FakeApi, admission: Admission | None, *, check: bool = False) -> module.Enforced:
    declared = admission.objects() if admission else []
    policies = admission.policies() if admission else []
    return module.enforce(t.cast("t.Any", api), declared, policies, check=check)


def test_policies_of_files_become_objects_before_the_files_go(tried: list[simulate.Outcome]) -> None:
    api, of_files = FakeApi(), Admission(built_in_policy(), from_files=True)

    def left() -> module.Enforced:
        return module.leave_files(
            t.cast("t.Any", api), ADMISSION.objects(), ADMISSION.policies(), lambda text: None
        )

    assert left() == ([], [], []), "there is no record yet"
    enforce(api, of_files)
    before = set(api.kept)
    assert left().changes
    assert set(api.kept) > before
    assert left() == ([], [], []), "they are objects by now"
    tried.append(simulate.Outcome([simulate.Refused("kube-system/dns", "no")], [], 1, 0))
    api.kept["/api/v1/namespaces/kube-system/configmaps/ironspan-admission"] = of_files.objects()[0]
    with pytest.raises(ClusterError, match="lock out"):
        left()


def test_applied_once_and_gone_with_the_file(tried: list[simulate.Outcome]) -> None:
    api = FakeApi()
    assert enforce(api, ADMISSION, check=True).changes
    assert api.kept == {}, "a check changes nothing"
    assert enforce(api, ADMISSION).changes
    assert enforce(api, ADMISSION) == ([], [], [])
    assert len(enforce(api, None).removed) == len(ADMISSION.objects())
    assert api.kept == {}
    assert enforce(api, None) == ([], [], [])


def test_a_lock_out_changes_nothing(tried: list[simulate.Outcome]) -> None:
    tried.append(simulate.Outcome([simulate.Refused("kube-system/dns", "hostPID is refused")], [], 1, 0))
    api = FakeApi()
    with pytest.raises(ClusterError, match=r"kube-system/dns: hostPID is refused"):
        enforce(api, ADMISSION)
    assert api.kept == {}


def test_what_holds_always_is_there_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that come and go would end what API servers know of network policies (always.py)."""
    api, seen = FakeApi(), list[set[str]]()

    def simulated(*_: t.Any) -> simulate.Outcome:
        seen.append({path.rpartition("/")[2] for path in api.kept})
        return simulate.Outcome([simulate.Refused("kube-system/dns", "no")], [], 1, 0)

    monkeypatch.setattr(simulate, "simulate", simulated)
    declared = [*ALWAYS, *ADMISSION.objects()]
    with pytest.raises(ClusterError, match="lock out"):
        module.enforce(t.cast("t.Any", api), declared, ADMISSION.policies())
    names = {item["metadata"]["name"] for item in ALWAYS}
    assert seen == [names] and {path.rpartition("/")[2] for path in api.kept} == names
    before_files = FakeApi()
    api = before_files
    with pytest.raises(ClusterError, match="lock out"):
        module.try_new(t.cast("t.Any", before_files), declared, ADMISSION.policies(), lambda text: None)
    assert seen == [names, names]


def test_what_holds_always_stays_without_a_file(tried: list[simulate.Outcome]) -> None:
    api = FakeApi()
    module.enforce(t.cast("t.Any", api), [*ALWAYS, *ADMISSION.objects()], ADMISSION.policies())
    done = module.enforce(t.cast("t.Any", api), ALWAYS, [])
    assert len(done.removed) == len(ADMISSION.objects()) and not done.changes
    assert len(api.kept) == len(ALWAYS)


def test_pods_of_others_are_told(tried: list[simulate.Outcome]) -> None:
    tried.append(simulate.Outcome([], [simulate.Refused("team/a", "hostPID is refused")], 1, 0))
    assert enforce(FakeApi(), ADMISSION).refused == ["team/a: hostPID is refused"]
