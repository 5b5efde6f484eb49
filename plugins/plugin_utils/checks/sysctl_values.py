# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values of kernel settings that the kernel takes: with any other the write fails on every host.

Sources: Documentation/admin-guide/sysctl and Documentation/networking/ip-sysctl of Linux 5.15 to 6.12.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.sysctls import VARIABLES, settings_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place

Fault = tuple[str, int, str, str]
"""Variable, index in it, what is wrong, what to write."""


ANY = 2**64


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What a setting holds.

    Args:
        names: pattern of the whole name.
        numbers: how many numbers; 0 for any.
        least: smallest.
        most: largest.
        ascending: each is at least the one before.
    """

    names: str
    numbers: int = 1
    least: int = 0
    most: int = ANY
    ascending: bool = False

    def fault(self, value: str) -> str:
        """Return what to write instead of a value, "" where it is right."""
        words = value.split()
        if not all(re.fullmatch(r"-?[0-9]+", word, re.ASCII) for word in words):
            return f"write {'numbers' if self.numbers != 1 else 'a number'}"
        if len(words) != (self.numbers or len(words) or 1):
            return f"write {self.numbers} number{'s' if self.numbers > 1 else ''}"
        given = [int(word) for word in words]
        if not all(self.least <= number <= self.most for number in given):
            return f"write {self.least} " + ("or more" if self.most == ANY else f"to {self.most}")
        return "write them in ascending order" if self.ascending and given != sorted(given) else ""


_INT = 2**31 - 1
_SWITCH = "|".join(
    (
        r"net\.ipv[46]\.conf\.[^.]+\.(forwarding|disable_ipv6|log_martians|send_redirects|accept_redirects"
        r"|secure_redirects|arp_filter|proxy_arp|route_localnet)",
        r"net\.bridge\.bridge-nf-call-(ip6?|arp)tables",
        r"kernel\.(dmesg_restrict|panic_on_oops|core_uses_pid|modules_disabled|unprivileged_userns_clone)",
        r"net\.ipv4\.(ip_forward|icmp_echo_ignore_(all|broadcasts)|tcp_sack)",
    )
)
FORMS: tuple[Form, ...] = (
    Form(_SWITCH, least=0, most=1),
    Form(r"net\.ipv4\.conf\.[^.]+\.rp_filter", most=2),
    Form(r"net\.ipv6\.conf\.[^.]+\.accept_ra", most=2),
    Form(r"net\.ipv4\.tcp_syncookies", most=2),
    Form(r"net\.ipv4\.ip_local_port_range", numbers=2, least=1, most=65_535, ascending=True),
    Form(r"net\.ipv4\.ip_unprivileged_port_start", most=65_535),
    Form(r"net\.ipv4\.tcp_[rw]mem", numbers=3, least=1, most=_INT, ascending=True),
    Form(r"net\.ipv4\.(tcp|udp)_mem", numbers=3, ascending=True),
    Form(r"net\.ipv[46]\.neigh\.default\.gc_thresh[123]", most=_INT),
    Form(r"net\.core\.(somaxconn|netdev_max_backlog|[rw]mem_(max|default)|optmem_max)", most=_INT),
    Form(r"net\.netfilter\.nf_conntrack_(max|buckets|tcp_timeout_[a-z_]+)", most=_INT),
    Form(r"kernel\.(kptr_restrict|unprivileged_bpf_disabled)", most=2),
    Form(r"kernel\.yama\.ptrace_scope", most=3),
    Form(r"kernel\.randomize_va_space", most=2),
    Form(r"kernel\.sysrq", most=511),
    Form(r"kernel\.pid_max", least=301, most=4_194_304),
    # kernel/fork.c, MIN_THREADS
    Form(r"kernel\.threads-max", least=20),
    Form(r"net\.ipv4\.ping_group_range", numbers=2),
    Form(r"kernel\.printk", numbers=4, most=_INT),
    Form(r"kernel\.sem", numbers=4, most=_INT),
    Form(r"kernel\.(panic|perf_event_paranoid|shm(max|all|mni)|msg(max|mnb|mni))", least=-2),
    Form(r"vm\.swappiness", most=200),
    Form(r"vm\.(overcommit_ratio|dirty_ratio|dirty_background_ratio)", most=100),
    Form(r"vm\.(overcommit_memory|panic_on_oom)", most=2),
    Form(r"vm\.(max_map_count|min_free_kbytes|nr_hugepages|vfs_cache_pressure|zone_reclaim_mode)"),
    Form(r"fs\.(file-max|nr_open|aio-max-nr|pipe-max-size)", least=1),
    Form(r"fs\.inotify\.max_(user_instances|user_watches|queued_events)", least=1),
    Form(r"fs\.(protected_(fifos|regular)|suid_dumpable)", most=2),
    Form(r"fs\.protected_(hard|sym)links", most=1),
    Form(r"user\.max_[a-z]+_namespaces"),
)
"""Those that sites set most. What is not here may be anything that is one line."""
_PATTERNS = {form: re.compile(form.names) for form in FORMS}
_THRESHOLDS = tuple(f"net.ipv4.neigh.default.gc_thresh{number}" for number in (1, 2, 3))


def check_values(draft: Draft) -> None:
    """What is written is judged once, however many hosts have it."""
    said = {Place(each.file, each.line) for each in draft.problems}
    looked_at: set[tuple[int, ...]] = set()
    for host in draft.hosts.values():
        # Nearly all hosts share their lists.
        key = tuple(id(host.values.get(variable)) for variable in VARIABLES)
        if key in looked_at:
            continue
        looked_at.add(key)
        for variable, index, message, remedy in (*_forms(host), *_order(host)):
            place = draft.inner_place(host, variable, index)
            if place not in said:
                said.add(place)
                draft.problems.add(place, f"{variable}[{index}]", message, remedy)


def _forms(host: HostDraft) -> Iterator[Fault]:
    for variable, index, item in settings_of(host):
        name, value = str(item.get("name")), item.get("value")
        form = next((each for each, pattern in _PATTERNS.items() if pattern.fullmatch(name)), None)
        if form and isinstance(value, str) and (remedy := form.fault(value)):
            yield variable, index, f"{value!r} is no value of {name}", remedy


def _order(host: HostDraft) -> Iterator[Fault]:
    """Find thresholds of neighbours that are lower than the one before: the kernel would never get to it."""
    given = {item.get("name"): (variable, index, item) for variable, index, item in settings_of(host)}
    for lower, higher in itertools.pairwise(_THRESHOLDS):
        if lower not in given or higher not in given:
            continue
        variable, index, item = given[higher]
        least, most = str(given[lower][2].get("value")), str(item.get("value"))
        if least.isdigit() and most.isdigit() and int(least) > int(most):
            message = f"{higher} = {most} is less than {lower} = {least}"
            yield variable, index, message, "write them in ascending order"


CHECKS = (check_values,)
