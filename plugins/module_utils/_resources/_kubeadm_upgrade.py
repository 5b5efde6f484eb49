# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Another version of Kubernetes on a host that is part of its cluster: what kubeadm does of an upgrade.

The document says the version; that it may be brought about now is a one-time input, which only upgrade.yml
carries, because hosts have to follow in an order that one host alone does not know.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_config as text
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_phases as phases
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_run import (
    ADMIN_CONF,
    TIMEOUT,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Host,
    Pending,
    ResourceError,
    Spec,
)

CONSENT = "upgrade"
"""Name of the one-time input."""
KUBELET_FILES = ("/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env")
COREDNS = "addon/coredns"
"""Left out: kubeadm would migrate the Corefile, and knows no CoreDNS newer than its own release."""
TOKENS = "bootstrap-token"
"""Left out of the first control plane's: it would let holders of a token become any node again. What else it
does, ``kubeadm init`` has done."""


def installed(spec: Spec, host: Host) -> str:
    """Return the version that this host was brought to, "" if nobody can tell."""
    note = host.note(spec["id"])
    known = text.remembered_version(note)
    if known or spec["role"] == "control_plane":
        return known
    # Joined before versions were remembered: the kubelet's own program says it.
    try:
        output = host.run(["kubelet", "--version"], timeout=20)[1]
    except ResourceError:
        return ""
    match = re.search(r"v(\d+\.\d+\.\d+\S*)", output)
    return match.group(1) if match else ""


def needed(spec: Spec, host: Host) -> t.Optional[Change]:
    """Compare the version with the one this host was brought to.

    Raises:
        ResourceError: it is another one, and this is no upgrade.
    """
    wanted = text.wanted_version(spec)
    current = installed(spec, host) if wanted else ""
    if not current or current == wanted:
        return None
    try:
        host.secret(CONSENT)
    except Pending:
        raise ResourceError(
            f"the inventory asks for Kubernetes {wanted}, this host was set up with {current}",
            "A change of version is an upgrade, which goes through the hosts in its own order: run "
            "playbooks/upgrade.yml (ironspan apply upgrade), or set the version back.",
        ) from None
    former = host.note(spec["id"]).get("config", "")
    before = {"version": current, "text": former} if former else {"version": current}
    return Change("upgrade", before, {"version": wanted, "text": spec["config"]}, "another version is wanted")


def upgrade(spec: Spec, change: Change, host: Host) -> None:
    """Let kubeadm bring this host to the version; its kubeadm has that version already.

    Raises:
        ResourceError: kubeadm failed (it puts static pods back by itself), or the API server is not ready.
    """
    version, former = text.wanted_version(spec), host.note(spec["id"]).get("config", "")
    for path in KUBELET_FILES:
        host.backup(path)
    if spec["role"] != "control_plane":
        _kubeadm(host, spec, "node")
    else:
        host.remember(spec["id"], {"config": "", "former": former, "version": change.before["version"]})
        for component in phases.COMPONENTS:
            host.backup(f"{phases.MANIFESTS}/{component}.yaml")
        first = _cluster_version(host) != version
        _kubeadm(host, spec, *(("apply", f"v{version}", "--yes") if first else ("node",)))
        phases.wait_until_ready(host, ())
        same_version = text.VERSION.sub(f"kubernetesVersion: v{version}", former)
        if same_version != spec["config"]:
            phases.run_phases(spec, same_version, host)
    host.remember(spec["id"], {"config": spec["config"], "version": version})


def give_back(spec: Spec, host: Host) -> None:
    """After a failed upgrade of a control plane: its files are back, wait for the former API server."""
    note = host.note(spec["id"])
    if spec["role"] != "control_plane" or not note.get("former"):
        return
    phases.wait_until_ready(host, ())
    host.remember(spec["id"], {"config": note["former"], "version": note["version"]})


def _cluster_version(host: Host) -> str:
    """Return the version that kubeadm keeps in the cluster: that of the control planes that are done."""
    path = "jsonpath={.data.ClusterConfiguration}"
    command = ["kubectl", "--kubeconfig", host.path(ADMIN_CONF), "--namespace", "kube-system"]
    return text.kubernetes_version(host.run([*command, "get", "configmap", "kubeadm-config", "-o", path])[1])


def _kubeadm(host: Host, spec: Spec, action: str, *arguments: str) -> None:
    ignored = ",".join(["CoreDNSMigration", "CoreDNSUnsupportedPlugins", *spec["ignore_preflight"]])
    argv = ["kubeadm", "upgrade", action, *arguments, f"--ignore-preflight-errors={ignored}"]
    argv.append(f"--skip-phases={','.join([COREDNS, TOKENS] if action == 'apply' else [COREDNS])}")
    status, output, problems = host.run(argv, check=False, timeout=TIMEOUT, env={"LC_ALL": "C"})
    if status != 0:
        reason = text.explain(f"{problems}\n{output}")
        raise ResourceError(f"kubeadm upgrade {action} failed:\n{reason}", text.remedy_for(problems))
