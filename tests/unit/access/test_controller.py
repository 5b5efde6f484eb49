# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the controller of access requests does with what it reads."""

from __future__ import annotations

import datetime
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import _api
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import access_controller as controller
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.UTC)
SETTINGS = controller.Settings("", "", "", "", roles={"node-operator": 2, "view": 1}, wait_seconds=3600)
Object = dict[str, t.Any]


def time(minutes: float) -> str:
    return controller._text(NOW + datetime.timedelta(minutes=minutes))


def request(name: str = "r", *, made: float = -1, **status: t.Any) -> Object:
    spec = {"user": "ada", "role": "node-operator", "namespace": "team", "reason": "ticket 7", "seconds": 600}
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": time(made), "resourceVersion": "5"}
    return {"metadata": metadata, "spec": spec, **({"status": status} if status else {})}


def granted(name: str = "r", since: float = 0, until: float = 5, **more: t.Any) -> Object:
    return request(
        name, state="Granted", grantedAt=time(since), expiresAt=time(until), approvals=["bob", "eve"], **more
    )


def bound(to: Object) -> Object:
    return controller.binding_of(to)


def due(requests: list[Object], bindings: list[Object]) -> list[str]:
    return [
        f"{item.method} {(item.body or {}).get('status', {}).get('state', '')}: {item.why}"
        for item in controller.decide(requests, bindings, SETTINGS, NOW)
    ]


GRANTED = f"POST : granted node-operator to ada in team until {time(5)}"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (request(), []),
        (request(approvals=["bob"]), []),
        (request(approvals=["bob", "ada"]), []),
        (request(approvals=["bob", "bob"]), []),
        (request(approvals=["bob", "eve"]), ["PUT Granted: enough people approved it"]),
        (request(made=-61), ["PUT Expired: Expired: it was not approved in time"]),
        (request(made=-61, approvals=["bob", "eve"]), ["PUT Granted: enough people approved it"]),
        (granted(since=-0.5), [GRANTED]),
        (granted(since=-2), [GRANTED]),
        (granted(since=-2, boundAt=time(-0.5)), []),
        (granted(since=-2, boundAt=time(-2)), ["PUT Revoked: Revoked: its binding was taken away"]),
        (granted(since=-10, until=0), ["PUT Expired: Expired: its time is over"]),
        (request(state="Expired", expiresAt=time(-60)), []),
        (request(state="Expired", made=-50000), ["DELETE : it has been over for long"]),
        (request(state="Expired", made=-50000, expiresAt=time(-60)), []),
    ],
)
def test_a_request_without_a_binding(item: Object, expected: list[str]) -> None:
    assert due([item], []) == expected


def test_a_role_that_is_no_longer_offered_is_refused() -> None:
    item = request(approvals=["bob", "eve"])
    item["spec"]["role"] = "cluster-admin"
    assert due([item], []) == [
        "PUT Refused: Refused: cluster-admin is not among the roles that can be asked for"
    ]


def test_a_grant_is_claimed_before_it_is_bound() -> None:
    (action,) = controller.decide([request(approvals=["bob", "eve"])], [], SETTINGS, NOW)
    assert action.path.endswith("/accessrequests/r/status")
    assert action.body is not None
    assert action.body["metadata"]["resourceVersion"] == "5", "the second who claims it is refused"
    assert action.body["status"] == {
        "approvals": ["bob", "eve"],
        "state": "Granted",
        "grantedAt": time(0),
        "expiresAt": time(10),
    }
    bind = action.then
    assert bind is not None
    assert bind.method == "POST"
    assert bind.path == "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings"
    assert bind.body is not None
    assert bind.body["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"}]
    assert bind.body["metadata"]["annotations"] == {
        "access.ironspan.io/requested-by": "ada",
        "access.ironspan.io/reason": "ticket 7",
        "access.ironspan.io/approved-by": "bob, eve",
        "access.ironspan.io/expires": time(10),
        "access.ironspan.io/request-uid": "uid-r",
    }


def test_that_it_is_bound_is_written_down_once() -> None:
    item = granted(since=-2)
    assert due([item], [bound(item)]) == ["PUT Granted: its binding is there"]
    (action,) = controller.decide([item], [bound(item)], SETTINGS, NOW)
    assert action.body is not None
    assert action.body["status"] == {**item["status"], "boundAt": time(0)}
    written = granted(since=-2, boundAt=time(-2))
    assert due([written], [bound(written)]) == []


@pytest.mark.parametrize(
    ("since", "status", "asked", "failures"),
    [
        (-0.5, 0, ["POST", "PUT"], 0),
        (-2, 0, ["POST", "PUT"], 0),
        (-0.5, 404, ["POST"], 1),
        (-2, 404, ["POST", "PUT"], 0),
        (-2, 403, ["POST", "PUT"], 0),
        (-2, 409, ["POST"], 0),
    ],
)
def test_who_was_stopped_after_the_claim_binds_later(
    since: float, status: int, asked: list[str], failures: int
) -> None:
    cluster = Recorder([granted(since=since)], {"POST": status} if status else {})
    assert controller.one_pass(t.cast("t.Any", cluster), SETTINGS, NOW) == failures
    assert [line.split()[0] for line in cluster.asked] == asked


