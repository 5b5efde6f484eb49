# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The resource types there are: their versions, the model of their bodies, and how they answer.

Versions are those that the installed azure-mgmt libraries send; the status codes are those that these accept.
"""

from __future__ import annotations

from dataclasses import dataclass

from ironspan.lab.azure.arm.errors import ArmError

_NETWORK = "azure.mgmt.network.models"
_COMPUTE = "azure.mgmt.compute.models"
_STORAGE = "azure.mgmt.storage.models"
_DNS = "azure.mgmt.privatedns.models"
_VAULT = "azure.mgmt.keyvault.models"
_IDENTITY = "azure.mgmt.msi.v2024_11_30.models"
_ROLES = "azure.mgmt.authorization.v2022_04_01.models"


@dataclass(frozen=True)
class Kind:
    """A resource type.

    Attributes:
        type: Its name as Azure writes it.
        model: "package:class" that describes a body.
        versions: Accepted api-versions.
        created, updated, deleted: Statuses of the answers; 204 of a delete is for what is not there.
        seconds: How long creating it takes at pace 1; 0 is answered at once, without an operation.
        location: Whether a body names its region ("required"), has "global", or none.
        tagged: Whether it takes tags.
    """

    type: str
    model: str
    versions: tuple[str, ...]
    created: int = 201
    updated: int = 200
    deleted: int = 202
    seconds: float = 3.0
    location: str = "required"
    tagged: bool = True

    @property
    def provider(self) -> str:
        """Namespace."""
        return self.type.partition("/")[0]


def _network(name: str, model: str, seconds: float = 3.0) -> Kind:
    return Kind(f"Microsoft.Network/{name}", f"{_NETWORK}:{model}", ("2026-03-01",), seconds=seconds)


def _child(type: str, model: str, version: str, created: int = 201, seconds: float = 0.0) -> Kind:
    deleted = 202 if seconds else 200
    return Kind(type, model, (version,), created, 200, deleted, seconds, location="none", tagged=False)


_ALL = (
    Kind(
        "Microsoft.Resources/resourceGroups", "azure.mgmt.resource.resources.models:ResourceGroup",
        ("2025-04-01", "2024-11-01", "2022-09-01", "2021-04-01"), seconds=0.0,
    ),
    Kind(
        "Microsoft.Resources/deployments", "azure.mgmt.resource.deployments.models:Deployment",
        ("2026-06-01", "2025-04-01", "2022-09-01"), location="optional",
    ),
    _network("virtualNetworks", "VirtualNetwork", 4),
    _child("Microsoft.Network/virtualNetworks/subnets", f"{_NETWORK}:Subnet", "2026-03-01", seconds=3),
    _network("networkSecurityGroups", "NetworkSecurityGroup"),
    _network("routeTables", "RouteTable"),
    _network("natGateways", "NatGateway", 10),
    _network("publicIPAddresses", "PublicIPAddress", 3),
    _network("loadBalancers", "LoadBalancer"),
    _network("networkInterfaces", "NetworkInterface"),
    _network("privateEndpoints", "PrivateEndpoint", 30),
    _child(
        "Microsoft.Network/privateEndpoints/privateDnsZoneGroups", f"{_NETWORK}:PrivateDnsZoneGroup",
        "2026-03-01", seconds=5,
    ),
    _network("virtualNetworkGateways", "VirtualNetworkGateway", 1800),
    _network("localNetworkGateways", "LocalNetworkGateway", 5),
    _network("connections", "VirtualNetworkGatewayConnection", 30),
    Kind(
        "Microsoft.Network/privateDnsZones", f"{_DNS}:PrivateZone", ("2024-06-01",), seconds=20,
        location="global",
    ),
    Kind(
        "Microsoft.Network/privateDnsZones/virtualNetworkLinks", f"{_DNS}:VirtualNetworkLink",
        ("2024-06-01",), seconds=20, location="global",
    ),
    _child("Microsoft.Network/privateDnsZones/A", f"{_DNS}:RecordSet", "2024-06-01"),
    Kind(
        "Microsoft.Compute/availabilitySets", f"{_COMPUTE}:AvailabilitySet", ("2026-04-01",), created=200,
        updated=200, deleted=200, seconds=0.0,
    ),
    Kind(
        "Microsoft.Compute/virtualMachines", f"{_COMPUTE}:VirtualMachine", ("2026-04-01",), seconds=45
    ),
    Kind(
        "Microsoft.Compute/virtualMachines/runCommands", f"{_COMPUTE}:VirtualMachineRunCommand",
        ("2026-04-01",), seconds=10,
    ),
    Kind(
        "Microsoft.Compute/virtualMachineScaleSets", f"{_COMPUTE}:VirtualMachineScaleSet", ("2026-04-01",),
        seconds=20,
    ),
    Kind(
        "Microsoft.Compute/disks", f"{_COMPUTE}:Disk", ("2026-03-02",), created=202, updated=202, seconds=3
    ),
    Kind(
        "Microsoft.ManagedIdentity/userAssignedIdentities", f"{_IDENTITY}:Identity", ("2024-11-30",),
        deleted=200, seconds=0.0,
    ),
    _child(
        "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials",
        f"{_IDENTITY}:FederatedIdentityCredential", "2024-11-30",
    ),
    Kind(
        "Microsoft.Authorization/roleDefinitions", f"{_ROLES}:RoleDefinition", ("2022-04-01",),
        updated=201, deleted=200, seconds=0.0, location="none", tagged=False,
    ),
    Kind(
        "Microsoft.Authorization/roleAssignments", f"{_ROLES}:RoleAssignmentCreateParameters",
        ("2022-04-01",), deleted=200, seconds=0.0, location="none", tagged=False,
    ),
    Kind(
        "Microsoft.KeyVault/vaults", f"{_VAULT}:VaultCreateOrUpdateParameters",
        ("2026-05-15", "2015-11-01"), deleted=200, seconds=20,
    ),
    Kind(
        "Microsoft.KeyVault/vaults/keys", f"{_VAULT}:KeyCreateParameters", ("2026-05-15",), created=200,
        seconds=0.0, location="none",
    ),
    Kind(
        "Microsoft.Storage/storageAccounts", f"{_STORAGE}:StorageAccountCreateParameters", ("2026-09-01",),
        created=202, deleted=200, seconds=20,
    ),
    _child(
        "Microsoft.Storage/storageAccounts/blobServices", f"{_STORAGE}:BlobServiceProperties", "2026-09-01",
        created=200,
    ),
    _child(
        "Microsoft.Storage/storageAccounts/blobServices/containers", f"{_STORAGE}:BlobContainer", "2026-09-01"
    ),
    _child(
        "Microsoft.Storage/storageAccounts/blobServices/containers/immutabilityPolicies",
        f"{_STORAGE}:ImmutabilityPolicy", "2026-09-01", created=200,
    ),
    _child(
        "Microsoft.Storage/storageAccounts/managementPolicies", f"{_STORAGE}:ManagementPolicy", "2026-09-01",
        created=200,
    ),
)  # fmt: skip
_BY_TYPE = {kind.type.lower(): kind for kind in _ALL}
#: Namespaces of resource providers; those of the resource manager itself need no registration.
PROVIDERS = tuple(sorted({kind.provider for kind in _ALL}))
ALWAYS_REGISTERED = ("Microsoft.Resources", "Microsoft.Authorization")


def every() -> tuple[Kind, ...]:
    """All types."""
    return _ALL


def known(type: str) -> Kind | None:
    """Return a type by its name, without case."""
    return _BY_TYPE.get(type.lower())


def find(type: str) -> Kind:
    """Return a type by its name. Raises ArmError."""
    kind = known(type)
    if kind is None:
        provider, _, name = type.partition("/")
        if provider.lower() not in (one.lower() for one in PROVIDERS):
            raise ArmError(
                404, "InvalidResourceNamespace", f"The resource namespace '{provider}' is invalid."
            )
        raise ArmError(
            404,
            "InvalidResourceType",
            f"The resource type '{name}' could not be found in the namespace '{provider}'.",
        )
    return kind


def check_version(kind: Kind, version: str, location: str = "") -> None:
    """Refuse an api-version that the type does not have. Raises ArmError."""
    if version not in kind.versions:
        raise ArmError(
            400,
            "NoRegisteredProviderFound",
            f"No registered resource provider found for location '{location}' and API version '{version}' "
            f"for type '{kind.type.partition('/')[2]}'. The supported api-versions are "
            f"'{', '.join(kind.versions)}'.",
        )
