# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with what a site says of its racks, of the image of its servers, of who logs in there."""

from __future__ import annotations

import base64
import ipaddress
import re
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_values import Fault
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

FORMATS = ("raw", "qcow2")
"""As bare_metal/config_drive.py has them; a test compares."""
SCHEMES = ("https://", "http://", "file://", "oci://")
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_NOT_RAW = (".qcow2", ".vmdk", ".vhd", ".vhdx", ".ova", ".iso")
_PACKED = (".gz", ".xz", ".zst", ".bz2", ".zip", ".tar", ".tgz")
_OF_SYSTEMS = ("root", "daemon", "bin", "sys", "mail", "www-data", "backup", "nobody", "sshd")
"""Accounts that a system has for itself: root may not log in by a config drive, the others have no shell."""
_KEY = re.compile(
    r"((sk-)?(ssh-(ed25519|rsa)|ecdsa-sha2-nistp[0-9]+)(@openssh\.com)?) ([A-Za-z0-9+/=]{4,})( .*)?"
)


def racks(said: Mapping[str, t.Any]) -> Iterator[Fault]:
    """Yield what is wrong with the networks of racks, each by itself and beside the others.

    Args:
        said: names of racks to ``network``, ``first``, ``gateway`` and ``dns``.
    """
    networks: dict[str, ipaddress.IPv4Network] = {}
    groups: dict[str, str] = {}
    for key, entry in said.items():
        name, path = str(key), f".{key}"
        try:
            values.label(values.checked(name))
        except values.Refused as refused:
            yield path, f"the name of the rack {refused.message}", refused.remedy
            continue
        group = values.rack_group(name)
        if (other := groups.setdefault(group, name)) != name:
            yield path, f"would be the group {group}, as the rack {other}", "give one of them another name"
        if not isinstance(entry, Mapping):
            remedy = "write {network: ADDRESS/LENGTH, first: ADDRESS}"
            yield path, f"must be a dictionary, is {entry!r}", remedy
            continue
        yield from _unknown(entry, path, ("network", "first", "gateway", "dns"))
        network = _read(ipaddress.IPv4Network, entry.get("network"))
        if network is None or str(network) != entry.get("network"):
            written = entry.get("network")
            yield f"{path}.network", f"{written!r} is no IPv4 network", "write for example 10.2.1.0/24"
            continue
        for other, taken in networks.items():
            if network.overlaps(taken):
                message = f"{network} overlaps that of {other}, {taken}"
                yield f"{path}.network", message, "write networks apart"
        networks[name] = network
        yield from _addresses(entry, path, network)
        yield from _name_servers(entry, path)


def _addresses(entry: Mapping[str, t.Any], path: str, network: ipaddress.IPv4Network) -> Iterator[Fault]:
    for field in ("first", "gateway"):
        if field == "gateway" and entry.get(field) in (None, ""):
            continue
        address = _read(ipaddress.IPv4Address, entry.get(field))
        if address is None:
            yield f"{path}.{field}", f"{entry.get(field)!r} is no IPv4 address", f"write one of {network}"
        elif address not in network or address in (network.network_address, network.broadcast_address):
            message = f"{address} is no address of a host in {network}"
            yield f"{path}.{field}", message, f"write one of {network}"
    if entry.get("gateway") and entry.get("gateway") == entry.get("first"):
        yield f"{path}.first", "is the gateway too", "write the address of the server in the lowest unit"


def _name_servers(entry: Mapping[str, t.Any], path: str) -> Iterator[Fault]:
    dns = entry.get("dns")
    if dns is not None and not isinstance(dns, list):
        yield f"{path}.dns", f"must be a list, is {dns!r}", "write [ADDRESS]"
    seen = set()
    for index, server in enumerate(dns if isinstance(dns, list) else ()):
        where = f"{path}.dns[{index}]"
        found = _read(ipaddress.ip_address, server)
        if found is None or found.is_loopback or found.is_unspecified or found.is_multicast:
            yield where, f"{server!r} is no address of a name server", "write its IP address"
        elif found.is_link_local or (found.version == 4 and found.is_reserved):
            yield where, f"{server} is reached from no server", "write its IP address"
        elif found in seen:
            yield where, f"{server} is there twice", "write it once"
        seen.add(found)


