# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A host that answers anything: it fails, alone, with a line; nobody else is touched, nothing is obeyed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import typing as t
from pathlib import Path

import hypothesis.strategies as st
import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.answer import (
    FIELDS,
    OF_ANSIBLE,
    read,
)
from hypothesis import HealthCheck, given, settings

from ironspan.cli import plan_page
from tests.support.converge_action import ORDINARY, Controller
from tests.unit.conftest import Sandbox
from tests.unit.plan import samples

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            MARKUP,
            "{{ lookup('pipe', 'id') }}",
            "\x1b[2J",
            "../../etc/passwd",
            "node/join",
            "secret:join-token",
        ]
    ),
    st.sampled_from(["\udcff", "a" * 5000, "etcd_backup/recovery", "control_plane/member", "kubeadm", "-"]),
)
LEAVES = st.one_of(
    TEXTS, st.none(), st.booleans(), st.integers(), st.integers(10**300, 10**301),
    st.floats(), st.sampled_from([math.inf, math.nan]),
)  # fmt: skip
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | st.integers(), inner, max_size=4),
    max_leaves=12,
)
CHANGE = st.fixed_dictionaries(
    {"resource": TEXTS, "kind": TEXTS, "action": TEXTS}, optional={"before": ANYTHING, "after": ANYTHING}
)
RELEASE = st.fixed_dictionaries(
    {
        "digest": TEXTS | st.sampled_from(["", "d" * 64, "../../../tmp/x"]),
        "time": st.integers(0, 2_000_000_000) | st.integers(-(2**70), 2**70),
    }
)
RESOURCE = st.fixed_dictionaries({"id": TEXTS, "kind": TEXTS}, optional={"secret": TEXTS, "path": TEXTS})
SHAPED: dict[str, st.SearchStrategy[t.Any]] = {
    "changes": st.lists(CHANGE, max_size=4),
    "pending": st.lists(st.fixed_dictionaries({"resource": TEXTS, "needs": TEXTS}), max_size=4),
    "verdicts": st.lists(
        st.fixed_dictionaries({"check": TEXTS, "ok": st.booleans(), "found": TEXTS, "wanted": TEXTS}),
        max_size=3,
    ),
    "facts": st.dictionaries(st.sampled_from(["time_unix", "python", "x"]), ANYTHING, max_size=3),
    "csrs": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "diff": st.lists(
        st.dictionaries(st.sampled_from(["before", "after", "after_header"]), TEXTS), max_size=2
    ),
    "document": st.fixed_dictionaries(
        {
            "site": TEXTS,
            "host": TEXTS,
            "layers": st.lists(TEXTS, max_size=3),
            "resources": st.lists(RESOURCE, max_size=3),
        },
        optional={"rollback": st.fixed_dictionaries({"undoes": RELEASE})},
    ),
    "rollback": st.fixed_dictionaries(
        {
            "undoes": RELEASE,
            "left": st.lists(st.fixed_dictionaries({"resource": TEXTS, "why": TEXTS}), max_size=2),
            "removed_layers": st.lists(TEXTS, max_size=2),
            "replaced_artifacts": st.lists(
                st.fixed_dictionaries({"resource": TEXTS, "from": TEXTS, "to": TEXTS}), max_size=2
            ),
        }
    ),
}
ORDERS = (
    "ansible_facts",
    "add_host",
    "add_group",
    "ansible_stats",
    "_ansible_no_log",
    "invocation",
    "groups",
    "layers",
)
"""What Ansible, or a play, would take from a result."""
FIELD = st.sampled_from([*FIELDS, *ORDERS])
ANSWER = st.one_of(
    ANYTHING,
    st.dictionaries(FIELD, ANYTHING, max_size=6),
    st.fixed_dictionaries({}, optional={name: field | ANYTHING for name, field in SHAPED.items()}).map(
        lambda changes: {**ORDINARY, **changes}
    ),
    st.fixed_dictionaries({}, optional=SHAPED).map(lambda changes: {**ORDINARY, **changes}),
)
BACK: dict[str, t.Any] = {"left": [], "removed_layers": [], "replaced_artifacts": []}
MODES = ("assess", "apply", "plan", "rollback")
EXAMPLES = int(os.environ.get("IRONSPAN_HOSTILE_ANSWERS", "300"))
"""10,000 take some minutes: IRONSPAN_HOSTILE_ANSWERS=10000."""
DOCUMENT: dict[str, t.Any] = {
    "schema": 1,
    "site": "s",
    "host": "h",
    "layers": ["base"],
    "resources": [{"id": "base/motd", "kind": "file", "path": "/etc/motd", "content": "x"}],
}


