# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The order of packages, and whether imports keep it: ``python -m tools.imports``.

Every import counts, those in functions and those for types too: what a file has to know is a dependency,
whenever it is loaded. Parts of the command line that are found by their name (ironspan/cli/main.py) are none:
they know the command line, it does not know them.
"""

from __future__ import annotations

import ast
import collections
import collections.abc
import pathlib
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parent.parent
PREFIX = "ansible_collections.ironspan.hybrid."
FOLDERS = ("plugins", "ironspan")

ORDER: t.Mapping[str, str] = {
    # On hosts.
    "module_utils._start": "imports from texts in memory",
    "module_utils._system": "paths, files and accounts of a host, and what a resource kind is",
    "module_utils._kept": "the engine's code on a host: checked, run, kept",
    "module_utils._programs": "programs that roles install on hosts as single files",
    "module_utils._certificates": "certificates of a host",
    "module_utils._attest": "what a host's TPM says",
    "module_utils._resources": "the resource kinds, one file each",
    "module_utils._engine": "compares, plans, applies and takes back a document",
    "module_utils._unattended": "takes a change back when nobody confirms it",
    "module_utils._health": "how a host is",
    "module_utils._entry": "what the engine's code is asked to do",
    "module_utils._restore": "data of etcd, put back from a backup",
    "modules": "what Ansible runs on hosts",
    # On the controller: the ground.
    "plugin_utils.errors": "what went wrong, and what to do",
    "plugin_utils.files": "files that are whole or not there",
    "plugin_utils.worker": "processes that end with their parent",
    "plugin_utils.processes": "when a process of this machine began",
    "plugin_utils.payload": "what is sent to hosts",
    "plugin_utils.artifacts_index": "what the mirror has",
    "plugin_utils.egress_rules": "tables of what may go out",
    "plugin_utils.step": "one thing that an operation does",
    # The site and its cluster.
    "plugin_utils.catalogue": "operations as they are declared",
    "plugin_utils.remote": "what is neither a host nor an object of the cluster",
    "plugin_utils.site": "the model: typed values of an inventory, and where each was written",
    "plugin_utils.gpu_matrix": "which GPU, driver, CUDA, kernel and gVisor go together",
    "plugin_utils.pki": "authorities, keys, certificates, and the store of them",
    "plugin_utils.attestation": "what a TPM says of itself and of what was booted, judged",
    "plugin_utils.kubernetes": "API servers, without Ansible: client, objects, nodes, pods, drains",
    "plugin_utils.gpu_policy": "what is done about what GPUs report, without Ansible",
    "plugin_utils.cluster": "the cluster of a site: its members, its store, what is expected of it",
    # Domains.
    "plugin_utils.azure": "Azure's interfaces",
    "plugin_utils.estate": "what a site has in Azure, and the deployment made from it",
    "plugin_utils.terraform": "Terraform beside ironspan: what it has, and an estate written for it",
    "plugin_utils.bare_metal": "servers from rack to operating system",
    "plugin_utils.redfish": "management controllers of servers (BMC), spoken to directly",
    "plugin_utils.controller": "configuration of AWX and its likes, and their interface",
    "plugin_utils.remote_kinds": "kinds of remote things, one file each",
    "plugin_utils.access": "people's own certificates",
    "plugin_utils.admission": "what the cluster takes",
    "plugin_utils.identity": "where people come from, and their roles",
    "plugin_utils.certificates": "when certificates end, and changes of authorities",
    "plugin_utils.encryption": "secrets in etcd",
    "plugin_utils.upgrade": "versions, what goes with what",
    "plugin_utils.cilium": "Cilium as the pod network",
    "plugin_utils.netpolicy": "who may talk to whom, asked and answered",
    # What is made of them.
    "plugin_utils.operations": "changes of a running site, one module each",
    "plugin_utils.checks": "what must hold for an inventory",
    "plugin_utils.render": "documents of hosts and objects of the cluster",
    "plugin_utils.plan": "what a run would do, written down and approved",
    "plugin_utils.assembly": "from an inventory to a checked site, once a run",
    "plugin_utils.converge": "one host's exchange with the controller",
    "plugin_utils.doctor": "what is wrong with a running site",
    "plugin_utils.netcheck": "whether networks carry what they must",
    "plugin_utils.actions": "what action plugins have in common",
    "lookup": "values for playbooks",
    "inventory": "hosts that nobody writes down",
    "vars": "what is done before the first variable is asked for",
    "action": "what Ansible runs on the controller",
    # The pip package.
    "ironspan": "its version",
    "ironspan.program": "what programs on hosts have in common",
    "ironspan.azure": "Azure, for programs on hosts",
    "ironspan.etcd": "etcd, for programs on hosts",
    "ironspan.kubernetes": "a cluster, for programs on hosts and in pods",
    "ironspan.gpu_repair": "the controller that repairs GPU nodes",
    "ironspan.events": "the program that launches job templates for alerts",
    "ironspan.backup": "the backup agent",
    "ironspan.kms": "the program that encrypts secrets with a vault",
    "ironspan.gpud": "the agent of GPU hosts",
    "ironspan.ironic": "Ironic as one program on hosts",
    "ironspan.pages": "pages that people look at: their look, and what they are made of",
    "ironspan.cli": "the command line",
    "ironspan.callbacks": "what Ansible tells of its runs, for reports",
    "ironspan.artifacts": "fills the mirror",
    "ironspan.lab": "the lab",
    "ironspan.__main__": "python -m ironspan",
}
"""Each package and what it is, from the ground up: it may import those before it and none behind it.

