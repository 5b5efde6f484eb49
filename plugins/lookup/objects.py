# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Cluster objects of a layer for playbooks."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

DOCUMENTATION = r"""
---
name: objects
short_description: Kubernetes objects of a layer
version_added: "0.1.0"
description:
  - Renders C(objects.yml.j2) of a role with the site model and returns the Kubernetes objects.
  - They come in the order to apply them.
  - It reads the whole inventory, so use it on C(localhost), not once a host.
author:
  - The ironspan developers
options:
  _terms:
    description: Layers, for example V(flannel) or V(gvisor).
    required: true
    type: list
    elements: str
  roles_folder:
    description: Folder of the roles. The collection's own by default.
    type: path
"""

EXAMPLES = r"""
- name: Apply flannel's objects
  kubernetes.core.k8s:
    definition: "{{ lookup('ironspan.hybrid.objects', 'flannel') }}"
"""

RETURN = r"""
_raw:
  description: The objects of all layers asked for.
  type: list
  elements: dict
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """The lookup ``ironspan.hybrid.objects``."""

    def run(
        self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[t.Any]:
        """Return the objects of the layers that the terms name."""
        self.set_options(var_options=variables, direct=kwargs)
        roles_folder = Path(self.get_option("roles_folder") or ROLES_FOLDER)
        try:
            site = site_of_run(variables or {}, roles_folder)
            renderer, _authorities = renderer_for(site, roles_folder)
            return [item for term in terms for item in renderer.objects(str(term))]
        except SiteError as error:
            raise AnsibleLookupError(str(error)) from error
