# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a site says of its servers can be done: an Ironic that there is, networks, an image, a login.

The servers themselves stand in a file of their own, which the operations about them read.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import node_fields, values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_fields import Fault
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

CLOUD, CLOUDS, NODE = "site_bare_metal_cloud", "site_bare_metal_clouds", "site_bare_metal_node"
RACKS, IMAGE, ACCOUNT = "site_bare_metal_racks", "site_bare_metal_image", "site_bare_metal_account"
KNOWN_HOSTS, INVENTORY = "site_bare_metal_known_hosts", "site_bare_metal_inventory"
ERASE = "site_bare_metal_erase"
FORMATS = ("raw", "qcow2")
"""As bare_metal/config_drive.py has them; a test compares."""
SCHEMES = ("https://", "http://", "file://", "oci://")
_KEY = re.compile(
    r"((sk-)?(ssh-(ed25519|rsa)|ecdsa-sha2-nistp[0-9]+)(@openssh\.com)?) [A-Za-z0-9+/=]{4,}( .*)?"
)
_LOOKED_FOR = ("clouds.yaml", "clouds.yml", "clouds.json")


def check_cloud(draft: Draft) -> None:
    """The cloud is one of the file that is named, or of one that openstacksdk finds."""
    cloud, named = str(draft.site_value(CLOUD) or ""), str(draft.site_value(CLOUDS) or "")
    if draft.site_value("site_lab"):
        return  # a lab makes the file when its Ironic starts
    if named and not Path(named).is_file():
        remedy = "write the path of clouds.yaml on the controller"
        draft.problems.add(draft.site_place(CLOUDS), CLOUDS, f"{named} is no file", remedy)
    elif cloud:
        known = _clouds([Path(named)] if named else list(_looked_for(draft.environment)))
        if cloud not in known:
            near = nearest(cloud, known)
            remedy = f"write {near}" if near else f"add it to clouds.yaml, and name that file in {CLOUDS}"
            where = named or "no clouds.yaml that openstacksdk finds"
            message = f"{where} has {'no ' if named else ''}cloud {cloud!r}"
            draft.problems.add(draft.site_place(CLOUD), CLOUD, message, remedy)


