# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sites as files, in any of the layouts that Ansible reads; where everything stands is remembered."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t
from pathlib import Path
from random import Random

from tests.unit.refuse.sites import Site, Values

Key = tuple[str | int, ...]
"""Whose variable, its name, and the steps inside of its value; ``hosts`` or ``groups`` and a name."""
PASSWORD = "of a test"
_PLAIN = re.compile(r"[a-z][a-z0-9_./-]*")


@dataclasses.dataclass
class Written:
    """Files, as lines, and where in them things stand.

    Args:
        sources: what is given to ``-i``, below the folder.
        executable: files that are programs.
        encrypted: files that ansible-vault encrypts.
    """

    files: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    where: dict[Key, tuple[str, int]] = dataclasses.field(default_factory=dict)
    sources: list[str] = dataclasses.field(default_factory=lambda: [""])
    executable: set[str] = dataclasses.field(default_factory=set)
    encrypted: set[str] = dataclasses.field(default_factory=set)
    hosts_file: str = "hosts.yml"

    def to(self, folder: Path) -> list[Path]:
        """Write the files; return the sources."""
        for name, lines in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = "\n".join(lines) + "\n"
            path.write_bytes(
                (vault(text) if name in self.encrypted else text).encode("utf-8", "surrogateescape")
            )
            if name in self.executable:
                path.chmod(0o755)
        return [folder / source for source in self.sources]


def vault(text: str) -> str:
    """Return a text as ansible-vault encrypts it with the password of these tests.

    Args:
        text: what is encrypted.
    """
    from ansible.parsing.vault import VaultLib, VaultSecret

    return str(VaultLib([("default", VaultSecret(PASSWORD.encode()))]).encrypt(text.encode()).decode())


class _Lines:
    """One file while it is written."""

    def __init__(self, written: Written, file: str, rng: Random, comments: bool = True) -> None:
        self._written, self._file, self._rng = written, file, rng
        self._lines = written.files.setdefault(file, [])
        if comments and not self._lines and rng.random() < 0.5:
            self._lines.append("---")

    def add(self, text: str, *key: str | int) -> None:
        """Add a line; with a key it is where that stands."""
        if self._rng.random() < 0.05:
            self._lines.append(self._rng.choice(["", "# which is how it is"]))
        self._lines.append(text)
        if key:
            self._written.where.setdefault(key, (self._file, len(self._lines)))

    def variables(self, owner: str, values: Values, indent: int = 0) -> None:
        """Add variables as YAML."""
        for name, value in values.items():
            self._value(" " * indent + f"{name}:", value, (owner, name), indent)

    def _value(self, before: str, value: t.Any, key: Key, indent: int) -> None:
        # The dash of an item is on the line of what it has, as people write it.
        apart = not before.endswith("-")
        if apart and isinstance(value, dict | list) and value and self._rng.random() < 0.6:
            self.add(before, *key)
            inner = indent + 2
            for step, item in value.items() if isinstance(value, dict) else enumerate(value):
                start = " " * inner + (f"{_scalar(step, self._rng)}:" if isinstance(value, dict) else "-")
                self._value(start, item, (*key, step), inner)
            return
        self.add(f"{before} {_scalar(value, self._rng)}".rstrip(), *key)
        _inside(value, key, self._written.where)


