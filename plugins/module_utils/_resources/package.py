# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``package``: a Debian package is installed, or not."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _apt
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)


class PackageKind:
    """Installs from the sources that the host has configured; adds none."""

    name = "package"
    stays = "packages stay, others may have come to rely on them"
    fields: t.Mapping[str, Field] = {
        "name": Field((str,), required=True),
        "state": Field((str,), default="present", choices=("present", "absent")),
    }

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare with dpkg's list. A half-configured package counts as missing."""
        state, version = _apt.installed(host).get(spec["name"], ("", ""))
        if spec["state"] == "present":
            if state[1:2] == "i":
                return None
            return Change("install", {"state": state or "absent"}, {"state": "present"}, "not installed")
        if state[1:2] in _apt.GONE:
            return None
        return Change("delete", {"state": "present", "version": version}, {"state": "absent"}, "installed")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Install or remove with apt-get, without questions."""
        try:
            if change.action == "install":
                self._install(spec, host)
            else:
                _apt.run(host, "remove", spec["name"])
        finally:
            _apt.forget(host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Remove what the installation brought with it, or install the removed version again."""
        _apt.forget(host)
        present = _apt.installed(host)
        if change.action == "install":
            brought = host.note(spec["id"]).get("brought", [spec["name"]])
            names = [name for name in brought if present.get(name, ("",))[0][1:2] not in _apt.GONE]
            if names:
                _apt.run(host, "remove", *names)
        else:
            _apt.run(host, "install", f"{spec['name']}={change.before['version']}")
        _apt.forget(host)

    def _install(self, spec: Spec, host: Host) -> None:
        name = spec["name"]
        note = host.note(spec["id"])
        if note.get("done", True):
            # What an earlier installation brought is not this one's to take back.
            note = {"brought": [], "done": True}
            host.remember(spec["id"], note)
        _apt.go_on(host)
        status, planned, problem = _apt.run(host, "install", "--simulate", name, check=False)
        if status != 0:
            # The lists of a freshly made host may be empty or old: fetch them once.
            _apt.update(host)
            status, planned, problem = _apt.run(host, "install", "--simulate", name, check=False)
        if status != 0:
            raise ResourceError(
                f"package {name} cannot be installed: {_apt.last_error(problem)}",
                "Check the name, and that /etc/apt/sources.list.d on the host names a mirror that has it.",
            )
        brought = [each.name for each in _apt.parse_simulation(planned) if each.after and not each.before]
        # Of a run that was cut off, also what that one brought.
        brought = list(dict.fromkeys([*note["brought"], *(brought or [name])]))
        host.remember(spec["id"], {"brought": brought, "done": False})
        status, _, problem = _apt.run(host, "install", name, check=False)
        if status != 0:
            raise ResourceError(
                f"package {name} was not installed: {_apt.last_error(problem)}",
                f"Run 'apt-get install {name}' on the host to see the whole output.",
            )
        host.remember(spec["id"], {"brought": brought, "done": True})


KIND = PackageKind()
