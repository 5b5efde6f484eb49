# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Stops an upgrade when a step did not leave the cluster well, and says which way back there is."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import ask_members
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session, node_hosts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    PENDING_GROUP,
    REBOOT_GROUP,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import cordon, rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.waves import waves
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import (
    addons,
    drivers,
    gate,
    live,
    rollback,
    skew,
)

NODES_GROUP = "__ironspan_upgrade_nodes"
ANNOTATION = "ironspan/gvisor"
_NOTHING: t.Final[Result] = {"changed": False, "returning": [], "back": [], "report": ""}


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.upgrade_gate``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "phase": {
            "type": "str",
            "choices": ["etcd", "control_plane", "addons", "drivers", "nodes"],
            "required": True,
        },
        "hosts": {"type": "list", "elements": "str", "default": []},
        "boots": {"type": "dict", "default": {}},
        "returning": {"type": "list", "elements": "str", "default": []},
        "keep_driver": {"type": "bool", "default": False},
        "timeout_s": {"type": "int", "default": 300},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Wait until all is well; after the control planes, tell which nodes follow."""
        site, phase = session.site, arguments["phase"]
        unknown = [name for name in arguments["hosts"] if name not in site.hosts]
        if unknown:
            raise AnsibleActionFail(f"hosts has {', '.join(unknown)}, which the inventory does not have")
        hosts = [site.hosts[name] for name in arguments["hosts"]]
        limit = seconds(arguments["timeout_s"], "timeout_s")
        if self._task.check_mode:
            return self._waves(session) if phase == "addons" else dict(_NOTHING)
        if phase == "drivers":
            return {**_NOTHING, "returning": drivers.note(session.api(), hosts)}
        if phase == "nodes":
            return self._nodes(session, hosts, arguments, limit)
        changed: list[str] = []
        if phase == "addons":
            # Every API server, not only those of this run: nothing may be newer than any of them.
            hosts = site.group("control_plane")
            missing = rollouts.until(lambda: gate.control_plane_problems(session, hosts), limit, self.say)
            if missing:
                return _stopped(missing, self._way_back(session, "control_plane"))
            changed = addons.follow(session.api(), site.kubernetes_version, _coredns(site))
        problems = rollouts.until(lambda: _problems(session, phase, hosts), limit, self.say)
        if problems:
            return _stopped(problems, self._way_back(session, phase))
        more = self._waves(session) if phase == "addons" else {}
        return {**more, "changed": bool(changed), "addons": changed}

    def _nodes(self, session: Session, hosts: list[Host], arguments: Result, limit: float) -> Result:
        """Wait until the nodes of a wave are well; name those that go back to the driver of before."""
        boots = {str(name): str(boot) for name, boot in arguments["boots"].items()}
        returning = [str(name) for name in arguments["returning"]]
        api, failed = session.api(), list[str]()

        def look() -> list[str]:
            # A verdict is final: nobody waits for another one with the same driver.
            failed[:] = drivers.failed(api, hosts, boots)
            return gate.node_problems(api, hosts, boots, failed)

        problems = rollouts.until(look, limit, self.say)
        found = [*gate.failures(api, failed), *problems]
        if failed and not arguments["keep_driver"]:
            for text in found:
                self.say(text)
            drivers.turn_back(api, failed)
            report = rollback.of_drivers([*returning, *failed])
            return {"changed": True, "back": failed, "problems": found, "report": report}
        if found:
            ways = [rollback.of_kept_drivers(failed)] if failed else []
            ways += [rollback.of_returning(returning)] if returning else []
            return _stopped(found, " ".join(ways) or self._way_back(session, "nodes"))
        _note_gvisor(session, hosts)
        return {**_NOTHING, "report": rollback.of_drivers(returning) if returning else ""}

    def _waves(self, session: Session) -> Result:
        """Put the nodes that still differ into a group, in the order of their waves."""
        site = session.site
        now = live.look(session.api())
        planes = {host.name for host in site.group("control_plane")}
        pending = {*self.group(PENDING_GROUP), *self.group(REBOOT_GROUP)}
        workers = [host for host in node_hosts(site) if host.name not in planes]
        due = [host for host in workers if host.name in pending or drivers.waits(now.nodes.get(host.name))]
        out = {name for name, node in now.nodes.items() if not cordon.is_in_service(node)}
        names = [name for wave in waves(due, site.drain.max_unavailable, out, workers) for name in wave]
        for name in names:
            self.add_host(name, parent_group_names=[NODES_GROUP])
        # Finished by an earlier run but for opening them; one with something left to do is opened after it.
        closed = [
            name
            for name in now.nodes
            if now.closed_here(name) and name not in names and _is_done(now, site, name)
        ]
        return {"changed": False, "nodes": names, "closed": closed}

    def _way_back(self, session: Session, phase: str) -> str:
        site = session.site
        wanted = skew.parse(site.kubernetes_version)
        if phase == "etcd":
            members = site.group("etcd")
            context = session.etcd_context()
            running = live.etcd_versions(ask_members({host.name: host.address for host in members}, context))
            cluster = live.etcd_cluster_version([host.address for host in members], context)
            target = skew.parse(str(members[0].variables["etcd_version"]))
            older = [version for version in running.values() if version != target]
            return rollback.of_etcd(target, cluster, skew.oldest(older))
        if phase == "nodes":
            return rollback.of_nodes(wanted)
        planes = site.group("control_plane")
        done = sum(not gate.control_plane_problems(session, [host]) for host in planes)
        return rollback.of_control_planes(wanted, done, len(planes))


def _problems(session: Session, phase: str, hosts: list[Host]) -> list[str]:
    if phase == "etcd":
        problems = gate.etcd_problems(session, hosts)
        # etcd is well when the API says so too.
        session.api(patience=2).request("GET", "/readyz", timeout=10, patience=2)
        return problems
    if phase == "control_plane":
        return gate.control_plane_problems(session, hosts)
    return gate.rollout_problems(session.api(), session.site.kubernetes_version, _coredns(session.site))


def _coredns(site: Site) -> str:
    return str(site.group("control_plane")[0].variables["control_plane_coredns_version"])


def _is_done(now: live.Live, site: Site, name: str) -> bool:
    host = site.hosts.get(name)
    return host is not None and now.kubelets.get(name) == skew.parse(host.kubernetes_version)


def _note_gvisor(session: Session, hosts: list[Host]) -> None:
    """Write gVisor's version on the nodes: the API knows no other place for it."""
    api = session.api()
    for host in hosts:
        if host.in_group("gvisor") or host.in_group("gvisor_gpu"):
            noted = {"metadata": {"annotations": {ANNOTATION: str(host.variables["gvisor_version"])}}}
            api.merge(cordon.node_path(host.name), noted)


def _stopped(problems: list[str], way_back: str) -> Result:
    listed = "\n".join(f"- {problem}" for problem in problems)
    return {
        "failed": True,
        "problems": problems,
        "rollback": way_back,
        "msg": f"The upgrade stops here, because something is not well:\n{listed}\n{way_back}",
    }
