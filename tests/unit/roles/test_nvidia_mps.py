# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts whose GPUs are shared: the daemon, its limits, and what the device plugin is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.document import read_document
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import nvidia_mps

from tests.support.waiting import until
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
GPUS = "all: {children: {gpu: {hosts: {rack-1: }}}}\n"
ON = {"nvidia_toolkit_enabled": True, "nvidia_device_plugin_enabled": True, "nvidia_mps_enabled": True}
EQUAL = {"pods": 4, "threads_percent": 0, "memory_mib": 0}
CONTROL = """#!/bin/sh
if [ "$1" = -f ]; then
  echo "daemon $CUDA_MPS_PIPE_DIRECTORY" >>"$WROTE"; touch "$WROTE.up"; exec sleep 600
fi
read -r line
[ -e "$WROTE.up" ] || exit 1
case "$line" in *"$REFUSES"*) echo refused >&2; exit 1 ;; esac
case "$line" in get_*) echo 100 ;; *) echo "$line" >>"$WROTE" ;; esac
"""
PROGRAM = """
import sys
from ansible_collections.ironspan.hybrid.plugins.module_utils._programs import nvidia_mps as mps
folder, path, refuses, usual = sys.argv[1], sys.argv[2], sys.argv[3], mps.environment
mps.ROOT, mps.READY = f"{folder}/mps", f"{folder}/mps/.ready"
mps.DRIVER, mps.SETTINGS = folder, f"{folder}/settings"
more = {"PATH": path, "WROTE": f"{folder}/wrote", "REFUSES": refuses}
mps.environment = lambda: {**usual(), **more}
mps.os.environ["PATH"] = path
sys.exit(mps.main())
"""


def document(render: Render, **variables: t.Any) -> dict[str, t.Any]:
    rendered = render(variables=variables, more=GPUS)
    read_document(rendered.document("rack-1"))
    return rendered.resources("rack-1")


def test_it_is_off_unless_somebody_wants_it(render: Render) -> None:
    found = document(render, **{**ON, "nvidia_mps_enabled": False})
    assert not [name for name in found if name.startswith("nvidia_mps/")]
    assert "nvidia_device_plugin/sharing" not in found
    assert "mps" not in found["nvidia_device_plugin/unit"]["content"]


def test_the_plugin_offers_shares_of_the_daemon_that_the_host_runs(render: Render) -> None:
    found = document(render, **ON, nvidia_mps_pods_count=3)
    names = list(found)
    assert names.index("nvidia_mps/service") < names.index("nvidia_device_plugin/service")
    assert json.loads(found["nvidia_mps/settings"]["content"]) == {**EQUAL, "pods": 3}
    assert found["nvidia_mps/settings"]["path"] == nvidia_mps.SETTINGS
    sharing = json.loads(found["nvidia_device_plugin/sharing"]["content"])
    assert sharing["sharing"]["mps"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 3}]
    # The plugin names what is shared so, and looks for the daemon in a folder of that name.
    assert sharing["sharing"]["mps"]["renameByDefault"] is True
    assert nvidia_mps.RESOURCE == "nvidia.com/gpu.shared"
    plugin = found["nvidia_device_plugin/unit"]["content"]
    assert f"until [ -e {nvidia_mps.READY} ]" in plugin
    assert f"CONFIG_FILE={found['nvidia_device_plugin/sharing']['path']}\n" in plugin
    unit = found["nvidia_mps/unit"]["content"]
    assert found["nvidia_mps/program"]["path"] in unit
    assert "BindPaths=/mps/shm:/dev/shm" in unit


def test_nothing_changes_while_a_process_computes(render: Render) -> None:
    found = document(render, **ON)
    assert found["nvidia_mps/settings"]["idle"] == ["/dev/nvidia-uvm"]
    for name in ("nvidia_mps/program", "nvidia_mps/mount", "nvidia_device_plugin/sharing"):
        assert "nvidia_mps/settings" in found[name]["requires"], name
    for service in ("nvidia_mps/service", "nvidia_device_plugin/service"):
        assert "nvidia_mps/settings" in found[service]["restart_on"]


