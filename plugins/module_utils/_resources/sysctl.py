# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``sysctl``: one kernel setting, now and after the next boot."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text, write_file
from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)


def live_path(name: str) -> str:
    """Return the file below /proc/sys that holds a setting.

    Args:
        name: dotted as in ``net.ipv4.ip_forward``; with slashes when a part itself holds a dot
            (``net/ipv4/conf/eth0.1/forwarding``), the convention of sysctl.d(5).
    """
    return "/proc/sys/" + (name if "/" in name else name.replace(".", "/"))


def kept_path(resource_id: str) -> str:
    """Return the file below /etc/sysctl.d that sets it at boot."""
    return f"/etc/sysctl.d/90-ironspan-{resource_id.replace('/', '-')}.conf"


class SysctlKind:
    """Compares and sets the live value and the file for the next boot."""

    name = "sysctl"
    leaves = "the live value stays until the next boot"
    fields: t.Mapping[str, Field] = {
        "name": Field((str,), required=True),
        "value": Field((str,), required=True),
    }

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare both places; white space between the numbers of one value does not matter."""
        before: State = {}
        after: State = {}
        live = read_text(host, live_path(spec["name"]))
        if live is None or live.split() != spec["value"].split():
            before["live"] = None if live is None else live.strip()
            after["live"] = spec["value"]
        kept = read_text(host, kept_path(spec["id"]))
        if kept != _line(spec):
            before["file"] = kept
            after["file"] = _line(spec)
        if not after:
            return None
        reason = "live value differs" if "live" in after else "not kept for the next boot"
        return Change("update", before, after, reason)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Write the file, then the live value."""
        if "file" in change.after:
            host.backup(kept_path(spec["id"]))
            write_file(host, kept_path(spec["id"]), _line(spec).encode())
        if "live" in change.after:
            _set(host, spec["name"], spec["value"])

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Set the live value back; the file comes back by itself."""
        if change.before.get("live") is not None:
            _set(host, spec["name"], change.before["live"])

    def owns(self, spec: Spec, note: State) -> t.List[str]:
        """Return the file for the next boot."""
        return [kept_path(spec["id"])]

    def removal(self, spec: Spec, paths: t.Sequence[str]) -> t.List[Spec]:
        """Remove the file for the next boot."""
        return [{"kind": "absent", "path": kept_path(spec["id"])}]


def _line(spec: Spec) -> str:
    return f"{spec['name']} = {spec['value']}\n"


def _set(host: Host, name: str, value: str) -> None:
    path = host.path(live_path(name))
    try:
        # Opened without O_CREAT: a name the kernel does not know stays an error.
        descriptor = paths.opened(path, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise ResourceError(
            f"the kernel has no setting {name}",
            "Load the kernel module that provides it first, or leave the setting out for this host.",
        ) from error
    except OSError as error:
        raise ResourceError(
            f"{name} cannot be set to {value!r}: {error.strerror}",
            "Check the value's range; in a container some settings belong to the machine outside.",
        ) from error


KIND = SysctlKind()
