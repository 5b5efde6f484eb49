# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The plan file: one spelling, complete, without secrets, and no byte of it can be another."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import build, content, estimate, texts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Plan, load, parse, seal
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.moved import plan_verdict
from hypothesis import given
from hypothesis import strategies as st

from ironspan.cli.plan_view import facts
from tests.unit.plan import samples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
MADE = samples.plan()


def with_values(**values: t.Any) -> Plan:
    return seal({**MADE.content, **values})


@given(JSON)
def test_whatever_a_plan_holds_is_read_as_it_was_written(value: t.Any) -> None:
    made = with_values(warnings=[value])
    read = parse(made.data)
    assert read == made
    assert read.content["warnings"] == [value] or "-0.0" in repr(value)
    assert read.digest == content.digest_of(made.content)


@given(st.integers(0, len(MADE.data) - 1), st.integers(1, 255))
def test_no_byte_can_be_another(position: int, change: int) -> None:
    data = bytearray(MADE.data)
    data[position] ^= change
    with pytest.raises(PlanError):
        parse(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        MADE.data[:-1],
        MADE.data + b"\n",
        b" " + MADE.data,
        json.dumps(json.loads(MADE.data)).encode(),
        MADE.data.replace(b'{"digest"', b'{"digest":"0","digest"', 1),
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"digest": 1, "plan": null}',
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PlanError, match=r"not a plan file|altered"):
        parse(data)


@pytest.mark.parametrize("name", sorted(content._SHAPE))
@pytest.mark.parametrize("value", [None, 1.5])
def test_what_is_missing_is_named(name: str, value: t.Any) -> None:
    words = f"plan.{name}" if name not in ("schema",) else "format"
    with pytest.raises(PlanError, match=words):
        parse(with_values(**{name: value}).data)


@pytest.mark.parametrize(
    "change",
    [
        lambda host: host.pop("changes"),
        lambda host: host.update(seconds="1"),
        lambda host: host["document"].update(host="other"),
        lambda host: host["document"].update(site="other"),
        lambda host: host["document"].update(resources=["0" * 64]),
        lambda host: host["document"].update(resources=[{}]),
        lambda host: host["document"].pop("resources"),
    ],
)
def test_a_host_that_is_not_complete_is_named(change: t.Callable[[dict[str, t.Any]], object]) -> None:
    raw = json.loads(json.dumps(MADE.content))
    change(raw["hosts"]["w1"])
    with pytest.raises(PlanError, match=r"hosts\.w1\."):
        parse(seal(raw).data)


def test_a_host_name_cannot_leave_the_folder_of_the_run() -> None:
    raw = json.loads(json.dumps(MADE.content))
    raw["hosts"]["../../x"] = raw["hosts"].pop("w1")
    raw["hosts"]["../../x"]["document"]["host"] = "../../x"
    with pytest.raises(PlanError, match=r"document\.host"):
        parse(seal(raw).data)


def test_documents_come_back_as_they_were_and_share_their_resources() -> None:
    assert json.loads(MADE.document_text("w1")) == samples.document("w1")
    assert len(MADE.content["resources"]) == len(samples.RESOURCES)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        load(tmp_path / "x")
    with pytest.raises(PlanError, match=r"x\.plan\.json: this is not a plan"):
        load(samples.written(tmp_path, Plan({}, "", b"?")))


def test_reboots_are_counted_and_nobody_else_reboots() -> None:
    change = {
        "resource": "base/reboot",
        "kind": "reboot_request",
        "action": "update",
        "before": {},
        "reason": "",
    }
    after = {"reboot": "waits", "because": "the kernel has new arguments"}
    changes = [*samples.ANSWER["changes"], {**change, "after": after}]
    made = samples.plan({**samples.ANSWER, "changes": changes})
    assert made.content["summary"]["reboots"] == 1
    assert ("reboots", "1") in facts(made.content)
    (said,) = [warning for warning in made.content["warnings"] if "next boot" in warning]
    assert said.startswith("Takes effect with the next boot of w1 (the kernel has new arguments).")
    assert "rebooted in waves by `ironspan upgrade NODE ...` only" in said
    assert MADE.content["summary"]["reboots"] == 0
    assert not [warning for warning in MADE.content["warnings"] if "next boot" in warning]


def test_what_a_plan_says_of_a_host() -> None:
    host = MADE.hosts["w1"]
    assert host["changes"][0]["text"] == {"before": "old\nsame\n", "after": "new\nsame\n"}
    assert (host["interrupts"], host["starts"]) == (["kubelet.service"], [])
    assert host["pending"] == [{"resource": "node/join", "needs": "certificate:node/join", "kind": "kubeadm"}]
    assert host["seconds"] == 64
    summary = MADE.content["summary"]
    assert (summary["hosts"], summary["hosts_changing"], summary["interrupts"]) == (2, 1, 1)
    assert summary["seconds"] == 84 and "not measured on this site" in summary["seconds_source"]
    assert any(
        "kubelet.service restarts on 1 hosts" in warning and "w1" in warning
        for warning in MADE.content["warnings"]
    )
    assert MADE.content["expires"] - MADE.content["created"] == 24 * 3600


def test_hosts_that_gave_no_answer_are_named() -> None:
    made = samples.plan(left_out=["w3"])
    assert made.content["left_out"] == ["w3"]
    assert "w3" in made.content["warnings"][0]


def test_a_plan_of_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="no host could be compared"):
        build.build(samples.site(), {}, samples.CLUSTER, 0)


