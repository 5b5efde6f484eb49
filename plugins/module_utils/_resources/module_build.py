# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``module_build``: a kernel, running or not, has a module in an exact version, signed if need be.

The module comes with a package, or DKMS compiles it. It is never loaded here.
"""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._system import paths
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
)

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""Four bytes of attributes, then 1 where the firmware insists on signatures (UEFI specification, 3.3)."""
DKMS_KEY = "/var/lib/dkms/mok.pub"
DKMS_LOG = "/var/lib/dkms/{name}/{version}/build/make.log"
TIMEOUT = 3600.0
"""Seconds for one build: the driver takes minutes on a small machine."""


def parse_modinfo(text: str) -> t.Dict[str, str]:
    """Read the lines of ``modinfo``; of fields that there are several of, the first counts."""
    fields: t.Dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def insists_on_signatures(host: Host) -> bool:
    """Tell whether the host booted with Secure Boot; without such firmware it did not."""
    try:
        return paths.read(host.path(SECURE_BOOT), 5)[4:5] == b"\x01"
    except OSError:
        return False


class ModuleBuildKind:
    """Looks with modinfo, builds with DKMS."""

    name = "module_build"
    stays = "what was built goes with its package"
    fields: t.Mapping[str, Field] = {
        "module": Field((str,), required=True),
        "version": Field((str,), required=True),
        "kernel": Field((str,), required=True),
        "dkms": Field((str,), default=""),
        "licence": Field((str,), default=""),
        "signers": Field((list,), default=()),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Versions and releases are one word each."""
        wrong = [name for name in ("module", "version", "kernel") if spec[name].split() != [spec[name]]]
        return [f"{name} is {spec[name]!r}; write one word" for name in wrong]

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Look for the module among those of the kernel; one that the firmware would refuse is an error."""
        found = _found(spec, host)
        wanted = {"version": spec["version"], **({"license": spec["licence"]} if spec["licence"] else {})}
        if any(found.get(name) != value for name, value in wanted.items()):
            before = {name: found.get(name, "absent") for name in wanted}
            reason = f"kernel {spec['kernel']} has {'another one' if found else 'none'}"
            return Change("update" if found else "create", before, dict(wanted), reason)
        if insists_on_signatures(host):
            _insist_on_signer(spec, found, host)
        return None

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Build it, or say which package should have brought it; then look again."""
        if spec["dkms"]:
            self._build(spec, host)
        found = _found(spec, host)
        if found.get("version") != spec["version"]:
            there = f"has {spec['module']} {found['version']}" if found.get("version") else "has none"
            raise ResourceError(
                f"kernel {spec['kernel']} shall have the module {spec['module']} {spec['version']}, "
                f"and {there}",
                "Install the package with the modules for this kernel, or have DKMS build them.",
            )
        if spec["licence"] and found.get("license") != spec["licence"]:
            raise ResourceError(
                f"the module {spec['module']} of kernel {spec['kernel']} has the licence "
                f"{found.get('license')!r}, not {spec['licence']!r}",
                "Remove the package with the other modules: open and proprietary ones exclude each other.",
            )
        if insists_on_signatures(host):
            _insist_on_signer(spec, found, host)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: what was built goes with its package, and the package of before has its own built."""

    def _build(self, spec: Spec, host: Host) -> None:
        if not paths.is_folder(host.path(f"/lib/modules/{spec['kernel']}/build")):
            raise ResourceError(
                f"nothing can be built for kernel {spec['kernel']}: its headers are not there",
                f"Install linux-headers-{spec['kernel']}, or write a kernel whose headers the mirror has.",
            )
        source = ["-m", spec["dkms"], "-v", spec["version"]]
        argv = ["dkms", "install", "--force", "-k", spec["kernel"], *source]
        status, output, problem = host.run(argv, check=False, timeout=TIMEOUT)
        if status != 0:
            log = DKMS_LOG.format(name=spec["dkms"], version=spec["version"])
            lines = [line for line in _text(host, log).splitlines() if "error" in line.lower()]
            last = (problem.strip() or output.strip() or f"status {status}").splitlines()[-1]
            raise ResourceError(
                f"{spec['dkms']} {spec['version']} does not build for kernel {spec['kernel']}: "
                f"{(lines or [last])[0].strip()}",
                f"Read {log} on the host; often this driver is too old for this kernel.",
            )


def _found(spec: Spec, host: Host) -> t.Dict[str, str]:
    status, text, _ = host.run(["modinfo", "-k", spec["kernel"], spec["module"]], check=False)
    return parse_modinfo(text) if status == 0 else {}


def _insist_on_signer(spec: Spec, found: t.Mapping[str, str], host: Host) -> None:
    signer = found.get("signer", "")
    if not any(fnmatch.fnmatchcase(signer, pattern) for pattern in spec["signers"]):
        raise ResourceError(
            f"this host boots with Secure Boot, and the module {spec['module']} of kernel {spec['kernel']} "
            + (f"is signed by {signer!r}" if signer else "is not signed"),
            f"Install modules signed by {' or '.join(spec['signers']) or 'somebody the firmware trusts'}.",
        )
    if spec["dkms"]:
        _, answer, problem = host.run(["mokutil", "--test-key", DKMS_KEY], check=False)
        if "not enrolled" in answer + problem:
            raise ResourceError(
                f"this host boots with Secure Boot, and its firmware does not know the key {DKMS_KEY}, with "
                "which DKMS signs",
                f"Run 'mokutil --import {DKMS_KEY}' on the host, reboot it, and confirm at its console.",
            )


def _text(host: Host, path: str) -> str:
    try:
        return paths.text(host.path(path))
    except OSError:
        return ""


KIND = ModuleBuildKind()
