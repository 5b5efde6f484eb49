# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kubeadm``: the host is part of its cluster, as control plane or worker; or is not any more.

External etcd is a matter of course here: nothing in this file lets kubeadm near etcd's data.
"""

from __future__ import annotations

import json
import re
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_config as text
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_join as joining
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_phases as phases
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_reset as reset
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_run import (
    ADMIN_CONF,
    DISCOVERY,
    JOIN_KEY,
    init_inputs,
    join_inputs,
    kubeadm,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import (
    read_text,
    remove_file,
    write_file,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    Pending,
    ResourceError,
    Spec,
)

KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
BOOTSTRAP_CONF = "/etc/kubernetes/bootstrap-kubelet.conf"
MARKER = "/var/lib/ironspan/kubeadm-attempt.json"
"""Written before kubeadm starts and removed when all is done: its presence means an attempt was cut off."""
START_INPUT = "cluster-start"
"""One-time input that lets a control plane start the cluster; with that of a join it joins one."""
COREDNS_STAYS = re.compile(r"phase addon/coredns: .*start version .* not supported")
NODE_GRACE = 75
"""Seconds until a node whose kubelet has stopped is no longer Ready: the default of 50, and some."""


def condition(spec: Spec, host: Host) -> str:
    """Tell how far the host is: absent, half (an attempt was cut off), finish (only its end was) or joined.

    Raises:
        ResourceError: the host belongs to another cluster.
    """
    control_plane = spec["role"] == "control_plane"
    kubelet, admin = read_text(host, KUBELET_CONF), read_text(host, ADMIN_CONF)
    # A control plane's kubelet talks to the API server beside it; admin.conf names the endpoint.
    named = text.server_of(admin if control_plane and admin else kubelet)
    if named and named != spec["endpoint"] and not (control_plane and not admin):
        raise ResourceError(
            f"this host already belongs to a cluster at {named}, not to {spec['endpoint']}",
            "Reset the host (playbooks/reset.yml) if it shall change clusters, or correct the endpoint.",
        )
    marked = read_text(host, MARKER) is not None
    parts = [kubelet is not None]
    if control_plane:
        parts += [admin is not None, read_text(host, phases.API_SERVER) is not None]
    if all(parts):
        if not marked and read_text(host, BOOTSTRAP_CONF) is None:
            return "joined"
        # init has much to do after its files are there; a join has next to nothing.
        return "half" if spec["action"] == "init" and marked else "finish"
    if marked or any(parts) or read_text(host, BOOTSTRAP_CONF) is not None:
        return "half"
    return "absent"


def decided(spec: Spec, host: Host) -> Spec:
    """Return the resource with ``init_or_join`` decided: an attempt that was cut off goes on as it began.

    Raises:
        Pending: the host is bare, and the controller has not said whether the cluster exists.
    """
    if spec["action"] != "init_or_join":
        return spec
    marker = read_text(host, MARKER)
    if marker is not None:
        return {**spec, "action": json.loads(marker or "{}").get("action", "join")}
    if condition({**spec, "action": "join"}, host) in ("joined", "finish"):
        return {**spec, "action": "join"}
    for name, action in ((START_INPUT, "init"), (joining.INPUT, "join")):
        try:
            host.secret(name)
        except Pending:
            continue
        return {**spec, "action": action}
    raise Pending("cluster:start-or-join")


class KubeadmKind:
    """Runs kubeadm once, repairs what an interrupted run left, and follows a changed configuration."""

    name = "kubeadm"
    stays = "being a member of the cluster is not taken back; remove the host from the cluster"
    triable = False
    fields: t.Mapping[str, Field] = {
        "action": Field((str,), required=True, choices=("init", "join", "init_or_join", "reset")),
        "role": Field((str,), default="worker", choices=("control_plane", "worker")),
        "config": Field((str,), default=""),
        "version": Field((str,), default=""),
        "endpoint": Field((str,), default=""),
        # Read no more: documents of former releases, which hosts go back to, have it.
        "token_secret": Field((str,), default=""),
        "csr": Field((dict,), default={}),
        "profile": Field((str,), default="node-join", choices=("node-join",)),
        # Read by the controller, which signs only for what the host's TPM has proved.
        "attestation": Field((dict,), default={}),
        "ca_path": Field((str,), default="/etc/kubernetes/pki/ca.crt"),
        "ignore_preflight": Field((list,), default=()),
        "phases_on_change": Field((bool,), default=True),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Check that the configuration has what the action needs."""
        if spec["action"] == "reset":
            return []
        problems = []
        if not spec["endpoint"]:
            problems.append("endpoint: missing; name the API server as host:port")
        if spec["action"] in ("init", "init_or_join") and spec["role"] != "control_plane":
            problems.append("role: init makes a control plane; write role: control_plane")
        kinds = [kind for kind, _ in text.split_documents(spec["config"])]
        if spec["action"] in ("init", "init_or_join") and "ClusterConfiguration" not in kinds:
            problems.append("config: init needs a ClusterConfiguration")
        if spec["action"] in ("join", "init_or_join"):
            try:
                text.join_configuration(spec["config"], DISCOVERY, spec["ca_path"])
            except ValueError as error:
                problems.append(f"config: {error}")
        if "external:" not in spec["config"] and "ClusterConfiguration" in kinds:
            problems.append("config: etcd must be external; write etcd: {external: ...}")
        return problems

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Look at kubeadm's files, and at the configuration applied last.

        Raises:
            Pending: a join is needed, and it is not this host's turn or its certificate was not carried.
            ResourceError: the host belongs to another cluster, or another version is wanted and this is no
                upgrade.
        """
        if spec["action"] == "reset":
            left = reset.leftovers(host)
            return Change("delete", {"left": left}, {"left": []}, "traces of a cluster") if left else None
        spec = decided(spec, host)
        state = condition(spec, host)
        if state in ("absent", "half"):
            if spec["action"] == "join":
                joining.insist_on_credentials(spec, host)
            reason = "not part of the cluster" if state == "absent" else "an earlier attempt was cut off"
            after = {"state": "joined", "endpoint": spec["endpoint"], "action": spec["action"]}
            return Change("run", {"state": state}, after, reason)
        if state == "finish":
            return Change(
                "run", {"state": state}, {"state": "joined"}, "an earlier attempt was cut off at its end"
            )
        if text.remembered_version(host.note(spec["id"])) != text.wanted_version(spec):
            other = _upgrade().needed(spec, host)
            if other:
                return t.cast(Change, other)
        return phases.changed_configuration(spec, host)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Run kubeadm as needed; after a failure nothing of the attempt is left on the host."""
        if spec["action"] == "reset":
            reset.reset(host)
            return
        if change.action == "update":
            phases.run_phases(spec, change.before["text"], host)
        elif change.action == "upgrade":
            _upgrade().upgrade(spec, change, host)
        else:
            spec = decided(spec, host)
            reset.end_orphans(host)
            state = condition(spec, host)
            if state == "half":
                reset.clean_attempt(host)
            if state in ("absent", "half"):
                self._attempt(spec, host)
            elif spec["role"] == "control_plane" and read_text(host, MARKER) is not None:
                with join_inputs(spec, host):
                    kubeadm(host, "join", "phase", "control-plane-join", "all")
            for path in (BOOTSTRAP_CONF, *reset.RUN_FILES, JOIN_KEY, MARKER):
                remove_file(host, path)
            host.remember(spec["id"], {"config": spec["config"], "version": text.wanted_version(spec)})

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Leave the cluster again; a cut-off end leaves a member of the cluster, a reset cannot be undone."""
        if change.action == "run" and change.before["state"] != "finish":
            reset.clean_attempt(host)
            for path in (JOIN_KEY, MARKER):
                remove_file(host, path)

    def settle(self, spec: Spec, change: Change, host: Host) -> None:
        """Give the cluster its former configuration back, now that the API server has its own."""
        if change.action == "update":
            phases.give_back(spec, host)
        elif change.action == "upgrade":
            _upgrade().give_back(spec, host)

    def _attempt(self, spec: Spec, host: Host) -> None:
        until = time.monotonic() + NODE_GRACE
        while True:
            write_file(host, MARKER, json.dumps({"action": spec["action"]}).encode(), 0o600)
            try:
                if spec["action"] == "init":
                    with init_inputs(spec["config"], host):
                        _init(host, spec["config"], _ignore(spec))
                else:
                    with join_inputs(spec, host):
                        kubeadm(host, "join", *_ignore(spec))
                return
            except ResourceError as error:
                reset.clean_attempt(host)
                remove_file(host, MARKER)
                # After a repair the cluster may still take this host's former kubelet for alive.
                if "already exists in the cluster" not in error.message or time.monotonic() > until:
                    raise
                time.sleep(5)


def _upgrade() -> t.Any:
    """Return the module that knows upgrades, which few runs need."""
    from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_upgrade

    return _kubeadm_upgrade


def _init(host: Host, config: str, flags: t.Sequence[str]) -> None:
    try:
        kubeadm(host, "init", "--skip-token-print", "--skip-certificate-key-print", *flags)
    except ResourceError as error:
        # The store holds this cluster already (an earlier attempt, or a control plane rebuilt), with a
        # CoreDNS whose Corefile kubeadm cannot migrate: it stays, and what comes after it is done here.
        if not COREDNS_STAYS.search(error.message):
            raise
        for phase in phases.cluster_phases(config)[1:]:
            kubeadm(host, "init", "phase", *phase)


def _ignore(spec: Spec) -> t.List[str]:
    ignored = list(spec["ignore_preflight"])
    if spec["action"] == "join" and spec["role"] == "worker":
        # kubeadm takes a CA file that is there already for the trace of another cluster; it is ours.
        ignored.append("FileAvailable-" + spec["ca_path"].replace("/", "-"))
    return ["--ignore-preflight-errors=" + ",".join(ignored)] if ignored else []


KIND = KubeadmKind()
