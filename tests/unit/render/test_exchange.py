# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is sent to a host and what becomes of its answer."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    ExchangeError,
    Request,
    Stopwatch,
    combined,
    exchange,
    only_layers,
    sign_all,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    clock_verdict,
    failure_message,
    groups_for,
    membership_groups,
    python_verdict,
    recovery_groups,
    unfit_message,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import insist

DOCUMENT: dict[str, t.Any] = {
    "schema": 1,
    "layers": ["base", "etcd"],
    "resources": [
        {"id": "base/motd", "kind": "file"},
        {"id": "etcd/key", "kind": "key_and_csr", "csr": {"common_name": "h", "dns": ["h"]}},
        {"id": "etcd/server", "kind": "certificate", "key": "etcd/key", "profile": "etcd-server"},
    ],
}
TEXT = json.dumps(DOCUMENT)


class FakeHost:
    """Answers with what a test prepared, and remembers what it was asked."""

    def __init__(self, *answers: dict[str, t.Any]) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, t.Any]] = []

    def __call__(self, arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        """Answer."""
        self.asked.append(arguments)
        return self.answers.pop(0)


def signer(request: str, profile: str, expected: dict[str, t.Any]) -> str:
    """Sign by saying what was asked."""
    return f"{request} as {profile} for {expected['common_name']} with {expected['algorithm']}"


def nobody(document: t.Any, asked: t.Any) -> list[str]:
    """Ask no TPM: the document says nothing of one."""
    return []


def request(**changes: t.Any) -> Request:
    """Return an ordinary request."""
    return Request(**{"document": TEXT, "mode": "apply", "mirror": "http://m", **changes})


def test_one_execution_when_nothing_is_to_be_signed() -> None:
    host = FakeHost({"changed": False, "csrs": {}})
    assert exchange(request(secrets={"a": "b"}), host, signer, nobody) == {"changed": False, "csrs": {}}
    assert host.asked == [{"document": TEXT, "mode": "apply", "mirror": "http://m", "secrets": {"a": "b"}}]


def test_the_root_is_sent_only_when_it_is_another() -> None:
    host = FakeHost({})
    exchange(request(root="/tmp/x"), host, signer, nobody)
    assert host.asked[0]["root"] == "/tmp/x"


def test_two_executions_when_certificates_are_needed() -> None:
    first = {
        "changed": True,
        "changes": [{"resource": "etcd/key"}],
        "csrs": {"etcd/server": "CSR"},
        "pending": [{"resource": "etcd/server", "needs": "certificate:etcd/server"}],
        "timings": {"base/motd": 1, "etcd/key": 5},
        "diff": [{"after": "1"}],
        "resumed": True,
    }
    second = {
        "changed": False,
        "changes": [{"resource": "etcd/server"}],
        "csrs": {},
        "pending": [],
        "timings": {"base/motd": 1, "etcd/server": 2},
        "diff": [{"after": "2"}],
        "resumed": False,
    }
    host = FakeHost(first, second)
    result = exchange(request(), host, signer, nobody)
    assert host.asked[1]["certificates"] == {"etcd/server": "CSR as etcd-server for h with ecdsa-p256"}
    assert {**host.asked[1], "certificates": None} == {**host.asked[0], "certificates": None}
    assert result == {
        "changed": True,
        "changes": [{"resource": "etcd/key"}, {"resource": "etcd/server"}],
        "csrs": {},
        "pending": [],
        "timings": {"base/motd": 2, "etcd/key": 5, "etcd/server": 2},
        "diff": [{"after": "1"}, {"after": "2"}],
        "resumed": True,
    }


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"mode": "assess"}, {"csrs": {"etcd/server": "CSR"}}),
        ({"check_mode": True}, {"csrs": {"etcd/server": "CSR"}}),
        ({}, {"csrs": {"etcd/server": "CSR"}, "failed": True}),
        ({}, {"csrs": {"etcd/server": "CSR"}, "unreachable": True}),
    ],
)
def test_nothing_is_signed_without_need(changes: dict[str, t.Any], answer: dict[str, t.Any]) -> None:
    host = FakeHost(answer)
    assert exchange(request(**changes), host, signer, nobody) == answer


def test_a_host_lost_in_between_is_unreachable() -> None:
    lost = {"unreachable": True, "msg": "no route"}
    assert exchange(request(), FakeHost({"csrs": {"etcd/server": "CSR"}}, lost), signer, nobody) == lost


