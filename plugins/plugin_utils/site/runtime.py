# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Runtime classes as typed values: entries of ``gvisor_classes``, and which hosts serve them.

Every function that reads what an operator wrote raises ``Rejected`` with what is wrong and what to write.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import typing as t
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import read_yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

GROUPS: Mapping[str, str] = {"gvisor": "gvisor", "nvproxy": "gvisor_gpu", "kata": "kata_gpu"}
"""Kind of isolation -> the group whose hosts have what it needs."""
FLAGS_FILE = Path(__file__).absolute().with_name("runsc_flags.yml")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TAKEN = ("runc", "untrusted")
"""Handlers that containerd has by itself, or had."""
_CPU = re.compile(r"[0-9]{1,4}m|[0-9]{1,2}")
_MEMORY = re.compile(r"([0-9]{1,6})(Ki|Mi|Gi)")
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
LEAST_MEMORY, MOST_MEMORY = 8 << 20, 4 << 30
"""Bytes. A sandbox of gVisor takes some 15 MiB at least, a virtual machine of Kata 2 GiB at most."""
_ANNOTATION = re.compile(r"[a-z0-9][a-z0-9.-]*(/[A-Za-z0-9_.-]+)?\*?")
_HARMLESS = ("dev.gvisor.spec.mount.", "dev.gvisor.spec.rootfs.", "dev.gvisor.empty-dir.")
"""What a pod may say to gVisor: how its own volumes are mounted (gvisor, runsc/boot/mount_hints.go)."""
_KATA = "io.katacontainers.config.runtime."


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimeClass:
    """One class of isolation that pods can ask for.

    Args:
        name: of the RuntimeClass.
        kind: ``gvisor``, ``nvproxy`` (gVisor with GPUs) or ``kata``.
        group: the hosts of the inventory that serve it.
        overhead_cpu: what the scheduler adds to a pod, as Kubernetes writes it; empty for the site's.
        overhead_memory: the same of memory.
        dedicated: its hosts take no other pods, by a taint.
        annotations: annotations of pods that reach the runtime; a star at the end stands for any rest.
        driver_capabilities: what of the NVIDIA driver containers may ask for.
        flags: of runsc, beyond those of the host.
    """

    name: str
    kind: str
    group: str
    overhead_cpu: str
    overhead_memory: str
    dedicated: bool = False
    annotations: tuple[str, ...] = ()
    driver_capabilities: tuple[str, ...] = ()
    flags: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @property
    def handler(self) -> str:
        """Name of containerd's runtime; that of the class ``gvisor`` is the one of gVisor's documentation."""
        return "runsc" if self.name == "gvisor" else self.name

    @property
    def label(self) -> str:
        """Label of the nodes that serve it, and the key of their taint."""
        return f"ironspan.io/{self.name}"

    @property
    def flags_path(self) -> str:
        """Where a host keeps the flags of runsc for this class."""
        return (
            "/etc/containerd/runsc.toml"
            if self.name == "gvisor"
            else f"/etc/containerd/runsc-{self.name}.toml"
        )

    def memory_bytes(self, default: str) -> int:
        """Return its overhead in bytes; ``default`` is the site's, for a class that does not say its own."""
        return memory_bytes(self.overhead_memory or default)

    def serves(self, groups: Collection[str]) -> bool:
        """Tell whether a host that is in these groups serves it."""
        return self.group in groups and GROUPS[self.kind] in groups


@dataclasses.dataclass(frozen=True, slots=True)
class Runtimes:
    """All classes of a site.

    Args:
        classes: in the order of the inventory.
        offered: those that a host serves.
    """

    classes: tuple[RuntimeClass, ...] = ()
    offered: tuple[RuntimeClass, ...] = ()

    def of(self, groups: Collection[str], *kinds: str) -> list[RuntimeClass]:
        """Return the classes that a host in these groups serves; only of these kinds when any is named."""
        return [each for each in self.classes if each.serves(groups) and (not kinds or each.kind in kinds)]


def classes_of(entries: Iterable[Mapping[str, t.Any]]) -> tuple[RuntimeClass, ...]:
    """Return the classes of a site.

    Args:
        entries: the value of ``gvisor_classes``, which passed every check.
    """
    return tuple(
        RuntimeClass(
            name=entry["name"],
            kind=kind_of(entry),
            group=group_of(entry),
            overhead_cpu=entry.get("overhead_cpu") or "",
            overhead_memory=entry.get("overhead_memory") or "",
            dedicated=bool(entry.get("dedicated")),
            annotations=tuple(entry.get("annotations") or ()),
            driver_capabilities=tuple(entry.get("driver_capabilities") or ("compute", "utility"))
            if kind_of(entry) == "nvproxy"
            else (),
            flags=dict(entry.get("flags") or {}),
        )
        for entry in entries
    )