A file that lies beside packages counts as one.
"""

KNOWN_ARROWS: frozenset[tuple[str, str]] = frozenset()
"""Upward arrows, as the names of two files, that are to go: this may only shrink."""

KNOWN_CYCLES: frozenset[frozenset[str]] = frozenset()
"""Files that import each other and are to stop: this may only shrink."""


class Arrow(t.NamedTuple):
    """One import.

    Args:
        source: the file's dotted name, without the prefix of the collection.
        target: that of the file it imports.
        line: of the first import of it.
    """

    source: str
    target: str
    line: int


class Graph:
    """Which file imports which.

    Args:
        root: the repository.
    """

    def __init__(self, root: pathlib.Path = ROOT) -> None:
        self._root = root
        self.files: dict[str, pathlib.Path] = {}
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                self.files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self.arrows: dict[str, dict[str, Arrow]] = {name: {} for name in self.files}
        for name, path in self.files.items():
            for imported, line in _imports(path):
                target = self._file_of(imported)
                if target and target != name:
                    self.arrows[name].setdefault(target, Arrow(name, target, line))

    def _file_of(self, name: str) -> str:
        """Return the file of an imported name: itself, or the one that it is part of; "" for others'."""
        name = name.removeprefix(PREFIX)
        while name and name not in self.files:
            name = name.rpartition(".")[0]
        return name

    def place(self, arrow: Arrow) -> str:
        """Return file and line of an import."""
        return f"{self.files[arrow.source].relative_to(self._root)}:{arrow.line}"

    def packages(self) -> dict[str, str]:
        """Return the package of each file."""
        return {name: package_of(name) for name in self.files}

    def upward(self, order: t.Iterable[str] = ORDER) -> list[Arrow]:
        """Return the imports of packages that come later in the order."""
        rank = {name: number for number, name in enumerate(order)}
        return [
            arrow
            for arrows in self.arrows.values()
            for arrow in arrows.values()
            if rank.get(package_of(arrow.target), -1) > rank.get(package_of(arrow.source), len(rank))
        ]

    def cycles(self) -> dict[frozenset[str], list[Arrow]]:
        """Return the sets of files that import each other, and one way around for each."""
        return {files: self._way_around(files) for files in self._knots()}

    def _knots(self) -> list[frozenset[str]]:
        """Return the sets of files each of which leads to all others (Tarjan, without recursion)."""
        number: dict[str, int] = {}
        low: dict[str, int] = {}
        open_files: dict[str, None] = {}
        found = []
        for start in self.arrows:
            work = [] if start in number else [(start, iter(self.arrows[start]))]
            while work:
                name, targets = work[-1]
                if name not in number:
                    number[name] = low[name] = len(number)
                    open_files[name] = None
                for target in targets:
                    if target not in number:
                        work.append((target, iter(self.arrows[target])))
                        break
                    if target in open_files:
                        low[name] = min(low[name], low[target])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[name])
                    if low[name] == number[name]:
                        names = list(open_files)
                        knot = names[names.index(name) :]
                        for each in knot:
                            del open_files[each]
                        found += [frozenset(knot)] if len(knot) > 1 else []
        return found

    def _way_around(self, files: frozenset[str]) -> list[Arrow]:
        """Return the shortest way from the first of the files back to it."""
        start = min(files)
        ways: collections.deque[list[Arrow]] = collections.deque([[]])
        seen = set()
        while ways:
            way = ways.popleft()
            for target, arrow in sorted(self.arrows[way[-1].target if way else start].items()):
                if target == start:
                    return [*way, arrow]
                if target in files and target not in seen:
                    seen.add(target)
                    ways.append([*way, arrow])
        raise AssertionError(f"{start} is in no cycle")


