# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Plans that somebody edited and sealed again: nothing is done that people did not read and sign."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import types
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible_collections.ironspan.hybrid.plugins.action import operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.nodes import NodeChange
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import ObjectChange
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.owned import Owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import approvals, check, listed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import Content, Plan, parse, seal
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.moved import kinds_verdict
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.small_plays import APPLY, TWO, files, play
from tests.unit.plan import samples
from tests.unit.plan.test_playbooks import MOTD, apply, make_plan, message, write_inventory
from tests.unit.render.support import ROLES

Edit = Callable[[Content], object]
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "mine"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}],
}
STEP = {
    "action": "drain", "target": "w1", "what": "drain w1", "arithmetic": "", "disruption": "", "seconds": 1,
    "destructive": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the key of ada, with a file of allowed signers beside it."""
    path = tmp_path_factory.mktemp("keys") / "ada"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
    path.with_name("signers").write_text(f"ada@x {path.with_suffix('.pub').read_text()}")
    return path


def site(key: Path, count: int = 1, **more: t.Any) -> t.Any:
    return samples.site(approvals=count, allowed_signers=str(key.with_name("signers")), **more)


def genuine() -> Plan:
    change = {"kind": "object", "name": "ConfigMap x/y", "before": "", "after": "a: 1\n"}
    return samples.plan(
        site=samples.site(approvals=1),
        cluster={"changes": [change], "objects": {"flannel": [BINDING]}},
        operation={"name": "upgrade", "steps": [STEP], "arguments": {}},
    )


def empty_everything(content: Content) -> None:
    """Claim that nothing changes: the attack that needed no approval."""
    for host in content["hosts"].values():
        host.update(changes=[], pending=[])
    content["cluster"]["changes"] = []
    content["steps"] = []


def swap_a_document(content: Content) -> None:
    name = content["hosts"]["w1"]["document"]["resources"][0]
    content["resources"][name]["content"] = "root::0:0::/root:/bin/sh\n"


EDITS: dict[str, Edit] = {
    "everything emptied": empty_everything,
    "changes of a host": lambda c: c["hosts"]["w1"].update(changes=[]),
    "what a host waits for": lambda c: c["hosts"]["w1"].update(pending=[]),
    "changes of the cluster": lambda c: c["cluster"].update(changes=[]),
    "steps": lambda c: c.update(steps=[]),
    "objects": lambda c: c["cluster"]["objects"].update(flannel=[{**BINDING, "metadata": {"name": "other"}}]),
    "one more layer of objects": lambda c: c["cluster"]["objects"].update(gvisor=[BINDING]),
    "a document": swap_a_document,
    "kinds of changes": lambda c: [e.update(kind="file") for e in c["hosts"]["w1"]["changes"]],
    "policy: no approvals": lambda c: c["policy"].update(approvals=0),
    "policy: other kinds": lambda c: c["policy"].update(unapproved_kinds=["file", "systemd_unit", "kubeadm"]),
    "time": lambda c: c.update(expires=c["expires"] + 10**7),
    "arguments": lambda c: c.update(arguments={"ironspan_force_restore": True}),
    "state": lambda c: c.update(bound={"clusters": []}),
    "nodes": lambda c: c["cluster"]["nodes"].update(w1={"labels": {"gpu": "yes"}, "taints": []}),
    "warnings": lambda c: c.update(warnings=[]),
    "summary": lambda c: c["summary"].update(changes=0),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_plan_that_is_sealed_again_needs_its_own_signatures(
    tmp_path: Path, key: Path, name: str
) -> None:
    made = genuine()
    path = samples.written(tmp_path, made)
    approvals.sign(made.data, path, key)
    assert check.check(made, path, site(key), samples.NOW) == ["ada@x"]
    content = copy.deepcopy(made.content)
    EDITS[name](content)
    with pytest.raises(PlanError, match="was altered"):
        parse(made.data.replace(json.dumps(made.content["site"]["name"]).encode(), b'"other"'))
    with pytest.raises(
        PlanError, match=r"needs 1 approvals and has 0: nobody \(.*not a signature of this plan"
    ):
        check.check(parse(seal(content).data), path, site(key), samples.NOW)


def places(value: t.Any, before: tuple[t.Any, ...] = ()) -> list[tuple[t.Any, ...]]:
    """Return the way to every value of a plan."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [before] * bool(before) + [way for key, inner in pairs for way in places(inner, (*before, key))]


PLACES = places(genuine().content)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 9), st.text("ab", max_size=2), st.just([]), st.just({})
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(way=st.sampled_from(PLACES), value=VALUES, kinds=st.sampled_from([(), ("zone",)]))
def test_any_edit_of_a_signed_plan_is_refused(
    tmp_path: Path, key: Path, way: tuple[t.Any, ...], value: t.Any, kinds: tuple[str, ...]
) -> None:
    made = genuine()
    path = samples.written(tmp_path, made)
    if not approvals.folder_of(path).exists():
        approvals.sign(made.data, path, key)
    content = copy.deepcopy(made.content)
    inner = content
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = value
    if seal(content).digest == made.digest:
        return
    text = json.dumps({"digest": made.digest, "plan": content}, sort_keys=True, separators=(",", ":"))
    with pytest.raises(PlanError):
        parse(f"{text}\n".encode())
    with pytest.raises(PlanError):
        check.check(parse(seal(content).data), path, site(key, unapproved_kinds=kinds), samples.NOW)


