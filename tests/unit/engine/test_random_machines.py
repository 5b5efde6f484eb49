# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Documents and machines made at random: the plan is what is done, and a kill anywhere is repaired."""

from __future__ import annotations

import shutil
import typing as t
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .test_engine import SERVICE, Spec
from .test_killed import killed_at

if t.TYPE_CHECKING:
    from tests.unit.conftest import Sandbox

# The mirror's thread does not touch anything that the forked engine uses.
pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")

CONTENTS = st.sampled_from(["", "a\n", "b\n", "ü\x7f\n"])
MODES = st.sampled_from(["0600", "0644", "0755"])


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[Spec], dict[str, str]]:
    """A document over a few paths in any order, and what is on the machine before."""
    there = draw(st.dictionaries(st.sampled_from(["etc/d/f0", "etc/d/f1", "etc/f2", "etc/hosts"]), CONTENTS))
    resources: list[Spec] = []
    if draw(st.booleans()) or not any(path.startswith("etc/d/") for path in there):
        resources.append({"kind": "directory", "id": "d", "path": "/etc/d", "mode": draw(MODES)})
    for number, path in enumerate(("/etc/d/f0", "/etc/d/f1", "/etc/f2")):
        kind = draw(st.sampled_from(["file", "symlink", "absent", "none"]))
        if kind == "file":
            resources.append(
                {
                    "kind": "file",
                    "id": f"f{number}",
                    "path": path,
                    "content": draw(CONTENTS),
                    "mode": draw(MODES),
                }
            )
        elif kind == "symlink":
            resources.append({"kind": "symlink", "id": f"f{number}", "path": path, "target": "x"})
        elif kind == "absent":
            resources.append({"kind": "absent", "id": f"f{number}", "path": path})
    if draw(st.booleans()):
        entries = [{"address": "10.0.0.1", "names": ["a"]}] if draw(st.booleans()) else []
        resources.append({"kind": "hosts_entries", "id": "h", "entries": entries})
    names = [f"l/{resource['id']}" for resource in resources]
    resources = draw(st.permutations(resources))
    resources.append({"kind": "file", "id": "unit", "path": "/etc/systemd/system/app.service", "content": ""})
    triggers = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    resources.append(
        {**SERVICE, "restart_on": triggers, "state": draw(st.sampled_from(["started", "stopped"]))}
    )
    return resources, there


def machine_with(kind: type[Sandbox], folder: Path, files: dict[str, str]) -> Sandbox:
    """Make a machine that has some files before anything is applied to it."""
    box = kind(folder)
    for path, content in files.items():
        box.put(path, content)
    (box.root / "etc/d").mkdir(exist_ok=True)
    return box


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(machine=machines(), later=machines())
def test_the_plan_of_check_mode_is_what_apply_does(
    tmp_path_factory: pytest.TempPathFactory,
    no_sync: None,
    sandbox: Sandbox,
    machine: tuple[list[Spec], dict[str, str]],
    later: tuple[list[Spec], dict[str, str]],
) -> None:
    box = machine_with(type(sandbox), tmp_path_factory.mktemp("machine"), machine[1])
    for resources in (machine[0], later[0]):
        planned = box.run(*resources, check=True)
        assert not planned.get("failed"), planned["msg"]
        applied = box.run(*resources)
        assert not applied.get("failed"), applied["msg"]
        assert applied["changes"] == planned["changes"]
        assert applied["diff"] == planned["diff"]
        again = box.run(*resources, check=True)
        assert again["changes"] == []
        assert again["fingerprint"] == applied["fingerprint"]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(machine=machines(), later=machines(), step=st.integers(1, 60))
def test_a_kill_on_any_machine_is_repaired(
    tmp_path_factory: pytest.TempPathFactory,
    no_sync: None,
    sandbox: Sandbox,
    machine: tuple[list[Spec], dict[str, str]],
    later: tuple[list[Spec], dict[str, str]],
    step: int,
) -> None:
    killed = machine_with(type(sandbox), tmp_path_factory.mktemp("killed"), machine[1])
    killed.run(*machine[0])
    reference = type(sandbox)(tmp_path_factory.mktemp("reference"))
    shutil.copytree(killed.root, reference.root, symlinks=True, dirs_exist_ok=True)
    assert not reference.run(*later[0]).get("failed")
    killed_at(step, killed, killed.document(*later[0]))
    # The next run may be about something else entirely; what was begun is still finished or superseded.
    assert not killed.run(*machine[0]).get("failed")
    assert not killed.run(*later[0]).get("failed")
    assert without_readings(killed) == without_readings(reference)
    assert killed.run(*later[0])["changes"] == []


def without_readings(box: Sandbox) -> dict[str, t.Any]:
    """Describe a machine but for what the service has read: it may have been restarted once more."""
    return {path: what for path, what in box.snapshot().items() if not path.endswith(".active")}
