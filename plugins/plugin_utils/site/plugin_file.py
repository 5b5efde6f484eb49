# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Files that configure our own inventory plugins: Ansible passes over whatever is misspelt in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.shape import Found, is_plugin, pairs
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.yaml_text import line_of, parse

_OURS = "ironspan.hybrid."
_CACHE = ("cache", "cache_plugin", "cache_timeout", "cache_connection", "cache_prefix")
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "azure": ("plugin", *_CACHE),
    "ironic": ("plugin", "expected", "mapping", "cloud"),
}
"""Plugin -> options that its documentation has; a test compares."""
_BOOLEANS = frozenset(["true", "false", "yes", "no", "on", "off"])
_NUMBER = re.compile(r"[0-9]+")


def plugin_of(file: Path) -> tuple[int, str]:
    """Return the plugin that a file configures, and its line; 0 and "" where it is no such file.

    Args:
        file: a file of an inventory that can be read.
    """
    root = parse(file.read_text(encoding="utf-8", errors="replace"), str(file)).root
    if root is None or not is_plugin(root):
        return 0, ""
    key, value = next(each for each in pairs(root) if str(each[0].value) == "plugin")  # type: ignore[arg-type]
    return line_of(key), str(value.value)


def wrong_plugin(root: yaml.Node, file: str) -> Iterator[Found]:
    """Yield what is wrong with the configuration of one of our plugins; others' are theirs to judge.

    Args:
        root: its syntax tree, a mapping with the key ``plugin``.
        file: its path: each plugin takes files that end with its own name.
    """
    nodes = pairs(root) if isinstance(root, yaml.MappingNode) else ()
    entries = {str(key.value): (key, value) for key, value in nodes}
    key, named = entries["plugin"]
    name = str(named.value) if isinstance(named, yaml.ScalarNode) else ""
    short = name.removeprefix(_OURS)
    if short not in OPTIONS or not name.startswith(_OURS):
        near = short if short in OPTIONS else nearest(short, OPTIONS) if name.startswith("ironspan") else None
        if near:
            yield line_of(key), "plugin", f"there is no plugin {name}", f"write {_OURS}{near}"
        return
    if not file.endswith((f"{short}.yml", f"{short}.yaml")):
        message = f"{name} takes files whose names end with {short}.yml only, so nobody reads this one"
        yield line_of(key), "plugin", message, f"call the file {short}.yml"
    for option, (key, value) in entries.items():
        text = str(value.value) if isinstance(value, yaml.ScalarNode) else ""
        if option not in OPTIONS[short]:
            near = nearest(option, OPTIONS[short])
            remedy = (
                f"write {near}" if near else f"write it in group_vars, or use {', '.join(OPTIONS[short])}"
            )
            yield line_of(key), option, f"is no option of {name}, so nobody reads it", remedy
        elif option == "cache" and text.lower() not in _BOOLEANS:
            yield line_of(key), option, f"{text!r} is neither true nor false", "write true or false"
        elif option == "cache_timeout" and not _NUMBER.fullmatch(text):
            yield line_of(key), option, f"{text!r} is no number of seconds", "write for example 300"