def test_the_stricter_policy_holds(tmp_path: Path, key: Path) -> None:
    made = samples.plan(site=samples.site(approvals=2, unapproved_kinds=("file", "sysctl")))
    assert made.content["policy"] == {"approvals": 2, "unapproved_kinds": ["file", "sysctl"]}
    path = samples.written(tmp_path, made)
    # The same site by an inventory without a policy: it does not know whose signatures count.
    with pytest.raises(
        PlanError, match=r"made where 2 approvals are needed.*inventory that the plan was made"
    ):
        check.check(made, path, samples.site(), samples.NOW)
    with pytest.raises(PlanError, match="needs 2 approvals and has 0"):
        check.check(made, path, site(key, 0), samples.NOW)
    with pytest.raises(PlanError, match="needs 3 approvals and has 0"):
        check.check(made, path, site(key, 3), samples.NOW)
    strict = check.stricter(made, samples.site(approvals=1, unapproved_kinds=("file", "user")).plan)
    assert (strict.approvals, strict.unapproved_kinds) == (2, ("file",))
    assert check.stricter(made, samples.site(unapproved_kinds=("user",)).plan).unapproved_kinds == (
        "file", "sysctl",
    )  # fmt: skip
    hours = samples.NOW + 3600
    with pytest.raises(PlanError, match="expired"):
        check.check(made, path, site(key, 1, expires_hours=1), hours)


DOCUMENT = samples.document("w1")


@pytest.mark.parametrize(
    ("answer", "free", "found"),
    [
        (samples.ANSWER, ["file", "systemd_unit", "kubeadm"], ""),
        (samples.QUIET, [], ""),
        (samples.ANSWER, ["file"], "node/join (kubeadm), node/kubelet (systemd_unit)"),
        # What the host says of the kind does not count.
        (
            {"changes": [{**samples.ANSWER["changes"][1], "kind": "file"}]},
            ["file"],
            "node/kubelet (systemd_unit)",
        ),
        ({"changes": [{**samples.ANSWER["changes"][0], "resource": "x"}]}, ["file"], "x (unknown)"),
    ],
)
def test_kinds_that_need_no_approval_are_those_of_what_is_done(
    answer: dict[str, t.Any], free: list[str], found: str
) -> None:
    verdict = kinds_verdict(DOCUMENT, answer, free)
    assert verdict["ok"] is (not found)
    assert verdict["found"] == (f"not approved, and this differs: {found}" if found else "needs no approval")


def test_a_plan_without_enough_signatures_is_held_to_the_free_kinds(tmp_path: Path, key: Path) -> None:
    claimed = copy.deepcopy(genuine().content)
    empty_everything(claimed)
    claimed["policy"] = {"approvals": 0, "unapproved_kinds": []}
    plan = seal(claimed)
    policy = site(key, unapproved_kinds=("hosts_entries",))
    path = samples.written(tmp_path, plan)
    names = check.check(plan, path, policy, samples.NOW)
    assert check.free_kinds(plan, policy.plan, names) == ["hosts_entries"]
    approvals.sign(plan.data, path, key)
    names = check.check(plan, path, policy, samples.NOW)
    assert names == ["ada@x"] and check.free_kinds(plan, policy.plan, names) is None
    assert check.free_kinds(plan, samples.site().plan, []) is None


OLD, NEW = {"a": 0}, {"a": 1}
LINE = listed.entry(listed.OBJECT, "ConfigMap x/y", OLD, NEW)
NAME = "ClusterRoleBinding mine"
GONE = Owned("identity", "ClusterRoleBinding", "", "mine", "uid-1", "access")
ANEW = GONE._replace(uid="uid-2")


