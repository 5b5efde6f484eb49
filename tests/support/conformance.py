# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own end-to-end tests against a cluster: the programs, one run, and what came out.

``python -m tests.support.conformance`` compiles the programs into the cache, which takes minutes.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import yaml

from ironspan.artifacts import cache, gobuild, index, lock, lock_file, toolchain

NAME = "conformance"
PROGRAMS = ("e2e.test", "ginkgo")
SMOKE = pathlib.Path(__file__).with_suffix(".txt")
"""Names of a few tests of every area that end soon."""
SERIAL = r"\[Serial\]"


@dataclasses.dataclass(frozen=True)
class Programs:
    """Where the programs are."""

    tests: pathlib.Path
    ginkgo: pathlib.Path
    kubectl: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of each test that was chosen: name -> passed, failed, or how else it ended."""

    status: int
    tests: dict[str, str]
    folder: pathlib.Path

    def counts(self) -> dict[str, int]:
        """Return how many tests ended how."""
        return dict(collections.Counter(self.tests.values()))

    def failed(self) -> list[str]:
        """Return the names of those that did not pass."""
        return sorted(name for name, how in self.tests.items() if how != "passed")


def component() -> lock.Component:
    """Return what the lock file says of the programs."""
    return lock_file.load().components[NAME]


def find() -> Programs | None:
    """Return the programs, or None where they are not compiled, or the mirror lacks an image of the tests."""
    here, place, arch = lock_file.load(), cache.Cache(), lock.native_arch()
    folder = place.built(NAME, gobuild.recipe(here.components[NAME], toolchain.GOMODS)) / arch
    held = index.load(place.index_path)
    kubectl = held.artifacts.get(f"kubectl/{component().version}/{arch}")
    images = {item.key for item in here.needed((NAME,)) if isinstance(item, lock.Image)}
    if kubectl is None or not images <= set(held.images) or not all((folder / p).exists() for p in PROGRAMS):
        return None
    return Programs(folder / "e2e.test", folder / "ginkgo", place.below_mirror(kubectl.path))


def kubeconfig(text: str, address: str, port: int) -> str:
    """Return a kubeconfig that reaches one API server, and still checks the API's name in its certificate.

    Args:
        text: a kubeconfig of the cluster.
        address: of the API server.
        port: of the API server, not of what stands before several.
    """
    data = yaml.safe_load(text)
    for one in data["clusters"]:
        host = one["cluster"]["server"].removeprefix("https://").rpartition(":")[0]
        one["cluster"].update({"server": f"https://{address}:{port}", "tls-server-name": host})
    return str(yaml.safe_dump(data))


def chosen() -> list[str]:
    """Return the names of the few tests that are run every time."""
    lines = SMOKE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def run(
    programs: Programs,
    config: pathlib.Path,
    folder: pathlib.Path,
    focus: str,
    skip: str = "",
    processes: int = 1,
    timeout: float = 7200,
) -> Outcome:
    """Run tests, and leave their log (e2e.log) and report (junit_01.xml) in a folder.

    Args:
        programs: from ``find``.
        config: kubeconfig of an administrator.
        folder: an empty folder.
        focus: regular expression of names.
        skip: regular expression of names that are left out.
        processes: how many tests at once.
        timeout: seconds for all of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        str(programs.ginkgo), f"--procs={processes}", f"--focus={focus}",
        *([f"--skip={skip}"] if skip else []),
        "--no-color", f"--timeout={timeout:.0f}s", str(programs.tests), "--",
        f"--kubeconfig={config}", f"--kubectl-path={programs.kubectl}", f"--report-dir={folder}",
        f"--e2e-output-dir={folder}", "--provider=skeleton", "--disable-log-dump",
    ]  # fmt: skip
    with (folder / "e2e.log").open("wb") as log:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder,
            check=False, timeout=timeout + 120,
        )  # fmt: skip
    report = folder / "junit_01.xml"
    return Outcome(
        done.returncode, read(report.read_text(encoding="utf-8")) if report.exists() else {}, folder
    )


def read(report: str) -> dict[str, str]:
    """Return what a JUnit report says of each test that was run: name -> passed, failed, ..."""
    found: dict[str, str] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = re.sub(r"^\[It\] ", "", case.get("name", ""))
        status = case.get("status", "")
        # Those that were not chosen are in it, too, as are the steps before and after all tests.
        if status != "skipped" and case.get("name", "").startswith("[It] "):
            found[name] = status
    return found


def focus_of(names: list[str]) -> str:
    """Return the regular expression of exactly these names."""
    # Ginkgo puts the name of the suite before that of a test.
    return "(^| )(" + "|".join(re.escape(name) for name in names) + ")$"


if __name__ == "__main__":
    builder = gobuild.Builder(lock_file.load(), cache.Cache(), lock.native_arch())
    for program in PROGRAMS:
        print(builder.program(f"{NAME}/{program}", print))
