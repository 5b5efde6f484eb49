# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""``ironspan status --html``: the cluster's report and the racks' elevation as one page."""

from __future__ import annotations

import argparse
import html
import pathlib
import typing as t

from ironspan.cli.outcome import CommandError, Exit

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem;color:#1c1c1c}pre{white-space:pre-wrap}"
    "td,th{text-align:left;padding:.25rem 1rem .25rem 0;vertical-align:top}.held{color:#b3261e}"
)


def racks_of(arguments: argparse.Namespace, site: t.Any) -> list[t.Any]:
    """Return how the servers of the file of expected servers stand in the site's Ironic; none without a file.

    Raises:
        CommandError: the file has problems, or Ironic cannot be asked.
    """
    if not arguments.expected:
        return []
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import elevation, login, record
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
        expected_servers,
    )
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import standings_of
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import connected
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

    variables = {**next(iter(site.hosts.values())).variables, "site": site}
    if not variables.get(login.CLOUD) and not login.endpoint(site):
        raise CommandError(
            "the site names no Ironic",
            "write site_bare_metal_cloud into its group_vars, or give the group ironic a host",
            Exit.BAD_INPUT,
        )
    try:
        servers = expected_servers(arguments.expected, arguments.mapping or "")
        ironic = connected(**login.login_of(variables))
        return elevation.places(servers, standings_of(ironic.entries(*record.FIELDS)))
    except RemoteError as error:
        raise CommandError(str(error), code=Exit.BAD_INPUT) from error


def write(path: str, site: str, report: str, places: list[t.Any]) -> None:
    """Write the page.

    Args:
        path: the file.
        site: name of the site.
        report: of the cluster, as text.
        places: servers, as ``racks_of`` returns them.

    Raises:
        CommandError: it cannot be written.
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

    try:
        write_file(pathlib.Path(path), page(site, report, places).encode(), 0o644)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", code=Exit.BAD_INPUT) from error


def page(site: str, report: str, places: list[t.Any]) -> str:
    """Return the page; nothing of it is loaded from elsewhere or runs, whatever a value may hold."""
    racks = ""
    if places:
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import elevation

        held = [place for place in places if place.reason]
        rows = "".join(
            f"<tr><td>{_text(place.server.name)}</td><td>{_text(place.server.slot)}</td>"
            f'<td>{_text(place.state)}</td><td class="held">{_text(place.reason)}</td></tr>\n'
            for place in held
        )
        racks = f"<h2>Racks</h2>\n{elevation.picture(places)}"
        head = "<tr><th>server</th><th>place</th><th>Ironic</th><th>why it is no host yet</th></tr>\n"
        racks += (
            f"<table>\n{head}{rows}</table>\n"
            if rows
            else "<p>Every server is a host of the inventory.</p>\n"
        )
    name = _text(site)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>Status of {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
        f"<h2>Cluster</h2>\n<pre>{_text(report)}</pre>\n{racks}</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)
