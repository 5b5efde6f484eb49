# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual machines of a site as Azure lists them, and their SSH host keys as it reads them."""

from __future__ import annotations

import collections
import concurrent.futures
import ipaddress
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.answers import asked
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import Connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest, mapping, sequence
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.tags import HOST, POOL, SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.versions import api_version
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

_MACHINES, _INTERFACES = "Microsoft.Compute/virtualMachines", "Microsoft.Network/networkInterfaces"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_KEY = re.compile(
    r"^(ssh-ed25519|ecdsa-sha2-nistp(?:256|384|521)|ssh-rsa) ([A-Za-z0-9+/]{40,2000}={0,3})(?= |$)", re.M
)
_AT_ONCE = 10
DEVICES = "etcd_disk_devices"
"""The variable with the paths of the disk that a member of etcd has to itself."""
_SCRIPT = ("cat /etc/ssh/ssh_host_*_key.pub",)


class Seen(t.NamedTuple):
    """A virtual machine that is there.

    Args:
        id: its resource id.
        identity: what no other machine ever has, also one of the same name.
        name: of the host.
        address: private; "" when it has none yet.
        region: of Azure.
        zone: "" for none.
        pool: that it is an instance of; "" for a machine of its own.
        state: of its provisioning, in lower case.
    """

    id: str
    identity: str
    name: str
    address: str
    region: str
    zone: str
    pool: str
    state: str

    @property
    def ready(self) -> bool:
        """Whether it can be logged in to."""
        return self.state == "succeeded" and bool(self.address)

    @property
    def group(self) -> str:
        """Its resource group, in lower case: Azure writes it in more than one way."""
        parts = self.id.lower().split("/")
        return parts[4] if len(parts) > 4 and parts[3] == "resourcegroups" else ""


def listed(rest: Rest, site: str) -> list[Seen]:
    """Return all machines of a site, in two lists of Azure's: machines, and their interfaces.

    Raises:
        RemoteError: Azure cannot be asked, or its lists are not understood.
    """
    scope = f"/subscriptions/{rest.subscription}/providers"
    machines = rest.listed(f"{scope}/{_MACHINES}", api_version(_MACHINES), "to list virtual machines")
    machines = [one for one in machines if _tags(one).get(SITE) == site]
    if not machines:
        return []
    interfaces = rest.listed(f"{scope}/{_INTERFACES}", api_version(_INTERFACES), "to list network interfaces")
    addresses = {str(one.get("id")).lower(): _address(one) for one in interfaces}
    return sorted((_seen(one, addresses) for one in machines), key=lambda one: (one.name, one.id))


def _inner(of: Mapping[str, t.Any], field: str) -> Mapping[str, t.Any]:
    return mapping(of.get(field), f"{field} of {of.get('id') or of.get('name') or 'a resource'}")


def _entries(of: Mapping[str, t.Any], field: str) -> list[Mapping[str, t.Any]]:
    return [mapping(one, f"an entry of {field}") for one in sequence(of, field, "about a machine")]


def _tags(resource: Mapping[str, t.Any]) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in _inner(resource, "tags").items()}


def _address(interface: Mapping[str, t.Any]) -> str:
    configurations = _entries(_inner(interface, "properties"), "ipConfigurations")
    found = [_inner(one, "properties") for one in configurations]
    found.sort(key=lambda one: not one.get("primary", False))
    return next((text for one in found if (text := _ip(one.get("privateIPAddress")))), "")


def _ip(said: t.Any) -> str:
    """Return an address as it is written, "" for what is none: it becomes a word of ssh's command line."""
    try:
        return str(ipaddress.ip_address(str(said)))
    except ValueError:
        return ""


def _seen(machine: Mapping[str, t.Any], addresses: Mapping[str, str]) -> Seen:
    properties = _inner(machine, "properties")
    interfaces = _entries(_inner(properties, "networkProfile"), "networkInterfaces")
    ids = [str(one.get("id")).lower() for one in interfaces]
    tags, resource = _tags(machine), str(machine.get("id"))
    # An instance's resource has a name that is none of a host; the computer's own is.
    computer = str(_inner(properties, "osProfile").get("computerName") or "")
    name = tags.get(HOST) or computer or str(machine.get("name"))
    return Seen(
        resource,
        str(properties.get("vmId") or resource.lower()),
        name.lower().replace("_", "-"),
        next((addresses[one] for one in ids if addresses.get(one)), ""),
        str(machine.get("location") or ""),
        str(next(iter(sequence(machine, "zones", "about a machine")), "")),
        tags.get(POOL, "") if not tags.get(HOST) else "",
        str(properties.get("provisioningState") or "").lower(),
    )


def told_apart(seen: Iterable[Seen], groups: Iterable[str]) -> tuple[list[Seen], dict[str, str]]:
    """Return the machines that lie where the site has its own, and the others with the reason.

    A tag is no proof: whoever may make a machine anywhere in the subscription can write the site's.

    Args:
        seen: machines with the site's tag.
        groups: resource groups of the site.
    """
    own = {group.lower() for group in groups}
    inside = [one for one in seen if one.group in own]
    where = "in the resource group {}, which is none of the site's"
    reasons = {
        one.id: f"it calls itself {one.name}, {where.format(one.group or '?')}"
        for one in seen
        if one.group not in own
    }
    return inside, reasons


