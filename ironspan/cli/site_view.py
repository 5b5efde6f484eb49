# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the page of a site shows, asked of the API, of etcd, of Ironic, and of this controller's own files."""

from __future__ import annotations

import argparse
import pathlib
import time
import typing as t

from ironspan.cli import run_record
from ironspan.cli.outcome import CommandError, Exit
from ironspan.cli.playbook import log_folder
from ironspan.pages.view import Held, Rack, Server, View

PATIENCE_S = 5.0
"""How long a request that fails is sent again; somebody is waiting for this command."""
RUNS_SHOWN = 10
GPU = "nvidia.com/"
"""What resources of GPUs begin with: whole ones, and parts of them (MIG)."""


def verified(session: t.Any) -> t.Any:
    """Return the report of a verification that makes nothing in the cluster.

    Args:
        session: the site's cluster.

    Raises:
        CommandError: the PKI store cannot be used (exit 2), or the cluster does not answer (exit 4).
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import expected
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.verify import verify
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError

    try:
        wanted = expected(session.site)
        return verify(session.api(PATIENCE_S), session.etcd_context(), wanted, 0, run_pods=False)
    except PkiError as error:
        raise CommandError(str(error), code=Exit.BAD_INPUT) from error
    except ClusterError as error:
        raise CommandError(str(error), code=Exit.HOSTS) from error


def view(
    session: t.Any, report: t.Any, error: str, places: t.Sequence[t.Any], found: t.Sequence[t.Any] = ()
) -> View:
    """Return what the page shows.

    Args:
        session: the site's cluster.
        report: as ``verified`` returns it; None when the cluster could not be asked.
        error: why it could not.
        places: servers, as ``racks_of`` returns them.
        found: findings of the doctor, on what else was asked.
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import elevation
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.ask import look_here

    site = session.site
    here = look_here(session)
    data = report.as_json() if report else None
    own = list(_own_records(site.name))
    asked = next((record for record in own if record["backups"]), None)
    return View(
        site.name,
        site.api_endpoint,
        time.time(),
        data,
        error,
        servers_of(site, data),
        racks_with_nodes(site, _nodes(session) if report else None),
        here.authorities,
        asked["backups"] if asked else (),
        asked["started"] + asked["seconds"] if asked else None,
        running_here(site.name),
        here.lock_holder,
        own[:RUNS_SHOWN],
        elevation.picture(places, styled=False) if places else None,
        [Held(each.server.name, each.server.slot, each.state, each.reason) for each in places if each.reason],
        [(each.level, each.what, each.remedy) for each in found],
    )


def running_here(site: str) -> list[dict[str, t.Any]]:
    """Return the runs from this controller that go on, of a site or of one that is not known yet."""
    return [record for record in run_record.running(log_folder()) if record["site"] in (site, "")]


def _own_records(site: str) -> t.Iterator[dict[str, t.Any]]:
    for path in run_record.records(log_folder()):
        record = run_record.read(path)
        if record and record["site"] == site:
            yield record


def servers_of(site: t.Any, report: t.Mapping[str, t.Any] | None) -> list[Server]:
    """Return control planes and members of etcd, with what a verification found wrong about each.

    Args:
        site: from the inventory.
        report: of a verification, as its JSON has it; None when there is none.
    """
    checks = {check["name"]: check for check in report["checks"]} if report else {}
    # Each sentence of these checks begins with the name of whom it is about.
    wrong: dict[str, str] = {}
    for name in ("etcd", "nodes"):
        for problem in checks.get(name, {}).get("problems", ()):
            about, _, rest = problem.partition(" ")
            wrong.setdefault(about, rest)
    members = {row["member"] for row in checks.get("etcd", {}).get("evidence", ()) if row["version"]}
    nodes = {row["node"] for row in checks.get("nodes", {}).get("evidence", ()) if row["ready"] == "yes"}
    roles: dict[str, list[str]] = {}
    silent: set[str] = set()
    for group, word, answered in (("control_plane", "control plane", nodes), ("etcd", "etcd", members)):
        for host in site.group(group):
            roles.setdefault(host.name, []).append(word)
            if host.name not in answered:
                silent.add(host.name)
    return [
        Server(
            name,
            site.hosts[name].site_group,
            tuple(words),
            False if name in wrong else None if name in silent else True,
            wrong.get(name, ""),
        )
        for name, words in roles.items()
    ]


def racks_with_nodes(site: t.Any, nodes: t.Sequence[dict[str, t.Any]] | None) -> list[Rack]:
    """Return the workers of the inventory by rack.

    Args:
        site: from the inventory.
        nodes: objects of the cluster; None when they are not known.
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import is_ready

    ready = {node["metadata"]["name"]: node for node in nodes or () if is_ready(node)}
    racks: dict[tuple[str, str], list[str]] = {}
    for host in site.group("nodes"):
        racks.setdefault((host.site_group, host.rack), []).append(host.name)
    return [
        Rack(
            rack,
            side,
            len(hosts),
            None if nodes is None else sum(host in ready for host in hosts),
            sum(_gpus(ready[host]) for host in hosts if host in ready),
        )
        for (side, rack), hosts in sorted(racks.items())
    ]


def _nodes(session: t.Any) -> list[t.Any] | None:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

    try:
        return t.cast("list[t.Any]", session.api(PATIENCE_S).get("/api/v1/nodes")["items"])
    except (ClusterError, KeyError, TypeError):
        return None


def _gpus(node: t.Mapping[str, t.Any]) -> int:
    offered = node.get("status", {}).get("allocatable", {})
    return sum(int(number) for name, number in offered.items() if name.startswith(GPU) and number.isdecimal())


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

    variables = {**site.variables, "site": site}
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


def write(path: str, page: str) -> None:
    """Write a page.

    Args:
        path: the file.
        page: its text.

    Raises:
        CommandError: it cannot be written.
    """
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file

    try:
        write_file(pathlib.Path(path), page.encode(errors="replace"), 0o644)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", code=Exit.BAD_INPUT) from error
