# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What describes GPUs to containerd: the layer's files, and the program that runs on hosts."""

from __future__ import annotations

import json
import tomllib
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import nvidia_cdi

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"
LOADED = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\n"
SPEC = {"cdiVersion": "0.7.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}]}


def document(render: Render, enabled: bool) -> dict[str, t.Any]:
    rendered = render(variables={"nvidia_toolkit_enabled": enabled}, more=GPUS)
    read_document(rendered.document("rack-1"))
    return rendered.resources("rack-1")


def test_it_is_off_unless_somebody_wants_it(render: Render) -> None:
    found = document(render, False)
    assert not any(name.startswith("nvidia_toolkit/") for name in found)
    assert "nvidia_toolkit/drop-in" not in found["containerd/service"]["restart_on"]


def test_containerd_restarts_for_the_drop_in_and_keeps_those_of_others(render: Render) -> None:
    found = document(render, True)
    assert "nvidia_toolkit/drop-in" in found["containerd/service"]["restart_on"]
    runtime = tomllib.loads(found["nvidia_toolkit/drop-in"]["content"])["plugins"][
        "io.containerd.cri.v1.runtime"
    ]
    assert runtime["enable_cdi"] is True
    assert str(Path(nvidia_cdi.SPEC).parent) in runtime["cdi_spec_dirs"]
    paths = [entry["path"] for entry in found.values() if "conf.d" in entry.get("path", "")]
    assert len(paths) == len(set(paths))


def test_the_unit_runs_the_program_before_containerd(render: Render) -> None:
    found = document(render, True)
    unit = found["nvidia_toolkit/unit"]["content"]
    assert found["nvidia_toolkit/program"]["path"] in unit
    assert "Before=containerd.service" in unit
    assert found["nvidia_toolkit/nvidia-ctk"]["path"] == nvidia_cdi.CTK
    assert found["nvidia_toolkit/nvidia-cdi-hook"]["path"] == nvidia_cdi.HOOK


class Machine:
    """Paths of the program in a folder, and a stand-in for nvidia-ctk that writes down how it was called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver, self.spec, self.folder = folder / "version", folder / "cdi" / "nvidia.json", folder
        monkeypatch.setattr(nvidia_cdi, "CTK", str(folder / "ctk"))
        monkeypatch.setattr(nvidia_cdi, "SPEC", str(self.spec))
        monkeypatch.setattr(nvidia_cdi, "CHARACTER_DEVICES", str(folder / "char"))
        monkeypatch.setattr(
            nvidia_cdi, "running_driver", lambda read=nvidia_cdi.running_driver: read(str(self.driver))
        )
        self.driver.write_text(LOADED)

    def ctk(self, answer: str, status: int = 0) -> None:
        """Have nvidia-ctk answer so to ``cdi generate``."""
        (self.folder / "answer").write_text(answer)
        script = f'#!/bin/sh\necho "$*" >>{self.folder}/calls\n'
        script += f'[ "$1" = system ] || {{ cat {self.folder}/answer; echo reason >&2; exit {status}; }}\n'
        (self.folder / "ctk").write_text(script)
        (self.folder / "ctk").chmod(0o755)

    def calls(self) -> list[str]:
        """Return how it was called."""
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_gpus_are_described_and_links_made(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.ctk(json.dumps(SPEC))
    assert nvidia_cdi.main() == 0
    assert json.loads(machine.spec.read_text()) == SPEC
    assert machine.spec.stat().st_mode & 0o777 == 0o644
    assert [call.split()[:2] for call in machine.calls()] == [
        ["system", "create-dev-char-symlinks"],
        ["cdi", "generate"],
    ]
    assert "driver 580.159.03: 0, all" in capsys.readouterr().out


def test_again_it_leaves_the_file_alone(machine: Machine) -> None:
    machine.ctk(json.dumps(SPEC))
    assert nvidia_cdi.main() == 0
    before = machine.spec.stat()
    assert nvidia_cdi.main() == 0
    assert machine.spec.stat().st_mtime_ns == before.st_mtime_ns
    assert machine.spec.stat().st_ino == before.st_ino


def test_what_containers_get_is_linked_where_systemd_looks(machine: Machine) -> None:
    of_all = {"containerEdits": {"deviceNodes": [{"path": "/dev/null"}, {"path": "/dev/nvidia-absent"}]}}
    of_one = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/x", "hostPath": "/dev/zero"}]}}
    machine.ctk(json.dumps({**SPEC, **of_all, "devices": [of_one]}))
    for _ in range(2):
        assert nvidia_cdi.main() == 0
        links = {path.name: path.resolve() for path in (machine.folder / "char").iterdir()}
        assert links == {"1:3": Path("/dev/null"), "1:5": Path("/dev/zero")}


def test_without_a_driver_nothing_is_described(machine: Machine) -> None:
    machine.ctk(json.dumps(SPEC))
    assert nvidia_cdi.main() == 0
    machine.driver.unlink()
    assert nvidia_cdi.main() == 0
    assert not machine.spec.exists()


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        ("", 1, "cdi generate ended with status 1: reason"),
        ("no JSON", 0, "printed no specification"),
        ("[]", 0, "printed no specification"),
        ('{"devices": [{}]}', 0, "printed no specification"),
        ('{"cdiVersion": "0.7.0", "devices": []}', 0, "found no GPU"),
        (json.dumps({**SPEC, "containerEdits": {"deviceNodes": [{}]}}), 0, "devices without paths"),
    ],
)
def test_what_cannot_be_described_is_not_left_as_it_was(
    machine: Machine, capsys: pytest.CaptureFixture[str], answer: str, status: int, says: str
) -> None:
    machine.ctk(json.dumps(SPEC))
    assert nvidia_cdi.main() == 0
    machine.ctk(answer, status)
    assert nvidia_cdi.main() == 1
    assert says in capsys.readouterr().err
    assert not machine.spec.exists()
    assert [path.name for path in machine.spec.parent.iterdir()] == []


def test_a_hung_gpu_does_not_hold_up_the_boot(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_cdi, "SECONDS", 0.2)
    (machine.folder / "ctk").write_text("#!/bin/sh\nexec sleep 60\n")
    (machine.folder / "ctk").chmod(0o755)
    assert nvidia_cdi.main() == 1


def test_a_program_that_is_missing_is_named(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert nvidia_cdi.main() == 1
    assert "cannot be run: No such file" in capsys.readouterr().err
