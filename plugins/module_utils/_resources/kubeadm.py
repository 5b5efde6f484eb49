# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kubeadm``: the host is part of its cluster, as control plane or worker; or is not any more.

External etcd is a matter of course here: nothing in this file lets kubeadm near etcd's data.
"""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._engine.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_config as text
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_reset as reset
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import (
    read_text,
    remove_file,
    write_file,
)

KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
BOOTSTRAP_CONF = "/etc/kubernetes/bootstrap-kubelet.conf"
ADMIN_CONF = "/etc/kubernetes/admin.conf"
MANIFESTS = "/etc/kubernetes/manifests"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
API_SERVER = f"{MANIFESTS}/kube-apiserver.yaml"
API_CERTIFICATE = ("/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/apiserver.key")
CLUSTER_PHASES = (("upload-config", "all"), ("addon", "kube-proxy"))
"""What a changed configuration changes in the cluster itself.

Not the CoreDNS addon: kubeadm would migrate its Corefile, and refuses when it does not know CoreDNS's version
(kubeadm 1.36.4 knows none above 1.14.2); another CoreDNS is an upgrade.
"""
RUN_FOLDER = "/run/ironspan"
CONFIG = f"{RUN_FOLDER}/kubeadm.yaml"
DISCOVERY = f"{RUN_FOLDER}/discovery.conf"
MARKER = "/var/lib/ironspan/kubeadm-attempt.json"
"""Written before kubeadm starts and removed when all is done: its presence means an attempt was cut off."""
TIMEOUT = 900.0
"""Seconds for one kubeadm, whose own waits (discovery, bootstrap, control plane) take five minutes each."""
NODE_GRACE = 75
"""Seconds until a node whose kubelet has stopped is no longer Ready: the default of 50, and some."""
READY_TIMEOUT = 180


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
        parts += [admin is not None, read_text(host, API_SERVER) is not None]
    if all(parts):
        if not marked and read_text(host, BOOTSTRAP_CONF) is None:
            return "joined"
        # init has much to do after its files are there; a join has next to nothing.
        return "half" if spec["action"] == "init" and marked else "finish"
    if marked or any(parts) or read_text(host, BOOTSTRAP_CONF) is not None:
        return "half"
    return "absent"


class KubeadmKind:
    """Runs kubeadm once, repairs what an interrupted run left, and follows a changed configuration."""

    name = "kubeadm"
    fields: t.Mapping[str, Field] = {
        "action": Field((str,), required=True, choices=("init", "join", "reset")),
        "role": Field((str,), default="worker", choices=("control_plane", "worker")),
        "config": Field((str,), default=""),
        "endpoint": Field((str,), default=""),
        "token_secret": Field((str,), default="join-token"),
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
        if spec["action"] == "init" and spec["role"] != "control_plane":
            problems.append("role: init makes a control plane; write role: control_plane")
        kinds = [kind for kind, _ in text.split_documents(spec["config"])]
        if spec["action"] == "init" and "ClusterConfiguration" not in kinds:
            problems.append("config: init needs a ClusterConfiguration")
        if spec["action"] == "join":
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
            Pending: a join is needed and its token was not carried.
            ResourceError: the host belongs to another cluster.
        """
        if spec["action"] == "reset":
            left = reset.leftovers(host)
            return Change("delete", {"left": left}, {"left": []}, "traces of a cluster") if left else None
        state = condition(spec, host)
        if state in ("absent", "half"):
            if spec["action"] == "join":
                host.secret(spec["token_secret"])
            reason = "not part of the cluster" if state == "absent" else "an earlier attempt was cut off"
            return Change("run", {"state": state}, {"state": "joined", "endpoint": spec["endpoint"]}, reason)
        if state == "finish":
            return Change(
                "run", {"state": state}, {"state": "joined"}, "an earlier attempt was cut off at its end"
            )
        return self._changed_configuration(spec, host)

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Run kubeadm as needed; after a failure nothing of the attempt is left on the host."""
        if spec["action"] == "reset":
            reset.reset(host)
            return
        if change.action == "update":
            self._run_phases(spec, change.before["text"], host)
        else:
            reset.end_orphans(host)
            state = condition(spec, host)
            if state == "half":
                reset.clean_attempt(host)
            if state in ("absent", "half"):
                self._attempt(spec, host)
            elif spec["role"] == "control_plane" and read_text(host, MARKER) is not None:
                last = ("join", "phase", "control-plane-join", "all")
                self._with_files(spec, host, lambda: _kubeadm(host, *last))
            for path in (BOOTSTRAP_CONF, *reset.RUN_FILES, MARKER):
                remove_file(host, path)
            host.remember(spec["id"], {"config": spec["config"]})

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Leave the cluster again, or give the cluster its former configuration; a reset cannot be undone."""
        if change.action == "run":
            # A cut-off end leaves a member of the cluster; everything else leaves nothing to keep.
            if change.before["state"] != "finish":
                reset.clean_attempt(host)
                remove_file(host, MARKER)
        elif change.action == "update":
            former = host.note(spec["id"]).get("former")
            if former:
                _write_run_file(host, CONFIG, text.init_configuration(former))
                try:
                    for phase in CLUSTER_PHASES:
                        argv = ["kubeadm", "init", "phase", *phase, "--config", host.path(CONFIG)]
                        host.run(argv, check=False, timeout=TIMEOUT)
                finally:
                    remove_file(host, CONFIG)
                host.remember(spec["id"], {"config": former})

    def _changed_configuration(self, spec: Spec, host: Host) -> t.Optional[Change]:
        if spec["role"] != "control_plane" or not spec["phases_on_change"]:
            return None
        if "ClusterConfiguration" not in [kind for kind, _ in text.split_documents(spec["config"])]:
            return None
        former = host.note(spec["id"]).get("config", "")
        if former == spec["config"]:
            return None
        old, new = text.kubernetes_version(former), text.kubernetes_version(spec["config"])
        if former and old != new:
            raise ResourceError(
                f"the configuration asks for Kubernetes {new}, the control plane was set up with {old}",
                "A change of version is an upgrade, one control plane after the other; set the version back.",
            )
        reason = "its configuration changed" if former else "the configuration it runs with is not known"
        return Change("update", {"text": former}, {"text": spec["config"]}, reason)

    def _run_phases(self, spec: Spec, former: str, host: Host) -> None:
        # Kept for undo, which is not told whole texts.
        host.remember(spec["id"], {"config": "", "former": former})
        for component in COMPONENTS:
            host.backup(f"{MANIFESTS}/{component}.yaml")
        manifest = read_text(host, API_SERVER)
        former_processes = reset.running(host, "kube-apiserver")
        names = text.certificate_names(spec["config"])

        def phases() -> None:
            if former and text.certificate_names(former) != names:
                for path in API_CERTIFICATE:
                    host.backup(path)
                    remove_file(host, path)
                _kubeadm(host, "init", "phase", "certs", "apiserver")
            for phase in (*CLUSTER_PHASES, ("control-plane", "all")):
                _kubeadm(host, "init", "phase", *phase)

        self._with_files(spec, host, phases, init=True)
        if read_text(host, API_SERVER) != manifest:
            _wait_for_restart(host, former_processes)
        host.remember(spec["id"], {"config": spec["config"], "former": former})

    def _attempt(self, spec: Spec, host: Host) -> None:
        write_file(host, MARKER, json.dumps({"action": spec["action"]}).encode(), 0o600)
        flags = _ignore(spec, host)
        try:
            if spec["action"] == "init":
                command = ("init", "--skip-token-print", "--skip-certificate-key-print", *flags)
                self._with_files(spec, host, lambda: _kubeadm(host, *command), init=True)
            else:
                self._with_files(spec, host, lambda: _join(host, flags))
        except ResourceError:
            reset.clean_attempt(host)
            remove_file(host, MARKER)
            raise

    def _with_files(self, spec: Spec, host: Host, work: t.Callable[[], None], init: bool = False) -> None:
        """Do some work while kubeadm's input files exist; a token in its error output is blotted out."""
        token = ""
        try:
            if init:
                _write_run_file(host, CONFIG, text.init_configuration(spec["config"]))
            else:
                authority = read_text(host, spec["ca_path"])
                if authority is None:
                    raise ResourceError(
                        f"the cluster's CA certificate {spec['ca_path']} is not there",
                        "Declare it as a file resource before the join.",
                    )
                # The end of a control plane's join needs no token: admin.conf is there by then.
                if read_text(host, ADMIN_CONF) is None:
                    token = host.secret(spec["token_secret"]).decode().strip()
                _write_run_file(host, DISCOVERY, text.discovery_file(spec["endpoint"], authority, token))
                join = text.join_configuration(spec["config"], host.path(DISCOVERY), spec["ca_path"])
                _write_run_file(host, CONFIG, join)
            work()
        except ResourceError as error:
            if token and token in error.message:
                raise ResourceError(error.message.replace(token, "(secret)"), error.remedy) from None
            raise
        finally:
            remove_file(host, DISCOVERY)
            remove_file(host, CONFIG)


