# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The controller's way into the API: a kubeconfig with a client certificate that lives an hour at most.

Its group is kubeadm's own ``kubeadm:cluster-admins``, bound to cluster-admin by ``kubeadm init``: deleting
that binding shuts the controller out at once. ``system:masters`` passes by authorization altogether, so it
is kept for breaking the glass: when the binding is gone and has to be put back.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import certificates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

USER = "ironspan:controller"
ADMINISTRATORS = "kubeadm:cluster-admins"
BREAK_GLASS = "system:masters"
APPROVER = certificates.Names("ironspan:approver", ["ironspan:certificate-approvers"])
"""May decide about the serving certificates of kubelets and nothing else; see cluster/approver.py."""


class Endpoint(t.NamedTuple):
    """Where the API is: the name in its certificate and its port."""

    host: str
    port: int


def parse_endpoint(endpoint: str) -> Endpoint:
    """Split HOST:PORT (a name, an IPv4 address, or an IPv6 address in brackets).

    Raises:
        PkiError: when it is something else.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})", endpoint)
    if not match or not 0 < int(match[3]) < 65536:
        raise PkiError(f"{endpoint!r} is not an API endpoint.", "Write HOST:PORT in site_api_endpoint.")
    return Endpoint(match[1] or match[2], int(match[3]))


def server_url(endpoint: str, address: str = "") -> str:
    """Return the URL to dial: the address if given, else the endpoint's host, at the endpoint's port."""
    parsed = parse_endpoint(endpoint)
    host = address or parsed.host
    try:
        if ipaddress.ip_address(host).version == 6:
            host = f"[{host}]"
    except ValueError:
        pass
    return f"https://{host}:{parsed.port}"


def administrator(*, break_glass: bool) -> certificates.Names:
    """Return whom the controller is; ``break_glass``: in system:masters, not in kubeadm:cluster-admins."""
    return certificates.Names(USER, [BREAK_GLASS if break_glass else ADMINISTRATORS])


def made_kubeconfig(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    trusted_pem: str,
    endpoint: str,
    address: str,
    lifetime: datetime.timedelta,
    now: datetime.datetime,
    names: certificates.Names,
) -> dict[str, t.Any]:
    """Make the kubeconfig; it holds a private key, so it belongs into memory and ``no_log`` parameters only.

    Args:
        authority: the kubernetes authority's certificate.
        authority_key: its key.
        trusted_pem: the certificates that the API server's may be signed with.
        endpoint: HOST:PORT of the API as its certificate names it.
        address: the address to dial, "" for the endpoint's own host.
        lifetime: of the client certificate.
        now: current time, with time zone.
        names: user and groups.

    Returns:
        A kubeconfig as client libraries read it from YAML.
    """
    key = certificates.new_key()
    certificate = certificates.issue(
        authority,
        authority_key,
        key.public_key(),
        names,
        [ExtendedKeyUsageOID.CLIENT_AUTH],
        lifetime,
        now,
    )
    cluster = {
        "server": server_url(endpoint, address),
        "certificate-authority-data": _base64(trusted_pem.encode()),
    }
    if address:
        cluster["tls-server-name"] = parse_endpoint(endpoint).host
    user = {
        "client-certificate-data": _base64(certificates.certificate_pem(certificate).encode()),
        "client-key-data": _base64(certificates.private_pem(key)),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "site", "cluster": cluster}],
        "users": [{"name": names.common_name, "user": user}],
        "contexts": [{"name": "site", "context": {"cluster": "site", "user": names.common_name}}],
        "current-context": "site",
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
