# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Finds in a cluster whom people mean: pods by name or address, the pods of a service, nodes."""

from __future__ import annotations

import functools
import ipaddress
import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium.state import GROUP, KINDS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Address,
    Endpoint,
    Network,
    Port,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.questions import (
    Pod,
    QuestionError,
    Service,
)

_ENDED = ("Succeeded", "Failed")
_SERVICE_LABEL = "kubernetes.io/service-name"
_CILIUM = f"/apis/{GROUP}/v2"


class Backend(t.NamedTuple):
    """One pod, or one address, that a service stands for.

    Args:
        endpoint: who takes the connection.
        address: the address that the packet is sent to.
        port: the port that the packet is sent to.
    """

    endpoint: Endpoint
    address: Address
    port: int


class Lookup:
    """Reads one cluster; what was read once is not read again.

    Args:
        api: of the cluster.
        hosts: names of nodes by their addresses in the inventory.
        cilium: whether Cilium gives pods their addresses; then a node's part of the pod network stands in its
            CiliumNode, and what its Node says is nobody's.
    """

    def __init__(self, api: Api, hosts: Mapping[str, str], cilium: bool = False) -> None:
        self._api = api
        self._cilium = cilium
        self._hosts = {ipaddress.ip_address(address): name for address, name in hosts.items()}

    def pod(self, pod: Pod) -> Endpoint:
        """Return a pod that runs.

        Raises:
            QuestionError: there is none, or it has no address.
        """
        found = self._api.find(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        if found is None:
            raise QuestionError(f"There is no pod {pod}.", f"Look: kubectl -n {pod.namespace} get pods.")
        if found["status"].get("phase") in _ENDED or not found["status"].get("podIP"):
            phase = found["status"].get("phase", "Unknown")
            raise QuestionError(f"The pod {pod} has no address ({phase}).", "Ask when it runs.")
        return self._endpoint(found)

    def at(self, address: Address) -> Endpoint | Service:
        """Return who has an address: a pod, a service, a node, or somebody outside."""
        for pod in self._pods_at(address):
            if pod["status"].get("phase") not in _ENDED and not pod["spec"].get("hostNetwork"):
                return self._endpoint(pod)
        for service in self._services_at(address):
            return Service(service["metadata"]["namespace"], service["metadata"]["name"])
        return self._elsewhere(address)

    def _pods_at(self, address: Address) -> list[Object]:
        found = self._api.get("/api/v1/pods", fieldSelector=f"status.podIP={address}")["items"]
        nodes = [name for name, parts in self.node_parts.items() if any(address in part for part in parts)]
        if found or not nodes:
            return list(found)
        # The API finds pods by their first address only.
        there = self._api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={nodes[0]}")["items"]
        return [pod for pod in there if {"ip": str(address)} in (pod["status"].get("podIPs") or ())]

    def _services_at(self, address: Address) -> list[Object]:
        found = self._api.get("/api/v1/services", fieldSelector=f"spec.clusterIP={address}")["items"]
        if found or address.version == ipaddress.IPv4Address(0).version:
            return list(found)
        every = self._api.get("/api/v1/services")["items"]
        return [each for each in every if str(address) in (each["spec"].get("clusterIPs") or ())]

    def backends(self, service: Service, protocol: str, port: int | str) -> list[Backend]:
        """Return whom a service stands for.

        Args:
            service: its name.
            protocol: ``TCP``, ``UDP`` or ``SCTP``.
            port: of the service, its number or its name.

        Raises:
            QuestionError: there is no such service, or it has no such port.
        """
        name = f"{service.namespace}/{service.name}"
        found = self._api.find(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        if found is None:
            raise QuestionError(
                f"There is no service {name}.", f"Look: kubectl -n {service.namespace} get services."
            )
        if found["spec"].get("type") == "ExternalName":
            other = found["spec"]["externalName"]
            raise QuestionError(f"The service {name} is another name of {other}.", f"Ask for {other}.")
        ports = found["spec"].get("ports") or ()
        wanted = [
            each
            for each in ports
            if port in (each["port"], each.get("name")) and each["protocol"] == protocol
        ]
        if not wanted:
            there = ", ".join(f"{each['port']}/{each['protocol'].lower()}" for each in ports) or "none"
            raise QuestionError(
                f"The service {name} has no port {port}/{protocol.lower()}.", f"It has: {there}."
            )
        slices = self._api.get(
            f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices",
            labelSelector=f"{_SERVICE_LABEL}={service.name}",
        )["items"]
        return [made for each in slices for made in self._of_slice(each, wanted[0].get("name") or "")]

    def _of_slice(self, found: Object, port_name: str) -> Iterable[Backend]:
        ports = [each for each in found.get("ports") or () if (each.get("name") or "") == port_name]
        if not ports or found["addressType"] == "FQDN":
            return
        for each in found.get("endpoints") or ():
            # What is not said counts as ready (discovery.k8s.io/v1, EndpointConditions).
            if (each.get("conditions") or {}).get("ready") is False:
                continue
            for text in each["addresses"]:
                address = ipaddress.ip_address(text)
                target = each.get("targetRef") or {}
                if target.get("kind") == "Pod":
                    endpoint = self.pod(Pod(target["namespace"], target["name"]))
                else:
                    endpoint = self._elsewhere(address)
                yield Backend(endpoint, address, int(ports[0]["port"]))

    def policies(self, namespace: str) -> list[Object]:
        """Return the network policies of a namespace, by name."""
        return self._policies(namespace)

    def cilium_policies(self, namespace: str) -> list[Object]:
        """Return the policies of Cilium's own kinds for a namespace: its own, then those of the cluster."""
        narrow, wide = KINDS
        return [
            policy
            for path in (f"{_CILIUM}/namespaces/{namespace}/{narrow}", f"{_CILIUM}/{wide}")
            for policy in self._listed(path)
        ]

    @functools.lru_cache(maxsize=64)  # noqa: B019, one of these lives as long as one question
    def _listed(self, path: str) -> list[Object]:
        # The kinds are made by Cilium's operator; before it has run there are none.
        found = (self._api.find(path) or {}).get("items") or ()
        return sorted(found, key=lambda item: str(item["metadata"]["name"]))

    @functools.cached_property
    def node_parts(self) -> dict[str, tuple[Network, ...]]:
        """Each node's parts of the pod networks, by node name."""
        if self._cilium:
            return {
                node["metadata"]["name"]: tuple(
                    map(ipaddress.ip_network, (node["spec"].get("ipam") or {}).get("podCIDRs") or ())
                )
                for node in self._listed(f"{_CILIUM}/ciliumnodes")
            }
        return {
            node["metadata"]["name"]: tuple(
                ipaddress.ip_network(text)
                for text in node["spec"].get("podCIDRs") or filter(None, [node["spec"].get("podCIDR")])
            )
            for node in self._api.get("/api/v1/nodes")["items"]
        }

    def own_addresses(self, node: str) -> set[Address]:
        """Return a host's addresses: that of the inventory, of its tunnel and of its bridge."""
        own = {address for address, name in self._hosts.items() if name == node}
        if self._cilium:
            return own | {
                ipaddress.ip_address(address["ip"])
                for each in self._listed(f"{_CILIUM}/ciliumnodes")
                if each["metadata"]["name"] == node
                for address in each["spec"].get("addresses") or ()
            }
        for part in self.node_parts.get(node, ()):
            # The first address of a node's part is the tunnel's, the second one the bridge's.
            own |= {part.network_address, part.network_address + 1}
        return own

    def _elsewhere(self, address: Address) -> Endpoint:
        for node in sorted({*self._hosts.values(), *self.node_parts}):
            if address in self.own_addresses(node):
                return Endpoint(f"host {node}", (address,), node=node, host_network=True)
        return Endpoint(str(address), (address,))

    def _endpoint(self, pod: Object) -> Endpoint:
        meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
        texts = [each["ip"] for each in status.get("podIPs") or ({"ip": status["podIP"]},)]
        return Endpoint(
            name=f"{meta['namespace']}/{meta['name']}",
            addresses=tuple(map(ipaddress.ip_address, texts)),
            namespace=meta["namespace"],
            labels=meta.get("labels") or {},
            namespace_labels=self._namespace_labels(meta["namespace"]),
            node=spec.get("nodeName", ""),
            host_network=bool(spec.get("hostNetwork")),
            ports=tuple(_named_ports(spec)),
            service_account=spec.get("serviceAccountName", ""),
        )

    @functools.lru_cache(maxsize=64)  # noqa: B019, one of these lives as long as one question
    def _namespace_labels(self, namespace: str) -> Mapping[str, str]:
        found = self._api.get(f"/api/v1/namespaces/{namespace}")
        return dict(found["metadata"].get("labels") or {})

    @functools.lru_cache(maxsize=64)  # noqa: B019, one of these lives as long as one question
    def _policies(self, namespace: str) -> list[Object]:
        path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        return sorted(self._api.get(path)["items"], key=lambda policy: str(policy["metadata"]["name"]))


def _named_ports(spec: Object) -> Iterable[Port]:
    # Containers that run beside the others may be init containers that restart always.
    aside = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    for container in (*(spec.get("containers") or ()), *aside):
        for port in container.get("ports") or ():
            if port.get("name"):
                yield Port(port["name"], port.get("protocol") or "TCP", int(port["containerPort"]))
