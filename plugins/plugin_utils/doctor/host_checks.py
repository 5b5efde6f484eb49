# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with hosts, from their own answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Evidence,
    Finding,
    apply_command,
    duration,
    operation,
    size,
    together,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.lost import fix
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.plan_checks import resumable
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers

DISK_PROBLEM, DISK_NOTICE = 0.10, 0.15
"""Free share of a file system. The kubelet evicts pods below 10 % (nodefs.available) and removes images above
85 % in use (imageGCHighThresholdPercent); Kubernetes' documentation of node-pressure eviction."""
INODES_PROBLEM = 0.05
"""The kubelet's nodefs.inodesFree."""
RESTARTS = 5
"""A service that systemd started so often again is not well, although it may run now."""
TRIAL_LATE_S = 300
"""Going back takes a while, restarts of services included."""
FRESH_S = 600
"""A transaction younger than this may be one at work."""
_ADDRESS = re.compile(r"""["']?\b\d+\.\d+\.\d+\.\d+\b["']?""")
SUSPICIOUS = {
    "spoofed": "sent packets with the address of somebody else",
    "metadata": "asked for the credentials of a cloud",
}
"""Counters of the table ironspan-egress that grow by no mistake of a configuration alone."""


def reachable(evidence: Evidence) -> Iterator[Finding]:
    """Hosts that cannot be reached, or cannot run a module."""
    for key, what in (("unreachable", "cannot be reached"), ("error", "cannot be looked at")):
        # Without its own address the reason is the same for all.
        found = [
            (name, f"{what}: {_ADDRESS.sub('the host', answer[key]).rstrip(' .:')}")
            for name, answer in evidence.hosts.items()
            if key in answer
        ]
        yield from together(
            PROBLEM,
            found,
            lambda hosts: (
                "check power, link, SSH address, key and host key; "
                f"then ironspan doctor --limit {','.join(hosts)}"
            ),
        )


def clock(evidence: Evidence) -> Iterator[Finding]:
    """Clocks that differ from the controller's by more than the site allows."""
    wrong: list[tuple[str, str]] = []
    for name, answer in evidence.answers():
        allowed = float(evidence.site.hosts[name].variables.get("base_max_clock_skew_seconds") or 5)
        skew, uncertain = answer["skew_s"], answer["skew_uncertain_s"]
        if abs(skew) - uncertain > allowed:
            direction = "ahead of" if skew > 0 else "behind"
            wrong.append((name, f"the clock is {duration(abs(skew))} {direction} the controller's"))
    yield from together(
        PROBLEM,
        wrong,
        lambda hosts: (
            f"ssh {hosts[0]} timedatectl set-ntp true; certificates and tokens are refused until it is right"
        ),
    )


def disks(evidence: Evidence) -> Iterator[Finding]:
    """File systems that are nearly full, or cannot be written."""
    for name, answer in evidence.answers():
        for disk in answer["disks"]:
            path = disk["path"]
            free = disk["free_bytes"] / disk["bytes"]
            if disk["read_only"]:
                remedy = f"ssh {name} journalctl -k -g 'I/O error|remount' and replace the disk if it fails"
                yield Finding(PROBLEM, f"{path} is mounted read-only", remedy, (name,))
            elif free < DISK_NOTICE:
                level = PROBLEM if free < DISK_PROBLEM else NOTICE
                what = f"{path} has {size(disk['free_bytes'])} free, {free:.0%} of {size(disk['bytes'])}"
                yield Finding(
                    level, what, f"ssh {name} du -xh --max-depth=3 {path} | sort -h | tail", (name,)
                )
            elif disk["inodes"] and disk["free_inodes"] / disk["inodes"] < INODES_PROBLEM:
                what = f"{path} has {disk['free_inodes']} of {disk['inodes']} inodes left"
                yield Finding(PROBLEM, what, f"ssh {name} du -x --inodes --max-depth=3 {path}", (name,))


def services(evidence: Evidence) -> Iterator[Finding]:
    """Services of the cluster that do not run, and others that failed."""
    site = evidence.site
    stopped: list[tuple[str, str]] = []
    closed: list[tuple[str, str]] = []
    restless: list[tuple[str, str]] = []
    failed: list[tuple[str, str]] = []
    for name, answer in evidence.answers():
        for unit, state in answer["units"].items():
            if all_layers().units.get(unit) not in site.hosts[name].layers:
                continue
            if unit == "etcd.service" and answer.get("etcd_closed"):
                closed.append((name, "etcd is closed: its database is older than its backup, or another one"))
            elif state["active"] not in ("active", "activating", "reloading"):
                stopped.append((name, f"{unit} is {state['active']} ({state['result'] or state['sub']})"))
            elif int(state["restarts"] or 0) >= RESTARTS:
                restless.append((name, f"{unit} was started again {state['restarts']} times by systemd"))
        failed += [(name, f"{unit} failed") for unit in answer["failed_units"] if unit not in answer["units"]]
    yield from together(
        PROBLEM,
        closed,
        lambda hosts: (
            f"{operation(site, 'etcd_restore', destructive=True)}, or, to go on with this database, "
            "ironspan backup accept --allow-destructive: docs/restore.md"
        ),
    )
    yield from together(
        PROBLEM,
        [
            (name, "the backup store has objects that this site did not write: docs/backup.md")
            for name, answer in evidence.answers()
            if answer.get("backup_strangers")
        ],
        lambda hosts: "ironspan backup list",
    )
    yield from together(PROBLEM, stopped, lambda hosts: fix(evidence, hosts))
    yield from together(NOTICE, restless, lambda hosts: f"ssh {hosts[0]} journalctl -b -p warning")
    yield from together(NOTICE, failed, lambda hosts: f"ssh {hosts[0]} systemctl status --failed")


