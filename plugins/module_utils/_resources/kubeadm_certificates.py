# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``kubeadm_certificates``: what kubeadm signed on a control plane has the right issuer, and lasts.

kubeadm renews what kubeadm made. The API server reads its certificates again by itself; the others read their
kubeconfig once and are restarted, one of each in the whole cluster being the leader.
"""

from __future__ import annotations

import socket
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeconfig
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_reset import running
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_run import (
    init_inputs,
    kubeadm,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text, signature
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.certificate import (
    describe,
    difference,
    issuer_by_key,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Field,
    Host,
    ResourceError,
    Spec,
    State,
)


class Leaf(t.NamedTuple):
    """A certificate by the name that ``kubeadm certs renew`` has for it.

    Args:
        name: that name; one that ends in .conf is a kubeconfig.
        authority: who signs it.
        reader: the program that reads it once, "" if it is read again by itself.
        port: where that program listens.
    """

    name: str
    authority: str = "kubernetes"
    reader: str = ""
    port: int = 0

    @property
    def path(self) -> str:
        """The file."""
        folder = "/etc/kubernetes" if self.is_kubeconfig else "/etc/kubernetes/pki"
        return f"{folder}/{self.name}{'' if self.is_kubeconfig else '.crt'}"

    @property
    def is_kubeconfig(self) -> bool:
        """Whether it is embedded in a kubeconfig."""
        return self.name.endswith(".conf")


LEAVES = (
    Leaf("apiserver"),
    Leaf("apiserver-kubelet-client"),
    Leaf("front-proxy-client", "front-proxy"),
    Leaf("admin.conf"),
    Leaf("super-admin.conf"),
    Leaf("controller-manager.conf", reader="kube-controller-manager", port=10257),
    Leaf("scheduler.conf", reader="kube-scheduler", port=10259),
)
AUTHORITY_FILES = {
    "kubernetes": "/etc/kubernetes/pki/ca.crt",
    "front-proxy": "/etc/kubernetes/pki/front-proxy-ca.crt",
}
RESTART_TIMEOUT = 120
"""Seconds: the kubelet starts a container again at once, or after 10 to 40 s if that happened just before."""


class KubeadmCertificatesKind:
    """Runs ``kubeadm certs renew`` for what is due, and restarts what would not notice."""

    name = "kubeadm_certificates"
    fields: t.Mapping[str, Field] = {
        "issuers": Field((dict,), required=True),
        "kubeadm": Field((str,), required=True),
        "renew_before_days": Field((int,), default=30),
    }

    def check(self, spec: Spec) -> t.List[str]:
        """Both authorities must be named."""
        missing = sorted(set(AUTHORITY_FILES) - set(spec["issuers"]))
        return [f"issuers: {name} is missing" for name in missing]

    def compare(self, spec: Spec, host: Host) -> t.Optional[Change]:
        """Compare each file that is there; those of a host that is no control plane yet are not."""
        before: State = {}
        after: State = {}
        reasons = []
        for leaf, found, reason in self._due(spec, host):
            before[leaf.name], after[leaf.name] = found, "renewed"
            reasons.append(f"{leaf.name}: {reason}")
        for leaf in self._distrusting(host):
            after.setdefault(leaf.name, "trusts other authorities")
            before.setdefault(leaf.name, "trusts")
            reasons.append(f"{leaf.name}: trusts other authorities")
        return Change("update", before, after, "; ".join(reasons)) if after else None

    def apply(self, spec: Spec, change: Change, host: Host) -> None:
        """Renew, and restart the readers of what changed."""
        due = [leaf for leaf, _, _ in self._due(spec, host)]
        for leaf in due:
            host.backup(leaf.path)
            if not leaf.is_kubeconfig:
                host.backup(leaf.path[: -len("crt")] + "key")
        if due:
            with init_inputs(host.note(spec["kubeadm"]).get("config", ""), host):
                for leaf in due:
                    kubeadm(host, "certs", "renew", leaf.name)
        distrusting = self._distrusting(host)
        for leaf in distrusting:
            host.backup(leaf.path)
            # kubeadm writes the first certificate of the file only.
            _kubeconfig.trust(host, leaf.path, read_text(host, AUTHORITY_FILES["kubernetes"]) or "")
        for leaf in LEAVES:
            if leaf.reader and (leaf in due or leaf in distrusting or leaf.name in change.after):
                restart(host, leaf)

    def undo(self, spec: Spec, change: Change, host: Host) -> None:
        """Nothing: the files come back by themselves."""

    def settle(self, spec: Spec, change: Change, host: Host) -> None:
        """Let the readers have the former files again."""
        for leaf in LEAVES:
            if leaf.reader and leaf.name in change.after:
                restart(host, leaf)

    def _due(self, spec: Spec, host: Host) -> t.List[t.Tuple[Leaf, State, str]]:
        found = []
        known = host.note(spec["id"])
        notes: State = {}
        for leaf in LEAVES:
            stamp = signature(host, leaf.path)
            if stamp is None:
                continue
            issuer = spec["issuers"][leaf.authority]
            note = known.get(leaf.name) or {}
            if note.get("signature") != stamp or note.get("wanted") != issuer:
                note = _facts(leaf, issuer, host)
                note.update(signature=stamp, wanted=issuer)
            notes[leaf.name] = note
            # Its names are kubeadm's business: they follow its configuration.
            same = {"common_name": note["common_name"], "organizations": note["organizations"]}
            facts = {**note, "names": []}
            before, after, reason = difference(facts, same, note["public"], issuer, spec["renew_before_days"])
            if after:
                found.append((leaf, before, reason))
        if notes != known:
            # An authority that is not in its file yet may be in this same run: ask again then.
            host.remember(spec["id"], {name: note for name, note in notes.items() if note["issuer_sha256"]})
        return found

    def _distrusting(self, host: Host) -> t.List[Leaf]:
        authority = read_text(host, AUTHORITY_FILES["kubernetes"])
        return [
            leaf
            for leaf in LEAVES
            if leaf.is_kubeconfig and authority and not _kubeconfig.trusts(host, leaf.path, authority)
        ]


def _facts(leaf: Leaf, issuer: str, host: Host) -> State:
    text = read_text(host, leaf.path) or ""
    if leaf.is_kubeconfig:
        text = _kubeconfig.embedded(text, _kubeconfig.CLIENT)
    facts = describe(host, text)
    facts["issuer_sha256"] = issuer_by_key(host, facts, AUTHORITY_FILES[leaf.authority], issuer)
    return facts


def restart(host: Host, leaf: Leaf) -> None:
    """End the program that read a kubeconfig and wait until the kubelet has started it again.

    Args:
        host: the host.
        leaf: whose reader it is.

    Raises:
        ResourceError: it did not come back within ``RESTART_TIMEOUT``.
    """
    former = set(running(host, leaf.reader))
    if not former:
        # The kubelet tries to start it all the time, and it will read the new file then.
        return
    host.run(["kill", "-TERM", *sorted(former)], check=False)
    until = time.monotonic() + RESTART_TIMEOUT
    while time.monotonic() < until:
        if set(running(host, leaf.reader)) - former and _listens(leaf.port):
            return
        time.sleep(0.5)
    raise ResourceError(
        f"{leaf.reader} did not come back within {RESTART_TIMEOUT} seconds with its new certificate",
        f"Read its log below /var/log/pods/kube-system_{leaf.reader}-*, and 'journalctl -u kubelet'.",
    )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


KIND = KubeadmCertificatesKind()
