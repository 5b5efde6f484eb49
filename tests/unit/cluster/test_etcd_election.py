# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Members that elect a leader are asked again: what is found then would be gone a moment later."""

from __future__ import annotations

import ssl
import time

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import etcd
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.etcd import Member

WELL = [Member(f"az-{n}", "", healthy=True, cluster="c", member=str(n), leader="1") for n in (1, 2, 3)]
SILENT = Member("az-3", "", error="Connection refused")
NOBODY = [one._replace(leader="0") for one in WELL]
HALF = [WELL[0], WELL[1]._replace(leader="2"), WELL[2]]
APART = [*WELL[:2], WELL[2]._replace(cluster="d", leader="3")]


@pytest.mark.parametrize(
    ("members", "elect"),
    [
        (WELL, False),
        ([*WELL[:2], SILENT], False),
        ([SILENT], False),
        ([], False),
        (APART, False),
        (NOBODY, True),
        (HALF, True),
        ([*WELL[:2], WELL[2]._replace(leader="")], True),
    ],
)
def test_who_elects(members: list[Member], elect: bool) -> None:
    assert etcd.electing(members) is elect


def test_an_election_is_waited_for_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [NOBODY, HALF, WELL, APART]
    monkeypatch.setattr(etcd, "ask_members", lambda *_: rounds.pop(0))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert etcd.ask_settled({}, ssl.create_default_context()) == WELL
    rounds.insert(0, NOBODY)
    monkeypatch.setattr(etcd, "ELECTION_SECONDS", 0)
    assert etcd.ask_settled({}, ssl.create_default_context()) == NOBODY
