# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a run is asked for, held against what there is: files of servers and accounts, hosts."""

from __future__ import annotations

import os
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.argument_values import (
    parts_of,
    says_nothing,
    wrong_value,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import (
    of_command_line,
    operations_of_run,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem, nearest

EXPECTED, MAPPING, SERVERS = "ironspan_expected", "ironspan_mapping", "ironspan_servers"
FACTORY, HOSTS = "ironspan_factory", "ironspan_hosts"
LOGS, REPORT = "ironspan_audit_logs", "ironspan_report"
_OF_A_PATTERN = frozenset("*?!&:[]~")


def problems_of_files(given: Mapping[str, t.Any], variables: Mapping[str, t.Any]) -> list[Problem]:
    """Return what cannot be found, or not be used, of what this run names.

    Args:
        given: variables of the command line.
        variables: of a task, for the groups of the inventory.
    """
    arguments = {entry.name: entry for each in operations_of_run(given) for entry in each.arguments}
    # What is of another type, or an expression, is judged where that is known.
    said = {
        name: given[name]
        for name, argument in arguments.items()
        if not says_nothing(argument, given.get(name))
        and wrong_value(argument, given[name]) is None
        and "{{" not in str(given[name])
    }
    found = [*_hosts(said, variables.get("groups")), *_servers(said)]
    if FACTORY in said:
        found += _accounts(said)
    for text in parts_of(said[LOGS]) if LOGS in said else ():
        if not _path(text).is_file():
            place = of_command_line(LOGS, said[LOGS])
            found.append(Problem(*place, LOGS, f"{text} is no file", "name files that are there"))
    if REPORT in said:
        found += _report(str(said[REPORT]))
    return sorted(found)


def _hosts(said: Mapping[str, t.Any], groups: t.Any) -> Iterator[Problem]:
    if HOSTS not in said or not isinstance(groups, Mapping):
        return
    known = {*groups, *groups.get("all", ())}
    for name in parts_of(said[HOSTS]):
        if name not in known and not _OF_A_PATTERN & set(name):
            near = nearest(name, sorted(groups.get("all", ())))
            remedy = f"write {near}" if near else "write names of hosts as the inventory has them"
            place = of_command_line(HOSTS, said[HOSTS])
            yield Problem(*place, HOSTS, f"the inventory has no host {name!r}", remedy)


def _servers(said: Mapping[str, t.Any]) -> Iterator[Problem]:
    """Yield what is wrong with the file of expected servers, and servers that do not stand there."""
    if EXPECTED not in said:
        return
    # Only runs about servers pay for reading how they are declared.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory import load_expected

    file = str(said[EXPECTED]).strip()
    read = load_expected([_path(file)], _path(mapping) if (mapping := str(said.get(MAPPING) or "")) else None)
    for problem in read.problems:
        path = f"{EXPECTED}.{problem.path}" if problem.path else EXPECTED
        yield Problem(problem.file, problem.line, path, problem.message, problem.remedy)
    known = [server.name for server in read.servers]
    for name in parts_of(said.get(SERVERS) or ()) if known and not read.problems else ():
        if name not in known:
            near = nearest(name, known)
            place = of_command_line(SERVERS, said[SERVERS])
            remedy = f"write {near}" if near else "write a name that stands there"
            yield Problem(*place, SERVERS, f"{file} has no server {name!r}", remedy)


def _report(text: str) -> Iterator[Problem]:
    """Yield why a report could not be written once everything else is done."""
    path, place = _path(text), of_command_line(REPORT, text)
    if path.is_dir():
        yield Problem(*place, REPORT, f"{text} is a folder", "write the path of a file")
    elif not path.parent.is_dir():
        yield Problem(*place, REPORT, f"there is no folder {path.parent}", "make it, or write another path")


def _path(text: str) -> Path:
    """Return a path as Ansible's type ``path`` has it."""
    return Path(os.path.expandvars(text.strip())).expanduser()


def _accounts(said: Mapping[str, t.Any]) -> Iterator[Problem]:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import BmcError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.factory import read_factory

    try:
        read_factory(str(said[FACTORY]).strip())
    except BmcError as error:
        place = of_command_line(FACTORY, said[FACTORY])
        yield Problem(*place, FACTORY, error.message, error.remedy)
