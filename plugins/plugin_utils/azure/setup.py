# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Brings the containers of a site to what its inventory wants, and says which roles have to exist."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.container import (
    DAYS,
    Step,
    StoreSetupError,
    Wanted,
    after,
    before,
    steps,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.management import Management
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.roles import (
    ROLES,
    judge,
    wanted_principals,
)

Connect = Callable[[str], Management]


@dataclass
class Outcome:
    """What was found and done."""

    changes: list[str] = field(default_factory=list)
    diff: list[dict[str, str]] = field(default_factory=list)
    roles: list[dict[str, t.Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    not_seen: list[str] = field(default_factory=list)


def wanted_of(entry: Mapping[str, t.Any]) -> Wanted:
    """Return a container as an entry wants it. Raises StoreSetupError for impossible days."""
    days = int(entry["retention_days"])
    if not DAYS[0] <= days <= DAYS[1]:
        raise StoreSetupError(f"retention_days is {days}", f"write {DAYS[0]} to {DAYS[1]}")
    names = ("subscription", "resource_group", "account", "container")
    return Wanted(**{name: str(entry[name]) for name in names}, retention_days=days)


def set_up(
    entries: Sequence[Mapping[str, t.Any]], connect: Connect, lock: str = "", *, check: bool = False
) -> Outcome:
    """Look at every container and its account, then change what is not as wanted.

    Args:
        entries: of the inventory.
        connect: returns the resource manager for a subscription.
        lock: ACCOUNT/CONTAINER whose policy may be locked, or extended when it is; "" for none.
        check: change nothing.

    Returns:
        What was done, or would be.

    Raises:
        StoreSetupError: an account is not fit for backups, or a container cannot be made as wanted; it says
            what was changed until then.
    """
    outcome = Outcome()
    try:
        planned = _plan(entries, connect, lock, outcome)
    except StoreSetupError as error:
        raise StoreSetupError(f"{error}; nothing was changed") from None
    done: list[str] = []
    for manager, wanted, step in () if check else planned:
        try:
            manager.apply(wanted, step)
        except StoreSetupError as error:
            raise StoreSetupError(f"{error}; done before: {', '.join(done) or 'nothing'}") from None
        done.append(step.text)
    return outcome


def _plan(
    entries: Sequence[Mapping[str, t.Any]], connect: Connect, lock: str, outcome: Outcome
) -> list[tuple[Management, Wanted, Step]]:
    """Look at everything and return the steps of all containers."""
    all_wanted = [wanted_of(entry) for entry in entries]
    if lock and lock not in [wanted.name for wanted in all_wanted]:
        raise StoreSetupError(f"ironspan_lock names {lock}, which is none of this site's containers")
    planned: list[tuple[Management, Wanted, Step]] = []
    unfit: list[str] = []
    for entry, wanted in zip(entries, all_wanted, strict=True):
        manager = connect(wanted.subscription)
        unfit += manager.account_faults(wanted)
        found = manager.find(wanted)
        made = steps(wanted, found, lock == wanted.name)
        planned += [(manager, wanted, step) for step in made]
        outcome.changes += [step.text for step in made]
        if made:
            outcome.diff.append(
                {
                    "before_header": wanted.name,
                    "after_header": wanted.name,
                    "before": _shown(before(found)),
                    "after": _shown(after(wanted, found, made)),
                }
            )
        _look_at_roles(manager, wanted, entry, outcome)
    if unfit:
        raise StoreSetupError("no backups should go there: " + "; ".join(unfit))
    return planned


def _look_at_roles(manager: Management, wanted: Wanted, entry: Mapping[str, t.Any], outcome: Outcome) -> None:
    outcome.roles += [{"scope": wanted.scope, "role": role.definition(wanted.group_scope)} for role in ROLES]
    for role, principal in wanted_principals(entry):
        assigned = manager.assigned(wanted, principal)
        if assigned is None:
            outcome.not_seen.append(f"the roles of {principal} on {wanted.name} ({role.name})")
        elif said := judge(role, principal, assigned):
            outcome.wrong.append(f"{wanted.name}: {said}")


def _shown(state: Mapping[str, t.Any]) -> str:
    return json.dumps(state, indent=1, sort_keys=True) + "\n" if state else ""
