# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Real runsc, its shim and containerd: what the data say of them, the smoke job, another release beside them.

No cluster and no lab: one containerd with folders of its own. Needs root.
"""

from __future__ import annotations

import collections.abc
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import threading
import time
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _unpack
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import nvproxy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import runtime
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.mirror import default_index_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml

from tests.support.gvisor_release import OLDER, RELEASE, index_with, pack, program, shim_name
from tests.support.playbooks import BIN, ROOT
from tests.unit.site_model.conftest import Example
from tests.unit.site_model.mutations import ALL, HOSTS

BENCH = ROOT / "plugins/module_utils/_programs/runtime_bench.py"
Settings = dict[str, t.Any]
CONTAINERD = """\
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.cri.v1.images","io.containerd.cri.v1.runtime","io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/containerd.sock"
"""


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


def test_the_program_in_an_archive_is_asked(tmp_path: pathlib.Path) -> None:
    pack(tmp_path / "gvisor.tar", compression="")
    index = tmp_path / "index.json"
    index_with(tmp_path / "gvisor.tar", "/gvisor.tar", index)
    answer = nvproxy.ask(program("runsc", RELEASE))
    assert nvproxy.ask_mirror(index, RELEASE, archive=True) == answer != ()
    with (tmp_path / "gvisor.tar").open("r+b") as stream:
        stream.write(b"x")
    assert nvproxy.ask_mirror(index, RELEASE, archive=True) == ()


GPUS = """
gvisor_classes: [{name: gvisor}, {name: gvisor-gpu, kind: nvproxy}]
gvisor_gpu_driver: "DRIVER"
gvisor_gpu_model: H100
gvisor_version: "GVISOR"
"""
ONE_GPU_HOST = "    haproxy: {}\n", "    haproxy: {}\n    gvisor_gpu:\n      hosts:\n        gpu-a-01:\n"


def with_gpus(folder: pathlib.Path, driver: str, release: str) -> Example:
    """Return the example inventory with a host that serves GPUs in gVisor."""
    made = Example(folder / "inventory")
    made.append(ALL, GPUS.replace("DRIVER", driver).replace("GVISOR", release))
    made.replace(HOSTS, *ONE_GPU_HOST)
    return made


@pytest.mark.parametrize(
    ("driver", "release", "says", "remedy"),
    [
        ("580.159.03", RELEASE, "", ""),
        # The data do not have it, the program does.
        ("580.178.04", RELEASE, "", ""),
        ("580.173.02", RELEASE, "", ""),
        # One side or the other is changed.
        ("580.173.02", OLDER, f"gVisor {OLDER} does not know the driver 580.173.02", f'"{RELEASE}"'),
        ("580.173.02", OLDER, "", 'the driver "580.159.04"'),
        ("580.174.01", RELEASE, f"gVisor {RELEASE} does not know the driver 580.174.01", '"580.173.02"'),
    ],
)
def test_a_plan_asks_the_program_of_the_mirror(
    tmp_path: pathlib.Path, driver: str, release: str, says: str, remedy: str
) -> None:
    program("runsc", release)
    found = [
        problem
        for problem in with_gpus(tmp_path, driver, release).problems()
        if problem.path == "gvisor_gpu_driver"
    ]
    assert len(found) == bool(says or remedy), found
    for problem in found:
        assert says in problem.message
        assert remedy in problem.remedy
        assert pathlib.Path(problem.file).name == pathlib.Path(ALL).name


@pytest.mark.long
@pytest.mark.parametrize("command", [("plan",), ("apply",), ("plan", "upgrade"), ("apply", "upgrade")])
def test_neither_install_nor_upgrade_begins(tmp_path: pathlib.Path, command: tuple[str, ...]) -> None:
    program("runsc", OLDER)
    made = with_gpus(tmp_path, "580.173.02", OLDER)
    done = subprocess.run(
        [BIN / "ironspan", *command, "-i", made.folder],
        env={**os.environ, **made.environment, "XDG_STATE_HOME": str(tmp_path)},
        cwd=tmp_path,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=300,
    )
    assert done.returncode == 2, done.stdout
    text = " ".join(done.stdout.split())
    assert f"gVisor {OLDER} does not know the driver 580.173.02" in text
    assert f'write the driver "580.159.04" or gvisor_version: "{RELEASE}"' in text


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
        specification = importlib.util.spec_from_file_location("ironspan_runtime_bench", BENCH)
        assert specification and specification.loader
        self.bench: t.Any = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(self.bench)
        self.smoke = self.bench.smoke

    def put_into_use(self, release: str) -> None:
        """Do what the role does for a release."""
        shim = program(shim_name(), release)
        folder = self.folder / "releases" / release
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in (("runsc", program("runsc", release)), ("containerd-shim-runsc-v1", shim)):
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
        programs = []
        for pid in self.bench.processes_of(name):
            # A program that was run in the sandbox may be about to end.
            with contextlib.suppress(OSError):
                programs.append(str(pathlib.Path(f"/proc/{pid}/exe").readlink()))
        return {release for release in (RELEASE, OLDER) if any(f"/{release}/" in one for one in programs)}


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
            end = time.monotonic() + 180
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


def test_flags_of_a_class_with_gpus_start_a_sandbox_without_one(host: Host) -> None:
    config = host.folder / "runsc-gpu.toml"
    text = (host.folder / "runsc.toml").read_text()
    config.write_text(text + 'nvproxy-allowed-driver-capabilities = "compute,utility,video"\n')
    one = dict(host.settings["classes"][0], name="gvisor-gpu", config=str(config))
    assert host.smoke.start_sandbox(host.settings, one) == ""
    config.write_text(text + 'nvproxy-allowed-driver-capabilities = "sound"\n')
    assert "no sandbox starts" in host.smoke.start_sandbox(host.settings, one)


@pytest.mark.parametrize(
    ("driver", "release", "says"),
    [
        ("580.178.04", RELEASE, ""),
        ("580.178.04", OLDER, f"runsc {OLDER} does not know the driver 580.178.04 of this host; "),
        ("580.178.04", OLDER, "the nearest one that it knows is 580.159.04"),
        ("999.10.01", RELEASE, f"runsc {RELEASE} does not know the driver 999.10.01 of this host; "),
    ],
)
def test_a_hosts_driver_is_judged_by_the_program_that_is_installed(
    host: Host, driver: str, release: str, says: str
) -> None:
    file = host.folder / "driver"
    file.write_text(f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build\n")
    one = dict(host.settings["classes"][0], gpu=True, runsc=str(program("runsc", release)))
    settings = {**host.settings, "current": release, "driver_file": str(file)}
    problem = host.smoke.driver_problem(settings, one)
    assert says in problem
    assert bool(says) == bool(problem)


def test_the_bench_leaves_nothing_but_figures(host: Host) -> None:
    (figures,) = host.bench.bench(host.settings, rounds=1)["classes"]
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


class Asked:
    """Asks a sandbox for its kernel's log again and again, from a thread, and keeps what it says."""

    def __init__(self, host: Host, name: str) -> None:
        self._host, self._name = host, name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.right, self.wrong = 0, list[str]()

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=300)

    def _ask(self) -> None:
        while not self._over.is_set():
            # What a program prints that ends at once may get lost on its way through containerd.
            command = (f"a{time.monotonic_ns()}", self._name, "/bin/sh", "-c", "dmesg; sleep 1")
            argv = self._host.smoke.ctr(self._host.settings, "task", "exec", "--exec-id", *command)
            status, text = self._host.smoke.run(argv)
            if status == 0 and "Starting gVisor" in text:
                self.right += 1
            else:
                self.wrong.append(text)


