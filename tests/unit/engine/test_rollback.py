# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documents that were applied are kept, and lead back: what newer ones added goes, restarts included."""

from __future__ import annotations

import copy
import json
import shutil
import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine import revisions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .test_killed import fresh, killed_at
from .test_random_machines import machines, without_readings

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

Spec = dict[str, t.Any]
UNIT: Spec = {
    "kind": "file",
    "id": "unit",
    "path": "/etc/systemd/system/app.service",
    "content": "[Service]\n",
}

# The mirror's thread does not touch anything that the forked engine uses.
pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


def text(name: str, content: str, **more: t.Any) -> Spec:
    return {"kind": "file", "id": name, "path": f"/etc/app/{name}", "content": content, **more}


def service(*restart_on: str, **more: t.Any) -> Spec:
    names = [f"l/{name}" for name in restart_on]
    return {"kind": "systemd_unit", "id": "service", "name": "app", "restart_on": names, **more}


FOLDER: Spec = {"kind": "directory", "id": "folder", "path": "/etc/app"}


def apply(sandbox: Sandbox, *resources: Spec, **params: t.Any) -> dict[str, t.Any]:
    result = sandbox.run(*resources, **params)
    assert not result.get("failed"), result["msg"]
    return result


def history(sandbox: Sandbox) -> dict[str, t.Any]:
    return sandbox.run(mode="history")


def back(sandbox: Sandbox, to: str = "", **params: t.Any) -> dict[str, t.Any]:
    """Roll back as the action does: ask for the document, then apply it."""
    composed = sandbox.run(mode="rollback", to=to)
    if composed.get("failed"):
        return composed
    applied = sandbox.run(document=composed["document"], **params)
    return {**composed, **applied}


def test_a_document_is_kept_with_its_digest_time_and_plan(sandbox: Sandbox) -> None:
    first = apply(sandbox, FOLDER, text("a", "1"), plan="p" * 64, release={"digest": "r", "time": 5})
    (kept,) = history(sandbox)["revisions"]
    assert kept["digest"] == first["digest"]
    assert (kept["plans"], kept["layers"], kept["release"]["digest"]) == (["p" * 64], ["l"], "r")
    (report,) = history(sandbox)["reports"]
    assert report["outcome"] == "applied"
    assert [change["resource"] for change in report["changes"]] == ["l/folder", "l/a"]
    assert "text" not in json.dumps(report)


def test_repairing_what_drifted_is_no_new_document(sandbox: Sandbox) -> None:
    apply(sandbox, FOLDER, text("a", "1"))
    apply(sandbox, FOLDER, text("a", "2"))
    sandbox.put("etc/app/a", "drifted")
    apply(sandbox, FOLDER, text("a", "2"))
    assert len(history(sandbox)["revisions"]) == 2
    assert not back(sandbox).get("failed")
    assert sandbox.read("etc/app/a") == "1"


def test_the_numbers_of_documents_and_reports_are_bounded(sandbox: Sandbox, no_sync: None) -> None:
    for number in range(revisions.REPORTS_KEPT + 3):
        apply(sandbox, FOLDER, text("a", str(number)))
    answer = history(sandbox)
    numbers = [revision["number"] for revision in answer["revisions"]]
    assert numbers == list(range(19, 24))
    assert len(answer["reports"]) == revisions.REPORTS_KEPT


def test_a_failed_run_is_reported_and_is_no_document(sandbox: Sandbox) -> None:
    apply(sandbox, FOLDER, text("a", "1"))
    assert sandbox.run(FOLDER, text("a", "2"), text("b", "", owner="nobody-knows-them"))["failed"]
    answer = history(sandbox)
    assert len(answer["revisions"]) == 1
    assert answer["reports"][-1]["outcome"] == "rolled back"
    assert "nobody-knows-them" in answer["reports"][-1]["reason"]


def test_layers_applied_one_by_one_are_one_document(sandbox: Sandbox) -> None:
    def whole(content: str) -> Spec:
        entries = [FOLDER, text("one", content), text("two", content)]
        ids = ["a/folder", "a/one", "b/two"]
        resources = [{**entry, "id": name} for entry, name in zip(entries, ids, strict=True)]
        return {"schema": 1, "site": "s", "host": "h", "layers": ["a", "b"], "resources": resources}

    for content in ("old", "new"):
        for layer in ("a", "b"):
            assert not sandbox.run(document=whole(content), layers=[layer]).get("failed")
    found = history(sandbox)["revisions"]
    assert [revision["layers"] for revision in found] == [["a", "b"], ["a", "b"]]
    # A run that was cut off between its layers: what is gone back to is the whole document before.
    assert not sandbox.run(document=whole("newest"), layers=["a"]).get("failed")
    assert not back(sandbox).get("failed")
    assert (sandbox.read("etc/app/one"), sandbox.read("etc/app/two")) == ("new", "new")


