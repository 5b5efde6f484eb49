# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who may do what with backups, and when they are old: writers delete nothing, alarms wait for a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.backup import STORES, check_token
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults_login import of_identity
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry, entries
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

CONTAINERS, MANAGEMENT = "etcd_backup_containers", "etcd_backup_management"
GC_IDENTITY = "etcd_backup_gc_identity"
SNAPSHOTS, AGE = "etcd_backup_snapshot_seconds", "etcd_backup_drill_max_age_seconds"


def check_collectors(draft: Draft) -> None:
    """Who writes may delete nothing: a collector with the same identity is refused by Azure, each time."""
    writers = {identity for member in draft.members("etcd") for identity in _identities(member)}
    for host in draft.members("etcd_collector"):
        _check_collector(draft, host, writers)


def _check_collector(draft: Draft, host: HostDraft, writers: Collection[str]) -> None:
    given = str(host.values.get(GC_IDENTITY) or "").lower()
    own = {given} if given else set(_identities(host))
    for identity in sorted((own - {""}).intersection(writers)):
        message = f"{identity} is the identity that writes, which may delete nothing"
        remedy = f"write '{GC_IDENTITY}: ...', the client id of the identity that may delete"
        draft.problems.add(draft.place(host, GC_IDENTITY if given else STORES), GC_IDENTITY, message, remedy)
        return


def _identities(host: HostDraft) -> Iterator[str]:
    values = host.values.get(STORES)
    for store in values if isinstance(values, list) else ():
        credential = store.get("credential") if isinstance(store, Mapping) else None
        if isinstance(credential, Mapping) and isinstance(credential.get("client_id"), str):
            yield credential["client_id"].lower()


def check_management(draft: Draft) -> None:
    """A projected token is of somebody, and goes to nobody unencrypted."""
    host, value = draft.writer(MANAGEMENT), draft.site_value(MANAGEMENT)
    if not host or not isinstance(value, Mapping):
        return
    entry = Entry(draft, host, MANAGEMENT, value, host.settings[MANAGEMENT].value)
    given = {name: entry.text(name) for name in ("kind", "client_id", "token_file", "authority", "url")}
    for name, message, remedy in of_identity(given):
        entry.problem(name, message, remedy)
    check_token(entry)


def check_containers(draft: Draft) -> None:
    """Each container is made once, and who writes to it may not delete."""
    seen: dict[tuple[str, ...], str] = {}
    for entry in entries(draft, CONTAINERS):
        place = tuple(entry.text(name) for name in ("subscription", "account", "container"))
        if all(place) and place in seen:
            entry.problem(
                "container", f"is that of {seen[place]} too", "write what holds for it into one entry"
            )
        seen.setdefault(place, entry.path)
        writers, collectors = (
            {str(name).lower() for name in entry.value.get(field) or ()}
            for field in ("writers", "collectors")
        )
        for name in sorted(writers & collectors):
            message = f"{name} is a writer too, and a stolen member could delete its backups"
            entry.problem("collectors", message, "write an identity that no host of the group etcd has")


def check_age(draft: Draft) -> None:
    """What is verified is a snapshot: the last verified one gets as old as the time between two."""
    once = Once(draft.problems)
    for host in draft.members("etcd"):
        between, most = host.values.get(SNAPSHOTS), host.values.get(AGE)
        if not host.values.get(STORES) or not isinstance(between, int) or not isinstance(most, int):
            continue
        if most <= between:
            variable = AGE if AGE in host.settings else SNAPSHOTS
            message = f"an alarm after {most} s ({AGE}) would come between any two snapshots ({between} s)"
            remedy = f"write {2 * between}" if AGE in host.settings else f"write less than {most}"
            once.add(draft.place(host, variable), variable, message, remedy)


CHECKS = (check_collectors, check_management, check_containers, check_age)