@pytest.mark.long
def test_a_sandbox_answers_while_a_release_from_its_archive_comes_and_its_own_goes_last(host: Host) -> None:
    releases = host.folder / "releases"
    host.put_into_use(OLDER)
    for name in ("runsc", "containerd-shim-runsc-v1"):
        # The smoke job knows who runs a release by its files, which are no links on a host.
        source = (releases / OLDER / name).resolve()
        (releases / OLDER / name).unlink()
        shutil.copy(source, releases / OLDER / name)
    host.start("before")
    try:
        with Asked(host, "before") as asked:
            pack(host.folder / "gvisor.tar", compression="")
            shutil.rmtree(releases / RELEASE, ignore_errors=True)
            with tarfile.open(host.folder / "gvisor.tar") as archive:
                for member in _unpack.select(archive, 0, []):
                    archive.extract(member.info, releases / RELEASE, filter="data")
            host.put_into_use(RELEASE)
            host.start("after")
            for folder in releases.iterdir():
                os.utime(folder, (0, 0))
            status, report = smoke(host)
            end = time.monotonic() + 300
            while asked.right < 3 and not asked.wrong:
                assert time.monotonic() < end
                time.sleep(0.1)
        assert (status, report["removed"], asked.wrong) == (0, [], [])
        assert host.programs_of("before") == {OLDER}
        sentry = releases / RELEASE / "gvisor-bin" / "gvisor_sentry"
        programs = host.smoke.programs_in_use()
        assert host.smoke.is_used(sentry.parent, programs)
        host.smoke.end(host.settings, "before")
        end = time.monotonic() + 120
        while smoke(host)[1]["removed"] != [OLDER]:
            assert time.monotonic() < end
        assert not (releases / OLDER).exists()
        assert "Starting gVisor" in host.shown_by("after")
    finally:
        for name in ("before", "after"):
            host.smoke.end(host.settings, name)
