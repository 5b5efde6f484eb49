# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runs the hand-written kubeadm script (``raw/``) on a lab's hosts."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import time

from ironspan.artifacts import lock_file
from ironspan.lab import Lab, keys, mirror, state
from ironspan.lab.layout import MIRROR_PORT

SCRIPT = pathlib.Path(__file__).parent / "raw" / "cluster.sh"
VERSIONS = {"VERSION": "1.36.4", "COREDNS": "1.14.7", "FLANNEL": "0.28.4"}
SAME = ("kubeadm", "kubelet", "kubectl", "etcd", "containerd", "runc", "cni-plugins", "flannel-cni", "runsc")
ARTIFACTS = {name: name for name in SAME} | {"containerd-shim-runsc-v1-lab": "shim"}
"""Name in the mirror's index -> name in the script."""


def run(lab: Lab, timeout: float = 900) -> tuple[float, str]:
    """Build a cluster by hand on a lab of one Azure host and one rack host.

    Args:
        lab: a lab that has just been brought up.
        timeout: seconds.

    Returns:
        Seconds it took, and what it printed.
    """
    current = state.load(lab.name)
    assert current is not None
    azure, rack = current.layout.hosts
    index = json.loads((mirror.folder_path() / "index.json").read_text())["artifacts"].values()
    # The mirror may hold the versions to upgrade to as well.
    wanted = {(file.name, file.version) for file in lock_file.load().files.values() if not file.set_name}
    lines = [
        f"{ARTIFACTS[item['name']]} {item['path']} {item['sha256']}"
        for item in index
        if item["name"] in ARTIFACTS and (item["name"], item["version"]) in wanted
    ]
    began = time.monotonic()
    done = subprocess.run(
        ["bash", str(SCRIPT)],
        env=os.environ
        | VERSIONS
        | {
            "SSH": shlex.join(["ssh", *keys.ssh_options(lab.folder), "-o", "ControlMaster=auto"])
            + f" -o ControlPath={lab.folder}/raw-%C -o ControlPersist=60s",
            "AZ": str(azure.address),
            "RACK": str(rack.address),
            "AZ_MIRROR": f"http://{azure.site.controller}:{MIRROR_PORT}",
            "RACK_MIRROR": f"http://{rack.site.controller}:{MIRROR_PORT}",
            "ARTIFACTS": "\n".join(sorted(lines)),
        },
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=timeout,
    )
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout
    return seconds, done.stdout
