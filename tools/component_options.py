# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Write which fields a kubelet has, which flags Kubernetes: ``python -m tools.component_options``.

Fields are read from the types of Go modules, flags from what the programs of the artefact cache print with
``--help``. Run it when a minor version comes or goes, and read the difference.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml

FILE = Path(__file__).parent.parent / "plugins/plugin_utils/upgrade/component_options.yml"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
HEAD = """\
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
---
# Fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1), flags of Kubernetes' programs: name -> type.
# Written by `python -m tools.component_options` on {date}, from
{sources}
# `lacking` has what a minor version does not have. A dictionary is one with these fields, `*` is any name;
# a list has what its items are.
"""
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
_ALIAS = re.compile(r"^type (\w+) ([\w\[\].]+)$", re.M)
_FIELD = re.compile(r'^\s+(?:(\w+)\s+)?([\w*\[\].]+)\s+`json:"(\w*)', re.M)
_CONSTANT = re.compile(r'^\s+\w+\s+(\w+)\s+=\s+"(\w+)"', re.M)
_IMPORT = re.compile(r'^\s+(?:(\w+) )?"(k8s\.io/[^"]+)"', re.M)
_BASIC = {
    "bool": "bool", "string": "text", "float64": "number", "int32": "int", "int64": "int", "uint32": "int",
    "metav1.Duration": "duration", "TimeOrMetaDuration": "duration", "resource.QuantityValue": "quantity",
    "metav1.Time": "text",
}  # fmt: skip
_FLAG = re.compile(r"^ +(?:-\w, )?--([a-z0-9-]+)(?: ([^ ]+)(?=  )|  |$)")
_GATE = re.compile(r'featuregate\.Feature += +"([A-Za-z]+)"')
_GATES = (
    "kubernetes@v1.{0}/pkg/features",
    "*@v0.{0}/*features",
    "*@v0.{0}/pkg/*features",
    "*@v0.{0}/metrics",
)
_COMMANDS = {"help", "version"}
_FLAG_TYPES = {
    "": "bool", "int": "int", "int32": "int", "Level": "int", "uint": "int", "float": "number",
    "float32": "number", "duration": "duration", "ip": "address",
}  # fmt: skip


class Dumper(yaml.SafeDumper):
    """Indents lists below their key, as yamllint wants it."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Never without an indent."""
        super().increase_indent(flow, False)


class Package:
    """The types of one Go package, in a module of the cache of modules."""

    def __init__(self, modules: Path, path: str, version: str) -> None:
        module, _, inner = path.removeprefix("k8s.io/").partition("/")
        folder = modules / "k8s.io" / f"{module}@{version}" / inner
        self._modules, self._version = modules, version
        text = "\n".join(
            re.sub(r"^\s*//.*$", "", file.read_text(), flags=re.M) for file in folder.glob("*types.go")
        )
        if not text:
            raise SystemExit(f"{folder} is not there: go mod download k8s.io/{module}@{version}")
        self.structs = dict(_STRUCT.findall(text))
        self.aliases = dict(_ALIAS.findall(text))
        self.imports = {alias or path.rpartition("/")[2]: path for alias, path in _IMPORT.findall(text)}
        self.values: dict[str, list[str]] = {}
        for name, value in _CONSTANT.findall(text):
            self.values.setdefault(name, []).append(value)

    def fields(self, struct: str) -> dict[str, t.Any]:
        """Return the fields of a struct as they are called in JSON, with their types."""
        found: dict[str, t.Any] = {}
        for name, kind, json in _FIELD.findall(self.structs[struct]):
            if json:
                found[json] = self.kind(kind)
            elif not name and kind in self.structs:
                found.update(self.fields(kind))
        return found

    def kind(self, go: str) -> t.Any:
        """Return a type as the data file has it."""
        go = go.lstrip("*")
        if go == "v1.ResourceList":
            return {"*": "quantity"}
        if go in _BASIC:
            return _BASIC[go]
        if go.startswith("[]"):
            return [self.kind(go[2:])]
        if go.startswith("map[string]"):
            return {"*": self.kind(go.removeprefix("map[string]"))}
        if go in self.structs:
            return self.fields(go)
        if go in self.aliases:
            return "|".join(self.values[go]) if self.values.get(go) else self.kind(self.aliases[go])
        package, _, name = go.partition(".")
        if name and package in self.imports:
            return Package(self._modules, self.imports[package], self._version).kind(name)
        raise SystemExit(f"no type {go}")


def flags(program: Path) -> dict[str, str]:
    """Return the flags of a program and the types of their values."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    found = (_FLAG.match(line) for line in done.stdout.splitlines())
    return {
        match[1]: _FLAG_TYPES.get(match[2] or "", "text")
        for match in found
        if match and match[1] not in _COMMANDS
    }


def gates(modules: Path, patch: str) -> dict[str, str]:
    """Return the feature gates of all components of a version, such as 37.1; a component has some of them."""
    found = {"AllAlpha", "AllBeta"}
    for pattern in _GATES:
        for folder in (modules / "k8s.io").glob(pattern.format(patch)):
            for file in folder.rglob("*.go"):
                found.update(() if file.name.endswith("_test.go") else _GATE.findall(file.read_text()))
    return dict.fromkeys(sorted(found), "bool")


def main() -> int:
    """Write the file; say what was read."""
    parser = argparse.ArgumentParser(prog="python -m tools.component_options", description=__doc__)
    parser.add_argument(
        "--modules", type=Path, default=Path.home() / "go/pkg/mod", help="Go's cache of modules"
    )
    parser.add_argument("--date", required=True)
    parser.add_argument("version", nargs="+", help="VERSION=FOLDER, such as 1.37.1=FOLDER with its programs")
    chosen = parser.parse_args()
    lines: dict[str, dict[str, dict[str, t.Any]]] = {}
    sources = []
    for each in chosen.version:
        version, _, folder = each.partition("=")
        line = version.rpartition(".")[0]
        module = f"v0.{version.partition('.')[2]}"
        kubelet = Package(chosen.modules, "k8s.io/kubelet/config/v1beta1", module)
        lines[line] = {
            "kubelet": kubelet.fields("KubeletConfiguration"),
            "feature-gates": gates(chosen.modules, version.partition(".")[2]),
            **{name: flags(Path(folder) / name) for name in PROGRAMS},
        }
        sources.append(
            f"#   {version}: k8s.io/kubelet/config/v1beta1, gates of all modules, the programs with --help"
        )
    known: dict[str, dict[str, t.Any]] = {}
    for components in lines.values():
        for component, names in components.items():
            known.setdefault(component, {}).update(names)
    lacking = {
        line: {each: sorted(set(known[each]) - set(names)) for each, names in components.items()}
        for line, components in lines.items()
    }
    head = HEAD.format(date=chosen.date, sources="\n".join(sources))
    FILE.write_text(head + yaml.dump({"known": known, "lacking": lacking}, Dumper=Dumper, width=110))
    return 0


if __name__ == "__main__":
    sys.exit(main())
