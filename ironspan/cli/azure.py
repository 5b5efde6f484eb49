# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan azure``: the operation of that name, and Terraform beside it: ``import`` and ``export``."""

from __future__ import annotations

import argparse
import pathlib
import sys
import typing as t

from ironspan.cli import apply, console, inventory, operations
from ironspan.cli.declared import add_operation, catalogue, escaped
from ironspan.cli.inventory import read_draft, read_site
from ironspan.cli.outcome import CommandError, Exit, ending

OPERATION = "azure"
_WIDE = 200


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``azure`` command: an operation that has commands below it."""
    operation = catalogue().OPERATIONS[OPERATION]
    parser = subparsers.add_parser(
        OPERATION, help=escaped(operation.summary), description=operations.about(operation)
    )
    add_operation(parser, OPERATION)
    apply.add_run_options(parser)
    apply.add_check_options(parser)
    parser.set_defaults(func=operations.run, operation=operation)
    commands = parser.add_subparsers(title="without Azure being asked", metavar="COMMAND")
    taken = commands.add_parser(
        "import",
        help="variables of the site, filled with what Terraform says there is",
        description="Read outputs or a state of Terraform or OpenTofu, print the variables azure_* that "
        "refer to what it has, and name what contradicts the inventory, with file and line. Nothing is "
        "written, and nobody is asked. Of a state only resource ids and a few plain attributes are looked "
        "at, so no secret is printed. Exit code 2 when something contradicts.",
    )
    taken.add_argument(
        "file",
        metavar="FILE",
        help="written by terraform output -json, terraform show -json or terraform state pull; - is stdin",
    )
    _inventory(taken)
    taken.set_defaults(func=take)
    given = commands.add_parser(
        "export",
        help="the estate as import blocks of Terraform",
        description="Print an import block for each resource of the estate, with what to do around it, so "
        "that a team can go on with Terraform (1.5 or later, azurerm 4.x). Nobody is asked.",
    )
    _inventory(given)
    given.set_defaults(func=give)
    opened = commands.add_parser(
        "egress",
        help="entries of egress_allow for the estate's accounts and databases",
        description="Print the entries of egress_allow by which pods reach accounts and databases behind "
        "private endpoints, those that the inventory lacks. Somebody answers for each, until a day.",
    )
    opened.add_argument("--owner", required=True, metavar="NAME", help="who answers for the entries")
    opened.add_argument(
        "--expires", required=True, metavar="DATE", help="their last day, for example 2027-03-31"
    )
    _inventory(opened)
    opened.set_defaults(func=let_out)


def _inventory(parser: argparse.ArgumentParser) -> None:
    # Without a default of its own, what was said before the command's name stays.
    inventory.add_option(parser, "of the site", argparse.SUPPRESS)


def take(arguments: argparse.Namespace) -> int:
    """Print what Terraform's file fills in and contradicts; return the exit code."""
    draft = read_draft(arguments.inventory)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.terraform import compared
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.read import (
        TerraformError,
        found_in,
        read,
    )

    with ending(Exit.BAD_INPUT, TerraformError):
        if arguments.file == "-":
            found = found_in(sys.stdin.buffer.read(), "standard input")
        else:
            found = read(pathlib.Path(arguments.file))
    filled, problems = compared(draft, found)
    display = console.from_arguments(arguments)
    if display.mode == "json":
        display.event(
            "terraform",
            form=found.form,
            variables=filled.variables,
            sources=filled.sources,
            notes=filled.notes,
            conflicts=[problem.as_dict() for problem in problems],
        )
    else:
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.text import as_text

        sys.stdout.write(as_text(found, filled))
    if problems:
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import listed

        raise CommandError(listed(problems), code=Exit.BAD_INPUT)
    return int(Exit.OK)


def give(arguments: argparse.Namespace) -> int:
    """Print the estate's import blocks; return the exit code."""
    estate, _variables = _declared(arguments.inventory)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.terraform.export import as_text

    sys.stdout.write(as_text(estate))
    return int(Exit.OK)


def let_out(arguments: argparse.Namespace) -> int:
    """Print what pods need of the estate; return the exit code."""
    estate, variables = _declared(arguments.inventory)
    import yaml
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.egress import missing_entries

    written = variables.get("egress_allow") or ()
    entries = missing_entries(estate, written, arguments.owner, arguments.expires)
    if entries:
        sys.stdout.write(
            "# More entries of egress_allow; ironspan validate judges them once they are written.\n"
        )
        sys.stdout.write(yaml.safe_dump(entries, sort_keys=False, width=_WIDE))
    else:
        sys.stdout.write("# egress_allow has everything that pods reach of the estate.\n")
    return int(Exit.OK)


def _declared(given: list[str]) -> tuple[t.Any, t.Any]:
    """Return the estate of a checked inventory, and the variables of its site."""
    site = read_site(given)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared

    variables: dict[str, t.Any] = next((host.variables for host in site.hosts.values()), {})
    estate = declared(variables) if variables else None
    if estate is None:
        raise CommandError(
            "this site has no estate in Azure", "write azure_subscription, see docs/azure.md", Exit.BAD_INPUT
        )
    return estate, variables