def _inside(value: t.Any, key: Key, where: dict[Key, tuple[str, int]]) -> None:
    """What is written on one line stands there, too."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        where.setdefault((*key, step), where[key])
        _inside(item, (*key, step), where)


def _scalar(value: t.Any, rng: Random) -> str:
    if value is None:
        return rng.choice(["", "~", "null"])
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value not in (
            "true",
            "false",
            "yes",
            "no",
            "on",
            "off",
            "null",
            "y",
            "n",
        ):
            return rng.choice([value, json.dumps(value)])
        if value.isprintable() and rng.random() < 0.3:
            return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dict | list):
        return _flow(value)
    return json.dumps(value)


def _flow(value: t.Any) -> str:
    """Return JSON, in which keys of YAML may have a space behind the colon only."""
    return json.dumps(value)


def write(site: Site, rng: Random) -> Written:
    """Return the site in a layout."""
    written = Written()
    if rng.random() < 0.15 and _is_simple(site):
        _ini(site, written, rng)
    else:
        _yaml(site, written, rng)
    if rng.random() < 0.03:
        _script(written)
    if rng.random() < 0.03:
        files = [name for name in written.files if name.startswith(("group_vars/", "host_vars/"))]
        written.encrypted.update(files[:1])
    return written


def _is_simple(site: Site) -> bool:
    return all(
        isinstance(value, str | int)
        and "\n" not in str(value)
        and "\0" not in str(value)
        and "'" not in str(value)
        for values in site.hosts.values()
        for value in values.values()
    )


def _of_groups(site: Site, written: Written, rng: Random, inline: bool = True) -> dict[str, Values]:
    """Write files of variables; return what is left for the inventory itself."""
    left: dict[str, Values] = {}
    for group, values in site.variables.items():
        if inline and rng.random() < 0.2:
            left[group] = values
            continue
        _variables(f"group_vars/{group}", group, values, written, rng)
    return left


def _variables(base: str, owner: str, values: Values, written: Written, rng: Random) -> None:
    names = list(values)
    kind = rng.choice(["yml", "yml", "yml", "yaml", "json", "folder", "bare"])
    if kind == "folder":
        half = rng.randint(0, len(names))
        for file, part in (
            ("main.yml", names[:half]),
            (rng.choice(["more.yml", "sub/x.yaml"]), names[half:]),
        ):
            if part:
                lines = _Lines(written, f"{base}/{file}", rng)
                lines.variables(owner, {name: values[name] for name in part})
    elif kind == "json":
        lines = _Lines(written, f"{base}.json", rng, comments=False)
        last = len(names) - 1
        text = [
            "{",
            *(f"  {json.dumps(n)}: {json.dumps(values[n])}{',' * (i < last)}" for i, n in enumerate(names)),
            "}",
        ]
        written.files[f"{base}.json"][:] = text
        for number, name in enumerate(names, 2):
            written.where[owner, name] = (f"{base}.json", number)
            _inside(values[name], (owner, name), written.where)
        del lines
    else:
        ending = "" if kind == "bare" and "." not in base else "." + kind.replace("bare", "yml")
        _Lines(written, base + ending, rng).variables(owner, values)


def _of_hosts(site: Site, written: Written, rng: Random) -> dict[str, Values]:
    left: dict[str, Values] = {}
    apart = rng.random() < 0.25
    for host, values in site.hosts.items():
        if apart and values and rng.random() < 0.8:
            _variables(f"host_vars/{host}", host, values, written, rng)
        else:
            left[host] = values
    return left


def _yaml(site: Site, written: Written, rng: Random) -> None:
    of_groups, of_hosts = _of_groups(site, written, rng), _of_hosts(site, written, rng)
    written.hosts_file = rng.choice(["hosts.yml", "hosts.yaml", "10-site.yml", "inventory.yml"])
    written.sources = [rng.choice(["", written.hosts_file])]
    lines = _Lines(written, written.hosts_file, rng)
    lines.add("all:", "groups", "all")
    if "all" in of_groups:
        lines.add("  vars:")
        lines.variables("all", of_groups["all"], 4)
    lines.add("  children:")
    order = [*site.groups, *site.children]
    rng.shuffle(order)
    told: set[str] = set()
    for group in order:
        _group(group, site, of_groups, of_hosts, told, lines, rng)


def _group(
    group: str,
    site: Site,
    of_groups: dict[str, Values],
    of_hosts: dict[str, Values],
    told: set[str],
    lines: _Lines,
    rng: Random,
) -> None:
    if not (site.groups.get(group) or site.children.get(group) or group in of_groups):
        lines.add(f"    {group}: {{}}", "groups", group)
        return
    lines.add(f"    {group}:", "groups", group)
    if group in of_groups and group != "all":
        lines.add("      vars:")
        lines.variables(group, of_groups[group], 8)
    if site.children.get(group):
        lines.add("      children:")
        for child in site.children[group]:
            lines.add(f"        {child}:", "groups", group, child)
    if site.groups.get(group):
        lines.add("      hosts:")
        for host in site.groups[group]:
            values = {} if host in told else of_hosts.get(host, {})
            told.add(host)
            key = ("hosts", host) if ("hosts", host) not in lines._written.where else ("hosts", group, host)
            if values and rng.random() < 0.5:
                lines.add(f"        {host}: {_flow(values)}", *key)
                place = lines._written.where[key]
                for name, value in values.items():
                    lines._written.where.setdefault((host, name), place)
                    _inside(value, (host, name), lines._written.where)
            elif values:
                lines.add(f"        {host}:", *key)
                lines.variables(host, values, 10)
            else:
                lines.add(f"        {host}:", *key)
            lines._written.where.setdefault(("member", group, host), lines._written.where[key])


def _ini(site: Site, written: Written, rng: Random) -> None:
    _of_groups(site, written, rng, inline=False)
    of_hosts = _of_hosts(site, written, rng)
    written.hosts_file = rng.choice(["hosts", "inventory"])
    written.sources = [rng.choice(["", written.hosts_file])]
    lines = _Lines(written, written.hosts_file, rng, comments=False)
    told: set[str] = set()
    for group, hosts in site.groups.items():
        lines.add(f"[{group}]", "groups", group)
        if len(hosts) > 1 and _is_range(group, hosts) and not any(of_hosts.get(host) for host in hosts):
            first, last = hosts[0], hosts[-1]
            letter, tail = first.split("-")[1], first.split("-")[2][2:]
            lines.add(f"w-{letter}-[01:{last.split('-')[2][:2]}]{tail}", "hosts", first)
            told.update(hosts)
            continue
        for host in hosts:
            values = {} if host in told else of_hosts.get(host, {})
            told.add(host)
            words = " ".join(f"{name}={_ini_word(value)}" for name, value in values.items())
            key = ("hosts", host) if ("hosts", host) not in written.where else ("hosts", group, host)
            lines.add(f"{host} {words}".strip(), *key)
            for name in values:
                written.where.setdefault((host, name), written.where[key])
            written.where.setdefault(("member", group, host), written.where[key])
    for group, children in site.children.items():
        lines.add(f"[{group}:children]", "groups", group)
        for child in children:
            lines.add(child, "groups", group, child)


def _ini_word(value: t.Any) -> str:
    """Return a value as INI has it: a bare None is nothing to Ansible, which reads it as Python does."""
    return json.dumps("'None'" if value == "None" else str(value))


def _is_range(group: str, hosts: list[str]) -> bool:
    """Tell whether hosts are numbered as those of a rack are, from 1 on."""
    numbers = [re.fullmatch(rf"w-{group[-1]}-(\d\d)[.a-z]*", host) for host in hosts]
    return [int(each[1]) for each in numbers if each] == list(range(1, len(hosts) + 1))


def _script(written: Written) -> None:
    """A dynamic inventory beside, which says nothing of the site's."""
    if written.sources != [""]:
        written.sources.append("dynamic")
    written.files["dynamic"] = [
        "#!/bin/sh",
        """echo '{"_meta": {"hostvars": {}}, "user_dynamic": {"hosts": []}}'""",
    ]
    written.executable.add("dynamic")
