# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What rules have in common: what they see, references that must lead somewhere, what is in use."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ironspan.lab.azure.arm import ids, kinds
from ironspan.lab.azure.arm.errors import ArmError
from ironspan.lab.azure.arm.ids import ResourceId
from ironspan.lab.azure.arm.state import Resource, State


@dataclass
class Write:
    """A resource that is to be written.

    Attributes:
        state: Everything else.
        id: Its id.
        document: What it becomes; rules change it.
        old: What it is now; None for a new one.
    """

    state: State
    id: ResourceId
    document: dict[str, Any]
    old: Resource | None

    @property
    def properties(self) -> dict[str, Any]:
        """What it is to have."""
        found: dict[str, Any] = self.document.setdefault("properties", {})
        return found

    def kept(self, *path: str) -> Any:
        """Return a value that it has now, None when there is none."""
        here: Any = self.old.document if self.old is not None else None
        for name in path:
            here = here.get(name) if isinstance(here, dict) else None
        return here

    def default(self, **values: Any) -> None:
        """Set properties that were not sent."""
        for name, value in values.items():
            if self.properties.get(name) is None:
                self.properties[name] = value

    def keep(self, **values: Any) -> None:
        """Set properties that only Azure writes, and that stay as they are once they are there."""
        for name, value in values.items():
            kept = self.kept("properties", name)
            self.properties[name] = value if kept is None else kept


def _nothing(write: Write) -> None:
    """Most types ask for nothing more."""


def _nobody(state: State, resource: Resource) -> None:
    """Most types can be deleted at any time."""


@dataclass(frozen=True)
class Rules:
    """What is special about a type.

    Attributes:
        preflight: Refuses what can be seen before anything is made: sizes, quota, names. Raises ArmError.
        check: Refuses what the rest of the estate forbids. Raises ArmError.
        complete: Adds defaults and what only Azure knows.
        deletable: Refuses a deletion. Raises ArmError.
        deleted: Takes what goes with it.
        done: Makes what comes with it once it is there.
    """

    preflight: Callable[[Write], None] = _nothing
    check: Callable[[Write], None] = _nothing
    complete: Callable[[Write], None] = _nothing
    deletable: Callable[[State, Resource], None] = _nobody
    deleted: Callable[[State, Resource], None] = _nobody
    done: Callable[[State, Resource], None] = _nobody


def named(items: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list."""
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield item


def reference(value: Any) -> str:
    """Return the id of {"id": ...}; empty when there is none."""
    return str(value.get("id") or "") if isinstance(value, dict) else ""


def links(value: Any) -> Iterator[str]:
    """Yield the ids that a body refers to."""
    if isinstance(value, dict):
        if str(value.get("id", "")).lower().startswith("/subscriptions/"):
            yield str(value["id"])
        for name, one in value.items():
            if name == "userAssignedIdentities" and isinstance(one, dict):
                yield from one
            elif name != "id":
                yield from links(one)
        for name in ("privateLinkServiceId", "sourceResourceId", "privateDnsZoneId"):
            if str(value.get(name, "")).lower().startswith("/subscriptions/"):
                yield str(value[name])
    elif isinstance(value, list):
        for one in value:
            yield from links(one)


def check_links(write: Write, own: ResourceId) -> None:
    """Refuse references that lead nowhere.

    Types that the lab does not know (an ExpressRoute circuit, a gallery's image) are taken as there.

    Raises:
        ArmError: As the resource's provider words it.
    """
    for link in links(write.document.get("properties", {})):
        _check_link(write, own, link)
    for link in (write.document.get("identity") or {}).get("userAssignedIdentities") or {}:
        _check_link(write, own, link)


def _check_link(write: Write, own: ResourceId, link: str) -> None:
    parsed = ids.parse(link)
    if parsed is None or ids.same(link, own.text) or ids.below(link.lower(), own.text):
        return
    top = ResourceId(parsed.scope, parsed.provider, parsed.types[:1], parsed.names[:1])
    if kinds.known(top.type) is None or write.state.part(link) is not None:
        return
    if own.provider == "Microsoft.Network":
        raise ArmError(
            400,
            "InvalidResourceReference",
            f"Resource {link} referenced by resource {own.text} was not found. Please make sure that the "
            "referenced resource exists, and that both resources are in the same region.",
        )
    raise ArmError(
        404,
        "NotFound",
        f"The entity was not found: resource '{link}' referenced by '{own.text}'.",
        target=link,
    )


def users(state: State, id: str) -> list[Resource]:
    """Return the resources that refer to `id` or to a part of it, in what was written for them."""
    wanted = id.lower()
    found = []
    for one in state.resources.values():
        if one.key == wanted or ids.below(one.key, wanted):
            continue
        others = (link.lower() for link in links(one.document) if not ids.below(link.lower(), one.key))
        if any(link == wanted or ids.below(link, wanted) for link in others):
            found.append(one)
    return found


def in_use(code: str, text: str = "is in use by") -> Callable[[State, Resource], None]:
    """Return a rule: a resource cannot be deleted while others refer to it."""

    def deletable(state: State, resource: Resource) -> None:
        by = users(state, resource.id)
        if by:
            name = resource.document["name"]
            raise ArmError(
                400,
                code,
                f"{resource.type.rpartition('/')[2]} {name} {text} {by[0].id} and cannot be deleted.",
            )

    return deletable


def check_name(write: Write, pattern: str, code: str = "InvalidResourceName") -> None:
    """Refuse a name that the type does not allow. Raises ArmError."""
    if re.fullmatch(pattern, write.id.name) is None:
        raise ArmError(
            400,
            code,
            f"Resource name {write.id.name} is invalid. The name must match '{pattern}'.",
            target=write.id.name,
        )


def guid() -> str:
    """A new GUID."""
    return str(uuid.uuid4())


def stable_guid(what: str) -> str:
    """The GUID that stands for `what`, in any case."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, what.lower()))
