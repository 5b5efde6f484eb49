# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Inventories that Ansible reads only in part, or not to the end: one mistake each, of form."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable

from .conftest import Example

HOSTS = "hosts.yml"
GPU = "group_vars/gpu.yml"
_HAPROXY = "    haproxy: {}\n"
_GPU_1 = "gpu-a-01: {ansible_host: 10.30.1.11}"


@dataclasses.dataclass(frozen=True)
class Mistake:
    """One mistake.

    Args:
        name: what it is.
        make: makes it.
        file: the file that must be named.
        at: a text that is only on the line that must be named; empty where the file as a whole is wrong.
        says: a part of the message.
    """

    name: str
    make: Callable[[Example], object]
    file: str
    at: str
    says: str


def instead(name: str, old: str, new: str, at: str, says: str) -> Mistake:
    """Return a mistake in the file of hosts: one text in the place of another."""
    return Mistake(name, lambda example: example.replace(HOSTS, old, new), HOSTS, at, says)


def behind(name: str, text: str, at: str, says: str, file: str = GPU) -> Mistake:
    """Return a mistake at the end of a file, which may be a new one."""
    return Mistake(name, lambda example: example.append(file, text), file, at, says)


def as_bytes(name: str, content: bytes, at: str, says: str) -> Mistake:
    """Return a mistake in the bytes behind the variables of the group gpu."""

    def make(example: Example) -> None:
        path = example.folder / GPU
        path.write_bytes(path.read_bytes() + content)

    return Mistake(name, make, GPU, at, says)


def beside(name: str, file: str, says: str, named: str = "") -> Mistake:
    """Return a mistake that is a file by itself; the file, or a folder of it, is named without a line."""
    return Mistake(
        name, lambda example: example.append(file, "site_wan_mtu: 1300\n"), named or file, "", says
    )


def _bomb() -> str:
    names = "abcdefghij"
    lines = ["user_a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n"]
    lines += [f"user_{b}: &{b} [{', '.join([f'*{a}'] * 8)}]\n" for a, b in itertools.pairwise(names)]
    return "".join(lines)


def _without_hosts(example: Example) -> None:
    (example.folder / HOSTS).rename(example.folder / "hosts.yml.bak")


def _script(example: Example) -> None:
    example.append("dynamic", "#!/bin/sh\nexit 3\n")
    (example.folder / "dynamic").chmod(0o755)


def _nobodys(example: Example) -> None:
    example.append("dynamic", "#!/no/such/python\n")
    (example.folder / "dynamic").chmod(0o755)


