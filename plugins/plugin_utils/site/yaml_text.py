# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A YAML text as a syntax tree, and what is wrong with it whatever it says.

Readers of YAML are lenient: of a key that is there twice they keep the last, tags make objects, and a few
aliases make a text of a hundred bytes a structure of gigabytes. Here each of these is named with its line.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Callable, Iterator

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.depth import DEEPEST, too_deep
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place

MOST_VALUES = 2_000_000
"""Values of one file with its aliases written out; 5,000 hosts of a line each have 30,000."""
_TAGS = frozenset({"!vault", "!vault-encrypted", "!unsafe"})
"""What Ansible knows beside YAML's own."""
_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(
    _STANDARD + name for name in ("str", "int", "float", "bool", "null", "seq", "map", "timestamp", "merge")
)
VAULT = "$ANSIBLE_VAULT"
"""What a file or value that ansible-vault encrypted begins with."""
_MERGE_MARKER = re.compile(r"(<{7}|={7}|>{7}|\|{7})( |$)")
_DATE = re.compile(r"\d{4}-\d")
_NULLS = ("", "~", "null", "Null", "NULL")
_resolved: Callable[..., str] = yaml.SafeLoader("").resolve
"""The tag that YAML 1.1 gives a plain scalar."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Makes syntax trees without working out which scalar is a number or a date: few ask."""

    def resolve(self, *_: object) -> str:
        return ""


@dataclasses.dataclass(slots=True)
class Duplicate:
    """A key that a mapping has twice."""

    place: Place
    path: str
    first_line: int


@dataclasses.dataclass(slots=True)
class Text:
    """A text and what was found in it.

    Args:
        root: the syntax tree; None when the text is broken, or says nothing.
        broken: what keeps it from being read: place and reason.
        duplicates: keys that are there twice.
    """

    root: yaml.Node | None = None
    broken: tuple[Place, str] | None = None
    duplicates: list[Duplicate] = dataclasses.field(default_factory=list)


def parse(text: str, file: str) -> Text:
    """Return the syntax tree of a YAML text with its mistakes.

    Args:
        text: the text.
        file: its name in places.
    """
    try:
        if (deep := too_deep(text, Loader)) is not None:
            return Text(broken=(Place(file, deep.line + 1), f"more than {DEEPEST} levels of nesting"))
        root: yaml.Node | None = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark and "flow" in str(error.context) and (opened := _open_bracket(text)) is not None:
            line, sign = opened
            if line <= mark.line:
                reason = f"the {sign} that is opened here is not closed, or something in it is wrong"
                return Text(broken=_better(Place(file, line), reason, text))
        if "could not find expected ':'" in str(error.problem) and error.context_mark:
            mark = error.context_mark  # where the key without a colon is, not where the next one begins
        line, reason = (mark.line + 1 if mark else 1), str(error.problem or error.context)
        return Text(broken=_better(Place(file, line), reason, text))
    except yaml.reader.ReaderError as error:
        # libyaml counts bytes, PyYAML characters.
        if bad := yaml.reader.Reader.NON_PRINTABLE.search(text):
            line = text.count("\n", 0, bad.start()) + 1
            reason = f"the character U+{ord(bad.group()):04X} is not allowed"
            return Text(broken=(Place(file, line), reason))
        return Text(broken=(Place(file, 1), str(error.reason)))
    except yaml.YAMLError as error:
        return Text(broken=(Place(file, 1), str(error)))
    if root is None:
        return Text()
    if (useless := _unusable(root)) is not None:
        return Text(broken=(Place(file, line_of(useless[0])), useless[1]))
    found = Text(root=root)
    found.duplicates.extend(_duplicates(root, file, "", set()))
    return found


def line_of(node: yaml.Node) -> int:
    """Return the line that a node begins on, from 1."""
    return int(node.start_mark.line) + 1


def is_null(node: yaml.Node) -> bool:
    """Tell whether a node is no value: nothing, ``~`` or ``null``, not in quotes."""
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value in _NULLS


def is_text(node: yaml.Node) -> bool:
    """Tell whether a node is a text, not a number, a truth value, a date or a collection."""
    if not isinstance(node, yaml.ScalarNode):
        return False
    if node.style:
        return True
    return _resolved(yaml.ScalarNode, node.value, (True, False)) == f"{_STANDARD}str"


def kind_of(node: yaml.Node) -> str:
    """Return how people call what a node is."""
    if isinstance(node, yaml.MappingNode):
        return "a dictionary"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "nothing" if is_null(node) else "a text" if is_text(node) else "a number, a date or a truth value"


def _better(place: Place, reason: str, text: str) -> tuple[Place, str]:
    """Return place and reason as what people did, where the parser says what it wanted."""
    lines = text.splitlines()
    line = place.line
    for number in (line - 1, line, line + 1):
        if 0 < number <= len(lines) and _MERGE_MARKER.match(lines[number - 1]):
            return place._replace(line=number), "a merge conflict was left in it"
    if (
        0 < line <= len(lines)
        and "\t" in lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
    ):
        return place, "the line is indented with a tab; YAML wants spaces"
    if (opened := _open_quote(text, line)) is not None:
        return place._replace(
            line=opened
        ), "the text that begins with a quote here is not closed on this line"
    return place, reason


def _open_bracket(text: str) -> tuple[int, str] | None:
    """Return line and sign of the innermost bracket that a broken text leaves open, None when none is."""
    opened: list[tuple[int, str]] = []
    try:
        for token in yaml.scan(text, Loader=Loader):
            if isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken):
                sign = "[" if isinstance(token, yaml.FlowSequenceStartToken) else "{"
                opened.append((token.start_mark.line + 1, sign))
            elif isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken) and opened:
                opened.pop()
    except yaml.YAMLError:
        pass
    return opened[-1] if opened else None