@pytest.mark.parametrize(
    ("lines", "changes", "removed", "free", "refused"),
    [
        ([LINE], [ObjectChange("ConfigMap x/y", OLD, NEW)], [], None, ""),
        ([LINE], [], [], None, ""),
        ([LINE], [ObjectChange("ConfigMap x/y", OLD, {"a": 2})], [], None, "ConfigMap x/y"),
        ([], [ObjectChange(NAME, {}, BINDING)], [], None, NAME),
        ([LINE], [ObjectChange(NAME, {}, BINDING)], [], None, NAME),
        ([{**LINE, "kind": "node"}], [ObjectChange("ConfigMap x/y", OLD, NEW)], [], None, "ConfigMap x/y"),
        # Listed whole: applied as it was listed, whatever is there by now; not when its body is another.
        (
            [listed.entry("object", NAME, {}, BINDING)],
            [ObjectChange(NAME, OLD, {**BINDING, "x": 1})],
            [],
            None,
            "",
        ),
        ([listed.entry("object", NAME, {}, NEW)], [ObjectChange(NAME, {}, BINDING)], [], None, NAME),
        ([listed.removal(GONE)], [], [GONE], None, ""),
        ([], [], [GONE], None, f"{NAME} (deleted)"),
        ([listed.removal(GONE)], [], [ANEW], None, f"{NAME} (deleted)"),
        ([{**listed.removal(GONE), "uid": ""}], [], [GONE], None, f"{NAME} (deleted)"),
        ([listed.entry("object", NAME, {}, BINDING)], [], [GONE], None, f"{NAME} (deleted)"),
        ([LINE], [ObjectChange("ConfigMap x/y", OLD, NEW)], [], ["cluster_object"], ""),
        ([LINE], [ObjectChange("ConfigMap x/y", OLD, NEW)], [], ["file"], "was not approved"),
        ([LINE], [], [], ["file"], ""),
        ([listed.removal(GONE)], [], [GONE], ["file"], "was not approved"),
    ],
)
def test_objects_are_held_against_the_list(
    lines: list[Content],
    changes: list[ObjectChange],
    removed: list[Owned],
    free: list[str] | None,
    refused: str,
) -> None:
    planned = {"changes": lines, "free": free}
    if not refused:
        listed.insist_on_objects(planned, changes, [(NAME, BINDING)], removed)
        return
    with pytest.raises(PlanError, match=refused.replace("(", r"\(").replace(")", r"\)")):
        listed.insist_on_objects(planned, changes, [(NAME, BINDING)], removed)


TAINT = {"key": "gpu", "value": "", "effect": "NoSchedule"}
OTHERS = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("planned", "now", "ok"),
    [
        (({"labels": {}}, {"labels": {"a": "b"}}), ({"labels": {}}, {"labels": {"a": "b"}}), True),
        (({"labels": {}}, {"labels": {"a": "b"}}), ({"labels": {}}, {"labels": {"a": "c"}}), False),
        (({"labels": {}}, {"labels": {"a": "b"}}), ({"labels": {"x": "y"}}, {"labels": {}}), False),
        # Somebody else's taint came meanwhile.
        (({}, {"taints": [TAINT]}), ({"taints": [OTHERS]}, {"taints": [OTHERS, TAINT]}), True),
        (({"taints": [OTHERS]}, {"taints": [OTHERS, TAINT]}), ({}, {"taints": [TAINT]}), True),
        (({}, {"taints": [TAINT]}), ({"taints": [TAINT]}, {}), False),
        (({}, {"taints": [TAINT]}), ({}, {"taints": [{**TAINT, "effect": "NoExecute"}]}), False),
        (None, ({}, {"labels": {"a": "b"}}), False),
    ],
)
def test_labels_and_taints_are_held_against_the_list(
    planned: tuple[Content, Content] | None, now: tuple[Content, Content], ok: bool
) -> None:
    lines = [listed.entry(listed.NODE, "Node w1", *planned)] if planned else []
    change = NodeChange("w1", *now)
    if ok:
        listed.insist_on_nodes({"changes": lines}, [change])
        return
    with pytest.raises(PlanError, match="does not list this change in the cluster: Node w1"):
        listed.insist_on_nodes({"changes": lines}, [change])


@given(st.dictionaries(st.text("ab", max_size=2), st.text("ab", max_size=2)), st.booleans())
def test_what_was_just_listed_is_accepted(labels: dict[str, str], whole: bool) -> None:
    item = {"kind": "ConfigMap", "metadata": {"name": "x", "labels": labels}}
    change = ObjectChange("ConfigMap x", {} if whole else OLD, item)
    planned = {"changes": [yaml.safe_load(yaml.safe_dump(listed.entry("object", *change)))]}
    listed.insist_on_objects(planned, [change])


