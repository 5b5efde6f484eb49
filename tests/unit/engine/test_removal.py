# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a layer declares no longer goes, is planned like any change, and nothing else does."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils import _resources
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.crash import CrashPoints

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

Spec = dict[str, t.Any]
UNITS = "/etc/systemd/system"
APP: list[Spec] = [
    {"kind": "directory", "id": "app/folder", "path": "/etc/app"},
    {"kind": "file", "id": "app/config", "path": "/etc/app/config", "content": "x"},
    {"kind": "file", "id": "app/unit", "path": f"{UNITS}/app.service", "content": "[Service]\n"},
    {"kind": "file", "id": "app/tick-unit", "path": f"{UNITS}/tick.timer", "content": "[Timer]\n"},
    {"kind": "systemd_unit", "id": "app/service", "name": "app", "requires": ["app/unit"]},
    {"kind": "systemd_unit", "id": "app/tick", "name": "tick.timer", "requires": ["app/tick-unit"]},
]
OTHER: list[Spec] = [
    {"kind": "directory", "id": "other/folder", "path": "/etc/other"},
    {"kind": "file", "id": "other/file", "path": "/etc/other/file", "content": "y"},
]
GONE = ["app/tick-unit-removed-1", "app/unit-removed-1", "app/tick-unit-removed", "app/unit-removed"]


def document(*resources: Spec, prunes: t.Sequence[str] = ("app",), **more: t.Any) -> Spec:
    layers = ["app", "other"]
    head = {"schema": 1, "site": "s", "host": "h", "layers": layers, **more}
    return {**head, "prunes": list(prunes), "resources": list(resources)}


def run(box: Sandbox, wanted: Spec, **more: t.Any) -> dict[str, t.Any]:
    result = box.run(document=wanted, **more)
    assert not result.get("failed"), result["msg"]
    return result


def names(result: dict[str, t.Any]) -> list[str]:
    return [entry["resource"] for entry in result["changes"]]


def owned(box: Sandbox) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(box.read("var/lib/ironspan/state.json"))["owned"]
    return found


def test_deletions_stand_in_the_plan_and_only_they_are_done(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP, *OTHER))
    sandbox.calls()
    planned = run(sandbox, document(*OTHER), mode="assess")
    assert names(planned) == [*GONE, "app/config-removed", "app/folder-removed"]
    assert {entry["action"] for entry in planned["changes"]} == {"stop", "delete"}
    assert [entry["action"] for entry in planned["changes"]][:2] == ["stop", "stop"]
    assert planned["diff"][-1]["before_header"].startswith("/etc/app ")
    assert (sandbox.root / "etc/app/config").exists() and sandbox.calls() == []
    assert run(sandbox, document(*OTHER), mode="assess")["fingerprint"] == planned["fingerprint"]
    done = run(sandbox, document(*OTHER))
    assert names(done) == names(planned)
    assert not (sandbox.root / "etc/app").exists()
    assert list((sandbox.root / UNITS.lstrip("/")).iterdir()) == []
    assert [line for line in sandbox.calls() if line.startswith(("stop", "disable"))][:1] != []
    assert sandbox.read("etc/other/file") == "y"
    assert set(owned(sandbox)) == {"other/folder", "other/file"}
    assert names(run(sandbox, document(*OTHER))) == []


def test_what_others_put_into_a_folder_stays_with_the_folder(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP))
    sandbox.put("etc/app/mine", "z")
    assert "app/folder-removed" not in names(run(sandbox, document()))
    assert [path.name for path in (sandbox.root / "etc/app").iterdir()] == ["mine"]
    assert names(run(sandbox, document())) == [] and owned(sandbox) == {}


def test_a_layer_that_does_not_prune_keeps_all(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP, *OTHER))
    assert names(run(sandbox, document(prunes=["other"]))) == ["other/file-removed", "other/folder-removed"]
    assert sandbox.read("etc/app/config") == "x"


def test_a_layer_that_is_left_out_keeps_all(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP, *OTHER))
    for part in (["other"], ["app/config*"]):
        assert names(run(sandbox, document(*OTHER), layers=part)) == []
    assert sandbox.read("etc/app/config") == "x"


def test_a_path_that_another_resource_has_stays(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP))
    moved = {**APP[1], "id": "other/config", "requires": ["other/folder"]}
    home = {**APP[0], "id": "other/folder"}
    assert names(run(sandbox, document(home, moved)))[:2] == GONE[:2]
    assert sandbox.read("etc/app/config") == "x"