def _ignore(spec: Spec, host: Host) -> t.List[str]:
    ignored = list(spec["ignore_preflight"])
    if spec["action"] == "join" and spec["role"] == "worker":
        # kubeadm takes a CA file that is there already for the trace of another cluster; it is ours.
        ignored.append("FileAvailable-" + spec["ca_path"].replace("/", "-"))
    return ["--ignore-preflight-errors=" + ",".join(ignored)] if ignored else []


def _kubeadm(host: Host, *arguments: str) -> None:
    argv = ["kubeadm", *arguments, "--config", host.path(CONFIG)]
    status, output, problems = host.run(argv, check=False, timeout=TIMEOUT, env={"LC_ALL": "C"})
    if status != 0:
        words = " ".join(argument for argument in arguments if not argument.startswith("--"))
        reason = text.explain(f"{problems}\n{output}")
        raise ResourceError(f"kubeadm {words} failed:\n{reason}", text.remedy_for(problems))


def _join(host: Host, flags: t.Sequence[str]) -> None:
    until = time.monotonic() + NODE_GRACE
    while True:
        try:
            return _kubeadm(host, "join", *flags)
        except ResourceError as error:
            # After a repair the cluster may still take this host's former kubelet for alive.
            if "already exists in the cluster" not in error.message or time.monotonic() > until:
                raise
            reset.clean_attempt(host)
            time.sleep(5)


def _write_run_file(host: Host, path: str, content: str) -> None:
    folder = host.path(RUN_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    write_file(host, path, content.encode(), 0o600)


def _wait_for_restart(host: Host, former: t.Sequence[str]) -> None:
    """Wait until the kubelet has replaced the API server and the new one answers that it is ready."""
    import http.client
    import re
    import ssl

    manifest = read_text(host, API_SERVER) or ""
    found: State = dict(re.findall(r"--(advertise-address|secure-port)=(\S+)", manifest))
    until = time.monotonic() + READY_TIMEOUT
    context = ssl.create_default_context(cafile=host.path("/etc/kubernetes/pki/ca.crt"))
    while time.monotonic() < until:
        if set(reset.running(host, "kube-apiserver")) - set(former):
            address, port = found.get("advertise-address", "127.0.0.1"), int(found.get("secure-port", 6443))
            connection = http.client.HTTPSConnection(address, port, timeout=5, context=context)
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
        time.sleep(1)
    raise ResourceError(
        f"the API server on this host was not ready {READY_TIMEOUT} seconds after its configuration changed",
        "Read its log below /var/log/pods/kube-system_kube-apiserver-*, and correct the configuration.",
    )


KIND = KubeadmKind()
