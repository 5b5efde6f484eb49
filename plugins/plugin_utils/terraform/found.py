# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What Terraform says there is in Azure, as typed values. Nothing else of its files is kept."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Mapping

_ID = re.compile(
    r"/subscriptions/(?P<subscription>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"/resourceGroups/(?P<group>[A-Za-z0-9_().-]{1,90})"
    r"(?:/providers/(?P<provider>[A-Za-z0-9.]{1,80})(?P<steps>(?:/[A-Za-z0-9_.@-]{1,90}){2,8}))?",
    re.IGNORECASE,
)

GROUPS = "microsoft.resources/resourcegroups"


class ResourceId(t.NamedTuple):
    """The parts of a resource id.

    Args:
        subscription: in lower case.
        group: name of the resource group.
        kind: type in lower case, with its provider, such as ``microsoft.network/virtualnetworks``.
        names: of the resource and those around it, the outermost first.
    """

    subscription: str
    group: str
    kind: str
    names: tuple[str, ...]


def parsed(text: str) -> ResourceId | None:
    """Return the parts of a resource id, None where a text is none.

    Args:
        text: anything; names in Azure have less than 1,000 characters, and longer texts are no ids.
    """
    match = _ID.fullmatch(text) if len(text) < 1000 else None
    if match is None:
        return None
    subscription, group = match["subscription"].lower(), match["group"]
    if match["provider"] is None:
        return ResourceId(subscription, group, GROUPS, (group,))
    steps = match["steps"].split("/")[1:]
    if len(steps) % 2:
        return None
    kind = "/".join([match["provider"], *steps[::2]]).lower()
    return ResourceId(subscription, group, kind, tuple(steps[1::2]))


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """One resource that Terraform knows.

    Args:
        id: its resource id.
        parts: of the id.
        where: its address in Terraform, or ``output NAME``.
        owned: Terraform made it, or took it over; what it only looks up, or names in an output, is not.
        facts: what else is read of it; see ``read.FACTS``.
    """

    id: str
    parts: ResourceId
    where: str
    owned: bool
    facts: Mapping[str, str | tuple[str, ...]]

    @property
    def name(self) -> str:
        """Its own name."""
        return self.parts.names[-1]

    def fact(self, name: str) -> str:
        """Return a fact that is one text, "" where it is not known."""
        value = self.facts.get(name, "")
        return value if isinstance(value, str) else ""

    def listed(self, name: str) -> tuple[str, ...]:
        """Return a fact that is several texts."""
        value = self.facts.get(name, ())
        return () if isinstance(value, str) else value


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """All of it.

    Args:
        form: what was read, for people.
        known: resources in Azure, each id once.
        outputs: texts of outputs that are called like variables, ``azure_region``.
        hidden: names of outputs that are marked as sensitive; their values were not looked at.
    """

    form: str
    known: tuple[Known, ...]
    outputs: Mapping[str, str]
    hidden: tuple[str, ...]

    def of(self, kind: str) -> list[Known]:
        """Return the resources of a type, such as ``Microsoft.Network/virtualNetworks``."""
        return [one for one in self.known if one.parts.kind == kind.lower()]