def with_policy(folder: Path, signers: Path, kinds: str) -> Path:
    inventory = write_inventory(folder)
    policy = f"site_plan_approvals: 1\n    site_plan_allowed_signers: {signers}\n    "
    policy += f"site_plan_unapproved_kinds: {kinds}\n    "
    inventory.write_text(inventory.read_text().replace("user_root:", f"{policy}user_root:"))
    return inventory


def test_in_real_runs_nothing_is_done_that_was_not_read_and_signed(tmp_path: Path, key: Path) -> None:
    inventory = with_policy(tmp_path, key.with_name("signers"), "[hosts_entries]")
    plan, path = make_plan(tmp_path), tmp_path / "p.plan.json"
    signatures = approvals.folder_of(path)

    # Sealed again with empty lists, unsigned: the run may begin, and nothing may differ.
    content = copy.deepcopy(plan.content)
    empty_everything(content)
    forged = seal(content)
    path.write_bytes(forged.data)
    done = apply(tmp_path)
    assert done.returncode == 2, done.stdout
    assert "not approved, and this differs: base/folder (directory), base/motd (file)" in message(done)
    assert files(tmp_path) == {}

    # The same, and somebody was brought to sign it, because it says that nothing changes.
    approvals.sign(forged.data, path, key)
    done = apply(tmp_path)
    assert done.returncode == 2 and "changed since the plan was made: base/folder, base/motd" in message(done)
    assert files(tmp_path) == {}

    # Signed, but the text that people read is not the one of the document.
    content = copy.deepcopy(plan.content)
    content["hosts"]["w2"]["changes"][1]["text"]["after"] = "Welcome.\n"
    shutil.rmtree(signatures)
    path.write_bytes(seal(content).data)
    approvals.sign(path.read_bytes(), path, key)
    done = apply(tmp_path)
    assert done.returncode == 2 and "changed since the plan was made: base/motd" in message(done)
    assert list(files(tmp_path)) == [name for name in files(tmp_path) if name.startswith("roots/a1/")]

    # Nobody can take the policy away for one run, in whichever way variables are given.
    shutil.rmtree(signatures)
    path.write_bytes(plan.data)
    more = tmp_path / "more.yml"
    more.write_text("site_plan_approvals: 0\n")
    own = tmp_path / "own"
    own.write_text("")
    for number, option in enumerate(
        (
            "site_plan_approvals=0",
            json.dumps({"site_plan_approvals": 0}),
            f"@{more}",
            f"site_plan_allowed_signers={own}",
            json.dumps({"site_plan_unapproved_kinds": ["file", "directory"]}),
            "site_plan_expires_hours=1000",
        )
    ):
        with_plan = ("-e", f"ironspan_plan={path}") if number % 2 == 0 else ()
        done = play(tmp_path, APPLY.format(roles=ROLES), *TWO, "-e", option, *with_plan)
        assert done.returncode == 2, done.stdout
        assert "cannot be given for one run" in message(done), option
    assert not (tmp_path / MOTD).exists()

    # Another inventory of the same site, without the policy.
    inventory.write_text("".join(x for x in inventory.read_text().splitlines(True) if "site_plan_" not in x))
    done = apply(tmp_path)
    assert done.returncode == 2
    assert "was made where 1 approvals are needed, and this inventory does not say whose" in message(done)
    assert not (tmp_path / MOTD).exists()


@pytest.mark.parametrize(
    ("free", "claimed", "destructive", "words"),
    [
        (None, [STEP], False, ""),
        (["drain_all"], [STEP], False, ""),
        (["file"], [STEP], False, "was not approved, and these steps need it: drain w1"),
        ([], [STEP], False, "was not approved"),
        (None, [], False, "the plan does not have: drain w1"),
        (None, [STEP], True, "the plan does not have: drain w1"),
        (None, [{**STEP, "destructive": True}], True, "cannot be undone"),
    ],
)
def test_steps_are_those_that_are_left_and_not_those_that_are_claimed(
    monkeypatch: pytest.MonkeyPatch,
    free: list[str] | None,
    claimed: list[Content],
    destructive: bool,
    words: str,
) -> None:
    monkeypatch.setattr(operation, "hosts_in_any_order", lambda name: False)
    run: t.Any = object.__new__(operation.ActionModule)
    run._variables = {}
    planned = types.SimpleNamespace(operation=lambda name: claimed, head=lambda: {"free": free})
    steps = [Step("drain", "w1", "drain w1", destructive=destructive)]
    if not words:
        run._insist(samples.site(), "drain_all", steps, planned)
        return
    with pytest.raises(OperationError, match=words):
        run._insist(samples.site(), "drain_all", steps, planned)