def _looked_for(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield where openstacksdk looks, in its order (openstack/config/loader.py); it takes the first."""
    if named := environment.get("OS_CLIENT_CONFIG_FILE"):
        yield Path(named)
    for folder in (Path(), Path("~/.config/openstack").expanduser(), Path("/etc/openstack")):
        yield from (folder / name for name in _LOOKED_FOR)


def _clouds(files: list[Path]) -> list[str]:
    """Return the names of the first file that is there."""
    for file in files:
        if file.is_file():
            try:
                found = yaml.safe_load(file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, yaml.YAMLError):
                return []
            clouds = found.get("clouds") if isinstance(found, Mapping) else None
            return [str(name) for name in clouds] if isinstance(clouds, Mapping) else []
    return []


def check_declared(draft: Draft) -> None:
    """Each of the variables that describe servers stands for itself."""
    for variable, judge in _JUDGES.items():
        value = draft.site_value(variable)
        if isinstance(value, Mapping) and value and draft.writer(variable):
            for path, message, remedy in judge(value):
                draft.problems.add(draft.site_place(variable), f"{variable}{path}", message, remedy)


def check_deployed(draft: Draft) -> None:
    """Whoever writes systems needs a login to them, and a file for their host keys."""
    account = draft.site_value(ACCOUNT)
    if not draft.site_value(IMAGE) or not isinstance(account, Mapping):
        return
    if not account.get("authorized_keys"):
        remedy = f"write {ACCOUNT}.authorized_keys, a list of public keys for SSH"
        draft.problems.add(draft.site_place(IMAGE), IMAGE, "nobody could log in to what is deployed", remedy)
    if not draft.site_value(KNOWN_HOSTS):
        draft.problems.add(
            draft.site_place(IMAGE),
            IMAGE,
            "the host keys of what is deployed have no file",
            f"write {KNOWN_HOSTS}",
        )


def check_files(draft: Draft) -> None:
    """What runs write on the controller can be written, and is read by Ansible where it has to be."""
    if draft.site_value("site_lab"):
        return
    inventory, keys = str(draft.site_value(INVENTORY) or ""), str(draft.site_value(KNOWN_HOSTS) or "")
    for variable, text in ((INVENTORY, inventory), (KNOWN_HOSTS, keys)):
        path = Path(text)
        message = ""
        if text and path.exists() and not path.is_file():
            message = f"{text} is no file"
        elif variable == INVENTORY and text and path.suffix not in (".yml", ".yaml"):
            message = f"{text} is none that Ansible reads as YAML"
        if message:
            remedy = "write a path that ends in .yml" if variable == INVENTORY else "write the path of a file"
            draft.problems.add(draft.site_place(variable), variable, message, remedy)


def check_erasing(draft: Draft) -> None:
    """A server that is retired is erased, by steps that Ironic can know."""
    steps = draft.site_value(ERASE)
    if isinstance(steps, list) and not steps:
        message = "is empty, and what is retired would keep its data"
        draft.problems.add(draft.site_place(ERASE), ERASE, message, "write [deploy.erase_devices]")
    writer = draft.writer(ERASE)
    for index, step in enumerate(steps if isinstance(steps, list) and writer else ()):
        if not re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", str(step)) and writer:
            place = draft.inner_place(writer, ERASE, index)
            message = f"{step!r} is no step with its interface"
            draft.problems.add(place, f"{ERASE}[{index}]", message, "write for example deploy.erase_devices")


def _racks(racks: Mapping[str, t.Any]) -> Iterator[Fault]:
    networks: dict[str, ipaddress.IPv4Network] = {}
    for name, entry in racks.items():
        path = f".{name}"
        try:
            values.checked(str(name))
        except values.Refused as refused:
            yield path, f"the name of the rack {refused.message}", refused.remedy
            continue
        if not isinstance(entry, Mapping):
            yield (
                path,
                f"must be a dictionary, is {entry!r}",
                "write {network: ADDRESS/LENGTH, first: ADDRESS}",
            )
            continue
        yield from _unknown(entry, path, ("network", "first", "gateway", "dns"))
        network = _read(ipaddress.IPv4Network, entry.get("network"))
        if network is None or str(network) != entry.get("network"):
            yield (
                f"{path}.network",
                f"{entry.get('network')!r} is no IPv4 network",
                "write for example 10.2.1.0/24",
            )
            continue
        for other, taken in networks.items():
            if network.overlaps(taken):
                yield (
                    f"{path}.network",
                    f"{network} overlaps that of {other}, {taken}",
                    "write networks apart",
                )
        networks[str(name)] = network
        for field in ("first", "gateway"):
            if field == "gateway" and not entry.get(field):
                continue
            address = _read(ipaddress.IPv4Address, entry.get(field))
            if address is None:
                yield f"{path}.{field}", f"{entry.get(field)!r} is no IPv4 address", f"write one of {network}"
            elif address not in network or address in (network.network_address, network.broadcast_address):
                yield (
                    f"{path}.{field}",
                    f"{address} is no address of a host in {network}",
                    f"write one of {network}",
                )
        if entry.get("gateway") and entry.get("gateway") == entry.get("first"):
            yield f"{path}.first", "is the gateway too", "write the address of the server in the lowest unit"
        dns = entry.get("dns")
        if dns is not None and not isinstance(dns, list):
            yield f"{path}.dns", f"must be a list, is {dns!r}", "write [ADDRESS]"
        for index, server in enumerate(dns if isinstance(dns, list) else ()):
            found = _read(ipaddress.ip_address, server)
            if found is None or found.is_loopback or found.is_unspecified or found.is_multicast:
                yield (
                    f"{path}.dns[{index}]",
                    f"{server!r} is no address of a name server",
                    "write its IP address",
                )


def _image(image: Mapping[str, t.Any]) -> Iterator[Fault]:
    yield from _unknown(image, "", ("source", "sha256", "format"))
    source = image.get("source")
    if (
        not isinstance(source, str)
        or not source.startswith(SCHEMES)
        or not source.isprintable()
        or " " in source
    ):
        yield ".source", f"{source!r} is no address of an image", f"begin it with {', '.join(SCHEMES)}"
    if not isinstance(image.get("sha256"), str) or not re.fullmatch("[0-9a-f]{64}", image["sha256"]):
        yield ".sha256", "is not 64 hexadecimal digits", "write what sha256sum prints, in quotes"
    if image.get("format", "raw") not in FORMATS:
        yield ".format", f"{image['format']!r} is none of {', '.join(FORMATS)}", f"write {FORMATS[0]}"


def _account(account: Mapping[str, t.Any]) -> Iterator[Fault]:
    yield from _unknown(account, "", ("user", "authorized_keys"))
    user, keys = account.get("user", "ironspan"), account.get("authorized_keys", [])
    if not isinstance(user, str) or not re.fullmatch("[a-z_][a-z0-9_-]{0,31}", user):
        yield ".user", f"{user!r} is no name of an account", "write lower-case letters, digits, '_' and '-'"
    if not isinstance(keys, list):
        yield (
            ".authorized_keys",
            f"must be a list, is {keys!r}",
            "write one '- ssh-ed25519 AAAA...' line for each",
        )
    for index, key in enumerate(keys if isinstance(keys, list) else ()):
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            remedy = "write the one line of the file that ends in .pub"
            yield f".authorized_keys[{index}]", "is no public key for SSH", remedy


_JUDGES: Mapping[str, Callable[[Mapping[str, t.Any]], Iterator[Fault]]] = {
    RACKS: _racks,
    IMAGE: _image,
    ACCOUNT: _account,
    NODE: node_fields.faults,
}


def _unknown(entry: Mapping[str, t.Any], path: str, known: tuple[str, ...]) -> Iterator[Fault]:
    for name in entry:
        if name not in known:
            near = nearest(str(name), known)
            yield f"{path}.{name}", "unknown key", f"write {near}" if near else f"use only {', '.join(known)}"


def _read(kind: Callable[[str], t.Any], text: object) -> t.Any:
    if not isinstance(text, str) or not text.isascii():
        return None
    try:
        return kind(text)
    except ValueError:
        return None


CHECKS = (check_cloud, check_declared, check_deployed, check_files, check_erasing)
