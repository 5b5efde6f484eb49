# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The Jinja environment of the roles' templates, and what a template reads.

Plain Jinja2, not Ansible's templar: a template is compiled once per process, an undefined name is an error,
and values are final. What a template reads is taken from its syntax tree, so that hosts for which all of that
is the same share one rendering.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import typing as t
import uuid
from collections.abc import Iterator
from pathlib import Path

import jinja2
import yaml
from jinja2 import nodes

# YAML 1.1 (section 5.1, character set) takes these only as escapes; json.dumps leaves them as they are.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\ufeff\ufffe\uffff]")
_NAMESPACE = uuid.UUID("e3ff8916-bf28-444a-a9c5-8fdcdeba277f")
"""Of the UUIDs made here; any other would do as well, as long as it never changes."""
_OTHERS = (nodes.Extends, nodes.FromImport, nodes.Import, nodes.Include)
_TELLING = (nodes.Name, nodes.Getattr, nodes.Call, *_OTHERS)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes what is a text to PyYAML and a number or a truth value to the parser of etcd and Kubernetes."""


# go.yaml.in/yaml/v2, resolve.go: 12e34, 08 and 0o17 are numbers, with underscores too, and y is true.
_NUMBER = r"(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9_]+)?|0[oOxXbB][0-9a-fA-F_]+"
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"[-+]?({_NUMBER})$"), list("-+.0123456789")
)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))


def to_json(value: t.Any) -> str:
    """Return a value as JSON on one line, which YAML reads too."""
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def to_yaml(value: t.Any) -> str:
    """Return a value as YAML in block style, keys in the order given."""
    return str(yaml.dump(value, Dumper=_Dumper, default_flow_style=False, sort_keys=False, width=1000))


def b64encode(value: str) -> str:
    """Return a text's UTF-8 bytes in base64."""
    return base64.b64encode(value.encode()).decode("ascii")


def sha256(value: str) -> str:
    """Return the SHA-256 of a text's UTF-8 bytes, hexadecimal."""
    return hashlib.sha256(value.encode()).hexdigest()


def to_uuid(value: str) -> str:
    """Return the UUID (version 5, RFC 9562) that always belongs to a text."""
    return str(uuid.uuid5(_NAMESPACE, value))


def pem_blocks(value: str) -> list[str]:
    """Return the blocks of a PEM text; a text without any is one block."""
    return re.findall(r"-----BEGIN.*?-----END [^\n]*", value, re.DOTALL) or [value]


FILTERS = {
    "pem_blocks": pem_blocks,
    "to_json": to_json,
    "to_yaml": to_yaml,
    "b64encode": b64encode,
    "sha256": sha256,
    "to_uuid": to_uuid,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Reads:
    """What a template, and the templates it asks for, read from the context.

    Args:
        names: variables, without ``host``; those that the template sets itself may be among them.
        attributes: attributes of ``host``.
        whole_host: the host itself is handed on, so anything of it may be read.
    """

    names: frozenset[str]
    attributes: frozenset[str]
    whole_host: bool


class Templates:
    """All templates below a folder of roles; each is read and compiled once."""

    def __init__(self, roles_folder: Path) -> None:
        self.roles_folder = roles_folder
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(roles_folder),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,
            auto_reload=False,
        )
        self._environment.filters.update(FILTERS)
        self._reads: dict[str, Reads] = {}
        self._there: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """Tell whether there is a template; ``name`` is relative to the folder of roles."""
        if name not in self._there:
            self._there[name] = (self.roles_folder / name).is_file()
        return self._there[name]

    def get(self, name: str) -> jinja2.Template:
        """Return a compiled template."""
        return self._environment.get_template(name)

    def reads(self, name: str) -> Reads:
        """Return what a template reads, together with everything it asks for by ``template(...)``."""
        if name not in self._reads:
            self._reads[name] = self._analyse(name, set())
        return self._reads[name]

    def _analyse(self, name: str, seen: set[str]) -> Reads:
        seen.add(name)
        source = (self.roles_folder / name).read_text(encoding="utf-8")
        tree = self._environment.parse(source, name, str(self.roles_folder / name))
        names: set[str] = set()
        attributes: set[str] = set()
        asked: list[str | None] = []
        mentions = by_attribute = 0
        # An included or imported template sees the whole context.
        whole = False
        for node in tree.find_all(_TELLING):
            if isinstance(node, nodes.Name):
                names.add(node.name)
                mentions += node.name == "host"
            elif isinstance(node, nodes.Getattr):
                if isinstance(node.node, nodes.Name) and node.node.name == "host":
                    attributes.add(node.attr)
                    by_attribute += 1
            elif isinstance(node, nodes.Call):
                asked += _asked_for(node)
            else:
                whole = True
        whole = whole or mentions != by_attribute or bool(attributes & {"in_group", "variables"})
        role = name.split("/", 1)[0]
        for inner_file in asked:
            if inner_file is None:
                whole = True
                continue
            inner_name = f"{role}/templates/{inner_file}"
            if inner_name in seen or not self.has(inner_name):
                continue
            inner = self._analyse(inner_name, seen)
            names |= inner.names
            attributes |= inner.attributes
            whole = whole or inner.whole_host
        return Reads(frozenset(names - {"host"}), frozenset(attributes), whole)


def _asked_for(call: nodes.Call) -> Iterator[str | None]:
    """Yield the templates that a call asks for; None for one that only the run knows."""
    if not (isinstance(call.node, nodes.Name) and call.node.name == "template"):
        return
    first = call.args[0] if call.args else None
    if isinstance(first, nodes.Const):
        yield str(first.value)
    elif isinstance(first, nodes.CondExpr) and all(
        isinstance(choice, nodes.Const) for choice in (first.expr1, first.expr2)
    ):
        yield str(t.cast(nodes.Const, first.expr1).value)
        yield str(t.cast(nodes.Const, first.expr2).value)
    else:
        yield None
