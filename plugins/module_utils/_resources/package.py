# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``package``: a Debian package is installed, or not."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
OPTIONS = [
    "-y",
    "-o", "Dpkg::Options::=--force-confdef",
    "-o", "Dpkg::Options::=--force-confold",
    # Wait for unattended upgrades to let go of the lock instead of failing.
    "-o", "DPkg::Lock::Timeout=300",
]  # fmt: skip
GONE = ("", "n", "c")
"""States without the package's files: unknown, not installed, only its configuration left."""
TIMEOUT = 1800.0
"""Seconds for one apt-get: a slow mirror and a held lock both fit."""


def parse_listing(text: str) -> t.Dict[str, t.Tuple[str, str]]:
    """Read ``dpkg-query -W`` lines of name, state abbreviation and version, separated by tabs.

    Args:
        text: its output.

    Returns:
        name -> (state such as "ii", version). The state's letters are: wanted, present (i installed, c only
        configuration files, U and F half way), and an error flag.
    """
    packages: t.Dict[str, t.Tuple[str, str]] = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) == 3:
            packages[parts[0]] = (parts[1].strip(), parts[2])
    return packages


def _installed(host: Host) -> t.Dict[str, t.Tuple[str, str]]:
    def listing() -> t.Dict[str, t.Tuple[str, str]]:
        form = "${Package}\t${db:Status-Abbrev}\t${Version}\n"
        return parse_listing(host.run(["dpkg-query", "-W", f"-f={form}"])[1])

    packages: t.Dict[str, t.Tuple[str, str]] = host.cached("dpkg-query", listing)
    return packages


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
        state, version = _installed(host).get(spec["name"], ("", ""))
        if spec["state"] == "present":
            if state[1:2] == "i":
                return None
            return Change("install", {"state": state or "absent"}, {"state": "present"}, "not installed")
        if state[1:2] in GONE:
            return None
        return Change("delete", {"state": "present", "version": version}, {"state": "absent"}, "installed")

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Install or remove with apt-get, without questions."""
        name = spec["name"]
        try:
            if change.action == "install":
                self._install(spec, host)
            else:
                _apt(host, "remove", [name])
        finally:
            host.forget_cached("dpkg-query")

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Remove what the installation brought with it, or install the removed version again."""
        host.forget_cached("dpkg-query")
        present = _installed(host)
        if change.action == "install":
            brought = host.note(spec["id"]).get("brought", [spec["name"]])
            names = [name for name in brought if present.get(name, ("",))[0][1:2] not in GONE]
            if names:
                _apt(host, "remove", names)
        else:
            _apt(host, "install", [f"{spec['name']}={change.before['version']}"])
        host.forget_cached("dpkg-query")

    def _install(self, spec: Spec, host: Host) -> None:
        name = spec["name"]
        # An installation that was cut off half way blocks every later one.
        if any(state[1:2] in ("U", "F", "H", "W", "t") for state, _ in _installed(host).values()):
            host.run(["dpkg", "--configure", "-a", "--force-confold"], env=ENVIRONMENT, timeout=TIMEOUT)
        status, planned, problem = _try_install(host, ["--simulate"], name)
        if status != 0:
            # The lists of a freshly made host may be empty or old: fetch them once.
            host.run(["apt-get", "update", "-q"], check=False, env=ENVIRONMENT, timeout=TIMEOUT)
            status, planned, problem = _try_install(host, ["--simulate"], name)
        if status != 0:
            raise ResourceError(
                f"package {name} cannot be installed: {_last_error(problem)}",
                "Check the name, and that /etc/apt/sources.list.d on the host names a mirror that has it.",
            )
        brought = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
        host.remember(spec["id"], {"brought": brought or [name]})
        status, _, problem = _try_install(host, [], name)
        if status != 0:
            raise ResourceError(
                f"package {name} was not installed: {_last_error(problem)}",
                f"Run 'apt-get install {name}' on the host to see the whole output.",
            )


def _try_install(host: Host, extra: t.List[str], name: str) -> t.Tuple[int, str, str]:
    argv = ["apt-get", "install", "-q", "--no-install-recommends", *OPTIONS, *extra, name]
    return host.run(argv, check=False, env=ENVIRONMENT, timeout=TIMEOUT)


def _apt(host: Host, verb: str, names: t.List[str]) -> None:
    argv = ["apt-get", verb, "-q", "--no-install-recommends", *OPTIONS, *names]
    host.run(argv, env=ENVIRONMENT, timeout=TIMEOUT)


def _last_error(text: str) -> str:
    lines = text.strip().splitlines()
    errors = [line[3:] for line in lines if line.startswith("E: ")]
    return (errors or lines[-1:] or ["no reason given"])[0]


KIND = PackageKind()
