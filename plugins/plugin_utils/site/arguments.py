# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a run is asked for, held against what its operation declares: unknown names, values of another type.

``ansible-playbook -e`` takes any name, and a misspelt one would do nothing without a word.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ansible import context
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import (
    PREFIX,
    Argument,
    Operation,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.argument_values import (
    LISTS,
    Wrong,
    parts_of,
    says_nothing,
    wrong_value,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.origins import place_of_setting
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, Problem, nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

PLANNED, SITE = "ironspan_planned", "site"
COLLECTION = "ironspan.hybrid."
_COMMAND_LINE = Place("<command line>", 0)
_WORKFLOW_JOBS = ("awx_workflow_job_id", "tower_workflow_job_id")
"""What controllers add to the variables of a job that is part of a workflow."""
Placing = Callable[[t.Any, t.Any], Place]


def of_command_line(key: t.Any, value: t.Any) -> Place:
    """Return where a variable of the command line was written: a file (``-e @FILE``), or the option."""
    return place_of_setting(key, value) or _COMMAND_LINE


def operations_of_run(given: Mapping[str, t.Any]) -> list[Operation]:
    """Return the operations that this run of ``ansible-playbook`` is, with the one that it plans.

    Args:
        given: variables of the command line.

    Returns:
        Empty when a playbook of somebody else's runs, which may import any of ours.
    """
    playbooks = context.CLIARGS.get("args") or ()
    names = [_operation(name) for name in playbooks] if isinstance(playbooks, (list, tuple)) else [""]
    if PLANNED in given:
        # An unknown one is refused as such, and nobody knows what it takes.
        names.append(str(given[PLANNED]))
    found = [catalogue.OPERATIONS[name] for name in names if name in catalogue.OPERATIONS]
    return found if found and len(found) == len(names) else []


def _operation(playbook: str) -> str:
    if playbook.startswith(COLLECTION):
        return playbook.removeprefix(COLLECTION)
    path = Path(playbook)
    ours = (ROLES_FOLDER.parent / "playbooks").resolve()
    return path.stem if path.resolve().parent == ours else ""


def problems_of_run(given: Mapping[str, t.Any], variables: Mapping[str, t.Any]) -> list[Problem]:
    """Return what is wrong with the arguments of this run.

    Args:
        given: variables of the command line.
        variables: of a task, which has those of the inventory too.
    """
    operations = operations_of_run(given)
    wanted = operations or list(catalogue.OPERATIONS.values())
    passed_over = _of_other_jobs(given, operations)
    asked = {name: value for name, value in given.items() if name not in passed_over}
    found = list(problems_in(asked, wanted, of_command_line, _names(operations)))
    found += _twice(given, operations)
    found += _missing(variables, operations)
    found += _planned(given)
    return sorted(found)


def _of_other_jobs(given: Mapping[str, t.Any], operations: Sequence[Operation]) -> list[str]:
    """Return the arguments that are for other jobs of the same workflow of a controller.

    AWX hands the answers of a workflow's survey to each of its jobs. What no operation has stays a mistake.
    """
    if not operations or not any(given.get(name) for name in _WORKFLOW_JOBS):
        return []
    own = _by_name(entry for operation in operations for entry in operation.arguments)
    known = _by_name(catalogue.arguments().values())
    return [name for name in given if name in known and name not in own]


def _planned(given: Mapping[str, t.Any]) -> Iterator[Problem]:
    """Yield the problem that nobody knows the operation to be planned, or that it has no steps."""
    name, known = str(given.get(PLANNED) or SITE), (*catalogue.PLANNED, SITE)
    if name not in known:
        near = nearest(name, known)
        where = of_command_line(PLANNED, given[PLANNED])
        yield Problem(
            *where,
            PLANNED,
            f"there is no operation {name!r} that can be planned",
            f"write {near}" if near else f"write one of {', '.join(sorted(known))}",
        )


def _names(operations: Iterable[Operation]) -> str:
    return " and ".join(entry.name for entry in operations)


def _missing(variables: Mapping[str, t.Any], operations: Iterable[Operation]) -> Iterator[Problem]:
    for operation in operations:
        for argument in operation.arguments:
            if argument.required and _first(variables, argument) is None:
                yield Problem(
                    *_COMMAND_LINE,
                    argument.name,
                    f"{operation.name} needs it",
                    f"write -e {argument.name}=..., {argument.what}",
                )


def _first(variables: Mapping[str, t.Any], argument: Argument) -> t.Any:
    given = (variables.get(key) for key in (argument.name, argument.formerly) if key)
    return next((value for value in given if not says_nothing(argument, value)), None)


def problems_in(
    given: Mapping[str, t.Any], operations: Iterable[Operation], place: Placing, names: str = ""
) -> Iterator[Problem]:
    """Yield a problem for each argument that none of the operations has, or that is of another type.

    Args:
        given: variables; those that do not begin with ``ironspan_`` are no arguments.
        operations: what may take them.
        place: returns where a name and its value were written.
        names: of the operations, for people; empty for all.
    """
    known = _by_name(entry for operation in operations for entry in operation.arguments)
    for name, value in given.items():
        if not name.startswith(PREFIX):
            continue
        where = place(name, value)
        if name not in known:
            yield Problem(*where, name, *_unknown(name, known, names))
            continue
        # An old name may have become several; which one is meant, its operation knows.
        wrong = [wrong_value(argument, value) for argument in known[name]]
        if all(wrong) and wrong[0]:
            yield Problem(*where, name, *wrong[0])


def _by_name(arguments: Iterable[Argument]) -> dict[str, list[Argument]]:
    """Return arguments by their names and old names."""
    found: dict[str, list[Argument]] = {}
    for entry in arguments:
        for name in (entry.name, entry.formerly):
            if name and entry not in found.setdefault(name, []):
                found[name].append(entry)
    return found


def _unknown(name: str, known: Mapping[str, Sequence[Argument]], names: str) -> Wrong:
    message = f"unknown argument of {names}" if names else "unknown argument"
    if near := _nearest(name, known):
        return Wrong(message, f"write {near}")
    everywhere = _by_name(catalogue.arguments().values())
    if meant := name if name in everywhere else _nearest(name, everywhere):
        takers = [entry.name for entry in catalogue.OPERATIONS.values() if entry.argument(meant)]
        instead = "" if meant == name else f"did you mean {meant}? "
        return Wrong(message, f"leave it out; {instead}it is for {', '.join(takers)}")
    current = sorted({entry.name for entries in known.values() for entry in entries})
    return Wrong(message, f"leave it out; known here: {', '.join(current)}")


def _nearest(name: str, known: Mapping[str, Sequence[Argument]]) -> str | None:
    """Return the argument whose name looks most like another, by what follows the prefix that all have."""
    words = {key.removeprefix(PREFIX): entries[0].name for key, entries in known.items()}
    near = nearest(name.removeprefix(PREFIX), words)
    return words[near] if near else None


def _twice(given: Mapping[str, t.Any], operations: Iterable[Operation]) -> Iterator[Problem]:
    for name, argument in _outdated(given, operations):
        if argument.name in given:
            where = of_command_line(name, given[name])
            yield Problem(
                *where,
                name,
                f"the old name of {argument.name}, which is given too",
                "leave the old one out",
            )


def _outdated(given: Mapping[str, t.Any], operations: Iterable[Operation]) -> Iterator[tuple[str, Argument]]:
    arguments = {entry.name: entry for operation in operations for entry in operation.arguments}
    for argument in arguments.values():
        if argument.formerly and argument.formerly in given:
            yield argument.formerly, argument


def warnings_of_run(given: Mapping[str, t.Any]) -> list[str]:
    """Return a sentence for each old name on the command line, and one for what is passed over."""
    operations = operations_of_run(given)
    said = [
        f"{name} is called {argument.name} now; the old name works until the next release"
        for name, argument in _outdated(given, operations)
    ]
    if passed_over := _of_other_jobs(given, operations):
        said.append(f"Passed over, for other jobs of this workflow: {', '.join(sorted(passed_over))}.")
    return said


def renamed(given: Mapping[str, t.Any], operation: Operation) -> dict[str, t.Any]:
    """Return arguments under the names that they have now.

    Args:
        given: variables; those that the operation does not have are left out.
        operation: whose arguments they are.
    """
    return {
        entry.name: given[name]
        for entry in operation.arguments
        for name in (entry.name, entry.formerly)
        if name and name in given
    }


def value_of(variables: Mapping[str, t.Any], name: str) -> t.Any:
    """Return what a run is asked for: converted to its type, under its old name too, or else the default.

    Args:
        variables: of a task.
        name: of the argument; the name that it has now.

    Raises:
        KeyError: no operation declares it.
        OperationError: it is not as it is declared. The start of the run checks that too, but for an
            expression, which has come to something only now.
    """
    argument = catalogue.arguments()[name]
    value = _first(variables, argument)
    if wrong := wrong_value(argument, value):
        raise OperationError(f"{name}: {wrong.message}", wrong.remedy)
    if value is None:
        return list(argument.default) if isinstance(argument.default, tuple) else argument.default
    if argument.type == "bool":
        return boolean(value, strict=False)
    if argument.type == "int":
        return int(value)
    if argument.type in LISTS:
        return parts_of(value)
    return str(value).strip()
