# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The page of a site: what is known, what is not, and a picture that says both."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironspan.pages import site_page, topology
from ironspan.pages.view import Held, Rack, Server, View
from ironspan.pages.words import took
from tests.support import runs, sites
from tests.support.pages import read

ELEMENTS = read(site_page.page(sites.view(2))).tags
"""Of a page of a harmless site."""
HOSTILE = "</text></svg><script>alert(1)</script>\"'&"


def test_a_site_with_everything() -> None:
    found = read(site_page.page(sites.view(7)))
    for words in (
        "Running now", "Verify the cluster", "277 of 280", "2 of 3", "2,216", "15 minutes",
        "older than 24 hours", "20 days", "ironspan plan ca_rotate", "rack-04",
        "37 of 40 Ready", "behind it report",
        "at 10.0.0.3 does not answer", "done, but not on all hosts", "dns: smoke-2",
    ):  # fmt: skip
        assert words in found.text, words


def test_a_site_that_does_not_answer_claims_nothing() -> None:
    silent = dataclasses.replace(
        sites.view(2),
        report=None,
        error="connection refused",
        servers=[Server("az-1", "azure", ("etcd",), None)],
        racks=[Rack("rack-01", "on_prem", 3, None)],
        backups=(),
        backups_asked=None,
        authorities={},
        running=(),
        runs=(),
    )
    found = read(site_page.page(silent)).text
    for words in (
        "does not answer", "connection refused", "? of 3", "? of 1", "no answer", "ironspan backup list",
        "There is no PKI store yet", "No run from this controller yet.",
    ):  # fmt: skip
        assert words in found, words
    assert "✓" not in found and "Running now" not in found


@pytest.mark.parametrize(("ready", "tone"), [(None, "idle"), (0, "bad"), (3, "warn"), (4, "ok")])
def test_the_link_is_what_the_nodes_behind_it_say(ready: int | None, tone: str) -> None:
    view = View("x", "api:6443", 0.0, racks=[Rack("a", "on_prem", 4, ready), Rack("b", "azure", 9, 0)])
    assert site_page.wan_of(view).tone == tone
    assert site_page.wan_of(dataclasses.replace(view, racks=[])).tone == "idle"


def test_nodes_that_nobody_could_list_are_not_counted() -> None:
    view = dataclasses.replace(sites.view(1), racks=[Rack("a", "on_prem", 4, None)])
    found = read(site_page.page(view)).text
    assert "? of 4" in found and "0 of 4" not in found


def test_the_phase_that_goes_on_lasts_until_now() -> None:
    view = sites.view(1)
    (run,) = view.running
    phases = [{**phase, "seconds": 0.0} for phase in run["phases"]]
    shown = site_page.running([{**run, "phases": phases}], "", runs.STARTED + 600)
    began = phases[-1]["began"]
    assert f">{took(600 - began)}<" in str(shown) and "10 min" in str(shown)


def test_another_run_is_named_by_its_lock_and_one_that_was_cut_off_says_so() -> None:
    locked = dataclasses.replace(sites.view(1), running=(), holder="process 7 on ops-1")
    assert "Another run changes this site: process 7 on ops-1." in read(site_page.page(locked)).text
    gone = [{**run, "state": "unfinished"} for run in sites.view(1).running]
    found = read(site_page.page(dataclasses.replace(locked, running=gone))).text
    assert "cut off after" in found and "ironspan apply -i inventories/north" in found


def test_many_racks_are_counted_and_those_with_a_problem_come_first() -> None:
    page = site_page.page(sites.view(90))
    assert "and 30 more" in page and page.index(">rack-04<") < page.index(">rack-01<")
    assert page.count("<rect") < 4 * topology.MOST_TILES


def test_what_else_was_found_stands_there_with_what_fixes_it() -> None:
    well = {**runs.verified(2), "ok": True, "checks": []}
    view = dataclasses.replace(
        sites.view(1), report=well, found=[("notice", "a role is missing", "ironspan azure")]
    )
    found = read(site_page.page(view)).text
    assert "a role is missing" in found and "→ ironspan azure" in found and "ironspan doctor" not in found


def test_links_to_reports_are_for_a_server() -> None:
    assert "<a " in site_page.page(sites.view(1), links=True).partition("<main")[2]
    assert "#/run/apply-20270115T080000.000000Z" in site_page.page(sites.view(1), links=True)
    assert "#/run/" not in site_page.page(sites.view(1))


def test_racks_of_expected_servers() -> None:
    drawn = "<svg><rect/></svg>"
    held = dataclasses.replace(
        sites.view(1), elevation=drawn, held=[Held("gpu-1", "a 3", "enroll", "no power")]
    )
    assert "no power" in read(site_page.page(held)).text
    well = dataclasses.replace(held, held=())
    assert "Every server is a host of the inventory." in read(site_page.page(well)).text


@settings(max_examples=12, deadline=None)
@given(st.one_of(st.just(HOSTILE), st.text(min_size=1)))
def test_what_the_cluster_says_is_text(words: str) -> None:
    view = sites.view(2)
    wild = dataclasses.replace(
        view,
        name=words,
        endpoint=words,
        holder=words,
        servers=[Server(words, "azure", (words,), False, words)],
        racks=[Rack(words, "on_prem", 3, 2, 8)],
        authorities={words: 1.0},
        backups=[{"store": words, "newest": None}],
        report=runs.verified(2, words),
        running=[{**run, "playbook": words, "again": words} for run in view.running],
    )
    assert read(site_page.page(wild)).tags <= ELEMENTS
