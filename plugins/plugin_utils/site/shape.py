# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether an inventory file has the form that Ansible's parser takes whole.

Ansible warns about what it does not understand and goes on with the rest, so half an inventory becomes the
site. Here the same rules are applied to the syntax tree (``plugins/inventory/yaml.py``), and everything that
would be left out is a problem with its own line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.yaml_text import (
    is_null,
    is_text,
    kind_of,
    line_of,
)

SECTIONS = ("hosts", "children", "vars")
_PART = "is the name of a part of a group"
_IN_ONE = re.compile(r"(\w+)[=:]\s*(.*)")
_SEVERAL = re.compile(r"[\s,;]")
_MANY = "has several names in one text, and is taken for one"
Found = tuple[int, str, str, str]
"""Line, what is meant, what is wrong, what to write."""


def is_plugin(root: yaml.Node) -> bool:
    """Tell whether a file configures an inventory plugin instead of listing hosts."""
    return isinstance(root, yaml.MappingNode) and any(
        isinstance(key, yaml.ScalarNode) and key.value == "plugin" and not isinstance(value, yaml.MappingNode)
        for key, value in root.value
    )


def wrong_inventory(root: yaml.Node | None) -> Iterator[Found]:
    """Yield what is wrong with the form of an inventory.

    Args:
        root: its syntax tree; None when the file says nothing.
    """
    if root is None or is_null(root):
        yield 1, "(file)", "says nothing", "write it like inventories/example/hosts.yml, or remove it"
    elif not isinstance(root, yaml.MappingNode):
        message = f"is {kind_of(root)}, and an inventory is a dictionary of groups"
        yield line_of(root), "(file)", message, "write it like inventories/example/hosts.yml"
    else:
        for key, value in pairs(root):
            if isinstance(key, yaml.ScalarNode) and key.value in SECTIONS:
                message = f"{_PART}, and there is no group above it"
                yield line_of(key), str(key.value), message, "write 'all:' above it, and this below all"
                continue
            yield from _wrong_group(key, value)


def wrong_variables(root: yaml.Node | None) -> Iterator[Found]:
    """Yield what is wrong with the form of a file of variables, or of what stands below ``vars``.

    Args:
        root: its syntax tree; None when the file says nothing, which is allowed.
    """
    if root is None or is_null(root):
        return
    if not isinstance(root, yaml.MappingNode):
        yield (
            line_of(root),
            "(file)",
            f"is {kind_of(root)}, and variables are lines 'name: value'",
            "write such lines",
        )
        return
    yield from _wrong_names(root, "a variable")


def pairs(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Yield keys and values, also those that a merge (``<<``) brings."""
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == "<<" and not key.style:
            for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(each, yaml.MappingNode):
                    yield from pairs(each)
        else:
            yield key, value


def _wrong_names(node: yaml.MappingNode, what: str) -> Iterator[Found]:
    for key, _value in pairs(node):
        if not is_text(key):
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "(key)"
            remedy = f'write "{name}" in quotes' if isinstance(key, yaml.ScalarNode) else "write a name"
            yield line_of(key), name, f"is {kind_of(key)}, and the name of {what} is a text", remedy
        elif not str(key.value).strip():
            yield line_of(key), "(key)", f"is empty, and {what} has a name", "write the name"
        elif what == "a variable" and (found := _IN_ONE.match(str(key.value))):
            name, value = found.groups()
            message = "is a name and a value in one word"
            yield line_of(key), str(key.value), message, f"write '{name}: {value}', with the space"


def _wrong_group(key: yaml.Node, value: yaml.Node) -> Iterator[Found]:
    name = str(key.value) if isinstance(key, yaml.ScalarNode) else "(key)"
    path = f"groups.{name}"
    if not is_text(key):
        yield line_of(key), path, f"is {kind_of(key)}, and the name of a group is a text", "write a name"
        return
    if not name.strip():
        yield line_of(key), path, "is empty, and a group has a name", "write the name"
        return
    if is_null(value):
        return
    if not isinstance(value, yaml.MappingNode):
        remedy = "write 'hosts:', 'children:' or 'vars:' below it"
        yield line_of(key), path, f"is {kind_of(value)}, and a group is a dictionary", remedy
        return
    for section, content in pairs(value):
        word = str(section.value) if isinstance(section, yaml.ScalarNode) else "(key)"
        if word not in SECTIONS:
            yield (
                line_of(section),
                f"{path}.{word}",
                "is no part of a group, so nobody reads it",
                _meant(word, content),
            )
        elif is_null(content):
            continue
        elif word != "vars" and isinstance(content, yaml.ScalarNode) and is_text(content):
            if _SEVERAL.search(content.value):
                yield line_of(content), f"{path}.{word}", _MANY, "write one line 'NAME:' for each"
        elif not isinstance(content, yaml.MappingNode):
            remedy = "write lines 'name: value'" if word == "vars" else "write one line 'NAME:' for each"
            yield (
                line_of(section),
                f"{path}.{word}",
                f"is {kind_of(content)} and must be a dictionary",
                remedy,
            )
        elif word == "vars":
            yield from _wrong_names(content, "a variable")
        elif word == "children":
            for child, below in pairs(content):
                if isinstance(child, yaml.ScalarNode) and child.value in SECTIONS:
                    message = f"{_PART}, and stands among the groups below {name}"
                    yield (
                        line_of(child),
                        f"{path}.{child.value}",
                        message,
                        "move it out of children, beside it",
                    )
                    continue
                yield from _wrong_group(child, below)
        else:
            yield from _wrong_hosts(content)


def _wrong_hosts(hosts: yaml.MappingNode) -> Iterator[Found]:
    yield from _wrong_names(hosts, "a host")
    for key, value in pairs(hosts):
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else "(key)"
        if name in SECTIONS:
            yield (
                line_of(key),
                name,
                f"{_PART}, and stands among its hosts",
                "move it out of hosts, beside it",
            )
        elif _SEVERAL.search(name.strip()):
            yield line_of(key), f"hosts.{name}", _MANY, "write one line 'NAME:' for each"
        elif isinstance(value, yaml.MappingNode):
            yield from _wrong_names(value, "a variable")
            for inner, _content in pairs(value):
                if isinstance(inner, yaml.ScalarNode) and inner.value in SECTIONS:
                    message = f"{_PART}, and {name} is a host"
                    remedy = (
                        f"write variables below {name} itself, or list it below children if it is a group"
                    )
                    yield line_of(inner), f"hosts.{name}.{inner.value}", message, remedy
        elif not is_null(value):
            message = f"has {kind_of(value)} in the place of its variables"
            if name.startswith(("ansible_", "site_", "user_")):  # no host has such a name
                message = "is a variable, and stands among the hosts"
                yield line_of(key), f"hosts.{name}", message, "indent it below its host"
                continue
            yield (
                line_of(key),
                f"hosts.{name}",
                message,
                f"write '{name}:' or '{name}: {{ansible_host: ...}}'",
            )


def _meant(word: str, content: yaml.Node) -> str:
    """Return what somebody wanted who wrote a key that no group has."""
    if near := nearest(word, SECTIONS):
        return f"write {near}"
    if isinstance(content, yaml.MappingNode):
        inner = {str(key.value) for key, _value in content.value if isinstance(key, yaml.ScalarNode)}
        return "write it below children" if inner & set(SECTIONS) else "write it below hosts, if it is a host"
    return "write it below hosts, if it is a host" if is_null(content) else "write it below vars"