@given(answer=ANSWER, mode=st.sampled_from(MODES))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
)
def test_any_answer_is_that_host_s_own_affair(answer: t.Any, mode: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        controller = Controller(Path(folder) / "run", {"h": DOCUMENT, "other": {**DOCUMENT, "host": "other"}})
        other = controller.folder.read("other")
        result = controller.run("h", lambda arguments: answer, patch, raw=True, mode=mode)
        assert isinstance(result, dict)
        assert set(result) <= {*FIELDS, *OF_ANSIBLE, "groups", "layers"} and "ansible_facts" not in result
        assert result.get("layers", DOCUMENT["layers"]) == DOCUMENT["layers"]
        json.dumps({name: value for name, value in result.items() if name not in OF_ANSIBLE}, allow_nan=False)
        assert controller.folder.read("other") == other
        assert not any("certificates" in sent for sent in controller.sent)
        assert all(sent["secrets"] == {} for sent in controller.sent)
        assert set(controller.groups["h"]) <= {"__ironspan_pending", "__ironspan_restart_base"}
        for host, entry in controller.folder.assessments().items():
            assert host == "h"
            shown(entry)


def shown(entry: t.Any) -> None:
    """Put what a plan says of a host on a page, which has nothing of its own in it."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.build import build

    with contextlib.suppress(PlanError):
        page = plan_page.page(build(samples.site(), {"w1": entry}, samples.CLUSTER, samples.NOW))
        assert "<script" not in page and "<img" not in page


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([], "it is no mapping"),
        ({**ORDINARY, "changes": 5}, "changes is no list"),
        ({**ORDINARY, "changes": [{"kind": "x"}]}, "changes.0 has no resource"),
        ({**ORDINARY, "facts": {"time_unix": "x"}}, "facts.time_unix is no number"),
        ({**ORDINARY, "facts": {"time_unix": math.nan}}, "facts.time_unix is out of range"),
        ({**ORDINARY, "verdicts": [{"ok": True}]}, "verdicts.0 has no check"),
        ({**ORDINARY, "msg": "x" * (5 << 20)}, "msg is too long"),
        ({**ORDINARY, "pending": [{"resource": "a", "needs": "b"}] * 20_001}, "pending has too many entries"),
        ({**ORDINARY, "facts": {"x": [["y" * (1 << 20)] * 20]}}, "too long"),
        ({"changed": False}, "it has no changes"),
        ({**ORDINARY, "rollback": {**BACK, "undoes": {"digest": "../../x"}}}, "undoes.digest is no digest"),
        ({**ORDINARY, "rollback": {**BACK, "undoes": {"time": 10**12}}}, "no time that has been"),
    ],
)
def test_what_has_another_form_fails_with_a_line(answer: t.Any, words: str) -> None:
    result = read(answer, "assess")
    assert result["failed"] and words in result["msg"] and len(result["msg"]) < 500


def test_a_hundred_megabytes_are_not_read_to_their_end() -> None:
    text = "x" * (100 << 20)
    assert read({**ORDINARY, "msg": text})["failed"]
    assert read({**ORDINARY, text: 1}) == ORDINARY


def test_what_ansible_would_obey_is_left_out() -> None:
    obeyed = {name: {"ironspan_plan": "/tmp/x", "site_plan_approvals": 0} for name in ORDERS}
    assert read({**ORDINARY, **obeyed}, "assess") == ORDINARY


def test_what_ansible_says_itself_stays() -> None:
    said = {"unreachable": True, "msg": "no route"}
    assert read(said, "assess") == said
    broken = {"failed": True, "msg": "MODULE FAILURE", "module_stderr": "no python", "rc": 127}
    assert read(broken, "assess") == broken


FITNESS = {
    "min_kernel": "1.0", "cgroup_versions": [1, 2], "min_cpus": 1, "min_memory_bytes": 1,
    "min_disk_bytes": 1, "ports_free": [{"port": 1, "allowed_process": ["x"]}],
    "files": [{"what": "motd", "path": "/etc/motd", "wanted": "there", "remedy": "Write it."}],
    "foreign": [{"path": "/etc/foreign"}],
}  # fmt: skip


@pytest.mark.parametrize("mode", ["assess", "apply"])
def test_what_the_real_module_answers_is_taken_as_it_is(sandbox: Sandbox, mode: str) -> None:
    sandbox.put("proc/meminfo", "MemTotal: 1 kB\n")
    document = sandbox.document(
        {"id": "motd", "kind": "file", "path": "/etc/motd", "content": "x"},
        {"id": "folder", "kind": "directory", "path": "/srv/x"},
        fitness=FITNESS,
    )
    answer = json.loads(json.dumps(sandbox.run(document=document, mode=mode)))
    assert not answer.get("failed"), answer
    assert answer["changes"] and bool(answer.get("verdicts")) is (mode == "assess")
    assert read(answer, mode) == {name: value for name, value in answer.items() if value is not None}