def test_a_layer_that_was_never_applied_here_is_left_out(sandbox: Sandbox) -> None:
    resources = [{**FOLDER, "id": "a/folder"}, {**text("two", "x"), "id": "b/two"}]
    whole = {"schema": 1, "layers": ["a", "b"], "resources": resources}
    sandbox.run(document=whole, layers=["a"])
    changed = {**whole, "resources": [{**resources[0], "mode": "0700"}, resources[1]]}
    sandbox.run(document=changed, layers=["a"])
    assert not back(sandbox).get("failed")
    assert not (sandbox.root / "etc/app/two").exists()


UNLIKE = {"resource": "l/driver", "field": "content", "value": "new"}


def test_the_newest_document_with_another_value_whatever_came_in_between(sandbox: Sandbox) -> None:
    """A driver goes back by itself, also where other changes followed, or the way back was cut off."""
    apply(sandbox, FOLDER, text("driver", "oldest"))
    apply(sandbox, FOLDER, text("driver", "old"))
    apply(sandbox, FOLDER, text("driver", "new"))
    apply(sandbox, FOLDER, text("driver", "new"), text("other", "stays"))
    for _ in range(2):
        composed = sandbox.run(mode="rollback", unlike=UNLIKE)
        assert [
            entry["content"] for entry in composed["document"]["resources"] if "driver" in entry["id"]
        ] == ["old"]
        assert not sandbox.run(document=composed["document"]).get("failed")
    assert sandbox.read("etc/app/driver") == "old"


@pytest.mark.parametrize("name", ["l/driver", "l/elsewhere"])
def test_no_document_with_another_value(sandbox: Sandbox, name: str) -> None:
    apply(sandbox, FOLDER)
    apply(sandbox, FOLDER, text("driver", "new"))
    failed = sandbox.run(mode="rollback", unlike={**UNLIKE, "resource": name})
    assert f"no document with another content of {name} is kept" in failed["msg"]
    assert sandbox.read("etc/app/driver") == "new"


def test_what_was_added_goes_and_services_follow(sandbox: Sandbox) -> None:
    apply(sandbox, FOLDER, text("app.conf", "old\n"), UNIT, service("app.conf"))
    before = sandbox.snapshot()
    extra = [
        {"kind": "directory", "id": "inner", "path": "/etc/app/d"},
        {**text("drop-in", "x"), "path": "/etc/app/d/drop-in"},
        {"kind": "symlink", "id": "link", "path": "/etc/app/link", "target": "app.conf"},
        {"kind": "hosts_entries", "id": "names", "entries": [{"address": "10.0.0.1", "names": ["one"]}]},
        {**UNIT, "id": "unit2", "path": "/etc/systemd/system/two.service"},
        {"kind": "systemd_unit", "id": "service2", "name": "two"},
    ]
    sandbox.put("etc/hosts", "127.0.0.1 localhost\n")
    apply(sandbox, FOLDER, text("app.conf", "new\n"), UNIT, *extra, service("app.conf", "drop-in"))
    sandbox.calls()
    planned = sandbox.run(mode="rollback")
    assert planned["changed"] is False
    shown = {entry["resource"].removeprefix("l/"): entry["action"] for entry in planned["changes"]}
    result = back(sandbox)
    assert {entry["resource"].removeprefix("l/"): entry["action"] for entry in result["changes"]} == shown
    assert shown["app.conf"] == "update"
    assert shown["drop-in-removed"] == shown["inner-removed"] == shown["link-removed"] == "delete"
    calls = sandbox.calls()
    assert calls.index("stop two.service") < calls.index("restart app.service")
    assert calls.count("restart app.service") == 1
    sandbox.root.joinpath("etc/hosts").unlink()
    assert sandbox.snapshot() == before
    again = back(sandbox)
    assert again["changed"] is False
    assert [revision.get("undoes") is not None for revision in history(sandbox)["revisions"]] == [
        False,
        False,
        True,
    ]


def test_a_unit_restarts_for_a_file_that_only_the_newer_document_had(sandbox: Sandbox) -> None:
    apply(sandbox, FOLDER, text("app.conf", "old\n"), UNIT, service("app.conf"))
    apply(sandbox, FOLDER, text("app.conf", "old\n"), text("more", ""), UNIT, service("app.conf", "more"))
    sandbox.calls()
    assert not back(sandbox).get("failed")
    assert sandbox.calls() == ["restart app.service"]


