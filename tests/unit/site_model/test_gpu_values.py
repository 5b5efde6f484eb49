# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""GPU hosts whose values contradict each other, or would fail on the host: named where they are written."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, GPU, HOSTS

DRIVER = """
nvidia_driver_version: "580.159.03"
nvidia_driver_kernel: 6.8.0-60-generic
"""
H100 = f"{DRIVER}nvidia_driver_model: H100\n"
OFED = f"""{H100}nvidia_driver_rdma_stack: ofed
nvidia_driver_ofed_version: "25.10-1.7.1"
"""
SHARED = "nvidia_toolkit_enabled: true\nnvidia_device_plugin_enabled: true\nnvidia_mps_enabled: true\n"
BOOT, UNIFIED = "gpu_host_kernel_arguments: ", "systemd.unified_cgroup_hierarchy"

WRONG = (
    # Names of GPUs, as people and NVML write them: the last column is the remedy.
    (DRIVER, "nvidia_driver_model: h100", "h100 is no GPU that is known", "write H100"),
    (DRIVER, "nvidia_driver_model: NVIDIA H100 80GB HBM3", "is no GPU that is known", "write H100"),
    (DRIVER, "nvidia_driver_model: A100-SXM4-80GB", "is no GPU that is known", "write A100"),
    # Packages.
    (
        H100,
        'nvidia_driver_packages: {nvidia-driver-570: "570.124.06-1"}',
        "is of branch 570",
        "nvidia-driver-580",
    ),
    (
        H100,
        'nvidia_driver_packages: {libnvidia-compute-570: "570.1-1"}',
        "is of branch 570",
        "libnvidia-compute-580",
    ),
    (
        H100,
        'nvidia_driver_packages: {nvidia-fabricmanager-570: "570.124.06-*"}',
        "is of branch 570",
        "write nvidia-fabricmanager-580, or leave it out",
    ),
    (
        H100,
        "nvidia_driver_kernel_packages: [linux-image-6.8.0-59-generic]",
        "is not of the kernel 6.8.0-60-generic",
        "write linux-image-{}",
    ),
    (
        'nvidia_driver_version: "580.159.03"\n',
        "nvidia_driver_kernel: 6.12.117+deb13-amd64",
        "is a kernel of Debian",
        "write nvidia_driver_distribution: debian",
    ),
    (
        f"{H100}nvidia_driver_modules: proprietary\n",
        "nvidia_driver_rdma: dma-buf",
        "needs open modules",
        "write peermem",
    ),
    (
        OFED,
        'nvidia_driver_ofed_packages: {doca-ofed: "3.2.1-044000", mlnx-ofed-kernel-dkms: "25.07.OFED.1"}',
        "mlnx-ofed-kernel-dkms is 25.07",
        "write that of OFED 25.10",
    ),
    (
        f'{OFED}nvidia_driver_ofed_packages: {{doca-ofed: "3.2.1-044000"}}\n',
        'nvidia_driver_packages: {doca-ofed: "3.1.0-1"}',
        "doca-ofed is 3.1.0-1 here, and 3.2.1-044000 in",
        "leave it out here",
    ),
    # Switches and links.
    (
        f"{DRIVER}nvidia_driver_model: A100\nnvidia_fabric_enabled: true\n",
        "nvidia_fabric_imex: true",
        "NVLink of A100 ends at its own",
        "write false",
    ),
    (
        f"{DRIVER}nvidia_driver_model: A100\n",
        "nvidia_health_links_count: 18",
        "18 is more NVLinks than a A100 has",
        "12",
    ),
    (
        f"{DRIVER}nvidia_driver_model: L40S\n",
        "nvidia_health_links_count: 4",
        "than a L40S has",
        "leave it out",
    ),
    # Sharing.
    (SHARED, "nvidia_mps_memory_mib: 4", "4 MiB are less than CUDA itself needs", "for example 4096"),
    (f"{H100}{SHARED}", "nvidia_mps_memory_mib: 200000", "are more than a H100 has", "at most 96256"),
    # Checks of the agent.
    ("", "nvidia_health_checks: {H11: {percent: 200}}", "is 200", "from 0 to 100"),
    ("", "nvidia_health_checks: {H13: {busy_percent: 101}}", "is 101", "from 0 to 100"),
    ("", 'nvidia_health_checks: {h18: {"off": true}}', "there is no such check", "write H18"),
    # Boot.
    ("", f"{BOOT}init=/bin/bash", "has init=/bin/bash: the host would not come up", "take it out"),
    ("", f"{BOOT}quiet single", "has single: the host would not come up", "take it out"),
    ("", f"{BOOT}root=/dev/sda1", "would not come up", "take it out"),
    ("", f"{BOOT}systemd.unit=emergency.target", "would not come up", "take it out"),
    ("", f"{BOOT}modprobe.blacklist=nouveau,nvidia_drm", "the driver would not be loaded", "take it out"),
    ("", f"{BOOT}module_blacklist=nvidia", "the driver would not be loaded", "take it out"),
    ("", f"{BOOT}cgroup_disable=memory", "the kubelet does not start without it", "take it out"),
    (
        "",
        f"{BOOT}systemd.unified_cgroup_hierarchy=0",
        "would have version 1, which node_cgroup_versions",
        "take it out",
    ),
    ("", f"{BOOT}numa_balancing = disable", "has =: that is no argument of a kernel", "take it out"),
    ("", f"{BOOT}--transparent_hugepage=madvise", "that is no argument of a kernel", "take it out"),
    ("", f"{BOOT}GRUB_CMDLINE_LINUX=quiet", "that is no argument of a kernel", "take it out"),
    (
        "",
        f"{BOOT}nvidia.NVreg_EnablePCIERelaxedOrderingMode=1",
        "for which there is a variable",
        "write gpu_host_relaxed_ordering instead",
    ),
    # A word without quotes that YAML reads otherwise.
    ("", "gpu_host_iommu: off", "is a boolean", "write one of unmanaged, passthrough, disabled"),
    ("", "nvidia_driver_rdma: off", "is a boolean", "write one of dma-buf, peermem"),
    ("", "gpu_host_iommu: Passthrough", "is not one of", "write passthrough"),
    # CPUs: one mistake is one problem.
    (
        "node_kubelet_cpu_manager_policy: static\n",
        "node_kubelet_reserved_cpus: 0",
        "must be text",
        "in quotes",
    ),
)
SITE = (
    ("", "gpu_repair_mode: off", "is a boolean", "write one of watch, gate, repair"),
    (
        "gpu_repair_enabled: true\n",
        "gpu_repair_mode: gate",
        "no host of the group gpu has the agent",
        "write nvidia_health_enabled: true",
    ),
    (
        "gpu_repair_enabled: true\n",
        "gpu_repair_most_out: 1",
        "is less than gpu_repair_most_at_once",
        "write at least 4",
    ),
    ("", "gpu_policy_overrides: [{event: xid 94, class: a2, reason: x}]", "'a2' is not one of", "write A2"),
    (
        "",
        "gpu_policy_references: [{model: H100, test: A01, value: 9, reason: x}]",
        "has no figure to reach",
        "another",
    ),
    (
        "",
        "gpu_policy_references: [{model: H100, test: A10, value: 9, reason: x}]",
        "A10 is not of H100",
        "another",
    ),
    (
        "",
        "gpu_policy_references: [{model: 10G, test: A03, value: 9, reason: x}]",
        "A03 is not of 10G",
        "another",
    ),
    ("", 'gvisor_gpu_driver: "580.1.1"', "'580.1.1' is no version of the driver", "580.159.03"),
    (
        "",
        'gvisor_gpu_tested: [{driver: "580", gvisor: "20260817.0", model: H100}]',
        "'580' is no version of the driver",
        "580.159.03",
    ),
    (
        "",
        'gvisor_gpu_tested: [{driver: "580.159.03", gvisor: latest, model: H100}]',
        "'latest' is no release of gVisor",
        "20260817.0",
    ),
    ("", f"{BOOT}systemd.mask=kubelet.service", "kubelet.service would not start", "take it out"),
    ("", f"{BOOT}pci=realloc,off", "the kernel would see no GPU", "take it out"),
    ("", f"{BOOT}isolcpus=1-", "that is no list of CPUs", "take it out"),
    ("", f"{BOOT}nr_hugepages=10", "there is a variable", "write gpu_host_hugepages_2mib_count"),
    ('nvidia_driver_version: "580.159.03"\n', "nvidia_driver_kernel: 6.8", "must be text", "in quotes"),
    (
        'nvidia_driver_version: "580.159.03"\n',
        "nvidia_driver_kernel: '6.8.0-60-generic '",
        "has a space at an end",
        "write it without spaces",
    ),
    ("", f"{BOOT}transparent_hugepage=sometimes", "knows always, madvise, never", "take it out"),
    ("", f"{BOOT}module_blacklist=floppy,br_netfilter", "which base_kernel_modules asks for", "take it out"),
    ("", "nvidia_health_checks: {H12: {degrees: 500}}", "is 500", "from 0 to 100"),
    (
        "",
        "nvidia_device_plugin_rdma: true",
        "does nothing without nvidia_device_plugin_enabled",
        "write nvidia_device_plugin_enabled: true beside it",
    ),
    (
        "",
        "nvidia_health_actions_enabled: true",
        "does nothing without nvidia_health_enabled",
        "write nvidia_health_enabled: true beside it",
    ),
    (
        H100,
        'nvidia_driver_ofed_packages: {doca-ofed: "3.2.1-044000"}',
        "does nothing without nvidia_driver_rdma_stack",
        "write nvidia_driver_rdma_stack: ofed beside it",
    ),
)
RIGHT = (
    (GPU, f"{BOOT}isolcpus=domain,managed_irq,2-63 nohz_full=2-63 systemd.mask=apport.service"),
    (GPU, f"{BOOT}transparent_hugepage=madvise module_blacklist=floppy ipv6.disable=1"),
    (GPU, "nvidia_device_plugin_rdma: true\nnvidia_device_plugin_enabled: false"),
    (GPU, f'{H100}nvidia_driver_rdma_stack: kernel\nnvidia_driver_ofed_version: "25.10-1.7.1"'),
    (GPU, "nvidia_health_actions_enabled: true\nnvidia_health_enabled: false"),
    (
        GPU,
        "gpu_host_kernel_arguments: modprobe.blacklist=nouveau rd.driver.blacklist=nouveau quiet",
    ),
    (
        GPU,
        f"node_cgroup_versions: [1, 2]\nnode_kubelet_fail_cgroup_v1: false\n{BOOT}{UNIFIED}=0",
    ),
    (GPU, "gpu_host_kernel_arguments: default_hugepagesz=1G isolcpus=2-5 mitigations=off"),
    (
        GPU,
        f'{H100}nvidia_driver_packages: {{cuda-compat-12-8: "*", libnvidia-nscq-580: "580.159.03-*"}}',
    ),
    (GPU, f"{H100}nvidia_driver_kernel_packages: [linux-image-generic, 'linux-modules-extra-{{}}']"),
    (GPU, f"{DRIVER}nvidia_driver_model: H100\nnvidia_fabric_enabled: true\nnvidia_fabric_imex: true"),
    (
        GPU,
        f"{DRIVER}nvidia_driver_modules: proprietary\nnvidia_driver_model: V100",
    ),
    (GPU, f"{H100}{SHARED}nvidia_mps_memory_mib: 40960\nnvidia_mps_pods_count: 4"),
    (GPU, "nvidia_health_checks: {H11: {percent: 100, minutes: 0}, H07: {errors_per_hour: 500}}"),
    (
        ALL,
        "gpu_policy_references: [{model: 100G, test: A10, value: 90, reason: x}]",
    ),
    (ALL, "gpu_policy_references: [{model: NVIDIA H100 80GB HBM3, test: A05, value: 5, reason: x}]"),
    (ALL, "gpu_repair_enabled: true\ngpu_repair_mode: gate\nnvidia_health_enabled: true"),
)


