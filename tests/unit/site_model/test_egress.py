# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What pods may reach: entries as typed values, in force and out of it."""

from __future__ import annotations

import datetime
import itertools
import re
import socket
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected
from hypothesis import given
from hypothesis import strategies as st

from .conftest import Example
from .egress_mutations import EGRESS, ENTRY, NODES, SOON
from .mutations import ALL
from .test_mutations import test_mutation as check_mutation

ADDRESSES = {
    "a.example.com.": ["203.0.113.9", "203.0.113.8", "203.0.113.9"],
    "pod.example.com.": ["10.244.3.4"],
}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answer for a resolver, and return the names it was asked for."""
    asked: list[str] = []

    def getaddrinfo(name: str, port: None, family: int, kind: int) -> list[t.Any]:
        assert family == socket.AF_INET
        asked.append(name)
        if name not in ADDRESSES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(family, kind, 6, "", (address, 0)) for address in ADDRESSES[name]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    egress._resolve.cache_clear()
    return asked


@pytest.mark.parametrize("mutation", EGRESS, ids=lambda mutation: mutation.name)
def test_mistakes(example: Example, mutation: t.Any) -> None:
    check_mutation(example, mutation)


def test_what_is_right_becomes_typed(example: Example) -> None:
    example.append(ALL, NODES.replace("203.0.113.0/24", "A.example.com"))
    (entry,) = example.site().egress.allowed
    assert entry.networks == ("203.0.113.8/31",)
    assert (entry.protocol, entry.ports) == ("tcp", ("443", "8000-8100"))
    assert (entry.owner, entry.reason) == ("storage team", "data sets")
    day = datetime.datetime.fromisoformat(SOON).replace(tzinfo=datetime.UTC)
    assert entry.until == day.timestamp() + 86_400


def test_what_is_over_opens_nothing_and_is_no_mistake(example: Example, names: list[str]) -> None:
    example.append(ALL, ENTRY.replace(SOON, "2026-01-31").replace("203.0.113.0/24", "missing.example.com"))
    assert example.site().egress.allowed == ()
    assert names == []


def test_a_site_that_leaves_it_off_asks_no_resolver(example: Example, names: list[str]) -> None:
    off = ENTRY.replace("egress_enabled: true\n", "").replace("203.0.113.0/24", "missing.example.com")
    example.append(ALL, off)
    assert example.site().egress.allowed == ()
    assert names == []


def test_a_name_is_asked_for_once_a_process(example: Example, names: list[str]) -> None:
    example.append(ALL, ENTRY.replace("203.0.113.0/24", "a.example.com"))
    assert example.site().egress == example.site().egress
    assert names == ["a.example.com."]


def test_all_hosts_have_one_list(example: Example) -> None:
    example.append(ALL, ENTRY)
    example.append("group_vars/azure.yml", "\negress_enabled: false\n")
    (problem,) = example.problems()
    assert "write it once, in group_vars/all.yml" in str(problem)


@given(st.text(max_size=40) | st.from_regex(r"[0-9a-z./:*-]{1,30}", fullmatch=True))
def test_a_destination_is_networks_or_refused(text: str) -> None:
    try:
        networks = egress.networks_of(text)
    except Rejected as rejected:
        assert rejected.message
        assert rejected.remedy
    else:
        assert networks
        assert all(network.prefixlen >= egress.WIDEST_PREFIX for network in networks)


@given(
    st.lists(st.integers(1, 65_535) | st.tuples(st.integers(1, 65_535), st.integers(1, 65_535)), min_size=1)
)
def test_merged_ports_are_the_same_ports(ports: list[t.Any]) -> None:
    written = [port if isinstance(port, int) else "{}-{}".format(*sorted(port)) for port in ports]
    merged = egress.port_ranges(written)
    assert all(later[0] > earlier[1] + 1 for earlier, later in itertools.pairwise(merged))
    wanted = {edge for port in written for edge in egress.port_range(port)}
    assert {edge for pair in merged for edge in pair} <= wanted
    assert all(any(first <= edge <= last for first, last in merged) for edge in wanted)


@given(st.dates(datetime.date(2000, 1, 1), datetime.date(2100, 1, 1)), st.integers(-1000, 1000))
def test_the_last_day_is_in_force_to_its_end(today: datetime.date, days: int) -> None:
    last = today + datetime.timedelta(days=days)
    try:
        ends = egress.until(str(last), today)
    except Rejected:
        assert days > egress.LONGEST_DAYS
        return
    assert days <= egress.LONGEST_DAYS
    assert datetime.datetime.fromtimestamp(ends - 1, datetime.UTC).date() == last
    assert datetime.datetime.fromtimestamp(ends, datetime.UTC).date() == last + datetime.timedelta(days=1)


@given(st.text())
def test_a_line_that_is_accepted_stays_in_its_comment(text: str) -> None:
    try:
        line = egress.one_line(text)
    except Rejected:
        return
    assert re.fullmatch(r"[^\n\r]+", line)
