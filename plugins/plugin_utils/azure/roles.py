# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The roles on a container of backups, and whether what is assigned comes to them."""

from __future__ import annotations

import fnmatch
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SERVICE = "Microsoft.Storage/storageAccounts/blobServices"
READ, WRITE, ADD, DELETE = (
    f"{_SERVICE}/containers/blobs/{what}" for what in ("read", "write", "add/action", "delete")
)
SEE_CONTAINER = f"{_SERVICE}/containers/read"


@dataclass(frozen=True)
class Role:
    """A custom role: what it lets an identity do with blobs."""

    key: str
    name: str
    description: str
    data_actions: tuple[str, ...]

    def definition(self, scope: str) -> dict[str, t.Any]:
        """Return what ``az role definition create --role-definition`` takes.

        Args:
            scope: id of the resource group below which it can be assigned.
        """
        return {
            "Name": self.name,
            "IsCustom": True,
            "Description": self.description,
            "Actions": [SEE_CONTAINER],
            "NotActions": [],
            "DataActions": list(self.data_actions),
            "NotDataActions": [],
            "AssignableScopes": [scope],
        }


ROLES = (
    Role("writers", "ironspan backup writer", "Writes and reads backups, deletes none.", (READ, WRITE, ADD)),
    Role(
        "collectors",
        "ironspan backup garbage collector",
        "Deletes backups whose retention is over.",
        (READ, DELETE),
    ),
    Role("drills", "ironspan backup drill", "Reads backups and records what drills prove.", (READ, WRITE)),
    Role("readers", "ironspan backup reader", "Reads backups, for restores and drills.", (READ,)),
)


@dataclass(frozen=True)
class Allowed:
    """The data actions of one role definition, with wildcards, and what it takes from them."""

    actions: tuple[str, ...]
    but: tuple[str, ...] = ()

    def covers(self, action: str) -> bool:
        """Say whether it allows an action; Azure compares without case."""
        return _any(action, self.actions) and not _any(action, self.but)


def _any(action: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)


def judge(role: Role, principal: str, assigned: Iterable[Allowed]) -> str:
    """Say what is wrong with the roles of an identity; "" when they come to the role that it should have.

    Args:
        role: that it should have.
        principal: object id of the identity.
        assigned: role definitions assigned to it at the container and above.
    """
    given = tuple(assigned)
    has = {action for action in (READ, WRITE, ADD, DELETE) if any(one.covers(action) for one in given)}
    missing = [_short(action) for action in role.data_actions if action not in has]
    # A reader or writer that may delete, and a collector that may write, could undo the protection.
    extra = [_short(action) for action in sorted(has - set(role.data_actions))]
    said = [f"lacks {', '.join(missing)}"] if missing else []
    said += [f"may also {', '.join(extra)}"] if extra else []
    return f"{principal} ({role.name}) {' and '.join(said)}" if said else ""


def _short(action: str) -> str:
    return action.removeprefix(f"{_SERVICE}/containers/blobs/").partition("/")[0]


def wanted_principals(entry: Mapping[str, t.Any]) -> list[tuple[Role, str]]:
    """Return the identities that an entry of the inventory names, each with its role."""
    return [(role, str(principal)) for role in ROLES for principal in entry.get(role.key) or ()]