def insist(example: Example, file: str, before: str, line: str, says: str, remedy: str) -> None:
    """Add lines to a file; the last must be the only one that is named."""
    example.append(file, f"{before}{line}\n")
    (problem,) = example.problems()
    assert says in problem.message, str(problem)
    assert remedy in problem.remedy, str(problem)
    assert (problem.file, problem.line) == (str(example.folder / file), example.line(file, line)), str(
        problem
    )


@pytest.mark.parametrize(("before", "line", "says", "remedy"), WRONG)
def test_a_value_of_gpu_hosts(example: Example, before: str, line: str, says: str, remedy: str) -> None:
    insist(example, GPU, before, line, says, remedy)


@pytest.mark.parametrize(("before", "line", "says", "remedy"), SITE)
def test_a_value_of_the_site(example: Example, before: str, line: str, says: str, remedy: str) -> None:
    insist(example, ALL, before, line, says, remedy)


@pytest.mark.parametrize(("file", "lines"), RIGHT)
def test_what_is_unusual_and_right(example: Example, file: str, lines: str) -> None:
    example.append(file, f"{lines}\n")
    assert example.problems() == []


def test_an_address_of_all_hosts_is_that_of_none(example: Example) -> None:
    line = "nvidia_health_metrics_address: 10.30.9.9"
    says = "10.30.9.9 would be the address of gpu-a-01 and of gpu-a-02"
    insist(example, GPU, "nvidia_health_enabled: true\n", line, says, "0.0.0.0")


