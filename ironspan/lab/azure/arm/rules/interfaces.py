# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What has addresses in a virtual network: interfaces, load balancers, gateways, and what these need."""

from __future__ import annotations

from typing import Any

from ironspan.lab.azure.arm import ids
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.rules.addresses import place_all
from ironspan.lab.azure.arm.rules.common import Rules, Write, check_name, guid, in_use, named, reference
from ironspan.lab.azure.arm.state import Resource, State

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,78}[A-Za-z0-9_])?"


def _interface_check(write: Write) -> None:
    place_all(write, "ipConfigurations")


def _interface_complete(write: Write) -> None:
    write.keep(resourceGuid=guid(), macAddress=f"00-0D-3A-{guid()[:2]}-{guid()[:2]}-{guid()[:2]}".upper())
    write.default(
        enableAcceleratedNetworking=False, enableIPForwarding=False, disableTcpStateTracking=False,
        hostedWorkloads=[],
        nicType="Standard", allowPort25Out=True, auxiliaryMode="None", auxiliarySku="None",
        tapConfigurations=[],
    )  # fmt: skip
    write.properties.setdefault("dnsSettings", {}).setdefault("appliedDnsServers", [])
    if write.kept("properties", "virtualMachine"):
        write.properties["virtualMachine"] = write.kept("properties", "virtualMachine")
    for number, configuration in enumerate(named(write.properties.get("ipConfigurations"))):
        configuration["id"] = f"{write.id.text}/ipConfigurations/{configuration.get('name')}"
        properties = configuration.setdefault("properties", {})
        properties["provisioningState"] = "Succeeded"
        properties.setdefault("primary", number == 0)
        properties.setdefault("privateIPAddressVersion", "IPv4")


def _interface_deletable(state: State, resource: Resource) -> None:
    machine = reference(resource.properties.get("virtualMachine"))
    if machine and state.find(machine) is not None:
        raise ArmError(
            400,
            "NicInUse",
            f"Network Interface {resource.id} is used by existing resource {machine}. In order to delete "
            "the network interface, it must be dissociated from the resource.",
        )


def _balancer_check(write: Write) -> None:
    place_all(write, "frontendIPConfigurations")
    for pool in named(write.properties.get("backendAddressPools")):
        pool.get("properties", {}).pop("backendIPConfigurations", None)


def _balancer_complete(write: Write) -> None:
    write.keep(resourceGuid=guid())
    write.document.setdefault("sku", {}).setdefault("tier", "Regional")
    for name in ("inboundNatRules", "inboundNatPools", "outboundRules"):
        write.default(**{name: []})
    for name in ("frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes"):
        for item in named(write.properties.get(name)):
            item["id"] = f"{write.id.text}/{name}/{item.get('name')}"
            item.setdefault("properties", {})["provisioningState"] = "Succeeded"
    for frontend in named(write.properties.get("frontendIPConfigurations")):
        frontend["properties"].setdefault("privateIPAddressVersion", "IPv4")
    for rule in named(write.properties.get("loadBalancingRules")):
        for key, value in {
            "enableFloatingIP": False,
            "enableTcpReset": False,
            "idleTimeoutInMinutes": 4,
        }.items():
            rule["properties"].setdefault(key, value)
    for probe in named(write.properties.get("probes")):
        probe["properties"].setdefault("probeThreshold", 1)


def members(state: State, pool: str) -> list[dict[str, Any]]:
    """Return the ip configurations of interfaces that are in a backend pool, as the pool lists them."""
    found = []
    for one in state.of_type("Microsoft.Network/networkInterfaces"):
        for configuration in named(one.properties.get("ipConfigurations")):
            pools = named(configuration.get("properties", {}).get("loadBalancerBackendAddressPools"))
            if any(ids.same(pool_["id"], pool) for pool_ in pools if "id" in pool_):
                found.append({"id": configuration["id"]})
    return found


def _address_complete(write: Write) -> None:
    write.keep(resourceGuid=guid(), ipAddress="203.0.113.10")
    write.default(publicIPAddressVersion="IPv4", publicIPAllocationMethod="Static", idleTimeoutInMinutes=4)
    write.document.setdefault("sku", {}).setdefault("tier", "Regional")


def _nat_complete(write: Write) -> None:
    write.keep(resourceGuid=guid())
    write.default(idleTimeoutInMinutes=4)


def _gateway_preflight(write: Write) -> None:
    for configuration in named(write.properties.get("ipConfigurations")):
        subnet = reference(configuration.get("properties", {}).get("subnet"))
        if subnet and not subnet.lower().endswith("/subnets/gatewaysubnet"):
            raise ArmError(
                400,
                "VirtualNetworkGatewaySubnetNameInvalid",
                f"Virtual network gateway {write.id.text} must be in the subnet 'GatewaySubnet', found "
                f"{subnet}.",
            )


def _gateway_complete(write: Write) -> None:
    write.keep(resourceGuid=guid())
    write.default(enableBgp=False, activeActive=False, vpnGatewayGeneration="Generation2")
    for configuration in named(write.properties.get("ipConfigurations")):
        configuration["id"] = f"{write.id.text}/ipConfigurations/{configuration.get('name')}"
        configuration.setdefault("properties", {})["provisioningState"] = "Succeeded"


def _connection_complete(write: Write) -> None:
    write.keep(
        resourceGuid=guid(), connectionStatus="Unknown", egressBytesTransferred=0, ingressBytesTransferred=0
    )
    write.properties.pop("sharedKey", None)  # written, never shown
    write.default(routingWeight=0, enableBgp=False, connectionMode="Default")


def _named_only(write: Write) -> None:
    check_name(write, _NAME)


_TYPE = "Microsoft.Network"
RULES = {
    f"{_TYPE}/natGateways": Rules(
        _named_only, complete=_nat_complete, deletable=in_use("InUseNatGatewayCannotBeDeleted")
    ),
    f"{_TYPE}/publicIPAddresses": Rules(
        _named_only, complete=_address_complete, deletable=in_use("PublicIPAddressCannotBeDeleted")
    ),
    f"{_TYPE}/loadBalancers": Rules(
        _named_only, _balancer_check, _balancer_complete, deletable=in_use("InUseLoadBalancerCannotBeDeleted")
    ),
    f"{_TYPE}/networkInterfaces": Rules(
        _named_only, _interface_check, _interface_complete, deletable=_interface_deletable
    ),
    f"{_TYPE}/virtualNetworkGateways": Rules(
        _gateway_preflight,
        complete=_gateway_complete,
        deletable=in_use("VirtualNetworkGatewayCannotBeDeleted"),
    ),
    f"{_TYPE}/localNetworkGateways": Rules(
        _named_only, deletable=in_use("LocalNetworkGatewayCannotBeDeleted")
    ),
    f"{_TYPE}/connections": Rules(_named_only, complete=_connection_complete),
}
