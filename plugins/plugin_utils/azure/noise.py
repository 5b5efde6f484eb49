# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Azure's what-if shows as a difference and is none, one rule each, with its reason and source.

A rule hides only what the service adds by itself (the template does not name it, so what-if foresees that it
goes), or two spellings of one value. How many each has hidden stands in the plan. Whether a resource goes,
who may do what, what may be reached and what machines are made of is never hidden.
"""

from __future__ import annotations

import re
import typing as t

SPELLING: t.Final = "spelling"
"""The rule about two spellings of one value: case of ids and regions, order of what has names."""
EMPTY: t.Final = "empty"
"""The rule about what is empty, and is not written down: both are nothing."""
_ISSUES = "https://github.com/Azure/arm-template-whatif/issues/"
_NEVER_TYPES = re.compile(
    r"Microsoft\.Network/(networkSecurityGroups|routeTables)(/|\Z)|"
    r"Microsoft\.Authorization/|.*/immutabilityPolicies\Z",
    re.I,
)
_NEVER_PATHS = re.compile(
    r"(^|\.)(publicNetworkAccess|publicAccess|allowBlobPublicAccess|allowSharedKeyAccess|networkAcls|"
    r"networkSecurityGroup|routeTable|immutableStorageWithVersioning|immutabilityPolicy|"
    r"sku(?!\.tier)|zones|vmSize|imageReference(?!\.exactVersion)|identity|enablePurgeProtection|defaultOutboundAccess)(\.|\[|$)",
    re.I,
)


class Rule(t.NamedTuple):
    """One kind of noise.

    Args:
        name: of the rule, as the plan counts it.
        type: regular expression for the resource's type, without case.
        path: regular expression for the whole path of the property.
        reason: why it is none.
        source: where that was found.
        example: a type and a path that it hides.
    """

    name: str
    type: str
    path: str
    reason: str
    source: str
    example: tuple[str, str]


_ITEM = r"\[\d+\]"
RULES: t.Final[tuple[Rule, ...]] = (
    Rule(
        "read-only",
        r".*",
        r"(properties\.|.*\.properties\.)(provisioningState|resourceGuid|uniqueId|timeCreated|creationTime)|"
        r"(.*\.)?etag|systemData(\..*)?|managedBy(Extended)?",
        "the service sets it, and nobody can",
        f"{_ISSUES}6",
        ("Microsoft.Compute/disks", "properties.provisioningState"),
    ),
    Rule(
        "subnet-defaults",
        r"Microsoft\.Network/virtualNetworks",
        rf"properties\.privateEndpointVNetPolicies|properties\.subnets{_ITEM}\.properties\.(privateEndpointNetworkPolicies|"
        r"privateLinkServiceNetworkPolicies|ipConfigurations|ipConfigurationProfiles|privateEndpoints|"
        r"serviceAssociationLinks|resourceNavigationLinks|purpose)",
        "defaults of a subnet, and what uses it",
        f"{_ISSUES}284",
        (
            "Microsoft.Network/virtualNetworks",
            "properties.subnets[0].properties.privateLinkServiceNetworkPolicies",
        ),
    ),
    Rule(
        "interface-state",
        r"Microsoft\.Network/networkInterfaces",
        r"properties\.(macAddress|primary|virtualMachine|hostedWorkloads|tapConfigurations|"
        r"vnetEncryptionSupported|allowPort25Out|nicType|auxiliaryMode|auxiliarySku|disableTcpStateTracking|"
        rf"defaultOutboundConnectivityEnabled)(\..*)?|properties\.ipConfigurations{_ITEM}"
        r"\.properties\.(primary|privateIPAddressVersion|privateLinkConnectionProperties)",
        "the interface's own state and defaults",
        f"{_ISSUES}279",
        ("Microsoft.Network/networkInterfaces", "properties.macAddress"),
    ),
    Rule(
        "endpoint-state",
        r"Microsoft\.Network/privateEndpoints",
        r"properties\.(ipVersionType|networkInterfaces|customDnsConfigs|manualPrivateLinkServiceConnections|"
        rf"ipConfigurations)|properties\.privateLinkServiceConnections{_ITEM}\.properties\."
        r"privateLinkServiceConnectionState(\..*)?",
        "what the endpoint has become",
        f"{_ISSUES}279",
        ("Microsoft.Network/privateEndpoints", "properties.networkInterfaces"),
    ),
    Rule(
        "zone-records",
        r"Microsoft\.Network/privateEndpoints/privateDnsZoneGroups",
        rf"properties\.privateDnsZoneConfigs{_ITEM}\.properties\.recordSets",
        "the records that the group has made",
        f"{_ISSUES}279",
        (
            "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
            "properties.privateDnsZoneConfigs[0].properties.recordSets",
        ),
    ),
    Rule(
        "pool-members",
        r"Microsoft\.Network/loadBalancers",
        rf"properties\.backendAddressPools{_ITEM}\.properties\.(loadBalancerBackendAddresses|"
        rf"backendIPConfigurations|loadBalancingRules)|properties\.(frontendIPConfigurations|probes)"
        rf"{_ITEM}\.properties\.(loadBalancingRules|privateIPAddressVersion)|properties\.inboundNat\w+",
        "members of the pool come from the interfaces, never from the load balancer",
        "https://github.com/Azure/bicep-registry-modules/issues/2512",
        (
            "Microsoft.Network/loadBalancers",
            "properties.backendAddressPools[0].properties.loadBalancerBackendAddresses",
        ),
    ),
    Rule(
        "gateway-state",
        r"Microsoft\.Network/(virtualNetworkGateways|connections|natGateways|publicIPAddresses)",
        r"properties\.(bgpSettings\.bgpPeeringAddresses|connectionStatus|ingressBytesTransferred|"
        rf"egressBytesTransferred|subnets|ipConfiguration|ipAddress|ddosSettings)(\..*|{_ITEM}.*)?",
        "addresses that the service gave, counters, and who uses it",
        f"{_ISSUES}6",
        ("Microsoft.Network/publicIPAddresses", "properties.ipAddress"),
    ),
    Rule(
        "machine-defaults",
        r"Microsoft\.Compute/virtualMachines",
        r"properties\.(vmId|osProfile\.(requireGuestProvisionSignal|allowExtensionOperations|secrets)|"
        r"osProfile\.linuxConfiguration\.(provisionVMAgent|patchSettings)(\..*)?|"
        r"storageProfile\.osDisk\.(name|osType|diskSizeGB|managedDisk\.(id|resourceGroup))|"
        r"storageProfile\.imageReference\.exactVersion|"
        rf"storageProfile\.dataDisks{_ITEM}\.(name|diskSizeGB|toBeDetached|managedDisk\.storageAccountType)|"
        r"extensionsTimeBudget)|resources",
        "names and defaults that the service gives",
        f"{_ISSUES}6",
        ("Microsoft.Compute/virtualMachines", "properties.storageProfile.osDisk.managedDisk.id"),
    ),
    Rule(
        "scale-set-defaults",
        r"Microsoft\.Compute/virtualMachineScaleSets",
        r"properties\.(virtualMachineProfile\.(timeCreated|osProfile\.(requireGuestProvisionSignal|"
        r"allowExtensionOperations)|osProfile\.linuxConfiguration\.(provisionVMAgent|patchSettings)(\..*)?)|"
        r"singlePlacementGroup|upgradePolicy\.(rollingUpgradePolicy|automaticOSUpgradePolicy)(\..*)?)",
        "defaults that the service gives",
        f"{_ISSUES}6",
        ("Microsoft.Compute/virtualMachineScaleSets", "properties.virtualMachineProfile.timeCreated"),
    ),
    Rule(
        "disk-state",
        r"Microsoft\.Compute/disks",
        r"properties\.(diskState|diskSizeBytes|lastOwnershipUpdateTime)",
        "what the disk is doing",
        f"{_ISSUES}6",
        ("Microsoft.Compute/disks", "properties.diskState"),
    ),
    Rule(
        "identity-ids",
        r"Microsoft\.ManagedIdentity/userAssignedIdentities",
        r"properties\.(principalId|clientId|tenantId|isolationScope)",
        "ids that the tenant gave",
        f"{_ISSUES}6",
        ("Microsoft.ManagedIdentity/userAssignedIdentities", "properties.principalId"),
    ),
    Rule(
        "account-state",
        r"Microsoft\.Storage/storageAccounts",
        r"sku\.tier|properties\.(primaryEndpoints|secondaryEndpoints|primaryLocation|secondaryLocation|"
        r"statusOfPrimary|statusOfSecondary|keyCreationTime|privateEndpointConnections|"
        r"accountMigrationInProgress)(\..*)?",
        "addresses and state of the account",
        f"{_ISSUES}6",
        ("Microsoft.Storage/storageAccounts", "properties.primaryEndpoints"),
    ),
    Rule(
        "container-state",
        r"Microsoft\.Storage/storageAccounts/blobServices(/containers)?",
        r"properties\.(lastModifiedTime|leaseState|leaseStatus|hasLegalHold|hasImmutabilityPolicy|"
        r"remainingRetentionDays|deleted|defaultEncryptionScope|denyEncryptionScopeOverride|cors)(\..*)?",
        "state and defaults of the container",
        f"{_ISSUES}6",
        ("Microsoft.Storage/storageAccounts/blobServices/containers", "properties.leaseState"),
    ),
    Rule(
        "vault-state",
        r"Microsoft\.KeyVault/vaults(/keys)?",
        r"properties\.(vaultUri|hsmPoolResourceId|privateEndpointConnections|keyUri|keyUriWithVersion|"
        r"attributes\.(created|updated|recoveryLevel|enabled|exportable))",
        "addresses and state of the vault",
        f"{_ISSUES}6",
        ("Microsoft.KeyVault/vaults", "properties.vaultUri"),
    ),
    Rule(
        "zone-counts",
        r"Microsoft\.Network/privateDnsZones(/.*)?",
        r"properties\.(maxNumberOf\w+|numberOf\w+|internalId|virtualNetworkLinkState|fqdn|isAutoRegistered)",
        "limits and counts of the zone",
        f"{_ISSUES}6",
        ("Microsoft.Network/privateDnsZones", "properties.numberOfRecordSets"),
    ),
)


def never_hidden(type_: str, path: str) -> bool:
    """Tell whether a difference is shown whatever rules say."""
    return bool(_NEVER_TYPES.match(type_) or _NEVER_PATHS.search(path))


def rule_for(type_: str, path: str, kind: str, before: t.Any, after: t.Any) -> str:
    """Return the name of the rule that hides a difference, "" when it is shown.

    Args:
        type_: of the resource.
        path: of the property.
        kind: of its change: create, delete or modify.
        before: its value.
        after: the value that the template gives it.
    """
    if kind == "modify" and before is not None and same(before, after):
        return SPELLING
    if kind == "delete" and before in (None, "", [], {}):
        return EMPTY
    if kind != "delete" or never_hidden(type_, path):
        return ""
    found = (
        rule.name
        for rule in RULES
        if re.fullmatch(rule.type, type_, re.I) and re.fullmatch(rule.path, path, re.I)
    )
    return next(found, "")


def same(before: t.Any, after: t.Any) -> bool:
    """Tell whether two values differ in spelling at most."""
    return bool(_plain(before) == _plain(after))


_ID = re.compile(r"/(subscriptions|providers)/", re.I)


def _plain(value: t.Any) -> t.Any:
    if isinstance(value, str):
        return value.lower() if _ID.match(value) else value
    if isinstance(value, dict):
        return {
            key: one.replace(" ", "").lower() if key == "location" and isinstance(one, str) else _plain(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        if value and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in value):
            names = [one["name"].lower() for one in value]
            if len(set(names)) == len(names):
                return {name: _plain(one) for name, one in zip(names, value, strict=True)}
        return [_plain(one) for one in value]
    return value
