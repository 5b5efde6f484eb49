# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan plan``, ``show`` and ``approve``: what would change, written down, read, and signed."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import typing as t

from ironspan.cli import console
from ironspan.cli.apply import add_run_options, ansible_arguments
from ironspan.cli.declared import add_operation, given
from ironspan.cli.outcome import Exit, ending
from ironspan.cli.pasted import command, path_from_here


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the commands."""
    plan = subparsers.add_parser(
        "plan",
        help="write down what apply would do",
        description="Compare every host with the inventory and write the differences into a plan file, "
        "which can be read, signed, and applied exactly so. No host is changed.",
    )
    add_operation(plan, "plan")
    add_run_options(plan)
    plan.set_defaults(func=run_plan)

    show = subparsers.add_parser(
        "show", help="show a plan", description="Show a plan as text, JSON, or one HTML page."
    )
    show.add_argument("plan", type=pathlib.Path, help="the plan file")
    show.add_argument("--format", choices=("text", "json", "html"), default="text", help="form (text)")
    show.add_argument("-o", "--output", type=pathlib.Path, help="write to this file")
    show.add_argument(
        "--allowed-signers", type=pathlib.Path, help="name who approved it, by this file (ssh-keygen's form)"
    )
    show.set_defaults(func=run_show)

    approve = subparsers.add_parser(
        "approve",
        help="sign a plan",
        description="Sign a plan with an SSH key (ssh-keygen -Y). The signature is a file beside the plan.",
    )
    approve.add_argument("plan", type=pathlib.Path, help="the plan file")
    approve.add_argument(
        "--key",
        type=pathlib.Path,
        default=pathlib.Path("~/.ssh/id_ed25519"),
        help="private key, or the public one of a key that an agent holds (~/.ssh/id_ed25519)",
    )
    approve.set_defaults(func=run_approve)


def run_plan(arguments: argparse.Namespace) -> int:
    """Run ``plan`` and return its exit code."""
    from ironspan.cli.playbook import run_playbook
    from ironspan.cli.report import WRITE_PLAN

    display = console.from_arguments(arguments)
    if arguments.limit and "localhost" not in arguments.limit:
        # The plan is written on this machine, whichever hosts it is about.
        arguments.limit += ",localhost"
    # Ansible runs in the project's folder, and the default is this one.
    variables = {"ironspan_plan_file": str(pathlib.Path.cwd()), **given(arguments, "plan")}
    if variables.get("ironspan_planned") == "site":
        del variables["ironspan_planned"]  # what plan.yml plans without a name
    options = [*ansible_arguments(arguments), "-e", json.dumps(variables)]
    code, running = run_playbook("plan", "plan", options, display, arguments.verbose)
    written = running.run.results.get(WRITE_PLAN, {})
    if display.mode == "json":
        return int(code)
    if "path" not in written:
        display.note("no plan was written")
        return int(code)
    path, summary = pathlib.Path(written["path"]), written["summary"]
    display.note(
        f"plan: {path}\n"
        f"      {summary['hosts_changing']} of {summary['hosts']} hosts change, "
        f"{summary['changes'] + summary['pending']} changes on hosts, "
        f"{summary['cluster_changes']} in the cluster, "
        f"{summary['remote_changes']} of remote things, "
        f"{summary['steps']} steps, "
        f"{summary['interrupts']} running services restart, about {summary['seconds']} s"
    )
    for warning in written["plan_warnings"]:
        display.note(f"      ! {warning}")
    for line in next_commands(arguments, path, written):
        display.note(line)
    return int(code)


CHANGES = ("changes", "pending", "cluster_changes", "remote_changes", "steps")
"""The numbers of a plan of which one at least is not zero when it does something."""


def next_commands(
    arguments: argparse.Namespace, path: pathlib.Path, written: t.Mapping[str, t.Any]
) -> list[str]:
    """Return the commands that follow, each to be pasted as it stands.

    Args:
        arguments: the command line that made the plan; what was given there holds for applying it as well.
        path: the plan file.
        written: the result of the action that wrote it.
    """
    plan, summary = path_from_here(path), written["summary"]
    lines = [
        f"read it:      {command('show', plan)}",
        f"as a page:    {command('show', plan, '--format', 'html', '-o', f'{plan}.html')}",
    ]
    if not any(summary[name] for name in CHANGES):
        return [*lines, "nothing differs, so there is nothing to apply"]
    needed = int(written["approvals_needed"])
    if needed:
        lines.append(f"{needed} must approve: {command('approve', plan)}")
    consent = ("--allow-destructive",) if written["destructive"] else ()
    lines.append(f"apply it:     {command('apply', plan, *consent, like=arguments)}")
    return lines


def loaded(path: pathlib.Path) -> t.Any:
    """Return the plan in a file.

    Raises:
        CommandError: it is none, or was altered.
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import load

    with ending(Exit.BAD_INPUT, PlanError):
        return load(path)


def run_show(arguments: argparse.Namespace) -> int:
    """Run ``show`` and return its exit code."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.approvals import Approvals, check

    plan = loaded(arguments.plan)
    approved: Approvals | None = None
    if arguments.allowed_signers:
        with ending(Exit.BAD_INPUT, PlanError):
            approved = check(plan.data, arguments.plan, arguments.allowed_signers)
    form = "json" if getattr(arguments, "json", False) else arguments.format
    if form == "json":
        text = json.dumps({"digest": plan.digest, "plan": plan.content}, indent=2, sort_keys=True) + "\n"
    elif form == "html":
        from ironspan.cli.plan_page import page

        text = page(plan, approved)
    else:
        from ironspan.cli.plan_text import shown

        text = shown(plan, approved, colour=arguments.output is None and sys.stdout.isatty())
    # JSON can hold what no encoding can: half of a pair of surrogates.
    text = text.encode(errors="replace").decode()
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return int(Exit.OK)


def run_approve(arguments: argparse.Namespace) -> int:
    """Run ``approve`` and return its exit code."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.approvals import sign

    plan = loaded(arguments.plan)
    with ending(Exit.BAD_INPUT, PlanError):
        file = sign(plan.data, arguments.plan, arguments.key.expanduser())
    display = console.from_arguments(arguments)
    summary = plan.content["summary"]
    display.note(
        f"approved the plan {plan.digest[:16]} of {plan.content['site']['name']}: "
        f"{summary['changes'] + summary['pending']} changes on {summary['hosts_changing']} hosts"
    )
    display.note(f"signature: {file}")
    return int(Exit.OK)
