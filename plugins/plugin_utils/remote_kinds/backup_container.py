# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Containers of Azure Blob storage that backups of etcd go to, and what retains their content.

ironspan deletes none: one that leaves the inventory stays as it is, and so does what was written there.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import container
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.container import StoreSetupError, Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.management import Management
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.roles import (
    ROLES,
    judge,
    wanted_principals,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import VARIABLES as ESTATE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.declared import declared as estate_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Effect, Found, State, Step

CONTAINERS, MANAGEMENT, LOCK = "etcd_backup_containers", "etcd_backup_management", "ironspan_lock"
VARIABLES = tuple(dict.fromkeys((CONTAINERS, MANAGEMENT, *ESTATE)))
Connect = Callable[[str], Management]
_PLACE = ("subscription", "resource_group", "account", "container")
_PRINCIPALS = tuple(role.key for role in ROLES)
_EFFECTS: Mapping[str, frozenset[Effect]] = {
    "close": frozenset({"takes_access"}),
    "extend": frozenset({"forever"}),
    "lock": frozenset({"forever"}),
}
_SECONDS = 3


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the containers of the inventory, the estate's first; ``ironspan_lock`` names the one to lock.

    Raises:
        StoreSetupError: days that Azure refuses, or a container to lock that is none of the site's.
    """
    lock = str(arguments.get(LOCK) or "")
    made: dict[str, State | None] = {}
    for entry in (*_of_estate(variables), *(variables.get(CONTAINERS) or ())):
        wanted = _wanted(entry)
        days = wanted.retention_days
        if not container.DAYS[0] <= days <= container.DAYS[1]:
            raise StoreSetupError(
                f"retention_days is {days}", f"write {container.DAYS[0]} to {container.DAYS[1]}"
            )
        made[wanted.name] = {
            **{key: str(entry[key]) for key in _PLACE},
            "retention_days": days,
            "locked": lock == wanted.name,
            **{key: [str(one) for one in entry.get(key) or ()] for key in _PRINCIPALS},
        }
    if lock and lock not in made:
        raise StoreSetupError(f"{LOCK} names {lock}, which is none of this site's containers")
    return made


def _of_estate(variables: Mapping[str, t.Any]) -> Iterator[Mapping[str, t.Any]]:
    """Return the container that the estate makes; its policy is made here, and nowhere else."""
    estate = estate_of(variables)
    if estate is None or estate.backup is None or estate.backup.exists:
        return
    yield {
        "subscription": estate.subscription,
        "resource_group": estate.groups["data"],
        "account": estate.backup.account,
        "container": estate.backup.container,
        "retention_days": estate.backup.retention_days,
    }


def opened(variables: Mapping[str, t.Any]) -> BackupContainer:
    """Return the kind; the resource manager is spoken to once something is asked."""
    settings = {**(variables.get(MANAGEMENT) or variables.get("azure_management") or {})}

    def connect(subscription: str) -> Management:
        return Management(connection(settings), subscription)

    return BackupContainer(connect)


class BackupContainer:
    """The kind.

    Args:
        connect: returns the resource manager for a subscription.
    """

    name = "backup_container"
    consent = LOCK
    at_once = 1
    most_failures = 0

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._managers: dict[str, Management] = {}

    def _manager(self, wanted: Wanted) -> Management:
        if wanted.subscription not in self._managers:
            self._managers[wanted.subscription] = self._connect(wanted.subscription)
        return self._managers[wanted.subscription]

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Look at every account and container, and at the roles of the identities that are named.

        Raises:
            StoreSetupError: an account is not fit for backups.
        """
        found, unfit = {}, []
        for name, state in wanted.items():
            if state is None:
                continue
            one = _wanted(state)
            manager = self._manager(one)
            unfit += manager.account_faults(one)
            there = manager.find(one)
            shown = container.before(there) if there else None
            wrong, not_seen = _judged(manager, one, state)
            roles = [{"scope": one.scope, "role": role.definition(one.group_scope)} for role in ROLES]
            notes = [
                f"has to exist: {role.name}: {', '.join(role.data_actions)} on {one.scope}" for role in ROLES
            ]
            found[name] = Found(
                shown, one.scope if there else "", "", (*not_seen, *notes), tuple(wrong), {"roles": roles}
            )
        if unfit:
            raise StoreSetupError("no backups should go there: " + "; ".join(unfit))
        return found

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Work out the steps.

        Raises:
            StoreSetupError: a locked policy is not as wanted and can never be again.
        """
        if wanted is None:
            return []
        made = container.steps(_wanted(wanted), _found(found), bool(wanted["locked"]))
        return [
            Step(step.verb, step.text, _EFFECTS.get(step.verb, frozenset()), seconds=_SECONDS)
            for step in made
        ]

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return the container as it will be."""
        if wanted is None:
            return found
        one, there = _wanted(wanted), _found(found)
        return container.after(one, there, container.steps(one, there, bool(wanted["locked"])))

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        """Make one change."""
        if wanted is not None:
            one = _wanted(wanted)
            self._manager(one).apply(one, container.Step(t.cast("container.Verb", step.verb), step.what))

    def lane(self, name: str, wanted: State | None) -> str:
        """Return the account, which refuses to be changed in two places at the same time."""
        return name.partition("/")[0]


def _wanted(state: Mapping[str, t.Any]) -> Wanted:
    return Wanted(**{key: str(state[key]) for key in _PLACE}, retention_days=int(state["retention_days"]))


def _found(state: State | None) -> container.Found | None:
    if state is None:
        return None
    there = state["policy"]
    policy = there and container.Policy(there["retention_days"], there["append_allowed"], there["locked"])
    return container.Found(state["public"], policy)


def _judged(manager: Management, wanted: Wanted, state: State) -> tuple[list[str], list[str]]:
    """Return what is wrong with the roles of identities, and what may not be seen."""
    wrong, not_seen = [], []
    for role, principal in wanted_principals(state):
        assigned = manager.assigned(wanted, principal)
        if assigned is None:
            not_seen.append(f"not seen: the roles of {principal} on {wanted.name} ({role.name})")
        elif said := judge(role, principal, assigned):
            wrong.append(f"{wanted.name}: {said}")
    return wrong, not_seen
