# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values of the site model for playbooks."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError, nearest

DOCUMENTATION = r"""
---
name: site
short_description: Value of the site model
version_added: "0.1.0"
description:
  - Returns attributes of the site, with all defaults, after the whole inventory was checked.
  - It reads the whole inventory, so use it on C(localhost), not once a host.
author:
  - The ironspan developers
options:
  _terms:
    description:
      - Attributes, for example V(name), V(api_endpoint), V(pod_cidr) or V(kubernetes_version).
    required: true
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Show where the API answers
  ansible.builtin.debug:
    msg: "{{ lookup('ironspan.hybrid.site', 'api_endpoint') }}"
"""

RETURN = r"""
_raw:
  description: One value a term.
  type: list
"""


ATTRIBUTES = (
    "name",
    "api_endpoint",
    "api_address",
    "api_host",
    "api_port",
    "pod_cidr",
    "service_cidr",
    "node_cidr_mask",
    "cluster_domain",
    "dns_address",
    "kubernetes_version",
    "wan_mtu",
)


class LookupModule(LookupBase):  # type: ignore[misc]
    """The lookup ``ironspan.hybrid.site``."""

    def run(
        self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[t.Any]:
        """Return the attributes that the terms name."""
        for term in terms:
            if term not in ATTRIBUTES:
                near = nearest(str(term), ATTRIBUTES)
                raise AnsibleLookupError(
                    f"the site has no {term!r}; write {near or 'one of ' + ', '.join(ATTRIBUTES)}"
                )
        try:
            site = site_of_run(variables or {})
        except SiteError as error:
            raise AnsibleLookupError(str(error)) from error
        return [getattr(site, str(term)) for term in terms]
