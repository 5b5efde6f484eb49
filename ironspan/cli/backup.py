# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan backup``: what the backups of etcd are, whether they can be restored, and restoring one."""

from __future__ import annotations

import argparse
import json
import time
import typing as t

from ironspan.cli import console
from ironspan.cli.apply import add_check_options, add_run_options, ansible_arguments
from ironspan.cli.declared import add_operation, given
from ironspan.cli.outcome import Exit


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``backup`` command."""
    parser = subparsers.add_parser(
        "backup",
        help="backups of etcd: show, verify, drill, restore",
        description="Backups of etcd. The hosts of etcd speak to the store, with their own identity; this "
        "machine never does.",
    )
    actions = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    shown = actions.add_parser(
        "list",
        help="the snapshots, what is proven of them, and how far the log leads",
        description="Run playbooks/backup_list.yml. Every member is asked; one that answers is enough. "
        "Exit code 1 when something is damaged, there is no snapshot, or the last drill failed.",
    )
    _options(shown, "backup_list")
    shown.set_defaults(func=show)
    verified = actions.add_parser(
        "verify",
        help="read every byte of the backups",
        description="Run playbooks/backup_verify.yml: hashes, order and encryption of snapshots and log.",
    )
    drilled = actions.add_parser(
        "drill",
        help="prove a backup by restoring it into a scratch etcd",
        description="Run playbooks/backup_drill.yml: restore a snapshot and its log, compare hashes and "
        "counts, and keep the verdict beside the backup.",
    )
    for command, verb in ((verified, "verify"), (drilled, "drill")):
        command.add_argument("snapshot", nargs="?", help="its name (drill: the newest; verify: all)")
        _options(command, f"backup_{verb}")
        command.add_argument("--store", type=int, metavar="NUMBER", help="as listed (the first that can)")
        command.set_defaults(func=prove, verb=verb, apiserver=None)
    drilled.add_argument(
        "--apiserver", metavar="PROGRAM", help="a kube-apiserver on that host that has to serve from it"
    )
    collected = actions.add_parser(
        "gc",
        help="delete what retention lets go",
        description="Run playbooks/backup_gc.yml on a host with the identity that may delete; the agents' "
        "own may not. The newest snapshot and the last one that was proven always stay.",
    )
    _options(collected, "backup_gc")
    collected.add_argument("--identity", metavar="ID", help="client id of the identity that may delete")
    collected.add_argument("--check", action="store_true", help="say what would go, delete nothing")
    collected.set_defaults(func=collect)
    accepted = actions.add_parser(
        "accept",
        help="go on with a database that is older than its backup",
        description="Run playbooks/backup_accept.yml: consent to what etcd serves, or served before the "
        "agents closed it. What the backup has beyond it stays in the backup only. Nothing happens where the "
        "database is the one that was backed up.",
    )
    _options(accepted, "backup_accept")
    accepted.set_defaults(func=accept)
    restored = actions.add_parser(
        "restore",
        help="rebuild etcd from a backup",
        description="Run playbooks/etcd_restore.yml, which says everything that would go wrong before "
        "anything is stopped. What the members have is set aside, not deleted. Interrupted, the same command "
        "goes on. A plan of it: ironspan plan etcd_restore -e ironspan_point=POINT.",
    )
    _options(restored, "etcd_restore")
    add_check_options(restored)
    restored.set_defaults(func=restore)


def _options(parser: argparse.ArgumentParser, operation: str) -> None:
    # What the program on the host takes are options of the command.
    add_operation(parser, operation, but=("ironspan_arguments",))
    add_run_options(parser)


def show(arguments: argparse.Namespace) -> int:
    """Run playbooks/backup_list.yml and show its tables."""
    from ironspan.cli import backup_text

    code, answers, display = _ask(arguments, "backup_list", {})
    listed = [
        answer for _, answer in sorted(answers.items()) if isinstance(answer, dict) and "stores" in answer
    ]
    if not listed:
        return int(code)
    stores = listed[0]["stores"]
    if display.mode == "json":
        display.event("backups", **listed[0])
    else:
        display.note(backup_text.listing(stores, time.time()))
    return int(Exit.OK if backup_text.sound(stores) else Exit.FAILED)


def prove(arguments: argparse.Namespace) -> int:
    """Run playbooks/backup_verify.yml or backup_drill.yml and show what was found."""
    from ironspan.cli import backup_text

    asked = [arguments.snapshot] if arguments.snapshot else []
    asked += [f"--store={arguments.store}"] if arguments.store else []
    asked += [f"--apiserver={arguments.apiserver}"] if arguments.apiserver else []
    code, answers, display = _ask(arguments, f"backup_{arguments.verb}", {"ironspan_arguments": asked})
    for host, answer in sorted(answers.items()):
        if display.mode == "json":
            display.event(arguments.verb, host=host, answer=answer)
        elif isinstance(answer, list):
            display.note("\n".join(backup_text.read(answer)))
        elif isinstance(answer, dict) and "findings" in answer:
            display.note("\n".join(backup_text.drilled(answer)))
    return int(code)


def collect(arguments: argparse.Namespace) -> int:
    """Run playbooks/backup_gc.yml and show what went and what stays."""
    asked = ["--dry-run"] if arguments.check else []
    asked += [f"--identity={arguments.identity}"] if arguments.identity else []
    # The program shows what would go, which Ansible's check mode could not ask it for.
    arguments.check = False
    code, answers, display = _ask(arguments, "backup_gc", {"ironspan_arguments": asked})
    for host, answer in sorted(answers.items()):
        if display.mode == "json":
            display.event("gc", host=host, answer=answer)
        elif isinstance(answer, dict) and "stores" in answer:
            display.note("\n".join(store["text"] for store in answer["stores"]))
    return int(code)


def accept(arguments: argparse.Namespace) -> int:
    """Run playbooks/backup_accept.yml and show which epoch each host's database has now."""
    code, answers, display = _ask(arguments, "backup_accept", {})
    for host, answer in sorted(answers.items()):
        if display.mode == "json":
            display.event("accept", host=host, answer=answer)
        elif isinstance(answer, dict) and "accepted" in answer:
            display.note(f"{host}: {answer['text']}")
    return int(code)


def restore(arguments: argparse.Namespace) -> int:
    """Run playbooks/etcd_restore.yml."""
    from ironspan.cli.playbook import run_playbook

    options = [*ansible_arguments(arguments), "-e", json.dumps(given(arguments, "etcd_restore"))]
    display = console.from_arguments(arguments)
    code, _ = run_playbook("backup", "etcd_restore", options, display, arguments.verbose)
    return int(code)


def _ask(
    arguments: argparse.Namespace, playbook: str, variables: dict[str, t.Any]
) -> tuple[Exit, dict[str, t.Any], console.Console]:
    """Run a playbook that asks the program on hosts; return what each of them answered."""
    from ironspan.cli.playbook import run_playbook

    asked = {**variables, **given(arguments, playbook)}
    options = [*ansible_arguments(arguments), "-e", json.dumps(asked)]
    display = console.from_arguments(arguments)
    code, running = run_playbook("backup", playbook, options, display, arguments.verbose)
    answers = {host: result.get("answer") for host, result in running.run.answers.items()}
    return code, answers, display
