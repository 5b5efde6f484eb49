# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The variables a site may set, read from the argument specifications of every role."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from collections.abc import Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Problem, SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.strict_reader import LOADER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.variable_file import Limit, parsed

ROLES_FOLDER = Path(__file__).absolute().parents[3] / "roles"


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One variable, or one key of a variable that is a dictionary.

    Args:
        name: of the variable, or of the key.
        role: whose it is.
        type: as Ansible calls it; ``elements`` that of the items of a list.
        options: keys of a dictionary; None where it may have any.
        limit: its own range; the end of its name may imply one too, see ``limits``.
        format: grammar of its text, of each item, or of each value of a dictionary; see ``formats``.
        keys: grammar of the keys of a dictionary.
        anything: why no text is refused.
    """

    name: str
    role: str
    type: str = "str"
    elements: str | None = None
    choices: tuple[t.Any, ...] = ()
    required: bool = False
    default: t.Any = None
    options: Mapping[str, Option] | None = None
    no_log: bool = False
    limit: Limit | None = None
    format: str = ""
    keys: str = ""
    anything: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Specification:
    """All variables of all roles.

    Args:
        options: variable name to its option.
        defaults: variable name to the value that it has by default (``defaults/main.yml`` is made from it).
        roles: names of the roles, also the prefixes of their variables.
    """

    options: Mapping[str, Option]
    defaults: Mapping[str, t.Any]
    roles: tuple[str, ...]


def option_from(name: str, role: str, raw: Mapping[str, t.Any]) -> Option:
    """Return an option as an argument specification describes it, with all that is inside of it."""
    nested = raw.get("options")
    return Option(
        name=name,
        role=role,
        type=raw.get("type", "str"),
        elements=raw.get("elements"),
        choices=tuple(raw.get("choices") or ()),
        required=bool(raw.get("required")),
        default=raw.get("default"),
        options={key: option_from(key, role, value or {}) for key, value in nested.items()}
        if nested
        else None,
        no_log=bool(raw.get("no_log")),
        limit=_limit_from(raw),
        format=str(raw.get("format") or ""),
        keys=str(raw.get("keys") or ""),
        anything=str(raw.get("anything") or ""),
    )


def _limit_from(raw: Mapping[str, t.Any]) -> Limit | None:
    """Return a range; what is wrong with one is said by ``variable_file``, with its line."""
    span = raw.get("range")
    if not isinstance(span, list) or len(span) != 2:
        return None
    return Limit(span[0], span[1], str(raw.get("meaning")))


def read_yaml(path: Path) -> t.Any:
    """Return the content of a YAML file of the collection, an empty dictionary when there is no such file."""
    if not path.is_file():
        return {}
    return yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER) or {}


@functools.lru_cache(maxsize=8)
def load_specification(roles_folder: Path = ROLES_FOLDER) -> Specification:
    """Read the argument specifications of all roles below a folder.

    Args:
        roles_folder: folder that holds one folder per role.

    Returns:
        The specification; read once per process and folder.

    Raises:
        SiteError: a variable is declared twice, or a file is not valid YAML.
    """
    options: dict[str, Option] = {}
    roles: list[str] = []
    for role in sorted(path for path in roles_folder.iterdir() if path.is_dir()):
        roles.append(role.name)
        file = role / "meta" / "argument_specs.yml"
        for entry_point in _argument_specs(file).values():
            for name, raw in (entry_point.get("options") or {}).items():
                option = options.setdefault(name, option_from(name, role.name, raw or {}))
                if option.role != role.name:
                    message = f"is declared twice, first by the role {option.role}"
                    raise SiteError(
                        [Problem(str(file), _line_of(file, name), name, message, "declare it in one of them")]
                    )
    defaults = {name: option.default for name, option in options.items() if not option.required}
    return Specification(options=options, defaults=defaults, roles=tuple(roles))


def _argument_specs(file: Path) -> dict[str, t.Any]:
    if not file.is_file():
        return {}
    try:
        content = parsed(str(file), file.stat().st_mtime_ns).content or {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        message = error.problem or str(error)
        raise SiteError([Problem(str(file), line, "(file)", message, "correct the file there")]) from error
    return t.cast("dict[str, t.Any]", content.get("argument_specs", {}))


def _line_of(file: Path, name: str) -> int:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.strip() == f"{name}:"), 0)
