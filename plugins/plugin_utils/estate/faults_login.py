# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults of who speaks to Azure, who may do what there, and of what machines begin with: image and login."""

from __future__ import annotations

import re
import typing as t
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.catalogue import ARM, sizes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Fault, Given, Judge
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import SUBSCRIPTION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.host_keys import holds_others

_MANAGEMENT, _IMAGE, _KEYS = "azure_management", "azure_image", "azure_authorized_keys"
_READ = {
    # Kind of identity -> what says nothing to it.
    "azure_cli": ("client_id", "token_file", "authority"),
    "managed_identity": ("token_file", "authority"),
    "workload_identity": (),
}
_LOCAL = ("127.0.0.1", "::1", "localhost")
_REFUSED_USERS = frozenset(
    # Azure, Virtual machines FAQ: user names that are refused.
    re.findall(
        r"\S+",
        "admin administrator user user1 test user2 test1 user3 admin1 1 123 a actuser adm admin2 aspnet "
        "backup console david guest john owner root server sql support support_388945a0 sys test2 test3 "
        "user4 user5 ",
    )
    # Accounts that Debian's and Ubuntu's images have, which would be no new ones.
    + re.findall(
        r"\S+",
        "bin daemon games gnats irc list lp mail man messagebus news nobody proxy sshd sync syslog uucp "
        "uuidd www-data",
    )
)
_BODIES = {"ssh-ed25519": "AAAAC3NzaC1lZDI1NTE5AAAAI", "ssh-rsa": "AAAAB3NzaC1yc2E"}
"""What keys of a kind begin with: their kind itself, in base64."""
_SHORTEST = {"ssh-ed25519": 68, "ssh-rsa": 368}
"""RFC 4253 and 8709 in base64: 32 bytes, and 2048 bits, with a public exponent, each behind its length."""
_LONG = {"ssh-ed25519": "68", "ssh-rsa": "368 or more, for 2048 bits"}
_IMAGE_ID = re.compile(
    r".*/providers/Microsoft\.Compute/(images/[^/]+|galleries/[^/]+/images/[^/]+(/versions/(?P<version>[^/]+))?)",
    re.IGNORECASE,
)
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


def management(given: Given) -> Iterator[Fault]:
    """An identity with what it is told by, and addresses to which a token may be sent."""
    entry = given.values[_MANAGEMENT]
    for key, what, remedy in of_identity(entry):
        yield (_MANAGEMENT, key), what, remedy
    tenant = given.values["azure_tenant"]
    if entry["tenant_id"] and tenant and entry["tenant_id"].lower() != tenant.lower():
        what = f"is another tenant than azure_tenant ({tenant}), whose tokens are refused"
        yield (_MANAGEMENT, "tenant_id"), what, f"write {tenant}, or take it out"


def of_identity(entry: Mapping[str, t.Any]) -> Iterator[tuple[str, str, str]]:
    """Find fields that a kind of identity does not read, and addresses to which no token may be sent.

    Args:
        entry: who speaks to Azure's resource manager, with the defaults of what is not written.
    """
    unread = _READ.get(entry["kind"], ())
    for key in unread:
        if entry[key]:
            what = f"is written, and kind is {entry['kind']}, which does not read it"
            yield key, what, "write the kind that it is for, or take it out"
    for key in ("url", "authority"):
        if key in unread:
            continue
        parts = urllib.parse.urlsplit(entry[key])
        if parts.scheme == "http" and parts.hostname not in _LOCAL:
            yield key, f"{entry[key]} would send tokens unencrypted", f"write https://{parts.netloc}"
        elif parts.path.strip("/") or parts.query or parts.fragment:
            what = f"{entry[key]} is more than the address of a host"
            yield key, what, f"write {parts.scheme}://{parts.netloc}"


def principals(given: Given) -> Iterator[Fault]:
    """Those who may do something are people and programs, not the subscription or the tenant."""
    values = given.values
    lists: list[tuple[tuple[str | int, ...], list[str]]] = [
        (("azure_deny", "excluded_principals"), values["azure_deny"]["excluded_principals"]),
        (("azure_vault", "administrators"), values["azure_vault"]["administrators"]),
    ]
    lists += [(("azure_backup", key), values["azure_backup"][key]) for key in ("collectors", "readers")]
    lists += [
        (("azure_storage", index, key), entry[key])
        for index, entry in enumerate(values["azure_storage"])
        for key in ("readers", "writers")
    ]
    others = {
        str(values[SUBSCRIPTION]).lower(): "the subscription",
        str(values["azure_tenant"]).lower(): "the tenant",
    }
    for path, names in lists:
        for index, name in enumerate(names):
            if whose := others.get(str(name).lower()):
                what = f"{name} is the identifier of {whose}, and nobody's who could do anything"
                yield (*path, index), what, "write the object identifier of a person, group or application"