PEM = "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize("text", [f"a\n{PEM}\nb\n{PEM}\n", PEM[:-20], PEM])
def test_private_keys_that_lie_on_a_host_are_not_shown(text: str) -> None:
    diff = {"before_header": "x (base/motd)", "after_header": "x (base/motd)", "before": text, "after": ""}
    made = samples.plan({**samples.ANSWER, "diff": [diff]})
    assert b"c2VjcmV0" not in made.data
    assert texts.HIDDEN in made.hosts["w1"]["changes"][0]["text"]["before"]


def test_a_document_with_a_private_key_is_refused() -> None:
    bad = {"kind": "file", "id": "base/key", "path": "/k", "content": PEM}
    entry = build.host_entry(samples.document("w1", bad), samples.QUIET, "")
    with pytest.raises(PlanError, match="holds a private key"):
        build.build(samples.site(), {"w1": entry}, samples.CLUSTER, 0)


@pytest.mark.parametrize(
    ("hosts", "forks", "seconds"),
    [
        ([], 50, 20),
        ([{"base": 10.0}], 50, 30),
        ([{"base": 10.0}] * 50, 50, 30),
        ([{"base": 10.0}] * 51, 50, 40),
        ([{"base": 10.0, "control_plane": 60.0}] * 3, 50, 210),
    ],
)
def test_estimates(hosts: list[dict[str, float]], forks: int, seconds: int) -> None:
    assert estimate.of_site(hosts, forks) == seconds


def test_an_artefact_takes_as_long_as_it_is_large() -> None:
    assert estimate.seconds_of({"kind": "artifact", "size": 40_000_000}) == pytest.approx(2.2)


ONE = [{"resource": "a", "kind": "file", "action": "create", "before": {}, "after": {"mode": "0644"}}]
BASE: dict[str, t.Any] = {"fingerprint": "1", "changes": ONE, "pending": [{"resource": "c", "needs": "x"}]}


@pytest.mark.parametrize(
    ("answer", "moved"),
    [
        ({**BASE}, ""),
        ({**BASE, "plan": "another"}, ""),
        # Less to do: another step of the plan, or somebody else, has done it as the document says.
        ({**BASE, "fingerprint": "2", "changes": []}, ""),
        ({**BASE, "fingerprint": "2", "changes": [*ONE, {**ONE[0], "resource": "b"}]}, "b"),
        ({**BASE, "fingerprint": "2", "changes": [{**ONE[0], "before": {"mode": "0600"}}]}, "a"),
        ({**BASE, "fingerprint": "2", "pending": []}, ""),
        ({**BASE, "changes": [], "pending": []}, ""),
        # Another outcome than the one that people read, though the state before is the same.
        ({**BASE, "changes": [{**ONE[0], "after": {"mode": "0777"}}]}, "a"),
        ({**BASE, "changes": [{**ONE[0], "kind": "directory"}]}, "a"),
        ({**BASE, "diff": [{"before_header": "/a (a)", "after_header": "/a (a)", "after": "x"}]}, "a"),
        ({**BASE, "pending": [{"resource": "c", "needs": "y"}]}, "c"),
        ({**BASE, "pending": [{"resource": "d", "needs": "x"}]}, "c, d"),
        ({**BASE, "fingerprint": "2"}, "a, c"),
        # The same plan was applied before, in part or as a whole.
        ({"fingerprint": "3", "plan": "P", "changes": [], "pending": []}, ""),
        ({"fingerprint": "3", "plan": "P", "changes": [{**ONE[0], "action": "update"}]}, ""),
        ({"fingerprint": "3", "plan": "P", "changes": [{**ONE[0], "resource": "ironspan/transaction"}]}, ""),
        ({"fingerprint": "3", "plan": "P", "changes": [{**ONE[0], "resource": "b"}]}, "b"),
    ],
)
def test_a_host_that_moved(answer: dict[str, t.Any], moved: str) -> None:
    verdict = plan_verdict(BASE, answer, "P")
    assert verdict["ok"] is (not moved)
    assert verdict["found"] == (f"changed since the plan was made: {moved}" if moved else "as planned")
    assert bool(verdict["remedy"]) is bool(moved)


IMAGE = {
    "resource": "image",
    "kind": "container_image",
    "action": "create",
    "before": {"digest": None, "pinned": False},
    "after": {"digest": "sha256:1", "pinned": True},
}
REST = {**IMAGE, "action": "update", "before": {"pinned": False}, "after": {"pinned": True}}


@pytest.mark.parametrize(
    ("now", "nearer"),
    [
        # The kubelet has fetched it meanwhile; pinning it is what is left.
        (REST, True),
        ({**REST, "action": "delete"}, False),
        ({**REST, "kind": "file"}, False),
        ({**REST, "before": {}}, True),
        ({**REST, "after": {}}, False),
        ({**REST, "before": {"pinned": None}}, False),
        ({**REST, "after": {"pinned": False}}, False),
        ({**REST, "before": {"digest": "sha256:2"}, "after": {"digest": "sha256:1"}}, False),
        ({**REST, "after": {"pinned": True, "owner": "other"}}, False),
    ],
)
def test_what_is_left_of_a_change_is_as_planned(now: dict[str, t.Any], nearer: bool) -> None:
    planned = {"fingerprint": "1", "changes": [IMAGE], "pending": []}
    assert plan_verdict(planned, {"fingerprint": "2", "changes": [now], "pending": []}, "P")["ok"] is nearer