def test_that_it_was_bound_is_written_at_once_on_the_claim() -> None:
    cluster = Recorder([request(approvals=["bob", "eve"])], {})
    assert controller.one_pass(t.cast("t.Any", cluster), SETTINGS, NOW) == 0
    assert [line.split()[0] for line in cluster.asked] == ["PUT", "POST", "PUT"]
    assert cluster.versions == ["5", "", "6"]


def test_without_a_namespace_it_is_for_the_whole_cluster() -> None:
    item = request(approvals=["bob", "eve"])
    del item["spec"]["namespace"]
    (action,) = controller.decide([item], [], SETTINGS, NOW)
    assert action.then is not None
    assert action.then.path == "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def altered(part: str, value: t.Any) -> Object:
    return {**bound(granted()), part: value}


@pytest.mark.parametrize(
    ("requests", "binding", "reason"),
    [
        ([granted()], bound(granted()), ""),
        ([], bound(granted()), "its request is gone"),
        ([granted("another")], bound(granted()), "its request is gone"),
        ([granted(since=-10, until=0)], bound(granted()), "its time is over"),
        ([granted(since=-10, until=-600)], bound(granted()), "its time is over"),
        ([request(state="Revoked")], bound(granted()), "its request is Revoked"),
        ([request()], bound(granted()), "its request is not granted"),
        ([granted()], altered("subjects", []), "it is not what was approved"),
        ([granted()], altered("roleRef", {"name": "cluster-admin"}), "it is not what was approved"),
        ([granted()], altered("kind", "ClusterRoleBinding"), "it is not what was approved"),
    ],
)
def test_a_binding_stays_as_long_as_it_is_justified(
    requests: list[Object], binding: Object, reason: str
) -> None:
    found = [
        item for item in controller.decide(requests, [binding], SETTINGS, NOW) if "bindings/" in item.path
    ]
    assert [(item.method, item.why) for item in found] == ([("DELETE", reason)] if reason else [])


def test_a_request_that_is_being_deleted_holds_nothing() -> None:
    item = granted()
    item["metadata"]["deletionTimestamp"] = time(0)
    assert due([item], [bound(granted())]) == ["DELETE : its request is gone"]


@pytest.mark.parametrize("text", [None, "", "soon", "2026-13-01T00:00:00Z"])
def test_an_end_that_cannot_be_read_is_over(text: str | None) -> None:
    item = granted()
    item["status"]["expiresAt"] = text
    assert "DELETE : its time is over" in due([item], [bound(granted())])


STATES = st.sampled_from(["", "Granted", "Expired", "Revoked", "Refused"])


@given(
    state=STATES,
    approvals=st.lists(st.sampled_from(["ada", "bob", "eve"]), max_size=4),
    since=st.integers(-100, 0),
    length=st.integers(1, 200),
    is_bound=st.booleans(),
    passes=st.integers(0, 300),
)
def test_nobody_keeps_what_nobody_approved_or_whose_time_is_over(
    state: str, approvals: list[str], since: int, length: int, is_bound: bool, passes: int
) -> None:
    """Passes at any time, on anything that can lie there, end with bindings of unexpired grants only."""
    status: Object = {"approvals": approvals}
    if state:
        status |= {"state": state, "grantedAt": time(since), "expiresAt": time(since + length)}
    item = request(made=since, **status)
    bindings = [bound(granted())] if is_bound else []
    now = NOW + datetime.timedelta(minutes=passes)
    for action in controller.decide([item], bindings, SETTINGS, now):
        if action.method == "DELETE" and "bindings/" in action.path:
            bindings = []
        if action.method == "PUT":
            assert action.body is not None
            item = {**item, "status": action.body["status"]}
        made = action if action.method == "POST" else action.then
        if made:
            assert made.body is not None
            bindings.append(made.body)
    if bindings:
        assert item["status"]["state"] == "Granted"
        assert controller._time(item["status"]["expiresAt"]) > now
        assert state == "Granted" or len({*approvals} - {"ada"}) >= 2


class Recorder:
    """Stands for the cluster; refuses what it is told to."""

    def __init__(self, requests: list[Object], refuses: dict[str, int]) -> None:
        self.requests = requests
        self.refuses = refuses
        self.asked: list[str] = []
        self.versions: list[str] = []

    def every(self, path: str, **query: str) -> list[Object]:
        return self.requests if path.endswith("accessrequests") else []

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        self.asked.append(f"{method} {path.rsplit('/', 2)[-2]}/{path.rsplit('/', 1)[-1]}")
        if method in self.refuses:
            raise _api.Refused(self.refuses[method], "because")
        self.versions.append(((body or {}).get("metadata") or {}).get("resourceVersion", ""))
        return {"metadata": {"resourceVersion": "6"}}


@pytest.mark.parametrize(
    ("refuses", "asked", "failures"),
    [
        ({}, 3, 0),
        ({"PUT": 409}, 1, 0),
        ({"PUT": 500}, 1, 1),
        ({"POST": 409}, 2, 0),
        ({"POST": 500}, 2, 1),
    ],
)
def test_who_lost_the_claim_does_not_bind(
    refuses: dict[str, int], asked: int, failures: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Recorder([request(approvals=["bob", "eve"])], refuses)
    assert controller.one_pass(t.cast("t.Any", cluster), SETTINGS, NOW) == failures
    assert len(cluster.asked) == asked
    assert ("failed" in capsys.readouterr().out) is bool(failures)
