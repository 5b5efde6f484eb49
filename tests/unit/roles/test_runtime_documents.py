# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What hosts and the cluster get for runtime classes, read back by parsers; and what is asked of hosts."""

from __future__ import annotations

import re
import tomllib
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.fitness import judge
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.programs import program

from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
RUNTIMES = ("plugins", "io.containerd.cri.v1.runtime", "containerd", "runtimes")
CLASSES = [
    {"name": "gvisor", "annotations": ["dev.gvisor.spec.mount.*"], "flags": {"overlay2": "root:memory"}},
    {"name": "gvisor-gpu", "kind": "nvproxy", "driver_capabilities": ["compute", "video"], "dedicated": True},
    {"name": "kata-gpu", "kind": "kata", "overhead_memory": "256Mi"},
]
VARIABLES = {"gvisor_classes": CLASSES, "gvisor_gpu_driver": "580.159.03", "gvisor_gpu_model": "H200"}
GPUS = """\
all:
  children:
    gpu: {hosts: {rack-1: }}
    gvisor_gpu: {hosts: {rack-1: }}
    kata_gpu: {hosts: {rack-1: }}
"""


def runtimes(rendered: Rendered) -> dict[str, t.Any]:
    """Return the handlers of the drop-in."""
    tree: t.Any = tomllib.loads(rendered.content("rack-1", "gvisor/drop-in"))
    for key in RUNTIMES:
        tree = tree[key]
    return dict(tree)


def test_every_class_of_a_host_is_a_handler(render: Render) -> None:
    found = runtimes(render(variables=VARIABLES, more=GPUS))
    assert list(found) == ["runsc", "gvisor-gpu", "kata-gpu"]
    assert found["runsc"]["pod_annotations"] == ["dev.gvisor.spec.mount.*"]
    assert "pod_annotations" not in found["gvisor-gpu"]
    assert found["gvisor-gpu"]["options"]["ConfigPath"] == "/etc/containerd/runsc-gvisor-gpu.toml"
    assert found["kata-gpu"]["runtime_path"].endswith("containerd-shim-kata-v2")
    assert "TypeUrl" not in found["kata-gpu"]["options"]


def test_every_class_has_flags_of_its_own(render: Render) -> None:
    rendered = render(variables=VARIABLES, more=GPUS)
    plain = tomllib.loads(rendered.content("rack-1", "gvisor/flags"))["runsc_config"]
    gpus = tomllib.loads(rendered.content("rack-1", "gvisor/flags-gvisor-gpu"))["runsc_config"]
    assert plain["overlay2"] == "root:memory"
    assert "overlay2" not in gpus
    assert gpus["nvproxy-allowed-driver-capabilities"] == "compute,video"
    assert "nvproxy-allowed-driver-capabilities" not in plain


def test_classes_are_objects_with_overhead_and_a_place(render: Render) -> None:
    found = {
        each["metadata"]["name"]: each
        for each in render(variables=VARIABLES, more=GPUS).renderer.objects("gvisor")
    }
    assert list(found) == ["gvisor", "gvisor-gpu", "kata-gpu"]
    assert [each["overhead"]["podFixed"]["memory"] for each in found.values()] == ["56Mi", "56Mi", "256Mi"]
    for name, each in found.items():
        assert each["scheduling"]["nodeSelector"] == {f"ironspan.io/{name}": "true"}
        assert each["scheduling"]["tolerations"][0]["key"] == f"ironspan.io/{name}"
    assert found["gvisor-gpu"]["handler"] == "gvisor-gpu"


def test_a_class_that_nobody_serves_is_not_offered(render: Render) -> None:
    assert [each["metadata"]["name"] for each in render(variables=VARIABLES).renderer.objects("gvisor")] == [
        "gvisor"
    ]


def test_a_host_of_kata_alone_gets_no_runsc(render: Render) -> None:
    more = "all:\n  children:\n    gpu: {hosts: {rack-1: }}\n    kata_gpu: {hosts: {az-1: }}\n"
    with pytest.raises(Exception, match="az-1 is not in the group gpu"):
        render(variables=VARIABLES, more=more)


SMOKE = {"gvisor_smoke_enabled": True}


