# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kernel_module``: a module is loaded now and after the next boot, or is part of the kernel."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text, write_file
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)

WITNESSES = {
    "br_netfilter": "/proc/sys/net/bridge",
    "nf_conntrack": "/proc/sys/net/netfilter/nf_conntrack_max",
    "tun": "/dev/net/tun",
}
"""What a module makes visible when it is built in and the host, a container, has no /lib/modules."""


def kept_path(resource_id: str) -> str:
    """Return the file below /etc/modules-load.d that loads the module at boot."""
    return f"/etc/modules-load.d/ironspan-{resource_id.replace('/', '-')}.conf"


def loaded(host: Host, name: str) -> bool:
    """Tell whether the running kernel lists the module as loaded."""
    wanted = name.replace("-", "_")
    text: str = host.cached("/proc/modules", lambda: read_text(host, "/proc/modules") or "")
    return any(line.split(" ", 1)[0] == wanted for line in text.splitlines())


def built_in(host: Host, name: str) -> bool:
    """Tell whether the module is part of the kernel image, so that nothing needs loading."""
    wanted = name.replace("-", "_")
    if os.path.exists(host.path(f"/sys/module/{wanted}")) or os.path.exists(
        host.path(WITNESSES.get(wanted, "/nonexistent"))
    ):
        return True
    listing = read_text(host, f"/lib/modules/{os.uname().release}/modules.builtin") or ""
    names = {os.path.basename(line).split(".ko", 1)[0].replace("-", "_") for line in listing.splitlines()}
    if wanted in names:
        return True
    filesystems = (read_text(host, "/proc/filesystems") or "").split()
    return wanted in filesystems


class KernelModuleKind:
    """Loads with modprobe and keeps a line for systemd-modules-load."""

    name = "kernel_module"
    leaves = "the module stays loaded until the next boot"
    fields: t.Mapping[str, Field] = {"name": Field((str,), required=True)}

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """A built-in module needs nothing; a loadable one must be loaded and kept."""
        is_loaded = loaded(host, spec["name"])
        if not is_loaded and built_in(host, spec["name"]):
            return None
        before: State = {}
        after: State = {}
        if not is_loaded:
            before["loaded"], after["loaded"] = False, True
        kept = read_text(host, kept_path(spec["id"]))
        if kept != spec["name"] + "\n":
            before["file"], after["file"] = kept, spec["name"] + "\n"
        if not after:
            return None
        return Change(
            "update", before, after, "not loaded" if not is_loaded else "not kept for the next boot"
        )

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Load the module first: only one that loads is kept."""
        if "loaded" in change.after:
            status, _, problem = host.run(["modprobe", spec["name"]], check=False)
            host.forget_cached("/proc/modules")
            if status != 0:
                raise ResourceError(
                    f"kernel module {spec['name']} cannot be loaded: {problem.strip() or f'status {status}'}",
                    "Install the package with this kernel's modules, or leave the module out for this host.",
                )
        if "file" in change.after:
            host.backup(kept_path(spec["id"]))
            write_file(host, kept_path(spec["id"]), change.after["file"].encode())

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Unload what was loaded, unless something uses it by now."""
        if "loaded" in change.after:
            host.run(["modprobe", "-r", spec["name"]], check=False)
            host.forget_cached("/proc/modules")

    def owns(self, spec: Spec, note: State) -> t.List[str]:
        """Return the file for the next boot."""
        return [kept_path(spec["id"])]

    def removal(self, spec: Spec, paths: t.Sequence[str]) -> t.List[Spec]:
        """Remove the file for the next boot."""
        return [{"kind": "absent", "path": kept_path(spec["id"])}]


KIND = KernelModuleKind()