HALF_PARSED = (
    instead("a key that no group has", _HAPROXY, f"{_HAPROXY}  host:\n    x-1:\n", "  host:", "write hosts"),
    instead(
        "a host beside the groups",
        _HAPROXY,
        f"{_HAPROXY}  x-1: {{ansible_host: 10.30.1.99}}\n",
        "x-1",
        "if it is a host",
    ),
    instead(
        "a group beside children",
        _HAPROXY,
        f"{_HAPROXY}  user_x: {{hosts: {{}}}}\n",
        "user_x",
        "write it below children",
    ),
    instead(
        "a variable beside vars",
        _HAPROXY,
        f"{_HAPROXY}  site_wan_mtu: 1300\n",
        "site_wan_mtu",
        "write it below vars",
    ),
    instead(
        "children as a list",
        "    gvisor:\n      children:\n        rack_c:\n",
        "    gvisor:\n      children: [rack_c]\n",
        "[rack_c]",
        "is a list and must be a dictionary",
    ),
    instead(
        "hosts as a list",
        _HAPROXY,
        "    haproxy:\n      hosts: [az-1]\n",
        "hosts: [az-1]",
        "is a list and must be a dictionary",
    ),
    instead(
        "variables of a group as a list",
        _HAPROXY,
        "    haproxy:\n      vars: [a]\n",
        "vars: [a]",
        "write lines 'name: value'",
    ),
    instead(
        "a text for a group", _HAPROXY, "    haproxy: az-1\n", "haproxy: az-1", "a group is a dictionary"
    ),
    instead(
        "an address in the place of variables",
        _GPU_1,
        "gpu-a-01: 10.30.1.11",
        "gpu-a-01: 10",
        "in the place of its variables",
    ),
    instead("a number for a host", "gpu-a-01:", "1001:", "1001:", 'write "1001" in quotes'),
    instead(
        "a group below itself",
        _HAPROXY,
        "    user_a:\n      children:\n        user_b:\n          children:\n            user_a:\n",
        "            user_a:",
        "is below itself: all > user_a > user_b > user_a",
    ),
    instead(
        "a child that is nowhere",
        "    nodes:\n      children:\n",
        "    nodes:\n      children:\n        rack_d:\n",
        "rack_d",
        "is there nowhere",
    ),
    behind(
        "no name and value in INI",
        "[user_x]\naz-1 ansible_host\n",
        "az-1 ansible_host",
        "sets no variable",
        "more",
    ),
    behind("quotes that stay open in INI", "[user_x]\naz-1 user_a='b\n", "az-1", "close the quotes", "more"),
    behind(
        "a group that INI does not have",
        "[user_x:children]\nuser_y\n",
        "user_y",
        "groups.user_y: is not there",
        "more",
    ),
    behind(
        "variables of a group that INI does not have",
        "[user_y:vars]\nuser_a=1\n",
        "[user_y",
        "of a group that is not there",
        "more",
    ),
    behind(
        "a section that INI does not have", "[user_x:child]\naz-1\n", "[user_x", "write one of them", "more"
    ),
    behind("a broken section in INI", "[user x]\naz-1\n", "[user x]", "is no section", "more"),
    instead("children at the top", "all:\n  children:\n", "children:\n", "9", "write 'all:' above it"),
    instead("vars among groups", _HAPROXY, f"{_HAPROXY}    vars: {{user_a: 1}}\n", "vars:", "beside it"),
    instead(
        "vars among hosts",
        _HAPROXY,
        "    haproxy: {hosts: {vars: {user_a: 1}}}\n",
        "vars:",
        "move it out of hosts",
    ),
    instead("name and value in one", _GPU_1, "gpu-a-01: {ansible_host=10.30.1.11}", "gpu-a-01", "_host: 10"),
    instead("a colon without space", _GPU_1, "gpu-a-01: {ansible_host:10.30.1.11}", "gpu-a-01", "the space"),
    instead(
        "a variable beside its host",
        _GPU_1,
        "gpu-a-01:\n            ansible_host: 10.30.1.11",
        " ansible_host: 10.30.1.11",
        "indent it below its host",
    ),
    instead("vars in a host", _GPU_1, "gpu-a-01: {vars: {ansible_host: 10.30.1.11}}", "vars:", "is a host"),
    instead(
        "hosts in one text", _HAPROXY, "    haproxy: {hosts: 'az-1, az-2'}\n", "az-1, az-2", "several names"
    ),
    instead("two hosts in one key", "gpu-a-01:", "'gpu-a-01,gpu-a-05':", "gpu-a-05", "several names"),
    instead("a group without a name", _HAPROXY, "    '': {}\n", "'': {}", "a group has a name"),
    instead(
        "a group among hosts",
        _HAPROXY,
        "    haproxy: {hosts: {rack_a: {}}}\n",
        "{rack_a: {}}",
        "list it below the children of haproxy",
    ),
    instead(
        "a host among groups",
        _HAPROXY,
        "    haproxy: {children: {az-1: {}}}\n",
        "{az-1: {}}",
        "list it below the hosts of haproxy",
    ),
    behind("a group among hosts of INI", "[user_x]\nrack_a\n", "rack_a", "[user_x:children]", "more"),
    behind("a colon behind a host of INI", "[user_x]\naz-1: user_a=1\n", "az-1:", "no name of one", "more"),
    behind("hosts on one line of INI", "[user_x]\naz-1, az-2\n", "az-1,", "no name of one", "more"),
    behind("spaces around = in INI", "[user_x]\naz-1 user_a = 1\n", "user_a", "without spaces", "more"),
    Mistake("a script that fails", _script, "dynamic", "", "was not read"),
    behind("a program that may not run", "#!/bin/sh\necho {}\n", "#!/bin/sh", "chmod +x", "more.sh"),
    Mistake("a program without what runs it", _nobodys, "dynamic", "1", "is run by /no/such/python"),
    Mistake(
        "an empty file of hosts",
        lambda example: example.append("more.yml", ""),
        "more.yml",
        "1",
        "says nothing",
    ),
)

