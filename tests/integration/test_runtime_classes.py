# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Real runsc, its shim and containerd: what the data say of them, the smoke job, another release beside them.

No cluster and no lab: one containerd with folders of its own. Needs root.
"""

from __future__ import annotations

import collections.abc
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import tarfile
import time
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.artifacts_index import (
    ArtifactsIndexError,
    load_index,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import nvproxy, runtime
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.mirror import default_index_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml

from tests.support.playbooks import ROOT

RELEASE, OLDER = "20260817.0", "20260701.0"
SMOKE = ROOT / "roles/gvisor/templates/ironspan-runtime-smoke.py"
Settings = dict[str, t.Any]
CONTAINERD = """\
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.cri.v1.images","io.containerd.cri.v1.runtime","io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/containerd.sock"
"""


def program(name: str, version: str) -> pathlib.Path:
    """Return a file of the mirror; without it the test is skipped, or fails if IRONSPAN_REQUIRE_LAB is 1."""
    try:
        entry = load_index(default_index_path()).artifact(name, version)
        return (default_index_path().parent / entry["path"].lstrip("/")).resolve(strict=True)
    except (ArtifactsIndexError, OSError) as error:
        # Older releases are in the set `upgrade`, which not every mirror has.
        if os.environ.get("IRONSPAN_REQUIRE_LAB") == "1" and version != OLDER:
            pytest.fail(str(error))
        pytest.skip(f"{error}; run `ironspan artifacts build --set upgrade`")


@pytest.mark.parametrize("release", [RELEASE, OLDER])
def test_the_flags_are_those_of_the_program(release: str) -> None:
    done = subprocess.run(
        [program("runsc", release), "flags"], capture_output=True, text=True, check=True, timeout=60
    )
    printed = set(re.findall(r"^  -(\S+)", done.stdout + done.stderr, re.MULTILINE))
    lists = read_yaml(runtime.FLAGS_FILE)
    known = {*lists["known"], *lists["refused"]}
    newer = {name for name, since in lists["since"].items() if since > release}
    assert printed - {"h", "help", "version"} == known - newer


@pytest.mark.parametrize("release", [RELEASE, OLDER])
def test_the_data_promise_no_driver_that_the_program_does_not_know(release: str) -> None:
    answer = nvproxy.ask(program("runsc", release))
    assert answer, "it says nothing"
    assert set(nvproxy.known_releases()[release]) <= set(answer)
    assert nvproxy.ask_mirror(default_index_path(), release) == answer


class Host:
    """A containerd with the releases of gVisor side by side, as the role lays them out."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        with tarfile.open(program("containerd", "2.3.4")) as packed:
            for member in packed:
                if member.isfile():
                    member.name = pathlib.Path(member.name).name
                    packed.extract(member, self.bin, filter="data")
        (self.bin / "runc").symlink_to(program("runc", "1.4.3"))
        self.settings: Settings = {
            "address": f"{folder}/containerd.sock",
            "ctr": str(self.bin / "ctr"),
            "folder": str(folder / "report"),
            "releases": str(folder / "releases"),
            "settle_seconds": 0.5,
        }
        specification = importlib.util.spec_from_file_location("ironspan_runtime_smoke", SMOKE)
        assert specification and specification.loader
        self.smoke: t.Any = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(self.smoke)

    def put_into_use(self, release: str) -> None:
        """Do what the role does for a release."""
        lab = program("containerd-shim-runsc-v1-lab", release)
        folder = self.folder / "releases" / release
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in (("runsc", program("runsc", release)), ("containerd-shim-runsc-v1", lab)):
            if not (folder / name).exists():
                (folder / name).symlink_to(source)
            (self.bin / name).unlink(missing_ok=True)
            (self.bin / name).symlink_to(folder / name)
        config = self.folder / "runsc.toml"
        config.write_text(
            f'binary_name = "{folder}/runsc"\nroot = "{self.folder}/runsc"\n'
            '[runsc_config]\nplatform = "systrap"\nsystemd-cgroup = "false"\n'
        )
        one = {
            "name": "gvisor",
            "runtime": "io.containerd.runsc.v1",
            "config": str(config),
            "runsc": f"{folder}/runsc",
            "gpu": False,
            "declared_bytes": 64 << 20,
        }
        self.settings.update(current=release, classes=[one])

    def ctr(self, *arguments: str) -> str:
        """Ask containerd; an error fails the test."""
        status, text = self.smoke.run(self.smoke.ctr(self.settings, *arguments))
        assert status == 0, text
        # Among it is a warning about cgroup version 1 on machines that have it.
        return "".join(line for line in text.splitlines(keepends=True) if "level=warning" not in line)

    def start(self, name: str) -> None:
        """Start a sandbox that does nothing."""
        one = self.settings["classes"][0]
        command = self.smoke.start_command(self.settings, one, name, "--detach")
        status, text = self.smoke.run([*command, "/bin/sleep", "600"])
        assert status == 0, text

    def shown_by(self, name: str) -> str:
        """Return a line of a sandbox's kernel log."""
        return self.ctr("task", "exec", "--exec-id", f"e{time.monotonic_ns()}", name, "/bin/dmesg")

    def programs_of(self, name: str) -> set[str]:
        """Return the releases whose programs a sandbox's processes run."""
        return {
            release
            for pid in self.smoke.processes_of(name)
            for release in (RELEASE, OLDER)
            if f"/{release}/" in str(pathlib.Path(f"/proc/{pid}/exe").readlink())
        }


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> collections.abc.Iterator[Host]:
    """Start containerd."""
    if os.geteuid() != 0:
        pytest.skip("containerd needs root")
    folder = tmp_path_factory.mktemp("rt")
    made = Host(folder)
    made.put_into_use(RELEASE)
    (folder / "config.toml").write_text(CONTAINERD.format(folder=folder))
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [made.bin / "containerd", "--config", folder / "config.toml"],
            env=made.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            end = time.monotonic() + 60
            while made.smoke.run(made.smoke.ctr(made.settings, "version"), 10)[0] != 0:
                assert time.monotonic() < end and process.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            yield made
        finally:
            for line in made.ctr("container", "list", "--quiet").split():
                made.smoke.end(made.settings, line)
            process.terminate()
            # runsc keeps an empty network namespace mounted there.
            subprocess.run(["umount", "--lazy", f"{folder}/runsc/ironspan-smoke/null-netns"], check=False)


