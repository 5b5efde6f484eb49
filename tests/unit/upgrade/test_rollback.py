# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is said of the way back, and what keeps a snapshot."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.modules import etcd_snapshot
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import release_verdicts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import rollback
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.skew import parse
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("wanted", "cluster", "former", "says"),
    [
        ("3.7.3", "3.6.0", "3.6.14", 'without loss: set etcd_version to "3.6.14" and run upgrade.yml'),
        ("3.7.3", "3.7.0", None, "etcdctl downgrade enable 3.6.0"),
        ("3.7.3", None, None, "etcdctl downgrade enable 3.6.0"),
        ("3.6.16", "3.6.0", "3.6.14", "patch releases share their data"),
    ],
)
def test_of_the_store(wanted: str, cluster: str | None, former: str | None, says: str) -> None:
    agreed, before = (parse(text) if text else None for text in (cluster, former))
    text = rollback.of_etcd(parse(wanted), agreed, before)
    assert says in text
    assert text.startswith(rollback.AGAIN)


def test_of_control_planes() -> None:
    wanted = parse("1.37.1")
    assert "set site_kubernetes_version back" in rollback.of_control_planes(wanted, 0, 2)
    assert "1 of 2 API servers run 1.37.1. There is no way back" in rollback.of_control_planes(wanted, 1, 2)


def test_of_nodes() -> None:
    assert "three minor versions older" in rollback.of_nodes(parse("1.37.1"))


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (
            "/etcd/v3.6.14/etcd-v3.6.14-linux-amd64.tar.gz",
            "/etcd/v3.7.3/etcd-v3.7.3-linux-amd64.tar.gz",
            True,
        ),
        ("/etcd/v3.6.14/x", "/etcd/v3.6.16/x", False),
        ("", "/etcd/v3.7.3/x", False),
    ],
)
def test_another_minor_version_of_the_store_is_no_change_for_site_yml(
    before: str, after: str, refused: bool
) -> None:
    change = {"resource": "etcd/binaries", "action": "update", "before": {"url_path": before}}
    verdicts = release_verdicts([{**change, "after": {"url_path": after}}])
    assert bool(verdicts) == refused
    assert all("upgrade.yml" in verdict["remedy"] for verdict in verdicts)
    assert (
        release_verdicts([{**change, "resource": "containerd/binaries", "after": {"url_path": after}}]) == []
    )


@given(st.sets(st.integers(min_value=0, max_value=99)), st.integers(min_value=1, max_value=5))
def test_the_newest_snapshots_stay(numbers: set[int], keep: int) -> None:
    names = [f"snapshot-202611{number:02}T000000Z.db" for number in numbers]
    goes = etcd_snapshot.superfluous([*names, "other.db", ".snapshot-x.db.part"], keep)
    stays = set(names) - set(goes)
    assert len(stays) == min(len(names), keep)
    assert not goes or max(goes) < min(stays)
    assert etcd_snapshot.superfluous(stays, keep) == []


@given(st.dictionaries(st.from_regex(r"[A-Z_]+", fullmatch=True), st.from_regex(r"[!-~]*", fullmatch=True)))
def test_settings_of_etcdctl_are_read_back(settings: dict[str, str]) -> None:
    text = "# Written by ironspan.\n" + "".join(f"{name}={value}\n" for name, value in settings.items())
    assert etcd_snapshot.settings(text) == settings