def login(given: Given) -> Iterator[Fault]:
    """An account that Azure makes, with public keys, and the file of the machines' own."""
    user, known_hosts = given.values["azure_user"], given.values["azure_known_hosts"]
    if known_hosts and not _can_be_written(Path(known_hosts)):
        yield ("azure_known_hosts",), f"{known_hosts} is no file", "write the path of a file"
    elif known_hosts and (file := Path(known_hosts).expanduser()).is_file() and holds_others(file):
        what = (
            f"{known_hosts} has other lines than public keys of hosts, and a run would write all of it anew"
        )
        yield ("azure_known_hosts",), what, "write the path of a file of its own"
    if user in _REFUSED_USERS:
        yield (
            ("azure_user",),
            f"{user} is an account that Azure refuses",
            "write another one, such as ironspan",
        )
    seen: set[str] = set()
    for index, key in enumerate(given.values[_KEYS]):
        kind, _, rest = key.partition(" ")
        body = rest.split(" ")[0]
        if "PRIVATE KEY" in key:
            yield (_KEYS, index), "is a private key", "write the public one, and make a new pair"
        elif kind not in _BODIES:
            yield (
                (_KEYS, index),
                "is no key that Azure takes",
                "write ssh-ed25519 AAAA... or ssh-rsa AAAA...",
            )
        elif not body.startswith(_BODIES[kind]) or not re.fullmatch("[A-Za-z0-9+/]+={0,2}", body):
            what = f"is no key of the kind {kind}, which all begin with {_BODIES[kind]}"
            yield (_KEYS, index), what, "write the one line of the file that ends in .pub"
        elif len(body) < _SHORTEST[kind] or (kind == "ssh-ed25519" and len(body) > _SHORTEST[kind]):
            what = f"has {len(body)} digits, and a key of the kind {kind} that Azure takes has {_LONG[kind]}"
            yield (_KEYS, index), what, "write the whole line of the file that ends in .pub"
        elif body in seen:
            yield (_KEYS, index), "is there twice", "write it once"
        seen.add(body)


def _can_be_written(path: Path) -> bool:
    if path.exists():
        return path.is_file()
    above = next((each for each in path.parents if each.exists()), path.parent)
    return above.is_dir() or not above.exists()


def image(given: Given) -> Iterator[Fault]:
    """An image of one kind, in one version, that the machines can boot."""
    entry = given.values[_IMAGE]
    version = str(entry["version"] or "")
    if entry["id"]:
        match = _IMAGE_ID.fullmatch(entry["id"])
        if match is None:
            what = "is no id of an image"
            remedy = (
                "write .../Microsoft.Compute/images/NAME or .../Microsoft.Compute/galleries/NAME/images/NAME"
            )
            yield (_IMAGE, "id"), what, f"{remedy}/versions/VERSION"
        elif (match["version"] or "").lower() == "latest":
            yield (_IMAGE, "id"), "is of the version latest, another one each time", "write one version"
        if version:
            yield (_IMAGE, "version"), "is written beside id, which has one", "write id alone, or no id"
        return
    if version and version.lower() != "latest" and not _VERSION.fullmatch(version):
        what = f"{version!r} is no version of an image of the marketplace"
        yield (_IMAGE, "version"), what, "write three numbers, as `az vm image list --all` shows them"
    if entry["publisher"].lower().startswith("microsoftwindows"):
        yield (
            (_IMAGE, "publisher"),
            f"{entry['publisher']} publishes Windows",
            "write one of Linux: Canonical",
        )
    if entry["sku"].lower().endswith("-gen1"):
        what = f"{entry['sku']} is of generation 1, and the machines are of generation 2"
        yield (_IMAGE, "sku"), what, f"write {entry['sku'][:-5]}"
    estate = given.estate
    named = [*(one.size for one in estate.machines), *(one.size for one in estate.pools)] if estate else []
    others = [name for name in named if name in sizes() and name not in ARM]
    if "arm64" in entry["sku"].lower() and others:
        what = f"{entry['sku']} is for Arm, and {others[0]} has processors of x86"
        yield (_IMAGE, "sku"), what, "write that of x86, such as server"


FIRST: tuple[Judge, ...] = (management, login, image)
JUDGES: tuple[Judge, ...] = (principals,)
