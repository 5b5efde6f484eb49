# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a run is asked for, as the operation declares it."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue import arguments
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

DOCUMENTATION = r"""
---
name: argument
short_description: What a run is asked for
version_added: "0.2.0"
description:
  - Returns the value of an argument of an operation, converted to its type; its default where none is given.
  - What was given under the name that the argument had before counts too.
author:
  - The ironspan developers
options:
  _terms:
    description: Name of the argument's variable. One.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Drain the nodes
  ironspan.hybrid.node_drain:
    hosts: "{{ ansible_play_batch }}"
    force: "{{ lookup('ironspan.hybrid.argument', 'ironspan_force_drain') }}"
"""

RETURN = r"""
_raw:
  description: One value, of the argument's type.
  type: list
  elements: raw
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """The lookup ``ironspan.hybrid.argument``."""

    def run(
        self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[t.Any]:
        """Return the value."""
        if len(terms) != 1:
            raise AnsibleLookupError("argument takes one name, such as 'ironspan_point'")
        known = arguments()
        if terms[0] not in known:
            near = nearest(terms[0], known)
            raise AnsibleLookupError(
                f"no operation declares {terms[0]}" + (f"; write {near}" if near else "")
            )
        argument = known[terms[0]]
        given = {
            name: self._templar.template((variables or {})[name])
            for name in (argument.name, argument.formerly)
            if name and name in (variables or {})
        }
        try:
            return [value_of(given, argument.name)]
        except OperationError as error:
            raise AnsibleLookupError(str(error)) from error