def twins(seen: Sequence[Seen]) -> dict[str, str]:
    """Return identity and reason of machines whose name or address another one has, too.

    No key of theirs is recorded: it would take the place of the other one's.
    """
    names = collections.Counter(one.name for one in seen)
    addresses = collections.Counter(one.address for one in seen if one.address)
    return {
        one.identity: f"another machine has its {'name' if names[one.name] > 1 else f'address {one.address}'}"
        for one in seen
        if names[one.name] > 1 or addresses[one.address] > 1
    }


class Handed(t.NamedTuple):
    """Hosts of the inventory, and what is none.

    Args:
        hosts: name to groups and variables.
        held: name to the reason, of what is none, or is one and not there.
    """

    hosts: Mapping[str, tuple[tuple[str, ...], Mapping[str, t.Any]]]
    held: Mapping[str, str]


class Declared(t.NamedTuple):
    """A machine that the site declares: groups, address, region, zone, and where etcd's disk may be."""

    groups: tuple[str, ...]
    address: str
    region: str
    zone: str
    devices: tuple[str, ...] = ()


def handed_over(
    declared: Mapping[str, Declared],
    pools: Mapping[str, Sequence[str]],
    seen: Iterable[Seen],
    unknown: Mapping[str, str],
) -> Handed:
    """Return the hosts of a site in Azure.

    Args:
        declared: machines that the site declares, which are hosts whether they are there or not.
        pools: name of a pool to the groups of its instances.
        seen: machines that are there.
        unknown: name of a machine to the reason why its host key is not known.
    """
    hosts: dict[str, tuple[tuple[str, ...], Mapping[str, t.Any]]] = {
        name: (_groups("azure", *one.groups), _variables(one.address, one.region, one.zone) | _disk(one))
        for name, one in declared.items()
    }
    held: dict[str, str] = {}
    there: dict[str, Seen] = {}
    for one in seen:
        if one.name in there:
            held[one.name] = f"two machines have this name: {there[one.name].id} and {one.id}"
            if one.name not in declared:
                hosts.pop(one.name, None)
            continue
        there[one.name] = one
        if one.name in declared:
            if one.address and one.address != declared[one.name].address:
                held[one.name] = (
                    f"it has the address {one.address}, and {declared[one.name].address} is declared"
                )
        elif not one.pool:
            held[one.name] = "the site does not declare it any more; it runs, and nobody manages it"
        elif one.pool not in pools:
            held[one.name] = f"its pool {one.pool} is none of the site's"
        elif not _NAME.fullmatch(one.name):
            held[one.name] = "its name is none of a host"
        elif not one.ready:
            held[one.name] = (
                f"Azure says that it is {one.state or 'unknown'}" if one.address else "no address yet"
            )
        elif one.name in unknown:
            held[one.name] = unknown[one.name]
        else:
            groups = _groups("azure", "nodes", *pools[one.pool])
            labels = {"ironspan.io/pool": one.pool}
            hosts[one.name] = (groups, _variables(one.address, one.region, one.zone, labels))
    for name in declared:
        if name not in there:
            held[name] = "it is declared, and not in Azure; ironspan azure makes it"
        elif name in unknown:
            held.setdefault(name, unknown[name])
    return Handed(hosts, dict(sorted(held.items())))


def _groups(*groups: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(groups))


def _variables(
    address: str, region: str, zone: str, labels: Mapping[str, str] | None = None
) -> dict[str, t.Any]:
    topology = {"topology.kubernetes.io/region": region}
    if zone:
        # As the cloud provider of Azure writes it, so that its volumes find their zone.
        topology["topology.kubernetes.io/zone"] = f"{region}-{zone}"
    return {"ansible_host": address, "site_measured_labels": {**topology, **(labels or {})}}


def _disk(machine: Declared) -> dict[str, t.Any]:
    return {DEVICES: list(machine.devices)} if machine.devices else {}


def keys_in(text: str) -> list[str]:
    """Return the public keys in what a machine printed, each once; anything else is left out."""
    return list(dict.fromkeys(f"{kind} {key}" for kind, key in _KEY.findall(text)))


def host_keys(connection: Connection, machines: Sequence[Seen]) -> dict[str, list[str] | str]:
    """Have Azure read the public host keys on machines, by a run command in each of them.

    Args:
        connection: how the resource manager is spoken to.
        machines: that are ready.

    Returns:
        Name to its keys, or to the reason why they are not known.
    """
    if not machines:
        return {}
    subscription = machines[0].id.split("/")[2]
    client = connection.client(
        "azure.mgmt.compute", "ComputeManagementClient", subscription, polling_interval=2
    )

    def read(machine: Seen) -> list[str] | str:
        parts = machine.id.split("/")
        group, name = parts[4], parts[-1]
        body = {"commandId": "RunShellScript", "script": list(_SCRIPT)}
        what = f"to read the host keys of {machine.name}"
        begin = client.virtual_machines.begin_run_command
        try:
            answer = asked(what, lambda: begin(group, name, body).result())
        except RemoteError as error:
            return str(error)
        said = answer.as_dict().get("value") or () if answer else ()
        keys = keys_in("\n".join(str(one.get("message") or "") for one in said))
        return keys or "it printed no host key; is sshd installed, and does the VM agent run?"

    with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, len(machines))) as pool:
        return dict(zip((one.name for one in machines), pool.map(read, machines), strict=True))