def test_the_smoke_job_comes_and_goes(render: Render) -> None:
    on = render(variables=SMOKE).resources("rack-1")
    off = render().after("rack-1", render(variables=SMOKE))
    assert on["gvisor/ready"]["name"] == "ironspan-runtime-ready.service"
    assert {"gvisor/runsc", "gvisor/flags", "gvisor/drop-in"} <= set(on["gvisor/ready"]["restart_on"])
    assert "containerd/service" in on["gvisor/ready"]["requires"]
    stopped = {each["name"] for each in off.values() if each.get("state") == "stopped"}
    assert {"ironspan-runtime-ready.service", "ironspan-runtime-smoke.timer"} <= stopped
    written = {
        each["path"] for each in on.values() if each["kind"] == "file" and "ironspan-runtime" in each["path"]
    }
    removed = {each["path"] for each in off.values() if each["kind"] == "absent"}
    taken = render(variables=SMOKE).after("rack-1", render(variables=SMOKE), "reset.yml.j2")
    reset = {each.get("path") for each in taken.values()}
    assert len(written) == 7
    assert written <= removed
    assert written <= reset


@pytest.mark.parametrize("name", ["smoke", "bench"])
def test_a_programs_text_is_the_program(render: Render, name: str) -> None:
    text = render(variables=SMOKE).content("rack-1", f"gvisor/{name}-program")
    assert text == program(f"runtime_{name}")
    assert "ansible_collections" not in text


def test_another_release_gets_a_folder_of_its_own(render: Render) -> None:
    old = render(variables={"gvisor_version": "20260701.0"}).resources("rack-1")
    new = render().resources("rack-1")
    assert old["gvisor/runsc"]["path"] == "/opt/gvisor/20260701.0/runsc"
    assert new["gvisor/runsc"]["path"] == "/opt/gvisor/20260817.0/runsc"
    assert old["gvisor/link-runsc"]["path"] == new["gvisor/link-runsc"]["path"]


def test_a_release_from_its_archive(render: Render) -> None:
    found = render(variables={"gvisor_layout": "archive", **SMOKE}).resources("rack-1")
    archive = found["gvisor/archive"]
    assert (archive["path"], archive["unpack"]) == ("/opt/gvisor/20260817.0", "tar")
    assert archive["url_path"] == "/host/gvisor/20260817.0"
    assert not {"gvisor/runsc", "gvisor/shim"} & set(found)
    for name in ("link-runsc", "link-containerd-shim-runsc-v1", "flags"):
        assert found[f"gvisor/{name}"]["requires"] == ["gvisor/archive"]
    assert "gvisor/archive" in found["gvisor/ready"]["restart_on"]
    assert found["gvisor/link-runsc"]["target"] == "/opt/gvisor/20260817.0/runsc"


NVIDIA = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"


class Root:
    """A host whose files lie below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, path: str) -> str:
        """Return where a path of the host is."""
        return f"{self.root}{path}"


def verdicts(rendered: Rendered, root: Path, **files: str) -> dict[str, bool]:
    """Judge a host that has some files; return the verdicts about files by what they are about."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    wanted = rendered.document("rack-1")["fitness"]
    found = judge({"files": wanted["files"]}, {}, t.cast("t.Any", Root(root)))
    assert all(each["remedy"] for each in found if not each["ok"])
    return {each["check"]: each["ok"] for each in found}


def test_user_namespaces_are_asked_for(render: Render, tmp_path: Path) -> None:
    rendered = render()
    assert verdicts(rendered, tmp_path) == {"user namespaces": False}
    for text, ok in (("0\n", False), ("1\n", True), ("96365\n", True)):
        assert verdicts(rendered, tmp_path, proc__sys__user__max_user_namespaces=text) == {
            "user namespaces": ok
        }


def test_kvm_is_asked_for_with_its_platform_only(render: Render, tmp_path: Path) -> None:
    rendered = render(variables={"gvisor_platform": "kvm"})
    assert verdicts(rendered, tmp_path)["/dev/kvm"] is False
    assert verdicts(rendered, tmp_path, dev__kvm="")["/dev/kvm"] is True


@pytest.mark.parametrize(
    ("driver", "ok"),
    [("580.159.03", True), ("580.159.04", False), ("580x159.03", False), ("1580.159.03", False)],
)
def test_the_running_driver_is_the_declared_one(
    render: Render, tmp_path: Path, driver: str, ok: bool
) -> None:
    rendered = render(variables=VARIABLES, more=GPUS)
    found = verdicts(rendered, tmp_path, proc__driver__nvidia__version=NVIDIA.format(driver))
    assert found["GPU driver"] is ok
    assert found["/dev/vfio/vfio"] is False


def test_the_cgroup_driver_asks_for_its_version(render: Render) -> None:
    fitness = render(variables={"gvisor_systemd_cgroup": True}).document("rack-1")["fitness"]
    assert fitness["cgroup_versions"] == [2]
    assert render().document("rack-1")["fitness"]["cgroup_versions"] == [1, 2]
    assert not re.search(r"\bfiles\b", str(render().document("az-1")["fitness"]))
