# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the plan file from what the hosts of this run answered, and from a dry run against the cluster."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible.plugins.action import ActionBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions import pruning
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import PATIENCE_OF_A_CHECK
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.part import of_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.pod_security import (
    about_to_be_refused,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import (
    Session,
    declared_nodes,
    node_addresses,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ClusterError,
    UnreachableError,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import (
    ObjectChange,
    compared,
    name_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import build, listed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.check import approvals_needed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import SUFFIX, Content
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.kinds import OBJECTS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

COMPARED = "compared"
NO_CLUSTER: Content = {"state": COMPARED, "objects": {}, "nodes": {}, "changes": []}
"""What is said of the cluster by an operation that has nothing to do with it."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.write_plan``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"file", "roles_folder"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Build the plan and write it."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        roles_folder = Path(self._task.args.get("roles_folder") or ROLES_FOLDER)
        if self._task.check_mode:
            msg = "A plan is not made in check mode; without it, planning changes no host either."
            return {**result, "changed": False, "skipped": True, "msg": msg}
        try:
            site = site_of_run(variables, roles_folder)
            operation = RunFolder().operation()
            hosts, asked = RunFolder().assessments(), _asked(variables, site)
            if operation:
                asked &= set(operation["hosts"])
            if operation and operation["name"] == back.OPERATION:
                chosen = back.of_the_last_release(hosts, value_of(variables, back.DIGEST_VARIABLE))
                asked, hosts = asked - (hosts.keys() - chosen.keys()), chosen
            if asked and not hosts:
                # Each host says what is wrong with it.
                return {
                    **result,
                    "changed": False,
                    "skipped": True,
                    "msg": "No plan: no host gave an answer.",
                }
            now = int(time.time())
            plan = build.build(
                site,
                hosts,
                _cluster(site, roles_folder, not operation or operation["cluster"]),
                now,
                sorted(asked - hosts.keys()),
                int(context.CLIARGS.get("forks") or 1),
                operation,
                RunFolder().remote(),
            )
        except (PlanError, PkiError, SiteError) as error:
            return {**result, "failed": True, "msg": str(error)}
        path = Path(self._task.args.get("file") or ".").expanduser()
        if path.is_dir():
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
            path = path / f"{site.name}-{stamp}{SUFFIX}"
        try:
            path.write_bytes(plan.data)
        except OSError as error:
            return {**result, "failed": True, "msg": f"{path} cannot be written: {error.strerror}"}
        return {
            **result,
            "changed": False,
            "path": str(path.absolute()),
            "digest": plan.digest,
            "summary": plan.content["summary"],
            "plan_warnings": plan.content["warnings"],
            "approvals_needed": approvals_needed(plan, site.plan),
            "destructive": build.needs_consent(plan.content),
        }


def _asked(variables: dict[str, t.Any], site: Site) -> set[str]:
    """Return the hosts of this run, which --limit may have made fewer."""
    try:
        # The play that runs is restricted to localhost.
        manager = variables["hostvars"]._inventory
        names = {str(host.name) for host in manager.get_hosts("all", ignore_restrictions=True)}
    except AttributeError:
        return set()
    return names & set(site.hosts)


def _cluster(site: Site, roles_folder: Path, asked: bool = True) -> Content:
    """Return what is declared for the cluster, and how it differs: the API says, without doing it."""
    renderer, _authorities = renderer_for(site, roles_folder)
    if not asked:
        return dict(NO_CLUSTER)
    layers = [
        layer for layer in (*all_layers().order, *all_layers().cluster) if _used(site, layer, roles_folder)
    ]
    objects = {layer: renderer.objects(layer) for layer in layers}
    declared = declared_nodes(site)
    found: Content = {
        "state": COMPARED,
        "objects": objects,
        "nodes": {
            name: {"labels": dict(entry.labels), "taints": [dict(taint) for taint in entry.taints]}
            for name, entry in declared.items()
        },
        "changes": [],
        "refused": [],
        # What jobs that see a slice of the inventory cannot know.
        "addresses": node_addresses(site),
        "api_address": site.api_address,
    }
    lines: dict[str, Content | None] = {}
    try:
        api = Session(site, constants.DEFAULT_LOCAL_TMP, PATIENCE_OF_A_CHECK).api()
        for node in nodes.declare(api, declared, dry_run=True):
            name = listed.node_name(node.node)
            lines[name] = listed.entry(listed.NODE, name, node.before, node.after)
        nodes_there = {str(node["metadata"]["name"]) for node in api.get("/api/v1/nodes")["items"]}
        lines = {**dict.fromkeys(map(listed.node_name, nodes_there)), **lines}
        for item, change in compared(api, [o for layer in objects.values() for o in layer]):
            lines[name_of(item)] = change and _line(change)
        there = owned.found(api, site.name)
        for layer in (*all_layers().order, *all_layers().cluster):
            for gone in pruning.undeclared(there, layer, objects.get(layer, [])):
                lines[gone.title] = listed.removal(gone)
        found["refused"] = about_to_be_refused(api, of_file(site))
    except UnreachableError as error:
        found["state"] = f"no API answers: the cluster does not exist yet, or is down. {error}"
    except ClusterError as error:
        found["state"] = str(error)
    found["changes"] = [*_lines(objects, found["nodes"], lines)]
    return found


def _lines(
    objects: t.Mapping[str, list[Content]],
    nodes_: t.Mapping[str, Content],
    lines: t.Mapping[str, Content | None],
) -> t.Iterator[Content]:
    """Yield what changes in the cluster; what could not be compared stands there whole, as it is declared."""
    whole = {
        name_of(item): _line(ObjectChange(name_of(item), {}, item))
        for layer in objects.values()
        for item in layer
    }
    for node, declared in nodes_.items():
        name = listed.node_name(node)
        if any(declared.values()):
            whole[name] = listed.entry(listed.NODE, name, {}, declared)
    yield from (line for line in {**whole, **lines}.values() if line)


def _line(change: ObjectChange) -> Content:
    return listed.entry(listed.OBJECT, change.name, change.before, change.after)


def _used(site: Site, layer: str, roles_folder: Path) -> bool:
    return (roles_folder / layer / OBJECTS).is_file() and (
        layer in all_layers().cluster or any(layer in host.layers for host in site.hosts.values())
    )