def kind_of(entry: Mapping[str, t.Any]) -> str:
    """Return the kind of isolation of an entry."""
    return str(entry.get("kind") or "gvisor")


def group_of(entry: Mapping[str, t.Any]) -> str:
    """Return the group whose hosts serve an entry."""
    return str(entry.get("group") or GROUPS.get(kind_of(entry), ""))


def class_name(name: str) -> str:
    """Return a name that a RuntimeClass, a handler of containerd and a label can have.

    Raises:
        Rejected: it is none.
    """
    if not _NAME.fullmatch(name):
        raise Rejected(
            f"{name!r} is not up to 63 lower-case letters, digits and '-'", "write for example gvisor-limited"
        )
    if name in _TAKEN:
        raise Rejected(f"{name!r} is a handler that containerd has already", "write another name")
    return name


def cpu_quantity(text: str) -> str:
    """Return an amount of CPU.

    Raises:
        Rejected: it is none.
    """
    if not _CPU.fullmatch(text):
        raise Rejected(f"{text!r} is no amount of CPU", 'write for example "50m", thousandths of a core')
    return text


def memory_bytes(text: str) -> int:
    """Return an amount of memory in bytes.

    Raises:
        Rejected: it is none, or no overhead that a sandbox can have.
    """
    found = _MEMORY.fullmatch(text)
    if not found:
        raise Rejected(f"{text!r} is no amount of memory", 'write for example "64Mi"')
    size = int(found[1]) * _UNITS[found[2]]
    if not LEAST_MEMORY <= size <= MOST_MEMORY:
        raise Rejected(f"{text} is no overhead of a sandbox (8Mi to 4Gi)", "write what the bench measures")
    return size


def annotation(text: str, kind: str) -> str:
    """Return an annotation that pods may hand to the runtime.

    Raises:
        Rejected: it is none, or it could weaken the sandbox.
    """
    if not _ANNOTATION.fullmatch(text):
        raise Rejected(f"{text!r} is no name of an annotation", "write for example dev.gvisor.spec.mount.*")
    head = text.rstrip("*")
    if kind == "kata":
        if head.startswith("io.katacontainers.") and not head.startswith(_KATA):
            raise Rejected(f"{text} changes the virtual machine", f"write names that begin with {_KATA}")
        if not head.startswith(_KATA):
            raise Rejected(f"{text} means nothing to Kata", f"write names that begin with {_KATA}")
        return text
    if not head.startswith(_HARMLESS):
        raise Rejected(
            f"{text} would let pods set flags of runsc, or means nothing to it",
            f"write names that begin with {', '.join(_HARMLESS)}",
        )
    return text


@functools.lru_cache(maxsize=1)
def _flags() -> Mapping[str, Mapping[str, str]]:
    return t.cast("Mapping[str, Mapping[str, str]]", read_yaml(FLAGS_FILE))


def flag(name: str, value: t.Any, release: str) -> None:
    """Accept a flag of runsc.

    Args:
        name: the flag.
        value: as the inventory has it.
        release: of gVisor.

    Raises:
        Rejected: runsc has no such flag, it has no such value, or it weakens the sandbox.
    """
    known, refused, since = (_flags()[part] for part in ("known", "refused", "since"))
    if name in refused:
        raise Rejected(f"{name} is refused: {refused[name]}", "remove it")
    if since.get(name, "") > release:
        raise Rejected(
            f"runsc {release} has no flag {name} yet", f'remove it, or write gvisor_version: "{since[name]}"'
        )
    if name not in known:
        near = nearest(name, known)
        raise Rejected(
            f"runsc has no flag {name}, and would start no sandbox", f"write {near}" if near else "remove it"
        )
    pattern = known[name]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str | int | float) or not re.fullmatch(_TYPES.get(pattern, pattern), text):
        raise Rejected(f"{name} is {value!r}", f"write {_WORDS.get(pattern, pattern.replace('|', ', or '))}")


_TYPES = {
    "bool": "true|false",
    "int": "-?[0-9]+",
    "text": "[^\\x00-\\x1f]*",
    "duration": "([0-9.]+(ns|us|ms|s|m|h))+|0",
}
_WORDS = {"bool": "true or false", "int": "a whole number", "text": "one line", "duration": "for example 15s"}
