# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is asked of whom, what is made of the answers, and what the page and the picture show."""

from __future__ import annotations

import copy
import dataclasses
import typing as t
from xml.etree import ElementTree

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import Content, Evidence
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck import picture as drawing
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.page import page
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.questions import (
    EVERYBODY,
    questions,
    tunnel_address,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netcheck.report import examine
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.doctor import samples

TABLES = {
    "connections": {"count": 100, "most": 1000, "dropped": 0},
    "neighbours": {"count": 10, "thresholds": [128, 512, 1024], "full": 0},
}
OWN = {"az-1": "10.0.0.1", "rack-1": "10.1.0.1"}


def answer(host: str, peer: str) -> Content:
    """Return what a host with a good network says."""
    return {
        "network": {
            "paths": [{"peer": peer, "sent": 10, "ms": [30.0] * 10, "ttl": 62, "source": OWN[host]}],
            "mtu": [{"peer": peer, "wanted": 1400, "largest": 1400}],
            "pods": [{"peer": peer, "wanted": 1350, "largest": 1350}],
            "dns": {"ms": 1.0},
            "names": [{"ms": 0.2}],
            "api": {"ms": 1.0},
            "here": {
                "mtu": {"eth0": 1500, "flannel.1": 1350, "cni0": 1350},
                "routes": [
                    {"network": f"{OWN[host].rsplit('.', 1)[0]}.0/24", "interface": "eth0", "direct": True},
                    {"network": "10.244.1.0/24", "interface": "cni0", "direct": True},
                ],
                "pressure": copy.deepcopy(TABLES),
            },
        },
        "units": {"kubelet.service": {"active": "active"}},
    }


def evidence(**changes: t.Any) -> Evidence:
    """Return what two hosts say; ``changes`` replaces parts of rack-1's answer about the network."""
    hosts = {"az-1": answer("az-1", "rack-1"), "rack-1": answer("rack-1", "az-1")}
    hosts["rack-1"]["network"].update(changes)
    return Evidence(site=samples.site(), now=samples.NOW, hosts=hosts)


def report(found: Evidence) -> Content:
    """Return the report."""
    return examine(found, "2026-11-22T10:00:00+00:00", 1.0)


def said(found: Evidence) -> str:
    """Return every finding as one text."""
    return "\n".join(
        f"{check['name']}: {finding['level']}: {finding['what']} -> {finding['remedy']} {finding['hosts']}"
        for check in report(found)["checks"]
        for finding in check["findings"]
    )


def here(**changes: t.Any) -> Content:
    """Return what rack-1 says of itself, with changes."""
    return {**answer("rack-1", "az-1")["network"]["here"], **changes}


def path(**changes: t.Any) -> list[Content]:
    """Return rack-1's way to az-1, with changes."""
    return [{**answer("rack-1", "az-1")["network"]["paths"][0], **changes}]


def test_a_good_network() -> None:
    found = report(evidence())
    assert said(evidence()) == ""
    assert (found["healthy"], found["exit_code"]) == (True, 0)
    assert found["matrix"] == {
        "azure": {"on_prem": {"ms": 30.0, "worst_ms": 30.0, "loss": 0.0, "paths": 1}},
        "on_prem": {"azure": {"ms": 30.0, "worst_ms": 30.0, "loss": 0.0, "paths": 1}},
    }
    assert found["names"]["node"] == {"ms": 0.2, "worst_ms": 0.2, "hosts": 2}
    assert found["tables"]["connections"]["share"] == 0.1


CASES: list[tuple[str, Content, str, str]] = [
    ("silent peer", {"paths": path(ms=[], sent=3)}, "problem", "az-1 does not answer"),
    ("no route", {"paths": path(ms=[], sent=0, error="No route")}, "problem", "does not answer: No route"),
    ("some loss", {"paths": path(ms=[30.0] * 9)}, "notice", "10% of 10 echoes"),
    ("much loss", {"paths": path(ms=[30.0] * 5)}, "problem", "50% of 10 echoes"),
    ("slow", {"paths": path(ms=[200.0] * 10)}, "notice", "takes 200 ms"),
    ("small packets", {"mtu": [{"peer": "az-1", "wanted": 1400, "largest": 1280}]}, "problem", "do not pass"),
    (
        "pods too large",
        {"here": here(mtu={"flannel.1": 1450, "cni0": 1500})},
        "problem",
        "pods may send 1450 bytes",
    ),
    (
        "tunnel blocked",
        {"pods": [{"peer": "az-1", "wanted": 1350, "largest": 0}]},
        "problem",
        "nothing comes back through the tunnel to az-1",
    ),
    (
        "tunnel is narrow",
        {"pods": [{"peer": "az-1", "wanted": 1350, "largest": 1280}]},
        "problem",
        "the tunnel to az-1 lets 1280 bytes pass",
    ),
    ("cache is dead", {"names": [{"error": "no answer"}]}, "problem", "cache for names gives no answer"),
    ("slow name", {"dns": {"ms": 300.0}}, "notice", "a name takes 300 ms"),
    ("other source", {"paths": path(source="192.168.1.5")}, "notice", "from 192.168.1.5"),
    ("other way back", {"paths": path(ttl=60)}, "notice", "take 2 hops more or less"),
    (
        "same network on both sides",
        {"here": here(routes=[{"network": "10.0.0.0/24", "interface": "eth1", "direct": True}])},
        "problem",
        "directly connected on both sides",
    ),
    (
        "overlaps pods",
        {"here": here(routes=[{"network": "10.244.0.0/20", "interface": "eth1", "direct": False}])},
        "problem",
        "overlaps site_pod_cidr",
    ),
    (
        "connections nearly full",
        {"here": here(pressure={"connections": {"count": 900, "most": 1000, "dropped": 0}})},
        "problem",
        "900 of 1000 entries of the connection table",
    ),
    (
        "neighbours half full",
        {"here": here(pressure={"neighbours": {"count": 600, "thresholds": [1, 2, 1000], "full": 0}})},
        "notice",
        "600 of 1000 entries of the neighbour table",
    ),
    (
        "neighbours were full",
        {"here": here(pressure={"neighbours": {"count": 1, "thresholds": [1, 2, 1000], "full": 4}})},
        "notice",
        "was full",
    ),
]


@pytest.mark.parametrize(("name", "changes", "level", "what"), CASES, ids=[case[0] for case in CASES])
def test_what_is_wrong(name: str, changes: Content, level: str, what: str) -> None:
    found = evidence(**changes)
    lines = [line for line in said(found).splitlines() if what in line]
    assert len(lines) == 1, said(found)
    assert f": {level}: " in lines[0]
    assert "rack-1" in lines[0] or "az-1" in lines[0]
    assert report(found)["healthy"] is (level == "notice")
    assert what in page(report(found))


def test_nobody_answers() -> None:
    found = Evidence(site=samples.site(), now=0, hosts={"rack-1": {"unreachable": "no route"}})
    assert report(found)["exit_code"] == 4
    assert "nobody answered" in page(report(found))
    assert ElementTree.fromstring(drawing.picture(report(found))).tag.endswith("svg")


def test_the_matrix_on_the_page() -> None:
    lines = page(report(evidence(paths=path(ms=[30.0] * 5)))).splitlines()
    assert lines[1].split() == ["from", "\\", "to", "azure", "on_prem"]
    assert lines[2] == "azure      -                  30.0 ms"
    assert lines[3] == "on_prem    30.0 ms, 50% lost  -"


def test_the_picture_is_complete_by_itself() -> None:
    text = drawing.picture(report(evidence()))
    root = ElementTree.fromstring(text)
    shown = [element.text for element in root.iter() if element.text]
    assert {"azure", "on_prem", "30.0 ms"} <= set(shown)
    assert "href" not in text and "url(" not in text and "<script" not in text
    assert drawing.colour({"ms": None, "loss": 1.0}) != drawing.colour({"ms": 1.0, "loss": 0.0})


@settings(max_examples=30)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20))
def test_the_picture_is_xml_whatever_the_names(name: str) -> None:
    found = report(evidence())
    way = found["matrix"]["azure"]["on_prem"]
    changed = {**found, "site": name, "matrix": {name: {name: way, "other": way}}}
    shown = [element.text or "" for element in ElementTree.fromstring(drawing.picture(changed)).iter()]
    assert any(name.strip() in text for text in shown)