def _open_quote(text: str, line: int) -> int | None:
    """Return the line of a quote that swallowed lines up to a broken one, None when none did."""
    last: tuple[int, int] | None = None
    try:
        for token in yaml.scan(text, Loader=Loader):
            if token.start_mark.line + 1 > line:
                break
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                span = token.start_mark.line + 1, token.end_mark.line + 1
                last = span if span[0] != span[1] else None
    except yaml.MarkedYAMLError as error:
        if error.context and "quoted scalar" in str(error.context) and error.context_mark:
            return int(error.context_mark.line) + 1
    except yaml.YAMLError:
        return None
    return last[0] if last is not None and last[1] >= line - 1 else None


def _unusable(root: yaml.Node) -> tuple[yaml.Node, str] | None:
    """Return the first node that nothing can be made of, and why: tags of objects, aliases of themselves."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def visit(node: yaml.Node) -> tuple[yaml.Node, str] | None:
        known = id(node)
        if known in open_nodes:
            return node, "it contains itself through an alias"
        if known in sizes:
            return None
        if node.tag and node.tag not in _TAGS and node.tag not in _PLAIN_TAGS and node.tag != "!":
            name = node.tag.replace(_STANDARD, "!!")
            return node, f"the tag {name} makes what an inventory has no use for"
        wrong = _wrong_vault(node) or _wrong_merge(node) or _wrong_key(node) or _wrong_scalar(node)
        if wrong is not None:
            return wrong
        size = 1
        open_nodes.add(known)
        for inner in _inside(node):
            if (bad := visit(inner)) is not None:
                return bad
            size += sizes[id(inner)]
        open_nodes.discard(known)
        if size > MOST_VALUES:
            return node, f"with its aliases written out it has more than {MOST_VALUES} values"
        sizes[known] = size
        return None

    return visit(root)


def _wrong_vault(node: yaml.Node) -> tuple[yaml.Node, str] | None:
    """Return a value that is called encrypted and is not; Ansible says so only when somebody asks for it."""
    if node.tag not in ("!vault", "!vault-encrypted"):
        return None
    if isinstance(node, yaml.ScalarNode) and is_encrypted(node.value):
        return None
    return node, "what stands behind !vault is nothing that ansible-vault encrypted"


def _wrong_key(node: yaml.Node) -> tuple[yaml.Node, str] | None:
    """Return a key that is no scalar: what ``name: {{ value }}`` without quotes is to YAML."""
    for key, _value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.MappingNode):
            return key, 'an expression begins here, and stands in quotes: "{{ ... }}"'
        if isinstance(key, yaml.SequenceNode):
            return key, "a list is no name of anything"
    return None


def _wrong_scalar(node: yaml.Node) -> tuple[yaml.Node, str] | None:
    """Return a value that is not what its tag says, or a date that no calendar has."""
    tag = node.tag
    if not tag.startswith(_STANDARD):
        if not isinstance(node, yaml.ScalarNode) or node.style or not _DATE.match(node.value):
            return None
        tag = _resolved(yaml.ScalarNode, node.value, (True, False))
        if tag != f"{_STANDARD}timestamp":
            return None
    made = type(node)(tag, node.value, node.start_mark, node.end_mark)
    try:
        # What is inside of a list or dictionary is judged by itself.
        yaml.SafeLoader("").construct_object(made)
    except (yaml.YAMLError, ValueError, KeyError, TypeError):
        kind = tag.removeprefix(_STANDARD)
        if node.tag.startswith(_STANDARD):
            return node, f"what stands behind !!{kind} is none"
        return node, f"{node.value} is read as a date, and there is no such day or time; write it in quotes"
    return None


def is_encrypted(text: str) -> bool:
    """Tell whether a text has the form of what ansible-vault encrypts, whatever the password.

    Args:
        text: with its first line, ``$ANSIBLE_VAULT;...``.
    """
    first, *rest = text.strip().splitlines() or [""]
    header = [part.strip() for part in first.split(";")]
    if header[0] != VAULT or header[1:2] not in (["1.1"], ["1.2"]) or header[2:3] != ["AES256"]:
        return False
    try:
        parts = bytes.fromhex("".join(line.strip() for line in rest)).split(b"\n", 2)
        return len(parts) == 3 and all(bytes.fromhex(part.decode("ascii")) for part in parts)
    except ValueError:
        return False


def _wrong_merge(node: yaml.Node) -> tuple[yaml.Node, str] | None:
    """Return the value of a merge (``<<``) that is no dictionary, nor a list of some."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if not isinstance(key, yaml.ScalarNode) or key.value != "<<" or key.style:
            continue
        for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            if not isinstance(each, yaml.MappingNode):
                return key, f"<< takes a dictionary, and this is {kind_of(each)}"
    return None


def _inside(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair


def _duplicates(node: yaml.Node | None, file: str, path: str, seen: set[int]) -> Iterator[Duplicate]:
    if isinstance(node, yaml.ScalarNode) or node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicates(item, file, f"{path}[{index}]", seen)
        return
    before = f"{path}." if path else ""
    first: dict[str, int] = {}
    pairs: list[tuple[t.Any, t.Any]] = node.value
    for key, value in pairs:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        if name and name != "<<" and name in first:
            yield Duplicate(Place(file, line_of(key)), before + name, first[name])
        first.setdefault(name, line_of(key))
        yield from _duplicates(value, file, before + name, seen)
