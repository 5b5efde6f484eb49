# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The driver of hosts with GPUs: one mistake each, named with its file and line."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, GPU, Mutation
from .runtime_mutations import CLASSES, ON_GPUS
from .test_mutations import test_mutation as insist

DRIVER = """
nvidia_driver_version: "580.159.03"
nvidia_driver_package_version: "580.159.03-0ubuntu1"
nvidia_driver_kernel: 6.8.0-60-generic
nvidia_driver_kernel_packages: ["linux-image-{}", "linux-headers-{}"]
nvidia_driver_packages: {nvidia-fabricmanager-580: "580.159.03-*"}
nvidia_driver_model: H100
"""
OFED = """nvidia_driver_rdma_stack: ofed
nvidia_driver_ofed_version: "25.10-1.7.1"
nvidia_driver_ofed_packages: {doca-ofed: "3.2.1-044000", mlnx-ofed-kernel-dkms: "25.10.OFED.25.10.1.7.1.1"}
nvidia_driver_model"""


def wrong(name: str, old: str, new: str, says: str, at: str = "", problems: int = 1) -> Mutation:
    """Return a mistake: ``old`` is ``new`` in a driver that is right."""
    assert old in DRIVER, name
    where = at or next(line.strip() for line in new.splitlines() if line.strip())
    return Mutation(f"driver: {name}", ((GPU, "", DRIVER.replace(old, new, 1)),), GPU, where, says, problems)


MISTAKES = (
    wrong(
        "no version",
        '"580.159.03"\nnvidia_driver_package_version: "580.159.03-0ubuntu1"',
        '"newest"',
        "'newest' is no version of the driver",
        'nvidia_driver_version: "newest"',
    ),
    wrong(
        "other packages", "03-0ubuntu1", "04-0ubuntu1", "are no packages of the driver 580.159.03", "159.04"
    ),
    wrong(
        "no kernel",
        "nvidia_driver_kernel: 6.8.0-60-generic\n",
        "",
        "modules are for one kernel",
        "nvidia_driver_version: ",
    ),
    wrong(
        "no release", "6.8.0-60-generic", "newest", "'newest' is no release", "nvidia_driver_kernel: newest"
    ),
    wrong(
        "old kernel",
        "6.8.0-60-generic",
        "5.14.0-60-generic",
        "is older than base_min_kernel, 5.15",
        "5.14.0-60",
    ),
    wrong("kernel package", '"linux-image-{}"', '"linux image"', "'linux image' is no name", "linux image"),
    wrong("package", "nvidia-fabricmanager-580:", "-x:", "the key '-x' is no name of a package", "-x:"),
    wrong("version", '03-*"}', '03 *"}', "is no version of a package", "03 *"),
    wrong(
        "compiled by Debian",
        "nvidia_driver_model",
        "nvidia_driver_distribution: debian\nnvidia_driver_build: precompiled\nnvidia_driver_model",
        "Debian publishes no compiled modules",
        "nvidia_driver_build: precompiled",
    ),
    wrong(
        "OFED without a version",
        "nvidia_driver_model",
        OFED.replace('nvidia_driver_ofed_version: "25.10-1.7.1"\n', ""),
        "what modinfo says of mlx5_core",
        "nvidia_driver_rdma_stack: ofed",
    ),
    wrong(
        "OFED of another DOCA",
        "nvidia_driver_model",
        OFED.replace("25.10-1.7.1", "25.07-0.9.7"),
        "DOCA 3.2 brings 25.10",
        'nvidia_driver_ofed_version: "25.07-0.9.7"',
    ),
    wrong(
        "OFED of any version",
        "nvidia_driver_model",
        OFED.replace("3.2.1-044000", "3.2.1-*"),
        "doca-ofed has no exact version",
        "nvidia_driver_ofed_packages: ",
    ),
    wrong(
        "OFED and a compiled peermem",
        "nvidia_driver_model",
        OFED.replace("nvidia_driver_model", "nvidia_driver_rdma: peermem\nnvidia_driver_model"),
        "write dma-buf, or nvidia_driver_build: dkms",
        "nvidia_driver_rdma: peermem",
    ),
    wrong("GPU", "H100", "H1000", "H1000 is no GPU that is known (gpu-a-01)", "nvidia_driver_model: H1000"),
    wrong("generation", "H100", "V100", "takes proprietary modules only", "nvidia_driver_version: "),
    wrong(
        "fabric manager",
        '-580: "580.159.03-*"',
        '-580: "580.159.04-*"',
        'nearest that goes together: nvidia_driver_packages: {nvidia-fabricmanager-580: "580.159.03-*"}',
        "nvidia_driver_packages: ",
    ),
    wrong(
        "packages of a fabric manager without switches",
        "H100",
        "L40S",
        "nvidia-fabricmanager-580 manages switches, and L40S has none",
        "nvidia_driver_packages: ",
    ),
    wrong(
        "fabric manager without switches",
        'nvidia_driver_packages: {nvidia-fabricmanager-580: "580.159.03-*"}\nnvidia_driver_model: H100',
        "nvidia_driver_model: L40S\nnvidia_fabric_enabled: true",
        "is a fabric manager without NVSwitch: L40S has none",
        "nvidia_fabric_enabled: true",
    ),
    wrong(
        "fabric manager of unknown GPUs",
        "nvidia_driver_model: H100",
        "nvidia_fabric_enabled: true",
        "which switches the host has is not known",
    ),
    wrong(
        "IMEX alone",
        "nvidia_driver_model: H100",
        "nvidia_driver_model: H100\nnvidia_fabric_imex: true",
        "does nothing without nvidia_fabric_enabled",
        "nvidia_fabric_imex: true",
    ),
    wrong(
        "CUDA", "nvidia_driver_model", "nvidia_driver_cuda: new\nnvidia_driver_model", "no version of CUDA"
    ),
    wrong(
        "older than CUDA",
        "nvidia_driver_model",
        'nvidia_driver_cuda: "14.1"\nnvidia_driver_model',
        "nothing is known of CUDA 14.1",
        "nvidia_driver_cuda: ",
    ),
    wrong(
        "modules",
        "nvidia_driver_model",
        "nvidia_driver_modules: opn\nnvidia_driver_model",
        "'opn' is not one of",
    ),
)


