# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference documentation from its sources, or checks that it is fresh.

    python -m tools.reference            write
    python -m tools.reference --check    exit 1 and name the stale files

Sources: roles/*/meta/argument_specs.yml and layer.yml, the DOCUMENTATION of plugins, the fields of resource
kinds, the command line's parsers, the declarations of operations, Ironic's states. Every page says where it
comes from; none is edited by hand.
"""

from __future__ import annotations

import argparse
import ast
import collections.abc
import importlib
import json
import pathlib
import sys
import typing as t

import yaml

from tools import states_picture
from tools.option_tables import GENERATED, cell, option_table, paragraphs
from tools.role_pages import defaults_page, role_page

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESOURCES = "ansible_collections.ironspan.hybrid.plugins.module_utils._resources"


def documentation(path: pathlib.Path) -> dict[str, str]:
    """Return DOCUMENTATION, EXAMPLES and RETURN of a plugin file, without importing it."""
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in {"DOCUMENTATION", "EXAMPLES", "RETURN"} and isinstance(node.value, ast.Constant):
                found[name] = str(node.value.value)
    return found


def plugin_section(path: pathlib.Path, kind: str) -> list[str]:
    """Return a plugin's section; an empty list for a file without DOCUMENTATION."""
    texts = documentation(path)
    if "DOCUMENTATION" not in texts:
        return []
    about = yaml.safe_load(texts["DOCUMENTATION"])
    lines = [
        f"## {kind} `ironspan.hybrid.{path.stem}`",
        "",
        str(about.get("short_description", "")).strip(),
        "",
    ]
    for text in paragraphs(about.get("description")):
        lines += [text, ""]
    lines += option_table(about.get("options") or {})
    if texts.get("EXAMPLES"):
        lines += ["```yaml", texts["EXAMPLES"].strip(), "```", ""]
    returned = yaml.safe_load(texts.get("RETURN", "")) or {}
    if returned:
        lines += ["| returns | type | what it is |", "|---|---|---|"]
        for name, value in returned.items():
            text = cell(" ".join(paragraphs(value.get("description"))))
            lines.append(f"| `{name}` | {value.get('type', '')} | {text} |")
        lines.append("")
    return lines


def plugins_page() -> str:
    """Return the page of modules and plugins."""
    lines = [GENERATED.format(source="the plugins' DOCUMENTATION"), "", "# Modules and plugins", ""]
    for folder, kind in (
        ("modules", "Module"),
        ("lookup", "Lookup"),
        ("inventory", "Inventory plugin"),
        ("vars", "Vars plugin"),
        ("filter", "Filter"),
        ("callback", "Callback"),
    ):
        for path in sorted((ROOT / "plugins" / folder).glob("[!_]*.py")):
            lines += plugin_section(path, kind)
    return "\n".join(lines)


def resources_page() -> str:
    """Return the page of resource kinds: what each is for and its parameters."""
    lines = [GENERATED.format(source="plugins/module_utils/_resources"), "", "# Resource kinds", ""]
    lines += [
        "Every resource also has `kind`, `id` (unique, `layer/name`) and optionally `requires` (ids).",
        "",
    ]
    for path in sorted((ROOT / "plugins" / "module_utils" / "_resources").glob("[!_]*.py")):
        kind = getattr(importlib.import_module(f"{RESOURCES}.{path.stem}"), "KIND", None)
        if kind is None:
            continue
        about = ast.get_docstring(ast.parse(path.read_text())) or ""
        lines += [
            f"## {kind.name}",
            "",
            about,
            "",
            "| parameter | type | default | choices |",
            "|---|---|---|---|",
        ]
        for name, field in kind.fields.items():
            types = " or ".join(item.__name__ for item in field.types)
            default = "**required**" if field.required else f"`{json.dumps(field.default)}`"
            choices = ", ".join(f"`{item}`" for item in field.choices)
            lines.append(f"| `{name}` | {types} | {default} | {choices} |")
        lines.append("")
    return "\n".join(lines)


def command_sections(parser: argparse.ArgumentParser) -> collections.abc.Iterator[str]:
    """Yield the lines of a command and of the commands below it."""
    nested = [item for item in parser._actions if isinstance(item, argparse._SubParsersAction)]
    rows = []
    for action in parser._actions:
        if isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)):
            continue
        shown = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            metavar = action.metavar or action.dest.upper()
            shown += f" {metavar if isinstance(metavar, str) else ' '.join(metavar)}"
        rows.append(f"| `{cell(shown)}` | {cell((action.help or '') % {'default': action.default})} |")
    yield from (f"## {parser.prog}", "", parser.description or "", "")
    if rows:
        yield from ("| option | what it does |", "|---|---|", *rows, "")
    for item in nested:
        for name in item.choices:
            yield from command_sections(item.choices[name])


def commands_page() -> str:
    """Return the page of the command line."""
    from ironspan.cli.main import build_parser

    parser = build_parser()
    lines = [GENERATED.format(source="the command line's parsers"), "", "# Command line", ""]
    lines += [parser.epilog or "", "", *command_sections(parser)]
    return "\n".join(lines)


def operations_page() -> str:
    """Return the page of operations: what each can be asked for, where it works, with whose consent."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue import OPERATIONS
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import EVERYWHERE

    lines = [GENERATED.format(source="plugins/plugin_utils/catalogue"), "", "# Operations", ""]
    lines += [
        "Each is a playbook of its name. A variable that begins with `ironspan_` and is not listed for the "
        "operation is refused before any host is contacted, and so is a value of another type. Every run may "
        "be told:",
        "",
        *argument_rows(EVERYWHERE),
    ]
    for operation in OPERATIONS.values():
        lines += operation_section(
            operation, [entry for entry in operation.arguments if entry not in EVERYWHERE]
        )
    return "\n".join(lines)


def operation_section(operation: Operation, arguments: collections.abc.Sequence[Argument]) -> list[str]:
    """Return an operation's section."""
    command = " ".join(operation.command or ("apply", operation.name))
    consents = {"steps": "for steps that cannot be undone", "always": "always"}
    facts = {
        "command": f"`ironspan {command}`",
        "hosts": operation.hosts or "none; the controller and the API",
        "changes": "" if operation.changes else "nothing",
        "consent": consents.get(operation.consent, ""),
        "takes about": f"{operation.minutes} minutes",
        "in a controller": "after an approval" if operation.approved else "",
        "steps": ", ".join(f"`{step}`" for step in operation.steps),
        "`--limit`": "" if operation.limit else "refused where it leaves out a host of a step",
        "slices": "with a plan" if operation.slices else "",
    }
    lines = [f"## {operation.name}", "", f"{operation.summary[:1].upper()}{operation.summary[1:]}."]
    lines += [*([operation.details] if operation.details else []), "", "| | |", "|---|---|"]
    lines += [f"| {name} | {cell(text)} |" for name, text in facts.items() if text]
    return [*lines, "", *(argument_rows(arguments) if arguments else [])]


def argument_rows(arguments: collections.abc.Iterable[Argument]) -> list[str]:
    """Return a table of arguments."""
    rows = ["| variable | option | type | default | what it is |", "|---|---|---|---|---|"]
    for entry in arguments:
        option = entry.option if entry.positional else f"--{entry.word}"
        given = entry.default not in (None, (), "")
        default = "**required**" if entry.required else f"`{json.dumps(entry.default)}`" if given else ""
        text = entry.what + (
            f"; one of {', '.join(f'`{item}`' for item in entry.choices)}" if entry.choices else ""
        )
        text += f" (formerly `{entry.formerly}`)" if entry.formerly else ""
        rows.append(f"| `{entry.name}` | `{option}` | {entry.type} | {default} | {cell(text)} |")
    return [*rows, ""]


def pages() -> dict[pathlib.Path, str]:
    """Return every generated page: path and text."""
    result: dict[pathlib.Path, str] = {}
    for role in sorted((ROOT / "roles").iterdir()):
        if (role / "meta" / "argument_specs.yml").is_file():
            result[role / "README.md"] = role_page(role)
            result[role / "defaults" / "main.yml"] = defaults_page(role)
    reference = ROOT / "docs" / "reference"
    result[reference / "plugins.md"] = plugins_page()
    result[reference / "resources.md"] = resources_page()
    result[reference / "commands.md"] = commands_page()
    result[reference / "operations.md"] = operations_page()
    result[ROOT / "docs" / "bare-metal-states.svg"] = states_picture.picture()
    return {
        path: "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
        for path, text in result.items()
    }


def stale() -> list[pathlib.Path]:
    """Return the generated pages that are missing or differ from what their sources say now."""
    return [path for path, text in pages().items() if not path.is_file() or path.read_text() != text]


def main() -> int:
    """Write the pages, or with ``--check`` only compare; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is stale")
    if not parser.parse_args().check:
        for path, text in pages().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    old = stale()
    for path in old:
        print(f"stale: {path.relative_to(ROOT)} (run `make docs`)", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
