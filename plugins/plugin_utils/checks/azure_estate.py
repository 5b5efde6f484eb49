# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The estate in Azure: all that Azure, or the rest of the site, would not take, before anybody is asked."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import (
    address_of,
    address_variable,
    network_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import SPACE, SUBSCRIPTION
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.origins import place_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed_ipv4

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import Path


def check_estate(draft: Draft) -> None:
    """Add what is wrong, each at its line.

    Where a variable has a value that its own declaration refuses, that is said and nothing else: what
    follows from it would be said too.
    """
    options = draft.specification.options
    written = {name for name in options if name.startswith("azure_") and draft.writer(name)}
    if not written or any(problem.path.startswith("azure_") for problem in draft.problems):
        return
    # Only sites that have an estate pay for reading it.
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import given
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.stages import STAGES

    variables = {name: value for name in options if (value := draft.site_value(name)) is not None}
    hosts = {host.name: (str(address_of(host)), host.groups) for host in draft.hosts.values()}
    found = given(variables, hosts)
    for stage in STAGES if found.values[SUBSCRIPTION] else STAGES[:1]:
        faults = [fault for judge in stage for fault in judge(found)]
        for path, message, remedy in faults:
            draft.problems.add(place_in(draft, path), called(path), message, remedy)
        if faults:
            return


def check_rack_addresses(draft: Draft) -> None:
    """No host of the racks has an address of the virtual network: machines of Azure may get it."""
    space = network_of(draft, SPACE)
    if not draft.site_value(SUBSCRIPTION) or space is None:
        return
    for host in draft.members("on_prem"):
        address = parsed_ipv4(str(address_of(host)))
        if address and address in space and "azure" not in host.groups:
            variable = address_variable(host)
            message = f"{address} of host {host.name}, which is on premises, lies in {SPACE} ({space})"
            remedy = "write the address that it has in its rack"
            draft.problems.add(draft.place(host, variable), variable, message, remedy)


def called(path: Path) -> str:
    """Return how a place is called: ``azure_machines[0].disk.kind``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[1:])
    return f"{path[0]}{''.join(steps)}"


def place_in(draft: Draft, path: Path) -> Place:
    """Return the line of a value, or of what it would stand in."""
    variable, *steps = path
    host = draft.writer(str(variable))
    if host is None:
        return draft.site_place(SUBSCRIPTION)
    value: t.Any = host.settings[str(variable)].value
    found = draft.site_place(str(variable))
    for step in steps:
        place: Place | None = None
        if isinstance(value, Mapping) and step in value:
            place = next((place_of(key) for key in value if key == step), None)
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
            place = place_of(value)
        else:
            break
        found = place or found
    return found


CHECKS = (check_estate, check_rack_addresses)
