# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""kube-bench, which judges a lab by the CIS benchmark: where it is, and where its checks are.

``python -m tests.support.kube_bench`` compiles it into the cache, which takes some minutes.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess

from ironspan.artifacts import cache, gobuild, lock, lock_file, toolchain

NAME = "kube-bench"
BENCHMARK = "cis-1.12"


@dataclasses.dataclass(frozen=True)
class KubeBench:
    """The program, and the folder with its checks."""

    program: pathlib.Path
    checks: pathlib.Path


def find() -> KubeBench | None:
    """Return kube-bench, or None when nobody has compiled it in this cache."""
    component = lock_file.load().components[NAME]
    folder = cache.Cache().built(NAME, gobuild.recipe(component, toolchain.GOMODS)) / lock.native_arch()
    if not (folder / NAME).exists():
        return None
    ((path, version),) = component.modules.items()
    answer = subprocess.run(
        ["go", "mod", "download", "-json", f"{path}@{version}"],
        cwd=toolchain.GOMODS / NAME,
        env=toolchain.go_environment(component, lock.native_arch()),
        capture_output=True,
        text=True,
        check=True,
    )
    return KubeBench(folder / NAME, pathlib.Path(json.loads(answer.stdout)["Dir"]) / "cfg")


if __name__ == "__main__":
    print(
        gobuild.Builder(lock_file.load(), cache.Cache(), lock.native_arch()).program(f"{NAME}/{NAME}", print)
    )
