# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan gpu status|why|release|storm|dossier``: the repair of GPU nodes, for people."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
import typing as t
import uuid

from ironspan.cli.outcome import CommandError, Exit
from ironspan.cli.personal import add_kubeconfig, printable, visit

MISSING = "Turn it on with gpu_repair_enabled: docs/gpu-repair.md."
Commands = t.Any


def register(commands: Commands) -> None:
    """Add the commands."""
    shown = commands.add_parser("status", help="which GPU nodes are in repair, and what comes next")
    shown.add_argument("--all", action="store_true", help="those that are at work, too")
    shown.set_defaults(func=status)
    asked = commands.add_parser("why", help="why a node is where it is, and what to do")
    asked.set_defaults(func=why)
    released = commands.add_parser("release", help="let a node in triage prove itself again")
    released.add_argument("--reason", required=True, help="what was found or done; it is kept on the node")
    released.add_argument("--rma", action="store_true", help="a part of it is to be replaced: wait for that")
    released.set_defaults(func=release)
    written = commands.add_parser("dossier", help="all that is known of a node's fault, in one file")
    written.add_argument("--output", default="-", metavar="FILE", help="where to write it (standard output)")
    written.set_defaults(func=dossier)
    for command in (asked, released, written):
        command.add_argument("node", help="name of the node")
    storm = commands.add_parser("storm", help="let repairs begin although many nodes wait; needs two people")
    storm.add_argument("--for", dest="duration", default="1h", help="how long: 30m, 8h, 24h at most (1h)")
    storm.add_argument("--reason", required=True, help="why it is no false alarm")
    storm.set_defaults(func=release_storm)
    for command in (shown, asked, released, written, storm):
        add_kubeconfig(command)


def status(arguments: argparse.Namespace) -> int:
    """Show all nodes that are in repair or wait for it."""
    from ironspan.gpu_repair import people
    from ironspan.gpu_repair.status import published

    with visit(arguments, MISSING) as (display, api):
        told = published(api)
        rows = people.rows(api.get("/api/v1/nodes")["items"], told, everything=arguments.all)
        if display.mode == "json":
            display.event("gpu_status", controller=told, nodes=[row._asdict() for row in rows])
            return int(Exit.OK)
        for line in (*people.head(told), *people.table(rows)):
            display.note(printable(line))
    return int(Exit.OK)


def why(arguments: argparse.Namespace) -> int:
    """Tell a node's story."""
    from ironspan.gpu_repair import people
    from ironspan.gpu_repair.status import published

    with visit(arguments, _no_node(arguments)) as (display, api):
        node, told = api.get(_path(arguments.node)), published(api)
        if display.mode == "json":
            row = people.rows([node], told, everything=True)[0]
            display.event("gpu_why", **row._asdict(), record=people.record_text(node))
            return int(Exit.OK)
        for line in people.story(node, told):
            display.note(printable(line))
    return int(Exit.OK)


def release(arguments: argparse.Namespace) -> int:
    """Release a node from triage, in one's own name."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access.requests import whoami

    from ironspan.gpu_repair import model, people

    if not arguments.reason.strip():
        raise CommandError("the reason is empty", "Write what was found or done.", Exit.BAD_INPUT)
    with visit(arguments, _no_node(arguments)) as (display, api):
        node = api.get(_path(arguments.node))
        state = people.state_of(node)
        if state not in (model.State.TRIAGE, model.State.RMA):
            raise CommandError(
                f"{arguments.node} is {state}; only nodes in triage or rma are released",
                f"See ironspan gpu why {arguments.node}.",
                Exit.BAD_INPUT,
            )
        to = "rma" if arguments.rma else "preflight"
        word = {"id": str(uuid.uuid4()), "reason": arguments.reason.strip(), "to": to}
        annotations = {model.RELEASE: json.dumps(word), model.RELEASED_BY: whoami(api)}
        version = node["metadata"]["resourceVersion"]
        api.merge(
            _path(arguments.node), {"metadata": {"resourceVersion": version, "annotations": annotations}}
        )
        done = "waits for its new part" if arguments.rma else "has to pass its preflight now"
        if display.mode == "json":
            display.event("gpu_released", node=arguments.node, to=to)
        else:
            display.note(f"{arguments.node}: {done}")
    return int(Exit.OK)


def release_storm(arguments: argparse.Namespace) -> int:
    """Let repairs begin although many nodes wait."""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access.requests import seconds_of

    from ironspan.gpu_repair import status as kept

    try:
        seconds = seconds_of(arguments.duration)
    except ValueError as error:
        raise CommandError(str(error), code=Exit.BAD_INPUT) from error
    if seconds > kept.LONGEST_RELEASE:
        raise CommandError("a storm is released for 24h at most", "Write --for 24h.", Exit.BAD_INPUT)
    with visit(arguments, MISSING) as (display, api):
        kept.release_storm(api, seconds, arguments.reason, time.time())
        if display.mode == "json":
            display.event("gpu_storm_released", seconds=seconds)
        else:
            display.note(f"repairs begin for {arguments.duration}, within all other limits")
    return int(Exit.OK)


def dossier(arguments: argparse.Namespace) -> int:
    """Write all that is known of a node's fault."""
    from ironspan.gpu_repair import people
    from ironspan.gpu_repair.status import published

    with visit(arguments, _no_node(arguments)) as (display, api):
        node = api.get(_path(arguments.node))
        selector = f"involvedObject.kind=Node,involvedObject.name={arguments.node}"
        events = api.get("/api/v1/namespaces/default/events", fieldSelector=selector)["items"]
        text = people.dossier(node, events, published(api), time.time())
        if arguments.output == "-":
            sys.stdout.write(text)
            return int(Exit.OK)
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

        try:
            write_file(pathlib.Path(arguments.output), text.encode())
        except OSError as error:
            raise CommandError(f"{arguments.output}: {error.strerror}", code=Exit.BAD_INPUT) from error
        display.note(f"{arguments.output}: dossier of {arguments.node}")
    return int(Exit.OK)


def _path(node: str) -> str:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import node_path

    return node_path(node)


def _no_node(arguments: argparse.Namespace) -> str:
    return f"Is {arguments.node} the name of a node? ironspan gpu status --all names them."