def smoke(host: Host) -> tuple[int, Settings]:
    """Run the smoke job; return its exit status and its report."""
    config = host.folder / "runtime.json"
    config.write_text(json.dumps(host.settings))
    status = host.smoke.main(str(config))
    return status, json.loads((host.folder / "report/report.json").read_text())


def test_the_smoke_job_starts_a_sandbox_and_leaves_nothing(host: Host) -> None:
    status, report = smoke(host)
    assert (status, report["ok"]) == (0, True), report
    assert host.ctr("container", "list", "--quiet").strip() == ""


def test_runc_in_gvisors_place_is_noticed(host: Host) -> None:
    one = dict(host.settings["classes"][0], runtime="io.containerd.runc.v2", config="")
    problem = host.smoke.start_sandbox(host.settings, one)
    assert "does not run on gVisor's kernel" in problem or "no sandbox starts" in problem


def test_flags_with_which_nothing_starts_are_noticed(host: Host) -> None:
    config = host.folder / "runsc.toml"
    right = config.read_text()
    config.write_text(right + 'overlay2 = "root:dir=/no/such/folder"\nno-such-flag = "1"\n')
    try:
        status, report = smoke(host)
    finally:
        config.write_text(right)
    assert status == 1
    assert "no sandbox starts" in report["classes"][0]["message"]
    assert smoke(host)[0] == 0


def test_the_bench_leaves_nothing_but_figures(host: Host) -> None:
    (figures,) = host.smoke.bench(host.settings, rounds=1)["classes"]
    assert 8 << 20 < figures["overhead_bytes"] < 400 << 20, figures
    assert figures["start_ratio"] > 0
    assert "ironspan-bench-" not in pathlib.Path("/proc/self/mounts").read_text()
    assert host.ctr("container", "list", "--quiet").strip() == ""


def test_a_sandbox_keeps_its_release_while_another_is_put_into_use(host: Host) -> None:
    host.put_into_use(OLDER)
    host.start("before")
    try:
        host.put_into_use(RELEASE)
        host.start("after")
        try:
            for name in ("before", "after"):
                assert "Starting gVisor" in host.shown_by(name)
            assert host.programs_of("before") == {OLDER}
            assert host.programs_of("after") == {RELEASE}
        finally:
            host.smoke.end(host.settings, "after")
        assert "Starting gVisor" in host.shown_by("before")
    finally:
        host.smoke.end(host.settings, "before")
    assert "before" not in host.ctr("container", "list", "--quiet")
