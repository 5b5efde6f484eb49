# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How the controller reaches Ironic: a cloud of ``clouds.yaml``, or the site's own (role ``ironic``)."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import open_store
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.ironic import USER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

CLOUD, CLOUDS, GROUP = "site_bare_metal_cloud", "site_bare_metal_clouds", "ironic"
BRING_UP = "ansible-playbook playbooks/site.yml --limit ironic"
"""What brings the site's own Ironic up, and to the login that the PKI store has."""
REMEDY = f"look at its host; {BRING_UP} brings it to what the site says, its login too"


def login_of(variables: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what ``connected`` takes: the cloud that the site names, else its own Ironic.

    Args:
        variables: ``site_bare_metal_cloud``, ``site_bare_metal_clouds``, and ``site``, the model of the site.

    Raises:
        RemoteError: the site's PKI store cannot be used, or has no password yet.
    """
    site: Site | None = variables.get("site")
    url = endpoint(site) if site else ""
    if variables.get(CLOUD) or not site or not url:
        # Without a name openstacksdk looks into its own variables (OS_CLOUD).
        return {"cloud": str(variables.get(CLOUD) or ""), "clouds": str(variables.get(CLOUDS) or "")}
    store = open_store(site.pki_store, site.pki_key_file or None)
    try:
        password, trusted = store.ironic.password().strip(), store.ca("kubernetes").certificate_pem
    except PkiError as error:
        raise RemoteError(error.message.rstrip("."), error.remedy.rstrip(".")) from error
    return {
        "auth_type": "http_basic",
        "auth": {"endpoint": url, "username": USER, "password": password},
        "baremetal_endpoint_override": url,
        "cacert": _file_with(trusted),
        "remedy": REMEDY,
    }


def is_known(site: Site) -> bool:
    """Tell whether the site's own Ironic has a login: a run that brings it up makes one.

    Raises:
        RemoteError: the site's PKI store cannot be used.
    """
    try:
        return open_store(site.pki_store, site.pki_key_file or None).ironic.exists()
    except PkiError as error:
        raise RemoteError(error.message.rstrip("."), error.remedy.rstrip(".")) from error


def endpoint(site: Site) -> str:
    """Return the address of the API of the site's own Ironic, "" without one."""
    hosts = site.group(GROUP)
    if not hosts:
        return ""
    host = hosts[0]
    return f"https://{host.variables['ironic_address'] or host.address}:{host.variables['ironic_api_port']}"


def images_url(site: Site) -> str:
    """Return the address of the images of the site's own Ironic, a folder for each digest; "" without one."""
    hosts = site.group(GROUP)
    if not hosts:
        return ""
    host = hosts[0]
    address = host.variables["ironic_address"] or host.address
    scheme = "https" if host.variables["ironic_http_tls"] else "http"
    return f"{scheme}://{address}:{host.variables['ironic_http_port']}/images"


def _file_with(text: str) -> str:
    """Return a file with a text, which is gone when the process ends: what checks TLS takes nothing else."""
    descriptor, path = tempfile.mkstemp(prefix="ironspan-ca-")
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(text)
    atexit.register(_remove, path)
    return path


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).unlink()