@pytest.mark.parametrize("name", ["etcd/other", "base/motd", "etcd/key"])
def test_a_request_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(ExchangeError, match="which its document does not have"):
        sign_all(DOCUMENT, {name: "CSR"}, signer)


def test_a_failed_second_execution_fails_the_task() -> None:
    result = combined({"changed": True, "changes": [1]}, {"failed": True, "msg": "no", "changes": []})
    assert result["failed"] and result["msg"] == "no" and result["changed"]


def test_only_layers() -> None:
    assert only_layers(TEXT, ["etcd", "base", "gvisor"]) is TEXT
    smaller = json.loads(only_layers(json.dumps({**DOCUMENT, "forget": True}), ["etcd"]))
    assert "forget" not in smaller
    assert smaller["layers"] == ["etcd"]
    assert [resource["id"] for resource in smaller["resources"]] == ["etcd/key", "etcd/server"]
    assert json.loads(only_layers(TEXT, ["node"]))["resources"] == []


def test_secrets_are_not_in_the_requests_text() -> None:
    assert "hunter2" not in repr(request(secrets={"ca": "hunter2"}))


def test_the_stopwatch_keeps_the_first_execution() -> None:
    ticks = iter([1.0, 3.0, 10.0, 20.0])
    watch = Stopwatch(FakeHost({}, {}), lambda: next(ticks))
    watch({})
    watch({})
    assert (watch.started, watch.ended) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("host", "started", "ended", "largest", "ok", "found"),
    [
        (100.0, 99.0, 101.0, 1, True, "as the controller's"),
        (104.0, 99.0, 101.0, 3, True, "at least 3.0 s ahead of the controller"),
        (104.1, 99.0, 101.0, 3, False, "at least 3.1 s ahead of the controller"),
        (90.0, 99.0, 101.0, 5, False, "at least 9.0 s behind the controller"),
        (100.9, 99.0, 101.0, 0, True, "as the controller's"),
    ],
)
def test_clocks(host: float, started: float, ended: float, largest: float, ok: bool, found: str) -> None:
    verdict = clock_verdict(host, started, ended, largest)
    assert (verdict["check"], verdict["ok"], verdict["found"]) == ("clock", ok, found)
    assert bool(verdict["remedy"]) == (not ok)


def test_a_clock_that_is_off_by_an_hour_is_named() -> None:
    verdict = clock_verdict(6400.0, 9999.0, 10001.0, 5)
    insist("clock", unfit_message([verdict]))


@given(st.floats(0, 1e9), st.floats(0, 100), st.floats(-50, 50), st.floats(0, 1), st.floats(0.1, 20))
def test_a_right_clock_is_never_refused(
    start: float, length: float, skew: float, moment: float, largest: float
) -> None:
    # The host reads its clock at any moment of the call; a real skew within the limit must pass.
    verdict = clock_verdict(start + length * moment + skew, start, start + length, largest)
    if abs(skew) <= largest - 1e-3:
        assert verdict["ok"]
    if abs(skew) > largest + length + 1e-3:
        assert not verdict["ok"]


def test_an_unfit_host_says_every_reason() -> None:
    verdicts = [
        {"check": "kernel", "ok": True, "found": "6.1", "wanted": ">= 5.15", "remedy": ""},
        {"check": "memory", "ok": False, "found": "1 GiB", "wanted": ">= 2 GiB", "remedy": "Add memory."},
        {"check": "port 6443", "ok": False, "found": "nginx", "wanted": "free", "remedy": "Stop it."},
    ]
    assert unfit_message(verdicts).splitlines() == [
        "This host does not fit, nothing was changed on it.",
        "- memory: found 1 GiB, wanted >= 2 GiB. Add memory.",
        "- port 6443: found nginx, wanted free. Stop it.",
    ]
    assert unfit_message(verdicts[:1]) == ""
    assert unfit_message([]) == ""


