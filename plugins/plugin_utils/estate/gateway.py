# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The way to the racks, with BGP: a VPN with certificates, or the connection to an ExpressRoute circuit."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.build import Builder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.services import Gateway, Peer

_NET = "Microsoft.Network"
_POLICY = {
    # What both ends agree to; without it Azure also offers SHA-1 and 1,024-bit groups.
    "ikeEncryption": "GCMAES256",
    "ikeIntegrity": "SHA384",
    "dhGroup": "ECP384",
    "ipsecEncryption": "GCMAES256",
    "ipsecIntegrity": "GCMAES256",
    "pfsGroup": "ECP384",
    "saLifeTimeSeconds": 27000,
    "saDataSizeKilobytes": 0,
}


def add_gateway(build: Builder) -> None:
    """Add the gateway with its connections."""
    gateway = build.estate.gateway
    if gateway is None:
        return
    made = _gateway(build, gateway)
    if gateway.kind == "express_route":
        _circuit(build, gateway, made)
    for peer in gateway.peers:
        _peer(build, peer, made)


def _gateway(build: Builder, gateway: Gateway) -> str:
    estate, vpn = build.estate, gateway.kind == "vpn"
    zones = {"zones": list(estate.zones)} if estate.zones else {}
    addresses = [
        build.add(
            f"{_NET}/publicIPAddresses",
            estate.name_of(f"gateway-{number}"),
            {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
            more={"sku": {"name": "Standard", "tier": "Regional"}, **zones},
        )
        # Both ends of an active-active VPN have an address, a gateway to a circuit one for Azure's own use.
        for number in ((1, 2) if vpn else (1,))
    ]
    configurations = [
        {
            "name": f"address-{number}",
            "properties": {
                "privateIPAllocationMethod": "Dynamic",
                "subnet": {"id": estate.subnets["gateway"].id},
                "publicIPAddress": {"id": address},
            },
        }
        for number, address in enumerate(addresses, 1)
    ]
    properties: dict[str, t.Any] = {
        "gatewayType": "Vpn" if vpn else "ExpressRoute",
        "sku": {"name": gateway.size, "tier": gateway.size},
        "ipConfigurations": configurations,
    }
    if vpn:
        properties |= {
            "vpnType": "RouteBased",
            "activeActive": True,
            "enableBgp": True,
            "bgpSettings": {"asn": gateway.asn},
        }
    identity = {"type": "UserAssigned", "userAssignedIdentities": {gateway.identity: {}}}
    return build.add(
        f"{_NET}/virtualNetworkGateways",
        estate.name_of("gateway"),
        properties,
        depends=addresses,
        # Its identity reads the certificate that it shows.
        more={"identity": identity} if gateway.peers else {},
    )


def _circuit(build: Builder, gateway: Gateway, made: str) -> None:
    build.add(
        f"{_NET}/connections",
        build.estate.name_of("connection-circuit"),
        {
            "connectionType": "ExpressRoute",
            "virtualNetworkGateway1": {"id": made, "properties": {}},
            "peer": {"id": gateway.circuit},
        },
        depends=[made],
    )


def _peer(build: Builder, peer: Peer, made: str) -> None:
    router = build.add(
        f"{_NET}/localNetworkGateways",
        build.estate.name_of(f"router-{peer.name}"),
        {
            "gatewayIpAddress": peer.address,
            # Networks are learned; the one that is not is where they are learned from.
            "localNetworkAddressSpace": {"addressPrefixes": [f"{peer.bgp_address}/32"]},
            "bgpSettings": {"asn": peer.asn, "bgpPeeringAddress": peer.bgp_address},
        },
    )
    build.add(
        f"{_NET}/connections",
        build.estate.name_of(f"connection-{peer.name}"),
        {
            "connectionType": "IPsec",
            "connectionProtocol": "IKEv2",
            "enableBgp": True,
            "virtualNetworkGateway1": {"id": made, "properties": {}},
            "localNetworkGateway2": {"id": router, "properties": {}},
            "ipsecPolicies": [_POLICY],
            # No shared key: it would be a secret in the deployment.
            "authenticationType": "Certificate",
            "certificateAuthentication": {
                "outboundAuthCertificate": peer.certificate,
                "inboundAuthCertificateSubjectName": peer.subject,
                "inboundAuthCertificateChain": list(peer.chain),
            },
        },
        depends=[made, router],
    )
