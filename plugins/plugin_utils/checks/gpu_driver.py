# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What hosts with GPUs say of their driver is complete, and one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.fitness import version_tuple
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_matrix import matrix, nvproxy, ofed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned, is_there
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

VERSION = "nvidia_driver_version"
LEAST = "base_min_kernel"
STACK = "nvidia_driver_rdma_stack"
OFED = {
    "version": "nvidia_driver_ofed_version",
    "packages": "nvidia_driver_ofed_packages",
    "rdma": "nvidia_driver_rdma",
}
JUDGED = (
    VERSION,
    "nvidia_driver_kernel",
    "nvidia_driver_cuda",
    "nvidia_driver_package_version",
    STACK,
    *OFED.values(),
)

_DEBIANS = re.compile(r".*(?:[+~](?:deb|bpo)[0-9].*|-(?:amd64|arm64))")
_OF_A_KERNEL = re.compile(r"(linux-[a-z-]+?-)([0-9]+\.[0-9]+\.[0-9]+-.*)")
Problem = tuple[str, str, str]
"""Variable, what is wrong, what to write instead."""


def check_driver(draft: Draft) -> None:
    """Each value is judged once, at the line that has it."""
    once = Once(draft.problems)
    for host in concerned(draft, "gpu", *JUDGED):
        if not host.values.get(VERSION):
            if host.values.get(STACK) == "ofed":
                _lonely(draft, host, once)
            continue
        for variable, message, remedy in _problems(host):
            if variable not in host.settings and not is_there(draft, host):
                continue
            # What is missing is asked for by the line that has the version.
            asks = STACK if variable in OFED.values() else VERSION
            place = draft.place(host, variable if variable in host.settings else asks)
            once.add(place, variable, f"{message} ({host.name})", remedy, what=message)


def check_packages(draft: Draft) -> None:
    """Versions of packages are texts, whether the host has the driver or not."""
    once = Once(draft.problems)
    for variable in ("nvidia_driver_packages", OFED["packages"]):
        for host in concerned(draft, "gpu", variable):
            named = host.values.get(variable)
            for name, version in named.items() if isinstance(named, Mapping) else ():
                if version is not None and not isinstance(version, str):
                    place, message = draft.inner_place(host, variable, name), f"must be text, is {version!r}"
                    once.add(place, f"{variable}.{name}", message, "write one text, in quotes")


def _problems(host: HostDraft) -> Iterator[Problem]:
    value = host.values.get
    version = str(value(VERSION))
    if not nvproxy.is_driver(version):
        yield VERSION, f"{version!r} is no version of the driver", 'write for example "580.159.03"'
    kernel = str(value("nvidia_driver_kernel") or "")
    written = host.settings.get("nvidia_driver_kernel")
    if not kernel and written is not None and written.value and "{{" not in str(written.value):
        pass  # It was named as of another type or form.
    elif not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9][0-9A-Za-z.+~_-]*", kernel):
        yield (
            "nvidia_driver_kernel",
            f"{kernel!r} is no release of a kernel"
            if kernel
            else "is not set, and modules are for one kernel",
            'write what uname -r says of it, for example "6.8.0-60-generic"',
        )
    elif (least := str(value(LEAST) or "")) and version_tuple(kernel) < version_tuple(least):
        yield (
            "nvidia_driver_kernel",
            f"{kernel} is older than {LEAST}, {least}: the host would be unfit with it",
            "write a newer one",
        )
    cuda = str(value("nvidia_driver_cuda") or "")
    if cuda and not re.fullmatch(r"[0-9]{2}\.[0-9]{1,2}", cuda):
        yield "nvidia_driver_cuda", f"{cuda!r} is no version of CUDA", 'write for example "12.8"'
    packages = value("nvidia_driver_package_version")
    if packages and nvproxy.is_driver(version) and not str(packages).startswith(f"{version}-"):
        yield (
            "nvidia_driver_package_version",
            f"{packages} are no packages of the driver {version}",
            f'write "{version}-..." or leave it out',
        )
    named = value("nvidia_driver_packages")
    for name in (name for name, text in named.items() if not text) if isinstance(named, Mapping) else ():
        yield (
            "nvidia_driver_packages",
            f"{name} has no version",
            "write the version that apt shows, or leave it out",
        )
    yield from _of_another(host, version, kernel)
    if value("nvidia_driver_distribution") == "debian" and value("nvidia_driver_build") == "precompiled":
        yield (
            "nvidia_driver_build",
            "is precompiled, and Debian publishes no compiled modules of this driver",
            "write dkms",
        )
    if value(STACK) == "ofed":
        yield from _ofed(host)
    sandboxed = value("gvisor_gpu_driver") if "gvisor_gpu" in host.groups else ""
    if sandboxed and sandboxed != version:
        yield "gvisor_gpu_driver", f"is {sandboxed}, and {VERSION} is {version}", f'write "{version}"'


