# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small site with fixture roles, and a stand-in for the PKI store."""

from __future__ import annotations

import base64
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site, require_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

from tests.support.public_side import PublicSide

ROLES = Path(__file__).parent / "fixtures" / "roles"
KEY = base64.b64encode(bytes(range(32))).decode()

INVENTORY = """\
all:
  vars:
    site_name: small
    site_api_endpoint: api.small:6443
    site_api_address: 10.1.0.9
    site_mirror_url: http://127.0.0.1:1
    site_pki_store: {folder}/pki
    site_pki_key_file: {folder}/key
    ansible_connection: local
    ansible_python_interpreter: /usr/bin/python3
    user_root: "{folder}/roots/{{{{ inventory_hostname }}}}"
  children:
    azure: {{hosts: {{a1: {{site_address: 10.1.0.1}}}}}}
    on_prem: {{hosts: {{w1: {{site_address: 10.2.0.1}}, w2: {{site_address: 10.2.0.2}}}}}}
    etcd: {{hosts: {{a1: }}}}
    control_plane: {{hosts: {{a1: }}}}
    nodes: {{hosts: {{w1: , w2: }}}}
"""


def write_inventory(folder: Path) -> Path:
    """Write the inventory, the key of its PKI store and a root folder for every host."""
    file = folder / "hosts.yml"
    file.write_text(INVENTORY.format(folder=folder))
    key = folder / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    for host in ("a1", "w1", "w2"):
        (folder / "roots" / host / "etc").mkdir(parents=True)
    return file


def small_site(folder: Path, roles: Path = ROLES, **extra: t.Any) -> Site:
    """Return the small site."""
    return require_site(load_site([write_inventory(folder)], roles_folder=roles, extra_vars=extra))


def renderer(site: Site, roles: Path = ROLES) -> Renderer:
    """Return a renderer that needs no PKI store."""
    return Renderer(site, PublicSide(), roles)
