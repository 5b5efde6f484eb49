# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The resource kinds. Each is imported only when a document uses it, so that a small document stays cheap.

The imports are written out: Ansible finds what to send to a host by reading them.
"""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Kind

NAMES = (
    "absent",
    "artifact",
    "certificate",
    "container_image",
    "directory",
    "disk_latency",
    "etcd_member",
    "file",
    "file_system",
    "hosts_entries",
    "kernel_module",
    "key_and_csr",
    "kubeadm",
    "kubeadm_certificates",
    "kubeconfig_authority",
    "kubelet_certificate",
    "mig_layout",
    "module_build",
    "nvlink_fabric",
    "package",
    "package_set",
    "private_files",
    "reboot_request",
    "swap",
    "symlink",
    "sysctl",
    "systemd_unit",
    "user",
    "venv",
)
"""Every kind there is."""

_loaded: t.Dict[str, Kind] = {}


def load(name: str) -> t.Optional[Kind]:
    """Return a kind by its name, None if there is no such kind."""
    if name not in _loaded:
        if name not in NAMES:
            return None
        _loaded[name] = _import(name)
    return _loaded[name]


def _import(name: str) -> Kind:
    kind: Kind
    if name == "absent":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import absent

        kind = absent.KIND
    elif name == "artifact":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import artifact

        kind = artifact.KIND
    elif name == "certificate":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import certificate

        kind = certificate.KIND
    elif name == "container_image":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import container_image

        kind = container_image.KIND
    elif name == "directory":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import directory

        kind = directory.KIND
    elif name == "disk_latency":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import disk_latency

        kind = disk_latency.KIND
    elif name == "etcd_member":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import etcd_member

        kind = etcd_member.KIND
    elif name == "file":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import file

        kind = file.KIND
    elif name == "file_system":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import file_system

        kind = file_system.KIND
    elif name == "hosts_entries":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import hosts_entries

        kind = hosts_entries.KIND
    elif name == "kernel_module":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import kernel_module

        kind = kernel_module.KIND
    elif name == "key_and_csr":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import key_and_csr

        kind = key_and_csr.KIND
    elif name == "kubeadm":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import kubeadm

        kind = kubeadm.KIND
    elif name == "kubeadm_certificates":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import kubeadm_certificates

        kind = kubeadm_certificates.KIND
    elif name == "mig_layout":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import mig_layout

        kind = mig_layout.KIND
    elif name == "module_build":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import module_build

        kind = module_build.KIND
    elif name == "private_files":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import private_files

        kind = private_files.KIND
    elif name == "reboot_request":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import reboot_request

        kind = reboot_request.KIND
    elif name == "kubeconfig_authority":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import kubeconfig_authority

        kind = kubeconfig_authority.KIND
    elif name == "kubelet_certificate":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import kubelet_certificate

        kind = kubelet_certificate.KIND
    elif name == "nvlink_fabric":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import nvlink_fabric

        kind = nvlink_fabric.KIND
    elif name == "package":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import package

        kind = package.KIND
    elif name == "package_set":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import package_set

        kind = package_set.KIND
    elif name == "swap":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import swap

        kind = swap.KIND
    elif name == "symlink":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import symlink

        kind = symlink.KIND
    elif name == "sysctl":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import sysctl

        kind = sysctl.KIND
    elif name == "systemd_unit":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import systemd_unit

        kind = systemd_unit.KIND
    elif name == "user":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import user

        kind = user.KIND
    elif name == "venv":
        from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import venv

        kind = venv.KIND
    else:
        raise KeyError(name)
    return kind