def sized(hosts: int) -> Site:
    """Return a site with many workers."""
    site = samples.site()
    more = [samples.host(f"w{number}", f"10.2.0.{number}", "on_prem", "nodes") for number in range(hosts)]
    return dataclasses.replace(site, hosts={**site.hosts, **{host.name: host for host in more}})


def test_everybody_asks_everybody_in_a_small_site() -> None:
    asked = questions(sized(EVERYBODY - 2), {})
    assert all(len(wanted["paths"]) == EVERYBODY - 1 for wanted in asked.values())
    assert all("pods" not in wanted for wanted in asked.values())


def test_the_work_of_a_host_does_not_grow_with_the_site() -> None:
    asked = questions(sized(200), {})
    assert all(1 <= len(wanted["paths"]) <= 4 for wanted in asked.values())
    assert all(name not in [peer["name"] for peer in wanted["paths"]] for name, wanted in asked.items())
    reached = {peer["name"] for wanted in asked.values() for peer in wanted["paths"]}
    assert reached == set(asked)


def test_pods_are_asked_about_where_their_networks_are_known() -> None:
    networks = {"az-1": "10.244.0.0/24", "rack-1": "10.244.1.0/24"}
    site = samples.site()
    assert "pods" not in questions(site, networks)["rack-1"]  # its table of egress drops such echoes
    hosts = {
        name: dataclasses.replace(host, variables={**host.variables, "egress_enabled": False})
        for name, host in site.hosts.items()
    }
    asked = questions(dataclasses.replace(site, hosts=hosts), networks)
    assert asked["rack-1"]["pods"] == [{"name": "az-1", "address": "10.244.0.0", "mtu": 1350}]
    assert tunnel_address("10.244.7.0/24") == "10.244.7.0"
