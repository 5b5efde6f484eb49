# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Resource ids: taken apart, put together, compared without case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

GROUP_TYPE = "Microsoft.Resources/resourceGroups"
DEPLOYMENT_TYPE = "Microsoft.Resources/deployments"
STACK_TYPE = "Microsoft.Resources/deploymentStacks"
_GROUP = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)(/resourceGroups/(?P<group>[^/]+))?", re.IGNORECASE
)


@dataclass(frozen=True)
class ResourceId:
    """The id of a resource.

    Attributes:
        scope: What it is in: a subscription, a resource group, or a resource that it extends.
        provider: Namespace, for example Microsoft.Network.
        types: One for each level, for example ("virtualNetworks", "subnets").
        names: As many.
    """

    scope: str
    provider: str
    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def type(self) -> str:
        """The full type."""
        return "/".join((self.provider, *self.types))

    @property
    def name(self) -> str:
        """The last name."""
        return self.names[-1]

    @cached_property
    def text(self) -> str:
        """The id as it is written."""
        pairs = "/".join(f"{kind}/{name}" for kind, name in zip(self.types, self.names, strict=True))
        if self.type.lower() == GROUP_TYPE.lower():
            return f"{self.scope}/{pairs}"
        return f"{self.scope}/providers/{self.provider}/{pairs}"

    @property
    def key(self) -> str:
        """What two ids of one resource have in common."""
        return self.text.lower()

    @property
    def parent(self) -> ResourceId | None:
        """What it is a child of; None at the top."""
        if len(self.types) == 1:
            return None
        return ResourceId(self.scope, self.provider, self.types[:-1], self.names[:-1])

    @property
    def group(self) -> str:
        """Name of its resource group; empty when it is in none."""
        found = _GROUP.match(self.text)
        return (found["group"] or "") if found else ""

    @property
    def subscription(self) -> str:
        """Its subscription; empty when it is in none."""
        found = _GROUP.match(self.text)
        return found["subscription"] if found else ""


def parse(text: str) -> ResourceId | None:
    """Return a resource's id; None when the text names no resource (a subscription is none)."""
    scope, _, rest = text.rstrip("/").rpartition("/providers/")
    if not scope:
        found = _GROUP.fullmatch(text.rstrip("/"))
        if found is None or found["group"] is None:
            return None
        names = (found["group"],)
        return ResourceId(
            f"/subscriptions/{found['subscription']}", "Microsoft.Resources", ("resourceGroups",), names
        )
    provider, *parts = rest.split("/")
    if not parts or len(parts) % 2 or not all(parts) or not scope.startswith("/"):
        return None
    return ResourceId(scope, provider, tuple(parts[::2]), tuple(parts[1::2]))


def same(one: object, other: object) -> bool:
    """Whether two ids are of one resource."""
    return str(one).rstrip("/").lower() == str(other).rstrip("/").lower()


def below(key: str, scope: str) -> bool:
    """Whether the resource `key` is in `scope` or a child of it; both in lower case."""
    return key.startswith(scope.rstrip("/").lower() + "/")
