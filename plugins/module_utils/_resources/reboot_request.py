# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``reboot_request``: something that changed takes effect with the next boot, and the host says so.

Nothing reboots by itself. The request lies in /run, which a boot empties: once somebody has rebooted the
host, it is fulfilled.
"""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import files, paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change, Field, Host, Spec

FOLDER = "/run/ironspan/reboot"


class RebootRequestKind:
    """Asks for a reboot when one of ``restart_on`` changed; it asks once, and until the host was rebooted."""

    name = "reboot_request"
    fields: t.Mapping[str, Field] = {
        "reason": Field((str,), required=True),
        "restart_on": Field((list,), required=True),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """A request needs a reason that fits a line, and something that asks."""
        mistakes = []
        if not spec["reason"].strip() or not spec["reason"].isprintable():
            mistakes.append(f"reason must be one line for the operator, found {spec['reason']!r}")
        if not spec["restart_on"]:
            mistakes.append("restart_on is empty; name the resources that take effect with the next boot")
        return mistakes

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Look whether something changed since the last request of this one."""
        changed = [name for name in spec["restart_on"] if host.changed(name)]
        if not changed or files.status_of(host.path(_path(spec["id"]))) is not None:
            return None
        after = {"reboot": "waits", "because": spec["reason"]}
        return Change("update", {"reboot": "not needed"}, after, f"required by {', '.join(changed)}")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Write the request down."""
        ask(host, spec["id"], spec["reason"])

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the backup holds all."""

    def owns(self, spec: Spec, note: t.Dict[str, t.Any]) -> t.List[str]:
        """Return the request, so that one that nothing declares any more is withdrawn."""
        return [_path(spec["id"])]


def ask(host: Host, resource: str, reason: str) -> None:
    """Ask for a reboot; what is asked is taken back with the other changes when the run fails.

    Args:
        host: the host.
        resource: ID of the resource that asks.
        reason: one line for people.
    """
    path = _path(resource)
    paths.make_folders(host.path(FOLDER), 0o755)
    host.backup(path)
    request = {"resource": resource, "reason": reason, "since": int(time.time())}
    files.write_atomically(host.path(path), json.dumps(request).encode("ascii"), 0o644)


def _path(resource: str) -> str:
    return f"{FOLDER}/{resource.replace('/', '-')}"


def requests(folder: str) -> t.List[t.Dict[str, t.Any]]:
    """Return what this host waits for: ``resource``, ``reason`` and ``since`` (Unix time) of each request.

    Args:
        folder: ``FOLDER`` as a path on this machine.
    """
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        try:
            request = json.loads(paths.read(f"{folder}/{name}", 1 << 16))
        except (OSError, ValueError):
            continue
        if isinstance(request, dict) and isinstance(request.get("reason"), str):
            found.append(request)
    return found


KIND = RebootRequestKind()
