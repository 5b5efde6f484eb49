# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the doctor knows, and what it says about it."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import Encryption
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

Content = dict[str, t.Any]
PROBLEM, NOTICE = "problem", "notice"
"""A problem makes the site unhealthy; a notice is worth knowing."""
HOSTS_SHOWN = 8


class Finding(t.NamedTuple):
    """One thing that the doctor found.

    Args:
        level: ``problem`` or ``notice``.
        what: one clause without a full stop.
        remedy: the command that fixes it, or the sentence that says what to do.
        hosts: the hosts it is about, empty for the whole site.
    """

    level: str
    what: str
    remedy: str
    hosts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Controller:
    """What the controller knows by itself.

    Args:
        lock_holder: who changes the site now, empty when nobody does.
        open_plans: applied plans whose run did not end well: digest, file and when it was begun.
        authorities: name of a certificate authority to the Unix time at which it ends.
        rotating: name of an authority that is being changed to the stage of that.
        no_documents: why hosts were not compared with what they shall be, empty when they were.
        built: whether the site's PKI store exists, which every site that was built has.
        encryption: how secrets are stored in etcd.
        tpms: worker to what is recorded of its TPM, as JSON, where the inventory asks for it.
    """

    lock_holder: str = ""
    open_plans: Sequence[Content] = ()
    authorities: Mapping[str, int] = dataclasses.field(default_factory=dict)
    no_documents: str = ""
    built: bool = True
    encryption: Encryption = dataclasses.field(default_factory=Encryption)
    rotating: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tpms: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was asked.

    Args:
        site: from the inventory.
        now: Unix time.
        hosts: host name to its answer; ``unreachable`` or ``error`` in it says why there is none. Hosts that
            were not asked are left out.
        api: the cluster's answers; ``error`` in it says why there are none.
        members: what the etcd members say; ``etcd_error`` why they were not asked.
        controller: what is known without asking anybody.
        events: what the members of the etcd for events say, empty where there is none.
        ironic: what the site's own Ironic says, empty where there is none; ``error`` in it says why nothing.
        estate: how the estate in Azure stands, as ``estate_checks.ask_estate`` says it.
        fsync: member of etcd to its p99 of fdatasync in seconds.
        alerts: whether alerts are taken, as ``alert_checks.ask_alerts`` says it; else empty.
    """

    site: Site
    now: float
    hosts: Mapping[str, Content] = dataclasses.field(default_factory=dict)
    api: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    members: Sequence[Member] = ()
    etcd_error: str = ""
    controller: Controller = Controller()
    events: Sequence[Member] = ()
    ironic: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    estate: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    fsync: Mapping[str, float] = dataclasses.field(default_factory=dict)
    alerts: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    def answers(self) -> Iterator[tuple[str, Content]]:
        """Yield the hosts that answered."""
        for name, answer in self.hosts.items():
            if "unreachable" not in answer and "error" not in answer:
                yield name, answer


def apply_command(site: Site, hosts: Iterable[str]) -> str:
    """Return the command that makes hosts as the inventory wants them; a plan where the site asks for one."""
    return operation(site, f"--limit {','.join(hosts)}")


def operation(site: Site, words: str = "", *, destructive: bool = False) -> str:
    """Return the command that runs an operation, or site.yml; a plan where the site asks for approvals.

    Args:
        site: with its approvals.
        words: the operation's name, if any, and its options.
        destructive: it needs consent, which belongs to applying.
    """
    consent = "--allow-destructive" if destructive else ""
    if site.plan.approvals:
        then = f"then let it be approved and apply it{f' with {consent}' if consent else ''}"
        return f"{' '.join(filter(None, ('ironspan plan', words)))}, {then}"
    return " ".join(filter(None, ("ironspan apply", words, consent)))


def together(
    level: str, found: Iterable[tuple[str, str]], remedy: Callable[[list[str]], str]
) -> list[Finding]:
    """Return one finding for all hosts of which the same is to be said.

    Args:
        level: of the findings.
        found: host and what is wrong with it.
        remedy: called with the hosts.
    """
    hosts: dict[str, list[str]] = {}
    for host, what in found:
        hosts.setdefault(what, []).append(host)
    return [Finding(level, what, remedy(names), tuple(names)) for what, names in hosts.items()]


def names(hosts: Sequence[str], most: int = HOSTS_SHOWN) -> str:
    """Return names of hosts, not all of many."""
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def size(amount: float) -> str:
    """Return a number of bytes as people say it."""
    for unit, length in (("GiB", 2**30), ("MiB", 2**20)):
        if amount >= length:
            return f"{amount / length:.1f} {unit}"
    return f"{amount / 1024:.0f} KiB"
