# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Puts a renderer together: site, PKI store, templates."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.authorities import StoreAuthorities
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.documents import Renderer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER


def renderer_for(
    site: Site, roles_folder: Path = ROLES_FOLDER, make: bool = False
) -> tuple[Renderer, StoreAuthorities]:
    """Return a renderer for a site.

    Args:
        site: the site.
        roles_folder: where the templates are.
        make: make what is missing in the PKI store (never in check mode).

    Returns:
        The renderer, and the authorities it asks, which tell what was made.
    """
    authorities = StoreAuthorities(site, make=make)
    return Renderer(site, authorities, roles_folder), authorities
