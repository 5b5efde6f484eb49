# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""kwok, which plays the kubelets of nodes that are not there: where it is, and what its nodes do.

``python -m tests.support.kwok`` compiles it into the cache, which takes some minutes.
"""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import typing as t

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sizes import Profile

from ironspan.artifacts import cache, gobuild, lock, lock_file, toolchain

NAME = "kwok"
BUILD = f"python -m tests.support.{NAME}"
_NODE, _HEARTBEAT = "node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease"
_PODS = ("pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete")


def find() -> pathlib.Path | None:
    """Return the program, or None when nobody has compiled it in this cache."""
    component = lock_file.load().components[NAME]
    folder = cache.Cache().built(NAME, gobuild.recipe(component, toolchain.GOMODS)) / lock.native_arch()
    program = folder / NAME
    return program if program.exists() else None


def stages(profile: Profile) -> str:
    """Return what nodes and pods do, from kwok's own module, with the kubelet's intervals of a profile.

    Args:
        profile: how often a kubelet reports a status that has not changed. kwok renews a node's lease four
            times in the lease's duration by itself.

    Returns:
        YAML documents for ``--config``.
    """
    made = [yaml.safe_load((_folder() / f"{name}.yaml").read_text()) for name in (_NODE, *_PODS, _HEARTBEAT)]
    delay: dict[str, t.Any] = made[-1]["spec"]["delay"]
    # As the kubelet of 1.36 spreads them: nodes that joined together do not report together.
    delay["durationMilliseconds"] = profile.status_report_seconds * 500
    delay["jitterDurationMilliseconds"] = profile.status_report_seconds * 1500
    return str(yaml.safe_dump_all(made))


@functools.cache
def _folder() -> pathlib.Path:
    component = lock_file.load().components[NAME]
    ((path, version),) = component.modules.items()
    answer = subprocess.run(
        ["go", "mod", "download", "-json", f"{path}@{version}"],
        cwd=toolchain.GOMODS / NAME,
        env=toolchain.go_environment(component, lock.native_arch()),
        capture_output=True,
        text=True,
        check=True,
    )
    return pathlib.Path(json.loads(answer.stdout)["Dir"]) / "kustomize" / "stage"


if __name__ == "__main__":
    print(
        gobuild.Builder(lock_file.load(), cache.Cache(), lock.native_arch()).program(f"{NAME}/{NAME}", print)
    )