SYNTAX = (
    behind("a tab", "user_x:\n\ty: 1\n", "\ty", "indented with a tab"),
    behind(
        "a merge marker",
        "<<<<<<< ours\nuser_x: 1\n=======\nuser_x: 2\n>>>>>>> theirs\n",
        "<<<<<<<",
        "a merge conflict",
    ),
    behind("a quote that stays open", 'user_x: "abc\nuser_y: 1\n', '"abc', "begins with a quote here"),
    behind(
        "a quote that another one closes",
        'user_x: "abc\nuser_y: "d"\nuser_z: 1\n',
        '"abc',
        "begins with a quote here",
    ),
    behind("an anchor that is nowhere", "user_x: *nowhere\n", "*nowhere", "undefined alias"),
    behind("an anchor in itself", "user_x: &x [*x]\n", "&x", "contains itself"),
    behind("anchors that fill the memory", _bomb(), "user_g", "aliases written out"),
    behind(
        "a tag that makes objects",
        "user_x: !!python/object:os.system x\n",
        "!!python",
        "the tag !!python/object:os.system",
    ),
    behind("an expression without quotes", "user_x: {{ 1 }}\n", "{{ 1", 'stands in quotes: "{{ ... }}"'),
    behind("an expression without quotes inside", "user_x:\n- {a: {{ 1 }}}\n", "{{ 1", "stands in quotes"),
    behind("a list as a key", "user_x:\n  ? [a]\n  : b\n", "[a]", "a list is no name"),
    behind("no number behind the tag of one", "user_x: !!int a\n", "!!int", "stands behind !!int is none"),
    behind("no day of any month", "user_x: 2026-02-30\n", "-02-30", "there is no such day"),
    behind("a number for a variable", "12: 1\n", "12:", "the name of a variable is a text"),
    as_bytes("another encoding", b"user_x: caf\xe9\n", "user_x", "is not UTF-8: the byte 0xe9"),
    as_bytes("a control character", b"user_x: a\x01\n", "user_x", "the character U+0001"),
    Mistake(
        "a list of variables",
        lambda example: (example.folder / GPU).write_text("- a: 1\n"),
        GPU,
        "- a",
        "is a list, and variables",
    ),
    Mistake(
        "no password for a vault",
        lambda example: (example.folder / GPU).write_text("$ANSIBLE_VAULT;1.1;AES256\n61\n"),
        GPU,
        "$ANSIBLE",
        "no password was given",
    ),
)

NOT_COUNTED = (
    beside("all.yaml beside all.yml", "group_vars/all.yaml", "of the variables of all only all.yml is read"),
    beside(
        "a folder beside all.yml",
        "group_vars/all/more.yml",
        "only all is read; move its lines to all/all.yml",
        "group_vars/all.yml",
    ),
    beside("group_var", "group_var/all.yml", "name it group_vars", "group_var"),
    beside("Host-Vars", "Host-Vars/az-1.yml", "name it host_vars", "Host-Vars"),
    beside("an ending in capitals", "group_vars/rack_a.YML", "name it rack_a.yml"),
    beside("a copy of variables", "group_vars/rack_a.yml.bak", "move copies out of the inventory"),
    beside("a space behind the ending", "group_vars/rack_a.yml ", "name it rack_a.yml"),
    beside("an ending of another editor", "group_vars/rack_a.yml.txt", "name it rack_a.yml"),
    beside("a copy in a folder", "group_vars/rack_a/a.yml.orig", "move copies out of the inventory"),
    beside("INI for variables", "group_vars/rack_a.ini", "name it rack_a.yml"),
    Mistake("a copy of the hosts alone", _without_hosts, "hosts.yml.bak", "", "name it hosts.yml"),
    Mistake(
        "a FIFO",
        lambda example: os.mkfifo(example.folder / "group_vars" / "rack_a.yml"),
        "group_vars/rack_a.yml",
        "",
        "is a FIFO",
    ),
    Mistake(
        "a dead link",
        lambda example: (example.folder / "group_vars" / "rack_a.yml").symlink_to("nowhere.yml"),
        "group_vars/rack_a.yml",
        "",
        "a link to a file that is not there",
    ),
)

MISTAKES = (*HALF_PARSED, *SYNTAX, *NOT_COUNTED)
