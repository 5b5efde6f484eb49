# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan awx``: the configuration of a controller (AWX and its likes), written as files."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import typing as t

from ironspan.cli import awx_events, inventory
from ironspan.cli.outcome import CommandError, Exit

FOLDER = "awx"


def register(subparsers: argparse._SubParsersAction[t.Any]) -> None:
    """Add the ``awx`` commands; those that are operations are added with the others."""
    parser = subparsers.add_parser("awx", help="a controller of jobs (AWX): its configuration")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    render = commands.add_parser(
        "render",
        help="write the configuration of the controller as YAML; contacts nobody",
        description="Write job templates with surveys, workflows, teams and what they stand on, as YAML in "
        "the data shape of the community's roles, one file for each kind. The inventory is checked "
        "first. No host and no controller is contacted. See docs/awx.md.",
    )
    inventory.add_option(render, "of the site")
    render.add_argument(
        "-o", "--output", default=FOLDER, metavar="FOLDER", help=f"folder to write into ({FOLDER})"
    )
    render.set_defaults(func=write)
    key = commands.add_parser(
        "webhook-key",
        help="make another key for the webhook of the git service, into a file",
        description="Make another key for the webhook by which pushes start the check of the site "
        "(awx_webhook_service). The key before stops working at once, so give the new one to the service "
        "right after. The token comes from IRONSPAN_AWX_TOKEN.",
    )
    inventory.add_option(key, "of the site")
    key.add_argument("-o", "--output", required=True, metavar="FILE", help="file for the key, made by this")
    key.set_defaults(func=rotate)
    awx_events.register(commands)


def _site(arguments: argparse.Namespace) -> tuple[t.Any, t.Any, t.Any]:
    """Return the site of the inventory, its variables, and the settings of its controller."""
    site = inventory.read_site(arguments.inventory)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import settings_of

    variables = site.variables
    return site, variables, settings_of(variables, len(site.group("nodes")))


def write(arguments: argparse.Namespace) -> int:
    """Render the configuration, write what differs, and return the exit code."""
    site, variables, settings = _site(arguments)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import events, rendered
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

    if not variables["awx_project_url"]:
        raise CommandError(
            "the inventory does not say where a controller finds the playbooks",
            "write awx_project_url, the URL of the git repository",
            Exit.BAD_INPUT,
        )
    made = rendered.rendered(settings, variables["awx_host"])
    takes = site.group(events.GROUP)
    about_alerts = rendered.event_files(
        settings,
        events.groups_of(site),
        takes[0].variables["events_address"] or takes[0].address if takes else "HOST",
        variables["events_port"],
    )
    folder = pathlib.Path(arguments.output)
    for name, text in {**rendered.files(made), **about_alerts}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_file(path, text.encode())
    counts = ", ".join(f"{len(entries)} {name.removeprefix('controller_')}" for name, entries in made.items())
    sys.stdout.write(f"{folder}: {counts}\n")
    return int(Exit.OK)


def rotate(arguments: argparse.Namespace) -> int:
    """Make another webhook key, write it into a file of its own, and return the exit code."""
    _, variables, settings = _site(arguments)
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import ControllerError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.webhook import another_key

    from ironspan.cli.outcome import ending

    file = pathlib.Path(arguments.output)
    if not settings.webhook_service:
        raise CommandError(
            "the site has no webhook",
            "write awx_webhook_service, and run ironspan awx configure",
            Exit.BAD_INPUT,
        )
    try:
        # Before there is a key: one that could not be kept would have stopped the one before for nothing.
        with open(file, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as handle:
            try:
                with ending(Exit.FAILED, ControllerError):
                    key, url = another_key(settings, variables["awx_host"], variables["awx_ca_file"])
            except BaseException:
                file.unlink()
                raise
            handle.write(f"{key}\n")
    except OSError as error:
        raise CommandError(
            f"{file} cannot be written: {error.strerror}", "name a new file", Exit.BAD_INPUT
        ) from error
    sys.stdout.write(
        f"{file} has the key. Give it to {settings.webhook_service} for {url}, then remove the file.\n"
    )
    return int(Exit.OK)