def test_a_unit_that_stays_restarts_without_its_drop_in(sandbox: Sandbox) -> None:
    drop_in = {"kind": "file", "id": "app/drop-in", "path": "/etc/app/drop-in", "content": "z"}
    service = {**APP[4], "restart_on": ["app/drop-in"]}
    run(sandbox, document(*APP[:3], drop_in, service))
    sandbox.calls()
    assert names(run(sandbox, document(*APP[:3], APP[4]))) == ["app/drop-in-removed", "app/service"]
    assert any(line.startswith("restart") for line in sandbox.calls())


def test_a_unit_that_the_document_stops_does_so_before_its_files_go(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP[:3], {**APP[4], "restart_on": ["app/config", "app/unit"]}))
    stop = {"kind": "systemd_unit", "id": "app/service", "name": "app", "enabled": False, "state": "stopped"}
    done = run(sandbox, document(stop, prunes=["app", "other"], forget=True))
    assert names(done) == ["app/service", "app/unit-removed", "app/config-removed", "app/folder-removed"]


def test_what_a_killed_run_had_begun_goes_too(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    for stop in (6, 9, 12, 15, 18, 24):
        reached = 0

        def reach(_: CrashPoints, stop: int = stop) -> None:
            nonlocal reached
            reached += 1
            if reached == stop:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(CrashPoints, "reach", reach)
            with pytest.raises(Killed):
                sandbox.run(document=document(*APP, *OTHER))
        run(sandbox, document())
        assert not (sandbox.root / "etc/app").exists(), stop
        assert list((sandbox.root / UNITS.lstrip("/")).iterdir()) == []
        run(sandbox, document(prunes=["other"]))


def test_a_removal_that_is_killed_is_gone_on_with(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    for stop in range(3, 22, 3):
        run(sandbox, document(*APP))
        reached = 0

        def reach(_: CrashPoints, stop: int = stop) -> None:
            nonlocal reached
            reached += 1
            if reached == stop:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(CrashPoints, "reach", reach)
            with contextlib.suppress(Killed):
                sandbox.run(document=document())
        run(sandbox, document())
        assert not (sandbox.root / "etc/app").exists() and owned(sandbox) == {}


def test_a_failure_brings_back_what_was_removed(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP))
    before = sandbox.snapshot()
    fails = {"kind": "systemd_unit", "id": "other/u", "name": "nothing"}
    assert sandbox.run(document=document(fails))["failed"]
    after = sandbox.snapshot()
    assert {k: v for k, v in after.items() if "run" not in k} == {
        k: v for k, v in before.items() if "run" not in k
    }


def test_removal_goes_before_what_the_layer_itself_declares_absent(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP))
    sandbox.put("etc/app/made-by-the-program", "z")
    rest = {"kind": "absent", "id": "app/rest", "path": "/etc/app", "recursive": True}
    assert names(run(sandbox, document(rest))) == [*GONE, "app/rest"]
    assert not (sandbox.root / "etc/app").exists()


def test_a_reset_leaves_nothing_that_is_known(sandbox: Sandbox) -> None:
    run(sandbox, document(*APP, *OTHER))
    run(sandbox, document(prunes=["app", "other"], forget=True))
    assert not (sandbox.root / "var/lib/ironspan/state.json").exists()


def test_prunes_is_a_list_of_layers(sandbox: Sandbox) -> None:
    assert "prunes must be a list of layers" in sandbox.run(document=document() | {"prunes": "app"})["msg"]


def test_every_kind_says_what_becomes_of_it() -> None:
    """It stays, is removed in its own way, has paths, or is named in what a rollback leaves."""
    for name in _resources.NAMES:
        kind = t.cast(t.Any, _resources.load(name))
        says = [each for each in ("stays", "removal", "owns") if hasattr(kind, each)]
        if hasattr(kind, "stays"):
            assert says == ["stays"] and kind.stays[0].islower()
        if "paths" not in kind.fields and "path" not in kind.fields and "key_path" not in kind.fields:
            assert says or name in WITHOUT_A_PLACE


WITHOUT_A_PLACE = ("etcd_member", "kubeadm_certificates", "kubelet_certificate")
"""They change what other resources brought."""