@pytest.mark.parametrize(
    ("settings", "memory", "wanted"),
    [
        (
            EQUAL,
            {"0": 81559, "1": 81559},
            [
                "set_default_device_pinned_mem_limit 0 20389M",
                "set_default_device_pinned_mem_limit 1 20389M",
                "set_default_active_thread_percentage 25",
            ],
        ),
        (
            {"pods": 3, "threads_percent": 50, "memory_mib": 8192},
            {"10": 81559, "2": 81559},
            [
                "set_default_device_pinned_mem_limit 2 8192M",
                "set_default_device_pinned_mem_limit 10 8192M",
                "set_default_active_thread_percentage 50",
            ],
        ),
    ],
)
def test_limits(settings: t.Any, memory: t.Any, wanted: list[str]) -> None:
    assert nvidia_mps.commands(settings, memory) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no GPU"),
        ("0, [N/A], Disabled\n", "did not say how much memory"),
        ("No devices were found\n", "did not say how much memory"),
        ("0, 81559, Disabled\n1, 81559, Enabled\n", "GPU 1 is divided"),
    ],
)
def test_gpus_that_cannot_be_shared(text: str, says: str) -> None:
    with pytest.raises(nvidia_mps.Failed, match=says):
        nvidia_mps.gpus(text)


def test_a_limit_that_no_gpu_has() -> None:
    with pytest.raises(nvidia_mps.Failed, match="GPU 0 has 16384 MiB, and one pod would get 20000"):
        nvidia_mps.commands({**EQUAL, "memory_mib": 20000}, {"0": 16384})


def started(folder: Path, refuses: str = "nothing") -> subprocess.Popen[str]:
    """Start the program, with stand-ins for NVIDIA's."""
    (folder / "bin").mkdir()
    (folder / "mps").mkdir()
    (folder / "settings").write_text(json.dumps(EQUAL))
    smi = "#!/bin/sh\necho '0, 81559, [N/A]'\n"
    for name, text in (("nvidia-cuda-mps-control", CONTROL), ("nvidia-smi", smi)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    command = [sys.executable, "-c", PROGRAM, str(folder), path, refuses]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


LIMITS = ["set_default_device_pinned_mem_limit 0 20389M", "set_default_active_thread_percentage 25"]


def test_the_plugin_may_begin_once_all_limits_are_set(tmp_path: Path) -> None:
    ready = tmp_path / "mps" / ".ready"
    with started(tmp_path) as program:
        assert program.stdout is not None
        said = [program.stdout.readline().strip() for _ in range(3)]
        assert said == [*LIMITS, "pods may share the GPUs"]
        assert ready.exists()
        program.send_signal(signal.SIGTERM)
        assert program.wait() == 0
    pipe = f"daemon {tmp_path}/mps/nvidia.com/gpu.shared/pipe"
    assert (tmp_path / "wrote").read_text().splitlines() == [pipe, *LIMITS]
    assert not ready.exists()


def test_one_that_is_stopped_before_it_is_ready_has_not_failed(tmp_path: Path) -> None:
    """The daemon does not answer yet: then it ends with the program, and none is left."""
    with started(tmp_path, "get_") as program:
        until((tmp_path / "wrote").exists)
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate()
    assert (program.returncode, errors) == (0, "")
    assert not (tmp_path / "mps" / ".ready").exists()


def test_a_limit_that_is_refused_lets_nobody_begin(tmp_path: Path) -> None:
    with started(tmp_path, "percentage 25") as program:
        _, errors = program.communicate()
    assert program.returncode == 1
    assert errors.strip() == "nvidia-cuda-mps-control set_default_active_thread_percentage 25: refused"
    assert not (tmp_path / "mps" / ".ready").exists()
