# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sizes of the waves in which hosts are changed, for ``serial`` of a play."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import out_of_service
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.waves import sizes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError

DOCUMENTATION = r"""
---
name: waves
short_description: Sizes of the waves in which hosts are changed
version_added: "0.1.0"
description:
  - Returns how many hosts of a group come in each wave, so that no rack has more nodes out of service at the
    same time than C(site_max_unavailable). Use it as C(serial) of a play on that very group.
  - Hosts keep their order; C(ironspan.hybrid.operation) puts its targets into the order of fewest waves.
  - It asks the API once which nodes are out of service already.
author:
  - The ironspan developers
options:
  _terms:
    description: Groups. V(__ironspan_targets), the hosts of the operation at hand, by default.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Change the nodes, wave after wave
  hosts: __ironspan_targets
  gather_facts: false
  serial: "{{ query('ironspan.hybrid.waves') }}"
  tasks: []
"""

RETURN = r"""
_raw:
  description: One number a wave. Empty when there are no hosts.
  type: list
  elements: int
"""

TARGETS = "__ironspan_targets"


class LookupModule(LookupBase):  # type: ignore[misc]
    """The lookup ``ironspan.hybrid.waves``."""

    def run(
        self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[t.Any]:
        """Return the sizes."""
        self.set_options(var_options=variables, direct=kwargs)
        groups = (variables or {}).get("groups") or {}
        names = [name for term in terms or [TARGETS] for name in groups.get(str(term), ())]
        if not names:
            return []
        try:
            site = site_of_run(variables or {})
            out = out_of_service(Session(site).api())
            hosts = [site.hosts[name] for name in names if name in site.hosts]
            return list(sizes(hosts, site.drain.max_unavailable, out, site.group("nodes")))
        except (ClusterError, PkiError, SiteError) as error:
            raise AnsibleLookupError(str(error)) from error
