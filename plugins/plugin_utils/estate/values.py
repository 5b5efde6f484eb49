# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The variables of the estate with all their defaults, those inside of dictionaries too."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import (
    Option,
    Specification,
    load_specification,
)

Values = dict[str, t.Any]
SUBSCRIPTION, REGION, SPACE = "azure_subscription", "azure_region", "azure_address_space"
EXISTING, MACHINES, POOLS = "azure_existing", "azure_machines", "azure_pools"
POD_ROUTES, ROUTED = "azure_pod_routes", "routed"
CNI, ROUTING = "site_cni", "cilium_routing"


def filled(variables: Mapping[str, t.Any], specification: Specification | None = None) -> Values:
    """Return all variables of a site, with defaults where nothing is written.

    Args:
        variables: those of the site, in the types of their options.
        specification: of all roles; read when it is left out.
    """
    known = specification or load_specification()
    return {
        name: _filled(variables.get(name), option)
        for name, option in known.options.items()
        if name in variables or not option.required
    }


def routes_pods(values: Values) -> bool:
    """Tell whether the site's pod network hands packets of pods to the network as they are."""
    return bool(values[CNI] == "cilium" and values[ROUTING] == "native")


def _filled(value: t.Any, option: Option) -> t.Any:
    if value is None:
        value = option.default
    if option.options is None:
        return value
    if isinstance(value, list):
        return [_inside(one, option.options) for one in value if isinstance(one, Mapping)]
    if isinstance(value, Mapping) or option.type == "dict":
        return _inside(value or {}, option.options)
    return value


def _inside(value: Mapping[str, t.Any], options: Mapping[str, Option]) -> Values:
    return {name: _filled(value.get(name), option) for name, option in options.items()}
