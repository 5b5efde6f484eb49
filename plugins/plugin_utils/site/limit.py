# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What ``--limit`` leaves of a run. Plays on localhost are left out by it like any others."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from ansible import constants, context
from ansible.inventory.manager import split_host_pattern

LEFT_OUT = (
    "--limit leaves localhost out: objects of the cluster are not applied and the cluster is not verified. "
    "Add ,localhost to the limit for that."
)


def limited_to(variables: Mapping[str, t.Any]) -> list[str] | None:
    """Return the hosts of this run when ``--limit`` leaves localhost out, None when it does not.

    Args:
        variables: the variables of a task; only ``hostvars`` is used.
    """
    try:
        manager = variables["hostvars"]._inventory
        if not manager._subset or manager.get_hosts("localhost", ignore_restrictions=True):
            return None
        return [str(host.name) for host in manager.get_hosts("all", ignore_restrictions=True)]
    except (AttributeError, KeyError):  # another ansible-core: as if there were no limit
        return None


def outside(variables: Mapping[str, t.Any], hosts: Sequence[str]) -> list[str]:
    """Return those of these hosts that ``--limit`` leaves out of the run, localhost in it or not.

    Args:
        variables: the variables of a task; only ``hostvars`` is used.
        hosts: names of hosts of the inventory.
    """
    try:
        manager = variables["hostvars"]._inventory
        if not manager._subset:
            return []
        inside = {str(host.name) for host in manager.get_hosts("all", ignore_restrictions=True)}
    except (AttributeError, KeyError):  # another ansible-core: as if there were no limit
        return []
    return [host for host in hosts if host not in inside]


def leaves_localhost_out(variables: Mapping[str, t.Any]) -> bool:
    """Tell whether ``--limit`` leaves localhost out, also before the first play, when Ansible cannot say.

    Args:
        variables: the variables of a play.
    """
    if "hostvars" in variables:
        return limited_to(variables) is not None
    groups: Mapping[str, t.Any] = variables.get("groups") or {}
    patterns = list(_patterns(context.CLIARGS.get("subset") or ""))
    return bool(patterns) and not any(_names_localhost(pattern, groups) for pattern in patterns)


def _patterns(limit: str) -> Iterator[str]:
    """Yield the patterns of a limit, those in files (@FILE) too."""
    for pattern in split_host_pattern(limit):
        if pattern.startswith("@"):
            yield from (line.strip() for line in Path(pattern[1:]).read_text().splitlines() if line.strip())
        else:
            yield pattern


def _names_localhost(pattern: str, groups: Mapping[str, t.Any]) -> bool:
    """Tell whether a pattern has localhost in it: by name, or by a group where the inventory lists it."""
    if pattern in constants.LOCALHOST:
        return True
    if pattern.startswith(("!", "&")):
        return False
    homes = [str(group) for group, hosts in groups.items() if "localhost" in hosts]
    return bool(homes) and any(fnmatch(name, pattern) for name in ("all", "localhost", *homes))