def _of_another(host: HostDraft, version: str, kernel: str) -> Iterator[Problem]:
    """Packages are of this driver's branch and of this kernel, and the kernel is of their distribution."""
    value, branch = host.values.get, version.split(".")[0]
    named = value("nvidia_driver_packages")
    for name in map(str, named if isinstance(named, Mapping) else ()):
        if nvproxy.is_driver(version) and matrix.branch_of(name) not in ("", branch):
            own = name.replace(matrix.branch_of(name), branch, 1)
            yield (
                "nvidia_driver_packages",
                f"{name} is of branch {matrix.branch_of(name)}, and the driver is {version}",
                f"write {own}, or leave it out",
            )
    if _DEBIANS.fullmatch(kernel) and value("nvidia_driver_distribution") == "ubuntu":
        message = f"{kernel} is a kernel of Debian, and nvidia_driver_distribution is ubuntu"
        remedy = "write nvidia_driver_distribution: debian, or a kernel of Ubuntu"
        yield "nvidia_driver_kernel", message, remedy
    listed = value("nvidia_driver_kernel_packages")
    for name in map(str, listed if isinstance(listed, list) else ()):
        found = _OF_A_KERNEL.fullmatch(name)
        if found and found[2] != kernel:
            yield (
                "nvidia_driver_kernel_packages",
                f"{name} is not of the kernel {kernel}",
                f"write {found[1]}{{}}",
            )
    is_written = "nvidia_driver_rdma" in host.settings and value("nvidia_driver_rdma") == "dma-buf"
    if is_written and value("nvidia_driver_modules") == "proprietary":
        message = "is dma-buf, which needs open modules, and nvidia_driver_modules is proprietary"
        yield "nvidia_driver_rdma", message, "write peermem, or leave it out"


def _ofed(host: HostDraft) -> Iterator[Problem]:
    packages = host.values.get(OFED["packages"])
    texts = {str(name): str(text) for name, text in packages.items()} if isinstance(packages, Mapping) else {}
    version = str(host.values.get(OFED["version"]) or "")
    rdma, build = (str(host.values.get(name)) for name in (OFED["rdma"], "nvidia_driver_build"))
    for field, message, remedy in ofed.findings(version, texts, rdma, build):
        yield OFED[field], message, remedy
    others = host.values.get("nvidia_driver_packages")
    for name, other in (others if isinstance(others, Mapping) else {}).items():
        if texts.get(str(name), other) != other:
            message = f"{name} is {other} here, and {texts[str(name)]} in {OFED['packages']}"
            yield "nvidia_driver_packages", message, "leave it out here"


def _lonely(draft: Draft, host: HostDraft, once: Once) -> None:
    message = f"is ofed, and {VERSION} is not set ({host.name})"
    remedy = "set it too: both are for one kernel, and change together"
    once.add(draft.place(host, STACK), STACK, message, remedy)


CHECKS = (check_driver, check_packages)