def image(said: Mapping[str, t.Any]) -> Iterator[Fault]:
    """Yield what is wrong with the operating system that servers get."""
    yield from _unknown(said, "", ("source", "sha256", "format"))
    source, kind = said.get("source"), said.get("format", "raw")
    if not isinstance(source, str) or not _is_address(source):
        yield ".source", f"{source!r} is no address of an image", f"begin it with {', '.join(SCHEMES)}"
    elif "@" in urllib.parse.urlsplit(source).netloc:
        yield (
            ".source",
            "has a login, and every plan shows it",
            "write it without, and let the server ask for none",
        )
    elif kind == "raw" and (end := next(filter(source.lower().endswith, _NOT_RAW), "")):
        remedy = "write format: qcow2" if end == ".qcow2" else "convert it to raw or qcow2, and name that"
        yield ".source", f"is no raw image, but {end[1:]}, and would be written to disks as it is", remedy
    elif end := next(filter(source.lower().endswith, _PACKED), ""):
        message = f"is packed ({end[1:]}), and Ironic unpacks nothing"
        yield ".source", message, "unpack it, and name the image itself with its own digest"
    elif not source.startswith("oci://") and _names_no_file(source):
        yield ".source", f"{source} names no file", "write the address of the image itself"
    digest = said.get("sha256")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        yield ".sha256", "is not 64 hexadecimal digits", "write what sha256sum prints, in quotes"
    elif digest == EMPTY_SHA256:
        yield ".sha256", "is the digest of an empty file", "fetch the image again, and write its own"
    if kind not in FORMATS:
        yield ".format", f"{kind!r} is none of {', '.join(FORMATS)}", f"write {FORMATS[0]}"


def _is_address(text: str) -> bool:
    if not text.startswith(SCHEMES) or not text.isprintable() or " " in text:
        return False
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.port != 0 and bool(parts.hostname or parts.scheme == "file")
    except ValueError:
        return False


def _names_no_file(source: str) -> bool:
    parts = urllib.parse.urlsplit(source)
    return not parts.query and (not parts.path or parts.path.endswith("/"))


def account(said: Mapping[str, t.Any]) -> Iterator[Fault]:
    """Yield what is wrong with who may log in to servers."""
    yield from _unknown(said, "", ("user", "authorized_keys"))
    user, keys = said.get("user", "ironspan"), said.get("authorized_keys", [])
    if not isinstance(user, str) or not re.fullmatch("[a-z_][a-z0-9_-]{0,31}", user):
        yield ".user", f"{user!r} is no name of an account", "write lower-case letters, digits, '_' and '-'"
    elif user in _OF_SYSTEMS:
        yield (
            ".user",
            f"{user} is an account that a system has for itself",
            "write another name, such as ironspan",
        )
    if not isinstance(keys, list):
        remedy = "write one '- ssh-ed25519 AAAA...' line for each"
        yield ".authorized_keys", f"must be a list, is {keys!r}", remedy
    seen = set()
    for index, key in enumerate(keys if isinstance(keys, list) else ()):
        where, remedy = f".authorized_keys[{index}]", "write the one line of the file that ends in .pub"
        match = _KEY.fullmatch(key) if isinstance(key, str) else None
        if match is None:
            yield where, "is no public key for SSH", remedy
        elif not _begins_as(match[1], match[6]):
            yield where, f"is no key of type {match[1]}, which it begins with", remedy
        elif match[6] in seen:
            yield where, "is there twice", "write it once"
        else:
            seen.add(match[6])


def _begins_as(kind: str, key: str) -> bool:
    """Tell whether the bytes of a key begin with its type, as RFC 4253, 6.6, has them."""
    begin = base64.b64encode(len(kind).to_bytes(4) + kind.encode()).decode().rstrip("=")
    # The last digit may have bits of what follows.
    length = min(len(begin) - 1, len(key))
    return key[:length] == begin[:length]


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
