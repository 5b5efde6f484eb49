# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in runtime classes and in the hosts that shall serve them, one each."""

from __future__ import annotations

from .mutations import ALL, HOSTS, Mutation

CLASSES = """
gvisor_classes:
  - name: gvisor
    overhead_memory: 48Mi
    annotations: [dev.gvisor.spec.mount.*]
    flags:
      overlay2: root:memory
  - name: gvisor-gpu
    kind: nvproxy
    dedicated: true
    driver_capabilities: [compute, utility, video]
gvisor_gpu_driver: "580.159.03"
gvisor_gpu_model: H100
"""
_HAPROXY = "    haproxy: {}\n"
_GPU_HOSTS = "    gvisor_gpu:\n      children:\n        rack_a:\n"
_ONE = "    gvisor_gpu:\n      hosts:\n        gpu-a-01:\n"
ON_GPUS = ((HOSTS, _HAPROXY, _HAPROXY + _GPU_HOSTS),)


def wrong(name: str, old: str, new: str, says: str, at: str = "", gpu: bool = False) -> Mutation:
    """Return a mistake: ``old`` is ``new`` in classes that are right; ``gpu`` has hosts serve them."""
    assert old in CLASSES, name
    where = at or next(line.strip() for line in new.splitlines() if line.strip())
    changes = ((ALL, "", CLASSES.replace(old, new, 1)), *(ON_GPUS if gpu else ()))
    return Mutation(f"runtime: {name}", changes, ALL, where, says)


def appended(name: str, text: str, says: str, at: str = "") -> Mutation:
    """Return a mistake in variables of all hosts."""
    return Mutation(f"runtime: {name}", ((ALL, "", text),), ALL, at or text.splitlines()[0], says)


RUNTIME = (
    wrong("capital letters", "name: gvisor\n", "name: gVisor\n", "gvisor_classes[0].name: 'gVisor' is not"),
    wrong("a class twice", "name: gvisor-gpu", "name: gvisor  # again", "gvisor is there twice"),
    wrong("containerd's own", "name: gvisor-gpu", "name: runc", "a handler that containerd has already"),
    wrong("no such kind", "kind: nvproxy", "kind: nvprxy", "'nvprxy' is not one of"),
    wrong("unknown key", "dedicated: true", "dedicatd: true", "unknown key; write dedicated"),
    wrong("memory", "48Mi", "48M", "gvisor_classes[0].overhead_memory: '48M'", "overhead_memory: 48M"),
    wrong("too little memory", "48Mi", "1Mi", "no overhead of a sandbox", "overhead_memory: 1Mi"),
    wrong("any annotation", "spec.mount.*", "*", "set flags of runsc", "annotations: [dev.gvisor.*]"),
    wrong(
        "flags by pods", "spec.mount.*", "flag.*", "set flags of runsc", "annotations: [dev.gvisor.flag.*]"
    ),
    wrong("unknown flag", "overlay2:", "overlay3:", "no flag overlay3", "flags:"),
    wrong(
        "host network", "overlay2: root:memory", "network: host", "leave their sandbox's network", "flags:"
    ),
    wrong("gate off", "overlay2: root:memory", "nvproxy-driver-version: latest", "switch the gate", "flags:"),
    wrong(
        "capabilities without GPUs",
        "kind: nvproxy",
        "kind: gvisor",
        "is about GPUs in gVisor",
        "driver_capabilities:",
    ),
    wrong("unknown capability", "video]", "sound]", "'sound' is not one of", "driver_capabilities:"),
    wrong("no such group", "dedicated: true", "group: rack_z", "there is no group rack_z; write rack_"),
    wrong("group of others", "dedicated: true", "group: rack_c", "cannot serve the kind nvproxy"),
    wrong(
        "driver",
        '"580.159.03"',
        '"580.999.99"',
        "gvisor_gpu_driver: gVisor 20260817.0 does not know the driver 580.999.99",
        'gvisor_gpu_driver: "580.999.99"',
        gpu=True,
    ),
    wrong("GPU", "H100", "B200", "gVisor works with the GPU B200", "gvisor_gpu_model: B200", gpu=True),
    Mutation(
        "runtime: no driver",
        (
            (ALL, "", CLASSES.replace('gvisor_gpu_driver: "580.159.03"', "")),
            (HOSTS, _HAPROXY, _HAPROXY + _ONE),
        ),
        HOSTS,
        "gpu-a-01: {",
        "gvisor_gpu_driver: is not set for host gpu-a-01",
    ),
    appended(
        "an archive that nobody publishes",
        'gvisor_version: "20260701.0"\ngvisor_layout: archive\n',
        'gvisor 20260701.0 is not in artifacts.lock.yml (it has 20260817.0); write "20260817.0"',
    ),
    appended("memory of all", "gvisor_overhead_memory: 64MB", "'64MB' is no amount of memory"),
    appended("CPU of all", 'gvisor_overhead_cpu: "0.1"', "'0.1' is no amount of CPU"),
    appended(
        "cgroup driver", "gvisor_systemd_cgroup: false", "the kubelet lets systemd make the pods' cgroups"
    ),
    appended("often", "gvisor_smoke_interval_seconds: 5", "5 is outside 60 to"),
    Mutation(
        "runtime: nothing for the host to serve",
        ((ALL, "", "gvisor_classes: [{name: gvisor-gpu, kind: nvproxy}]\n"),),
        HOSTS,
        "cpu-c-01:",
        "serves no class",
        problems=2,
    ),
    Mutation(
        "runtime: GPUs in gVisor without GPUs",
        (
            (HOSTS, _HAPROXY, _HAPROXY + "    gvisor_gpu:\n      hosts:\n        cpu-c-01:  # here\n"),
            (ALL, "", 'gvisor_gpu_driver: "580.159.03"\ngvisor_gpu_model: H100\n'),
        ),
        HOSTS,
        "# here",
        "host cpu-c-01 is not in the group gpu",
    ),
)