def test_a_driver_that_is_right(example: Example) -> None:
    example.append(GPU, DRIVER)
    assert example.problems() == []


def test_no_driver_needs_nothing(example: Example) -> None:
    example.append(GPU, 'nvidia_driver_build: dkms\nnvidia_driver_kernel: ""\n')
    assert example.problems() == []


@pytest.mark.parametrize("mutation", MISTAKES, ids=lambda mutation: mutation.name)
def test_mistake(example: Example, mutation: Mutation) -> None:
    insist(example, mutation)


def test_sandboxes_are_told_the_same_driver(example: Example) -> None:
    example.append(GPU, DRIVER.replace("580.159.03", "580.159.04"))
    changes = ((ALL, "", CLASSES), *ON_GPUS)
    says = "is 580.159.03, and nvidia_driver_version is 580.159.04"
    insist(example, Mutation("two drivers", changes, ALL, "gvisor_gpu_driver:", says))


def test_a_fabric_manager_needs_the_drivers_version(example: Example) -> None:
    text = "nvidia_driver_model: H100\nnvidia_fabric_enabled: true\n"
    says = "must have the driver's own version, and the driver is somebody else's (gpu-a-01)"
    insist(example, Mutation("no driver", ((GPU, "", text),), GPU, "nvidia_fabric_enabled", says))
    example.append(GPU, DRIVER.replace("nvidia_driver_model: H100\n", ""))
    assert example.problems() == []


def test_gpus_are_offered_where_containers_can_have_them(example: Example) -> None:
    offered = "nvidia_device_plugin_enabled: true\n"
    says = "containers cannot have them without nvidia_toolkit_enabled (gpu-a-01)"
    insist(example, Mutation("no toolkit", ((GPU, "", offered),), GPU, offered.strip(), says))
    example.append(GPU, "nvidia_toolkit_enabled: true\n")
    assert example.problems() == []