def package_of(name: str) -> str:
    """Return the package of a file, as ``ORDER`` calls it."""
    parts = name.split(".")
    if parts[0] == "plugins":
        return ".".join(parts[1:3] if parts[1] in ("module_utils", "plugin_utils") else parts[1:2])
    return ".".join(parts[:2])


def _imports(path: pathlib.Path) -> collections.abc.Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((item.name, node.lineno) for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{item.name}", node.lineno) for item in node.names)


def problems(
    graph: Graph,
    order: t.Iterable[str] = ORDER,
    known_arrows: t.Collection[tuple[str, str]] = KNOWN_ARROWS,
    known_cycles: t.Collection[frozenset[str]] = KNOWN_CYCLES,
) -> list[str]:
    """Return what is wrong with the imports, each with its place and with what to do.

    Args:
        graph: of the tree.
        order: names of all packages, from the ground up.
        known_arrows: those that may point upward.
        known_cycles: those that may be.
    """
    order = list(order)
    here = set(graph.packages().values())
    found = [f"{name}: write this package into ORDER, behind all that it imports" for name in here - {*order}]
    found += [f"{name}: there is no such package; take it out of ORDER" for name in {*order} - here]
    upward = {(arrow.source, arrow.target): arrow for arrow in graph.upward(order)}
    cycles = graph.cycles()
    for arrow in (upward[pair] for pair in {*upward} - {*known_arrows}):
        below, above = package_of(arrow.source), package_of(arrow.target)
        found.append(
            f"{graph.place(arrow)}: {below} stands below {above} and imports {arrow.target}: "
            f"move what both need to {below} or further down, or have {above} hand it over"
        )
    for files in {*cycles} - {*known_cycles}:
        around = ", ".join(f"{graph.place(arrow)} imports {arrow.target}" for arrow in cycles[files])
        found.append(f"files import each other: {around}; move what both need to a file of its own")
    for pair in {*known_arrows} - {*upward}:
        found.append(f"{' -> '.join(pair)}: it is gone; take it out of KNOWN_ARROWS")
    for files in {*known_cycles} - {*cycles}:
        found.append(f"{', '.join(sorted(files))}: they are untied; take them out of KNOWN_CYCLES")
    return sorted(found)


def main() -> int:
    """Print the order and what is against it; return 1 where something is."""
    width = max(map(len, ORDER))
    for name, what in ORDER.items():
        print(f"{name:{width}}  {what}")
    wrong = problems(Graph())
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