def test_somebody_elses_unit_is_restarted_not_stopped(sandbox: Sandbox) -> None:
    sandbox.put("etc/systemd/system/app.service", "[Service]\n")
    sandbox.put("run/units/app.service.active", "")
    sandbox.put("run/units/app.service.enabled", "")
    apply(sandbox, FOLDER)
    apply(sandbox, FOLDER, text("drop-in", "x"), service("drop-in"))
    sandbox.calls()
    assert not back(sandbox).get("failed")
    assert sandbox.calls() == ["restart app.service"]
    assert (sandbox.root / "run/units/app.service.active").exists()


LEFT: list[tuple[Spec, str]] = [
    ({"kind": "absent", "id": "x", "path": "/etc/stray"}, "not brought back"),
    ({"kind": "sysctl", "id": "x", "name": "net.a", "value": "1"}, "until the next boot"),
    ({"kind": "file", "id": "x", "path": "/etc/theirs", "content": "ours"}, "there before"),
]


@pytest.mark.parametrize(("entry", "why"), LEFT)
def test_what_cannot_be_taken_back_is_named(sandbox: Sandbox, entry: Spec, why: str) -> None:
    sandbox.put("etc/theirs", "theirs")
    sandbox.put("etc/stray", "")
    sandbox.put("proc/sys/net/a", "0\n")
    (sandbox.root / "etc/sysctl.d").mkdir(parents=True)
    apply(sandbox, FOLDER)
    apply(sandbox, FOLDER, entry)
    result = back(sandbox)
    assert not result.get("failed"), result["msg"]
    (left,) = result["rollback"]["left"]
    assert why in left["why"]
    assert sandbox.read("etc/theirs") in ("theirs", "ours")
    assert not list((sandbox.root / "etc/sysctl.d").iterdir())


def test_a_renamed_resource_and_a_moved_file(sandbox: Sandbox) -> None:
    apply(sandbox, FOLDER, text("a", "1"), text("b", "1"))
    apply(sandbox, FOLDER, {**text("a", "2"), "id": "other"}, {**text("b", "2"), "path": "/etc/app/moved"})
    result = back(sandbox)
    assert not result.get("failed"), result["msg"]
    names = {path.name: path.read_text() for path in (sandbox.root / "etc/app").iterdir()}
    assert names == {"a": "1", "b": "1"}


def test_going_back_further_and_asking_for_what_is_not_kept(sandbox: Sandbox) -> None:
    first = apply(sandbox, FOLDER, text("a", "1"))
    assert "no earlier document" in back(sandbox)["msg"]
    apply(sandbox, FOLDER, text("a", "2"))
    apply(sandbox, FOLDER, text("a", "3"))
    assert not back(sandbox).get("failed")
    assert sandbox.read("etc/app/a") == "2"
    assert back(sandbox)["changes"] == [], "asked again it goes no further"
    assert not back(sandbox, first["digest"][:12]).get("failed")
    assert sandbox.read("etc/app/a") == "1"
    wrong = back(sandbox, "ffff")
    assert first["digest"][:12] in wrong["msg"]


def test_a_host_without_a_history(sandbox: Sandbox) -> None:
    assert "no document is kept" in back(sandbox)["msg"]
    assert history(sandbox)["revisions"] == []
    assert not (sandbox.root / "var/lib/ironspan").exists()


def test_a_reset_leaves_nothing_to_go_back_to(sandbox: Sandbox) -> None:
    apply(sandbox, FOLDER, text("a", "1"), text("b", "1"))
    gone = {"kind": "absent", "id": "a", "path": "/etc/app/a"}
    # Something of the engine's is left, so its folder stays.
    sandbox.run(document=sandbox.document(gone, forget=True))
    assert not (sandbox.root / "etc/app/a").exists()
    assert history(sandbox)["revisions"] == []
    assert "no document is kept" in back(sandbox)["msg"]


def test_one_resource_of_a_layer_is_applied_and_the_whole_document_kept(sandbox: Sandbox) -> None:
    document = sandbox.document(FOLDER, text("a", "1"), text("b", "1"))
    assert not sandbox.run(document=document, layers=["l"]).get("failed")
    newer = sandbox.document(FOLDER, text("a", "2"), text("b", "2"))
    assert not sandbox.run(document=newer, layers=["l/a"]).get("failed")
    assert (sandbox.read("etc/app/a"), sandbox.read("etc/app/b")) == ("2", "1")
    assert len(history(sandbox)["revisions"]) == 2
    assert not back(sandbox).get("failed")
    assert (sandbox.read("etc/app/a"), sandbox.read("etc/app/b")) == ("1", "1")


