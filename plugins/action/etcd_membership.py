# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Says how etcd members start, adds and promotes them, and removes them."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd_cluster
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import PROMOTION_SECONDS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    BARE_GROUP,
    COMPARED_GROUP,
    JOINING_GROUP,
    RESTART_GROUP,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.authorities import PEER_NAME
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host

STATES = ("started", "learner", "voter", "absent", "named")


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.etcd_membership``."""

    CHANGES_THE_SITE = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": list(STATES), "required": True},
        "host": {"type": "str", "default": ""},
        "timeout_s": {"type": "int", "default": int(PROMOTION_SECONDS)},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Do what the state asks for."""
        state = arguments["state"]
        if state == "started":
            return {"changed": False, "inputs": self._started(session)}
        if state == "named":
            return self._named(session)
        limit = seconds(arguments["timeout_s"], "timeout_s")
        if state == "voter" and not arguments["host"]:
            return self._voters(session, limit)
        host = session.site.hosts.get(arguments["host"])
        if host is None:
            raise AnsibleActionFail(f"host is {arguments['host']!r}; write a host of the inventory")
        if state == "learner":
            return self._learner(session, host)
        if state == "voter":
            return self._voter(session, host, limit)
        return self._absent(session, host)

    def _started(self, session: Session) -> dict[str, dict[str, str]]:
        if session.site.is_slice:
            # Whether nobody has data cannot be known from a part of the hosts.
            return {}
        joined = set(self.group(COMPARED_GROUP, "control_plane"))
        joined -= set(self.group(BARE_GROUP, "control_plane"))
        inputs = etcd_cluster.first_start(
            session.site.group("etcd"), self.group(COMPARED_GROUP, "etcd"), self._bare(), sorted(joined)
        )
        if inputs and not self._task.check_mode:
            self.say(f"a new etcd cluster starts on {', '.join(inputs)}")
        # Running members that are to be changed are not asked about; these have data and do not run.
        stopped = set(self.group(JOINING_GROUP, "etcd")) & set(self.group(COMPARED_GROUP, "etcd"))
        stopped -= {*self._bare(), *self.group(RESTART_GROUP, "etcd")}
        if stopped:
            etcd_cluster.EtcdCluster(session).insist_listed(
                [session.site.hosts[name] for name in sorted(stopped)]
            )
        return inputs

    def _named(self, session: Session) -> Result:
        if session.site.is_slice or session.store.peers_named():
            return {"changed": False}
        without = etcd_cluster.EtcdCluster(session).without_name(PEER_NAME)
        if without:
            names = ", ".join(without)
            self.say(f"members do not ask for the name of peers yet; without it, or silent: {names}")
            return {"changed": False}
        if not self._task.check_mode:
            session.store.name_peers()
            self.say("the next run of site.yml lets members ask each other for the name of peers")
        return {"changed": True}

    def _bare(self) -> list[str]:
        return self.group(BARE_GROUP, "etcd")

    def _learner(self, session: Session, host: Host) -> Result:
        etcd = etcd_cluster.EtcdCluster(session, without=[host.name])
        if self._task.check_mode:
            return {"changed": True, "inputs": {}}
        inputs, numbers = etcd.add(host, self.group(COMPARED_GROUP, "etcd"), self._bare())
        self.say(f"{host.name} joins etcd as a learner ({numbers})")
        return {"changed": True, "inputs": {host.name: inputs}, "arithmetic": numbers}

    def _voters(self, session: Session, limit: int) -> Result:
        if session.site.is_slice:
            return {"changed": False}
        about = [
            h for h in etcd_cluster.EtcdCluster(session).without_vote() if self.is_about(h.name, session.site)
        ]
        promoted = [self._voter(session, host, limit)["changed"] for host in about]
        return {"changed": any(promoted)}

    def _voter(self, session: Session, host: Host, limit: int) -> Result:
        etcd = etcd_cluster.EtcdCluster(session, without=[host.name])
        if self._task.check_mode:
            return {"changed": True}
        promoted = etcd.promote(host, limit, self.say)
        if promoted:
            self.say(f"{host.name} is in sync and votes")
        return {"changed": promoted}

    def _absent(self, session: Session, host: Host) -> Result:
        etcd = etcd_cluster.EtcdCluster(session)
        if self._task.check_mode:
            entry, numbers = etcd.removal(host)
            return {"changed": entry is not None, "arithmetic": numbers}
        changed = False
        while True:
            # A host that came to another member's address has two entries: by name and by address.
            removed, numbers = etcd.remove(host)
            if not removed:
                return {"changed": changed, "arithmetic": numbers}
            self.say(f"{host.name} is no etcd member any more ({numbers})")
            changed = True