def test_an_address_of_one_host_is_its_own_matter(example: Example) -> None:
    example.append(GPU, "nvidia_health_enabled: true\n")
    example.append("host_vars/gpu-a-01.yml", "nvidia_health_metrics_address: 10.30.9.9\n")
    assert example.problems() == []


@pytest.mark.parametrize("line", ["gpu_host_iommu: disabled", "gpu_host_acs: disabled"])
def test_devices_of_virtual_machines_are_isolated(example: Example, line: str) -> None:
    example.append(GPU, f"{line}\n")
    assert example.problems() == []
    example.replace(HOSTS, "    haproxy: {}\n", "    haproxy: {}\n    kata_gpu: {hosts: {gpu-a-01: }}\n")
    (problem,) = example.problems()
    assert (problem.line, "hand GPUs to virtual" in problem.message) == (example.line(GPU, line), True)


def test_a_layout_names_gpus_that_there_are(example: Example) -> None:
    example.append(GPU, f"{H100}nvidia_mig_layout: halves\nnvidia_health_gpus_count: 8\n")
    layout = "nvidia_mig_layouts: [{name: halves, gpus: [0, 8], instances: [3g.40gb, 3g.40gb]}]"
    insist(example, ALL, "", layout, "8 is no GPU of gpu-a-01, which has 8", "write indexes from 0 to 7")