@pytest.mark.parametrize(
    ("result", "groups"),
    [
        ({}, []),
        ({"changes": [], "pending": []}, []),
        ({"changes": [{"resource": "base/x", "action": "create"}]}, ["__ironspan_pending"]),
        ({"pending": [{"resource": "node/join"}]}, ["__ironspan_pending", "__ironspan_pending_node"]),
        ({"changes": [{"resource": "node/kubelet", "kind": "artifact"}]}, ["__ironspan_pending"]),
        (
            {"changes": [{"resource": "node/join", "kind": "kubeadm"}]},
            ["__ironspan_pending", "__ironspan_pending_node"],
        ),
        (
            {"changes": [{"resource": "control_plane/audit-policy", "kind": "file"}]},
            ["__ironspan_pending", "__ironspan_pending_control_plane"],
        ),
        (
            {
                "changes": [
                    {"resource": "etcd/service", "action": "restart"},
                    {"resource": "a/b", "action": "start"},
                ]
            },
            ["__ironspan_pending", "__ironspan_pending_etcd", "__ironspan_restart_etcd"],
        ),
        (
            {"pending": [{"resource": "etcd_backup/key-2", "needs": "secret:backup-key-2"}]},
            ["__ironspan_pending", "__ironspan_pending_etcd_backup"],
        ),
        (
            {"changes": [{"resource": "access/settings", "kind": "file"}]},
            ["__ironspan_pending", "__ironspan_pending_access"],
        ),
    ],
)
def test_groups(result: dict[str, t.Any], groups: list[str]) -> None:
    assert groups_for(result) == groups


def test_only_a_host_with_another_copy_of_the_pki_store_brings_it_to_the_backups() -> None:
    assert recovery_groups({"changes": [{"resource": "etcd_backup/recovery"}]}) == [
        "__ironspan_recovery_changed"
    ]
    assert recovery_groups({"changes": [{"resource": "etcd_backup/settings"}]}) == []
    assert recovery_groups({}) == []


@pytest.mark.parametrize(
    ("found", "ok"),
    [("3.13.5", True), ("3.12.3", True), ("3.11.2", False), ("3.14.0", False), ("3.1", False)],
)
def test_the_pythons_that_programs_of_ours_run_with(found: str, ok: bool) -> None:
    verdict = python_verdict(found, ["3.12", "3.13"])
    assert verdict["ok"] is ok
    assert bool(verdict["remedy"]) is not ok


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "boom"}, "boom"),
        ({}, "the module failed without a message"),
        (
            {"msg": "no space", "failed_resource": "base/x", "remedy": "Free some."},
            "base/x: no space. Free some.",
        ),
        (
            {"msg": "base/x: no. Free it.", "failed_resource": "base/x", "remedy": "Free it."},
            "base/x: no. Free it.",
        ),
        ({"msg": "no", "rolled_back": ["a/b", "c/d"]}, "no (put back as before: a/b, c/d)"),
    ],
)
def test_failures(result: dict[str, t.Any], message: str) -> None:
    assert failure_message(result) == message


BARE = {"pending": [{"resource": "etcd/config", "needs": "membership:etcd"}]}
UNMOUNTED = {"pending": [{"resource": "etcd/config", "needs": "mount:/var/lib/etcd"}]}
STARTING = {"changes": [{"resource": "control_plane/member", "kind": "kubeadm", "after": {"action": "init"}}]}
MEMBERSHIP = [
    (["base", "node"], BARE, True, []),
    (["etcd"], {}, True, ["__ironspan_compared_etcd"]),
    (["etcd"], BARE, True, ["__ironspan_compared_etcd", "__ironspan_bare_etcd"]),
    # Its disk is not mounted yet: whether it has data is known when it is looked at again.
    (["etcd"], UNMOUNTED, True, []),
    (["etcd"], UNMOUNTED, False, []),
    (["etcd"], {}, False, []),
    (["etcd"], BARE, False, ["__ironspan_joining_etcd"]),
    (
        ["etcd", "control_plane"],
        {"pending": [{"resource": "control_plane/member", "needs": "cluster:start-or-join"}]},
        True,
        ["__ironspan_compared_etcd", "__ironspan_compared_control_plane", "__ironspan_bare_control_plane"],
    ),
    (
        ["control_plane"],
        STARTING,
        True,
        ["__ironspan_compared_control_plane", "__ironspan_starting_control_plane"],
    ),
    (["control_plane"], STARTING, False, []),
]


@pytest.mark.parametrize(("layers", "result", "assessed", "groups"), MEMBERSHIP)
def test_how_a_membership_stands(
    layers: list[str], result: dict[str, t.Any], assessed: bool, groups: list[str]
) -> None:
    assert membership_groups(layers, result, assessed) == groups