def test_a_rollback_that_was_compared_before_something_else_was_applied(sandbox: Sandbox) -> None:
    apply(sandbox, FOLDER, text("a", "1"))
    apply(sandbox, FOLDER, text("a", "2"))
    composed = sandbox.run(mode="rollback")["document"]
    apply(sandbox, FOLDER, text("a", "3"))
    assert "another document was applied" in sandbox.run(document=composed)["msg"]
    assert sandbox.read("etc/app/a") == "3"


def test_versions_that_would_change_are_told(sandbox: Sandbox, mirror: t.Any) -> None:
    old, new = mirror.offer("/v1.0.0/tool", b"1"), mirror.offer("/v1.1.0/tool", b"2")
    for offered in (old, new):
        apply(sandbox, {"kind": "artifact", "id": "tool", "path": "/opt/tool", **offered})
    assert sandbox.run(mode="rollback")["rollback"]["replaced_artifacts"] == [
        {"resource": "l/tool", "from": "/v1.1.0/tool", "to": "/v1.0.0/tool"}
    ]


def test_a_missing_or_damaged_file_of_the_history(sandbox: Sandbox) -> None:
    for number in range(3):
        apply(sandbox, FOLDER, text("a", str(number)))
    sandbox.put("var/lib/ironspan/history/2.json", "{torn")
    sandbox.put("var/lib/ironspan/history/reports.json", "")
    assert not back(sandbox).get("failed")
    assert sandbox.read("etc/app/a") == "0"


@pytest.mark.usefixtures("no_sync")
def test_a_rollback_killed_anywhere_is_finished_by_the_next(tmp_path: Path, sandbox: Sandbox) -> None:
    apply(sandbox, FOLDER, text("app.conf", "old\n"), text("keep", "1"), UNIT, service("app.conf"))
    expected = sandbox.snapshot()
    apply(sandbox, FOLDER, text("app.conf", "new\n"), text("more", "2"), UNIT, service("app.conf", "more"))
    step = 0
    while True:
        step += 1
        host = fresh(tmp_path, sandbox)
        composed = host.run(mode="rollback")["document"]
        if not killed_at(step, host, composed):
            break
        result = back(host)
        assert not result.get("failed"), (step, result["msg"])
        leftover = {name for name in host.snapshot() if "keep" in name or "more" in name}
        assert leftover == {"etc/app/keep"}, step
        assert host.snapshot() == expected, f"after a kill at step {step}"
        assert back(host)["changed"] is False
        assert history(host)["revisions"][-1]["undoes"] == {}
        assert len(history(host)["revisions"]) == 3
    assert step > 20


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(machine=machines(), later=machines(), step=st.integers(0, 60))
def test_any_document_leads_back_to_any_other(
    tmp_path_factory: pytest.TempPathFactory,
    no_sync: None,
    sandbox: Sandbox,
    machine: tuple[list[Spec], dict[str, str]],
    later: tuple[list[Spec], dict[str, str]],
    step: int,
) -> None:
    """A, then B, then back: as A alone would have it, but for what B removed, which A does not know."""
    box = type(sandbox)(tmp_path_factory.mktemp("machine"))
    first = [entry for entry in machine[0] if entry["kind"] != "absent"]
    second = [entry for entry in later[0] if entry["kind"] != "absent"]
    for resources in (first, second):
        service_entry = resources[-1] = copy.deepcopy(resources[-1])
        known = {f"l/{entry['id']}" for entry in resources}
        service_entry["restart_on"] = [name for name in service_entry["restart_on"] if name in known]
    (box.root / "etc/d").mkdir(parents=True)
    if box.run(*first).get("failed") or not box.run(*second)["changed"]:
        return
    reference = type(sandbox)(tmp_path_factory.mktemp("reference"))
    (reference.root / "etc/d").mkdir(parents=True)
    reference.run(*first)
    if len(history(box)["revisions"]) < 2:
        return
    killed = type(sandbox)(tmp_path_factory.mktemp("killed"))
    shutil.copytree(box.root, killed.root, symlinks=True, dirs_exist_ok=True)
    killed_at(step, killed, killed.run(mode="rollback")["document"])
    for host in (box, killed):
        result = back(host)
        assert not result.get("failed"), result["msg"]
        assert host.run(*first)["changes"] == [], "all of A is there"
        extra = {
            path
            for path in without_readings(host).keys() - without_readings(reference).keys()
            if path.startswith("etc/") and path not in ("etc/hosts", "etc/d")
        }
        assert not extra, "and nothing of B's own"