def test_a_value_of_the_site_that_stands_in_a_group_is_named_there(example: Example) -> None:
    line = "nvidia_mig_layouts: [{name: halves, instances: [3g.40gb, 3g.40gb]}]"
    insist(example, GPU, "", line, "for host az-1", "write it once, in group_vars/all.yml")


def test_no_ipv6_on_hosts_of_a_site_with_both_families(example: Example) -> None:
    example.append(ALL, "site_pod_cidr_ipv6: fd00:10:244::/56\nsite_service_cidr_ipv6: fd00:10:96::/112\n")
    example.append(GPU, f"{BOOT}ipv6.disable=1\n")
    found = [problem for problem in example.problems() if "would have no IPv6" in problem.message]
    assert [problem.line for problem in found] == [example.line(GPU, "ipv6.disable=1")]


def test_layouts_that_were_written_for_some_hosts_are_named_once(example: Example) -> None:
    lines = "nvidia_mig_layout: x\nnvidia_mig_layouts: [{name: x, instances: [3g.40gb]}]\n"
    example.append(GPU, f"{H100}{lines}")
    assert [problem.path for problem in example.problems()] == ["nvidia_mig_layouts"]


def test_a_part_for_all_gpus_of_which_one_rack_has_the_switch(example: Example) -> None:
    example.append(GPU, "nvidia_health_actions_enabled: true\n")
    example.append("group_vars/rack_a.yml", "nvidia_health_enabled: true\n")
    assert example.problems() == []


def test_layouts_that_are_no_list_are_named_once(example: Example) -> None:
    example.append(GPU, f"{H100}nvidia_mig_layout: x\n")
    insist(example, ALL, "", "nvidia_mig_layouts: {x: [3g.40gb]}", "must be a list", "- item")
