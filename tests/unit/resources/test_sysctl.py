# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``sysctl``, on files that stand for the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.sysctl import (
    KIND,
    kept_path,
    live_path,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError

from .fake_host import FakeHost, converge, filled

FILE = "/etc/sysctl.d/90-ironspan-base-forward.conf"
LIVE = "/proc/sys/net/ipv4/ip_forward"
SPEC = filled(KIND, id="base/forward", name="net.ipv4.ip_forward", value="1")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
        ("net/ipv4/conf/eth0.1/forwarding", "/proc/sys/net/ipv4/conf/eth0.1/forwarding"),
    ],
)
def test_live_path(name: str, path: str) -> None:
    assert live_path(name) == path


def test_kept_path_has_no_folder_of_its_own() -> None:
    assert kept_path("base/forward") == FILE


@pytest.mark.parametrize(
    ("live", "file", "wanted", "differing"),
    [
        ("0\n", None, "1", {"live", "file"}),
        ("1\n", None, "1", {"file"}),
        ("0\n", "net.ipv4.ip_forward = 1\n", "1", {"live"}),
        ("1\n", "net.ipv4.ip_forward = 1\n", "1", set()),
        ("1\n", "net.ipv4.ip_forward = 0\n", "1", {"file"}),
        (
            "4096\t131072\t6291456\n",
            "net.ipv4.ip_forward = 4096 131072 6291456\n",
            "4096 131072 6291456",
            set(),
        ),
        (None, "net.ipv4.ip_forward = 1\n", "1", {"live"}),
    ],
)
def test_compare(
    host: FakeHost, live: str | None, file: str | None, wanted: str, differing: set[str]
) -> None:
    if live is not None:
        host.put(LIVE, live)
    if file is not None:
        host.put(FILE, file)
    change = KIND.compare({**SPEC, "value": wanted}, host)
    assert set(change.after if change else ()) == differing
    assert set(change.before if change else ()) == differing


def test_apply_writes_both_places_and_undo_sets_the_live_value_back(host: FakeHost) -> None:
    host.put(LIVE, "0\n")
    change = converge(KIND, SPEC, host)
    assert change is not None
    assert change.before == {"live": "0", "file": None}
    assert (host.text(LIVE), host.text(FILE)) == ("1\n", "net.ipv4.ip_forward = 1\n")
    assert host.backups == [FILE]
    KIND.undo(SPEC, change, host)
    assert host.text(LIVE) == "0\n"


def test_unknown_setting_is_refused_and_not_made(host: FakeHost) -> None:
    change = KIND.compare(SPEC, host)
    assert change is not None
    with pytest.raises(ResourceError, match=r"no setting net\.ipv4\.ip_forward") as caught:
        KIND.apply(SPEC, change, host)
    assert "module" in caught.value.remedy
    assert not (host.folder / LIVE.lstrip("/")).exists()


def test_value_refused_by_the_kernel(host: FakeHost) -> None:
    # A folder in the setting's place: writing fails as for a value out of range.
    (host.folder / LIVE.lstrip("/")).mkdir(parents=True)
    change = KIND.compare(SPEC, FakeHost(host.folder / "other"))
    assert change is not None
    with pytest.raises(ResourceError, match="cannot be set to '1'"):
        KIND.apply(SPEC, change, host)
