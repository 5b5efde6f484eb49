# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The cluster of a site: how to reach it, and what the inventory expects of it."""

from __future__ import annotations

import ssl
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.expectations import (
    Expected,
    ExpectedNode,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.nodes import Declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.smoke import GVISOR_RUNTIME_CLASS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.tls import client_context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import Store, open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import dual_stack
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host, Site


class Session:
    """One visit of the controller to the cluster.

    Args:
        site: from the inventory.
        folder: where a client key may be on disk for a moment, private to the run.
        longest_patience: seconds after which no request is sent again, whoever asks.
    """

    def __init__(self, site: Site, folder: str | Path | None = None, longest_patience: float = 3600) -> None:
        self.site = site
        self._folder = folder
        self._longest_patience = longest_patience
        self._store: Store | None = None
        self.other_addresses: dict[str, list[str]] = {}
        """Addresses of nodes that a slice of the inventory does not have, by name."""

    @property
    def store(self) -> Store:
        """The site's PKI store, opened when first needed."""
        if self._store is None:
            self._store = open_store(self.site.pki_store, self.site.pki_key_file or None)
        return self._store

    def kubeconfig(self, hours: float = 1, *, break_glass: bool = False) -> Object:
        """Return a kubeconfig with a fresh client certificate.

        The address is dialled, not the name: the controller need not resolve the names of every site.
        """
        site = self.site
        address = site.api_address if site.api_address != site.api_host else ""
        return self.store.admin_kubeconfig(site.api_endpoint, hours, address, break_glass)

    def api(self, patience: float = 30) -> Api:
        """Return a client; ``patience`` in seconds is how long a request that fails is sent again."""
        return Api.from_kubeconfig(self.kubeconfig(), self._folder, min(patience, self._longest_patience))

    def approver_api(self, patience: float = 30) -> Api:
        """Return a client that may decide about kubelets' serving certificates and nothing else."""
        site = self.site
        address = site.api_address if site.api_address != site.api_host else ""
        config = self.store.approver_kubeconfig(site.api_endpoint, address)
        return Api.from_kubeconfig(config, self._folder, min(patience, self._longest_patience))

    def api_of(self, host: Host, patience: float = 1) -> Api:
        """Return a client of one control plane's own API server, past the load balancer."""
        config = self.kubeconfig()
        cluster = config["clusters"][0]["cluster"]
        cluster["server"] = f"https://{host.address}:{host.variables['control_plane_port']}"
        cluster.pop("tls-server-name", None)
        return Api.from_kubeconfig(config, self._folder, min(patience, self._longest_patience))

    def etcd_context(self) -> ssl.SSLContext:
        """Return TLS to the etcd members, with a client certificate made for this visit."""
        pair = self.store.client_pair("etcd-client", "ironspan:controller")
        return client_context(
            self.store.ca("etcd").certificate_pem, pair.certificate_pem, pair.key_pem, self._folder
        )


def node_hosts(site: Site) -> list[Host]:
    """Return the hosts that are Kubernetes nodes, in inventory order."""
    return [host for host in site.hosts.values() if host.in_group("control_plane") or host.in_group("nodes")]


def all_node_addresses(session: Session) -> dict[str, list[str]]:
    """Return the same for the whole site, also where the inventory is a slice of it."""
    return {**session.other_addresses, **node_addresses(session.site)}


def node_addresses(site: Site) -> dict[str, list[str]]:
    """Return the addresses a node's serving certificate must have, by node name."""
    return {host.name: dual_stack.addresses(host) for host in node_hosts(site)}


def declared_nodes(site: Site) -> dict[str, Declared]:
    """Return labels and taints of all nodes as the inventory has them."""
    return {host.name: Declared(dict(host.labels), _taints(host)) for host in node_hosts(site)}


def _taints(host: Host) -> list[dict[str, str]]:
    return [
        {"key": taint.key, **({"value": taint.value} if taint.value else {}), "effect": taint.effect}
        for taint in host.taints
    ]


def expected(site: Site) -> Expected:
    """Return what verify compares the cluster with."""
    members = site.group("etcd")
    versions = {str(host.variables.get("etcd_version", "")) for host in members}
    return Expected(
        site=site.name,
        kubernetes_version=site.kubernetes_version,
        cluster_domain=site.cluster_domain,
        nodes=[
            ExpectedNode(
                host.name,
                host.address,
                host.kubernetes_version,
                host.in_group("control_plane"),
                any(each.name == GVISOR_RUNTIME_CLASS for each in site.runtime.of(host.groups)),
                host.site_group,
            )
            for host in node_hosts(site)
        ],
        etcd={host.name: host.address for host in members},
        etcd_version=versions.pop() if len(versions) == 1 else "",
    )
