# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the data of an estate, each with its place in the variables. Asks nobody."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import EstateError, declared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.values import (
    SUBSCRIPTION,
    Values,
    filled,
)

Path = tuple[str | int, ...]
Fault = tuple[Path, str, str]
"""(variable and keys inside of it, what is wrong, what to write instead)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """What judges look at.

    Args:
        values: all variables of the site, defaults included.
        hosts: of the inventory: name -> (address, groups).
        estate: what the values make; None where that cannot be computed.
    """

    values: Values
    hosts: Mapping[str, tuple[str, tuple[str, ...]]]
    estate: Estate | None
    why: str = ""
    """Why it cannot."""


Judge = Callable[[Given], Iterator[Fault]]


def given(variables: Mapping[str, t.Any], hosts: Mapping[str, tuple[str, tuple[str, ...]]]) -> Given:
    """Return what judges look at.

    Args:
        variables: of the site.
        hosts: of the inventory.
    """
    values = filled(variables)
    try:
        return Given(values, hosts, declared(variables))
    except EstateError as error:
        return Given(values, hosts, None, error.message)


def not_computed(given: Given) -> Iterator[Fault]:
    """What nothing can be made of is refused, also where no judge knows why."""
    if given.estate is None and given.values[SUBSCRIPTION]:
        yield (SUBSCRIPTION,), given.why, "correct the value that it names"


def without_subscription(given: Given) -> Iterator[Fault]:
    """Machines and pools without a subscription would be made nowhere."""
    for name in ("azure_machines", "azure_pools", "azure_storage", "azure_endpoints"):
        if given.values[name] and not given.values[SUBSCRIPTION]:
            yield (name,), f"is written, and {SUBSCRIPTION} is not", f"write {SUBSCRIPTION}, or take it out"
            return
