# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a server is told on its config drive: its address, who may log in, and its host key.

The host key is made here and its public half recorded before the server can have it. So the first login
already knows the host, and nobody on the network between can play it.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.known_hosts import Entry, KnownHostsFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SHA256 = re.compile(r"[0-9a-f]{64}")
FORMATS = ("raw", "qcow2")
SLOT_SETTINGS = "/etc/ironspan/slots.json"
"""What the program of an image with two roots reads (ironspan/artifacts/system/boot_slots)."""


class HostKey(t.NamedTuple):
    """A host's key for SSH: the private half in OpenSSH's form, and the public one."""

    private: str
    public: str


class Account(t.NamedTuple):
    """Who logs in to a server.

    Args:
        user: its name there; it may become root and has no password.
        keys: public keys for SSH.
    """

    user: str
    keys: tuple[str, ...]

    @classmethod
    def of(cls, settings: Mapping[str, t.Any]) -> Account:
        """Return it as ``site_bare_metal_account`` has it."""
        keys = tuple(str(key) for key in settings.get("authorized_keys") or ())
        return cls(str(settings.get("user") or "ironspan"), keys)


class KnownHosts(KnownHostsFile):
    """The file with the public keys of hosts, where keys are made too.

    Args:
        path: of the file; "" for none.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, "site_bare_metal_known_hosts")

    def new_key(self, address: str, name: str) -> HostKey:
        """Make a key for a host and record it in place of what was recorded; on disk when this returns.

        Args:
            address: of the host.
            name: of the host.

        Raises:
            RemoteError: no file is named.
        """
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ).decode()
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        self.record([Entry(address, name, (public.decode(),))])
        return HostKey(private, public.decode())


def insist_on_image(image: Mapping[str, t.Any], account: Account, known_hosts: str) -> None:
    """Refuse settings with which no server could be deployed and logged in to; all problems at once.

    Raises:
        RemoteError: there are some.
    """
    problems = []
    if not str(image.get("source") or "").startswith(("https://", "http://", "file://", "oci://")):
        problems.append("site_bare_metal_image.source is no address")
    if not _SHA256.fullmatch(str(image.get("sha256") or "")):
        problems.append("site_bare_metal_image.sha256 is not 64 hexadecimal digits")
    if image.get("format", "raw") not in FORMATS:
        problems.append(f"site_bare_metal_image.format is none of {', '.join(FORMATS)}")
    if not account.keys:
        problems.append("site_bare_metal_account.authorized_keys is empty, so nobody could log in")
    if not known_hosts:
        problems.append("site_bare_metal_known_hosts names no file for the keys of hosts")
    if problems:
        raise RemoteError("; ".join(problems), "correct them, or leave site_bare_metal_image empty")


def instance_info(image: Mapping[str, t.Any]) -> dict[str, str]:
    """Return what Ironic is told of an image."""
    return {
        "image_source": str(image["source"]),
        "image_os_hash_algo": "sha256",
        "image_os_hash_value": str(image["sha256"]),
        "image_disk_format": str(image.get("format") or "raw"),
        "image_type": "whole-disk",
    }


def config_drive(
    name: str, host: Mapping[str, t.Any], mac: str, key: HostKey, account: Account
) -> dict[str, t.Any]:
    """Return a config drive as Ironic takes it; Ironic makes the file system.

    Args:
        name: of the host.
        host: ``address`` with prefix, ``gateway`` ("" for none) and ``dns``; with ``layout`` ab the image has
            two roots, and the system is told what its first start is judged by.
        mac: of the port that gets the address.
        key: of the host. The private half is in what is returned.
        account: who may log in.
    """
    link, network = "management", "management-ipv4"
    routes = [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": host["gateway"]}]
    user: dict[str, t.Any] = {
        "name": account.user,
        "ssh_authorized_keys": list(account.keys),
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "shell": "/bin/bash",
        "lock_passwd": True,
    }
    cloud: dict[str, t.Any] = {
        "hostname": name,
        "users": [user],
        "ssh_pwauth": False,
        "disable_root": True,
        "ssh_deletekeys": True,
        "ssh_genkeytypes": [],
        "ssh_keys": {"ed25519_private": key.private, "ed25519_public": key.public},
    }
    if host.get("layout") == "ab":
        judged = {key: host[key] for key in ("address", "gateway", "deadline_seconds") if host.get(key)}
        cloud["write_files"] = [{"path": SLOT_SETTINGS, "content": json.dumps(judged), "permissions": "0644"}]
    return {
        "meta_data": {"uuid": name, "name": name, "hostname": name, "local-hostname": name},
        "network_data": {
            "links": [{"id": link, "type": "phy", "ethernet_mac_address": mac}],
            "networks": [
                {
                    "id": network,
                    "type": "ipv4",
                    "link": link,
                    "network_id": network,
                    "ip_address": host["address"],
                    "routes": routes if host["gateway"] else [],
                }
            ],
            "services": [{"type": "dns", "address": address} for address in host["dns"]],
        },
        "user_data": f"#cloud-config\n{json.dumps(cloud, indent=1)}\n",
    }