def drift(evidence: Evidence) -> Iterator[Finding]:
    """Hosts that differ from what the inventory wants, or do not fit it."""
    site = evidence.site
    differing: list[tuple[str, str]] = []
    unfit: list[tuple[str, str]] = []
    unknown: list[tuple[str, str]] = []
    for name, answer in evidence.answers():
        found = answer["drift"]
        if found.get("error"):
            unknown.append((name, f"cannot be compared with its document: {found['error']}"))
        for verdict in found.get("verdicts") or ():
            if verdict["check"] == "trial":
                continue  # the transaction says it better
            text = f"does not fit: {verdict['check']} is {verdict['found']}, wanted {verdict['wanted']}"
            unfit.append((name, text))
        changes = [*(found.get("changes") or ()), *(found.get("pending") or ())]
        if changes:
            more = max(0, int(found.get("count") or 0) - len(found["changes"]))
            listed = ", ".join(f"{change['resource']}" for change in changes[:6])
            rest = max(0, len(changes) - 6) + more
            differing.append((name, f"differs in {listed}{f' and {rest} more' if rest else ''}"))
    yield from together(
        PROBLEM, unfit, lambda hosts: f"ironspan apply assess --limit {','.join(hosts)}; it says what to do"
    )
    yield from together(PROBLEM, unknown, lambda hosts: apply_command(site, hosts))
    yield from together(PROBLEM, differing, lambda hosts: fix(evidence, hosts))


def transactions(evidence: Evidence) -> Iterator[Finding]:
    """Changes that a killed run left half done."""
    for name, answer in evidence.answers():
        found = answer["transaction"]
        if not found or (evidence.controller.lock_holder and found["seconds"] < FRESH_S):
            continue
        until = found.get("trial_until")
        if until:
            yield _trial(name, float(until) - evidence.now)
            continue
        kept = [plan["file"] for plan in resumable(evidence) if plan["digest"] == found["plan"]]
        remedy = f"ironspan apply {kept[0]}" if kept else apply_command(evidence.site, [name])
        what = f"a change was cut short {duration(found['seconds'])} ago, the host is between two states"
        yield Finding(PROBLEM, what, f"{remedy}; it resumes", (name,))


def _trial(name: str, left: float) -> Finding:
    """Return what to say of changes that are on trial."""
    if left > -TRIAL_LATE_S:
        what = f"changes are on trial and go back in {duration(max(0.0, left))}"
        return Finding(NOTICE, what, f"ironspan confirm --limit {name}, to keep them", (name,))
    what = f"changes on trial should have gone back {duration(-left)} ago"
    return Finding(PROBLEM, what, f"ironspan confirm --revert --limit {name}", (name,))


def egress(evidence: Evidence) -> Iterator[Finding]:
    """Hosts whose pods are not held back although the site says so, and pods that try what no job does."""
    site = evidence.site
    open_hosts: list[tuple[str, str]] = []
    attempts: list[tuple[str, str]] = []
    for name, answer in evidence.answers():
        host = site.hosts[name]
        if "egress" not in host.layers or not host.variables.get("egress_enabled"):
            continue
        packets = answer.get("egress") or {}
        if not packets:
            open_hosts.append((name, "the table ironspan-egress is not loaded: pods reach everything"))
        for counter, what in SUSPICIOUS.items():
            if packets.get(counter):
                attempts.append((name, f"pods {what}; it was dropped"))
    yield from together(PROBLEM, open_hosts, lambda hosts: f"ssh {hosts[0]} systemctl reload ironspan-egress")
    yield from together(
        NOTICE, attempts, lambda hosts: f"ssh {hosts[0]} journalctl -k -g ironspan-egress says which pods"
    )


def slots(evidence: Evidence) -> Iterator[Finding]:
    """Hosts with two roots that run on one that is not known to be good, or of which one failed."""
    unproven, fallen = [], []
    for name, answer in evidence.answers():
        found = answer.get("slots") or {}
        if not found:
            continue
        why = "; ".join(f"slot {slot} failed: {reason}" for slot, reason in sorted(found["bad"].items()))
        if found["slot"] != found["good"]:
            unproven.append(
                (name, f"slot {found['slot']} runs and is not known to be good{why and f'; {why}'}")
            )
        elif why:
            fallen.append((name, f"slot {found['slot']} runs; {why}"))
    yield from together(
        PROBLEM,
        unproven,
        lambda hosts: (
            f"ssh {hosts[0]} sudo ironspan-slot check says what is wrong; fix it, or deploy it again"
        ),
    )
    yield from together(
        NOTICE,
        fallen,
        lambda hosts: f"fix the cause, then ssh {hosts[0]} sudo ironspan-slot try SLOT; docs/images.md",
    )


def reboots(evidence: Evidence) -> Iterator[Finding]:
    """Hosts that wait for a reboot: their packages ask for it, or what was applied takes effect with it."""
    found = [
        (name, what)
        for name, answer in evidence.answers()
        for what in [
            *(["its packages ask for a reboot"] if answer["reboot_wanted"] else []),
            *(f"it waits for a reboot: {reason}" for reason in answer["reboots"]),
        ]
    ]
    yield from together(
        NOTICE,
        found,
        lambda hosts: f"drain and reboot {hosts[0]}{' and the others in turn' * (len(hosts) > 1)}",
    )
