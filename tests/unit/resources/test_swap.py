# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``swap``."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.swap import (
    KIND,
    MARK,
    active_devices,
    without_swap,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import ResourceError
from hypothesis import given
from hypothesis import strategies as st

from .fake_host import FakeHost, converge, filled

HEADING = "Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n"
SWAPS = HEADING + "/dev/sda2 partition 2097148 0 -2\n/var/swap\\040file file 1048572 0 -3\n"
FSTAB = "UUID=1 / ext4 defaults 0 1\n/dev/sda2 none swap sw 0 0\n# /dev/old none swap sw 0 0\n"
SPEC = filled(KIND, id="base/swap", state="off")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path)
    host.program("swapoff", f"printf '{HEADING.strip()}\\n' >\"$IRONSPAN_ROOT/proc/swaps\"")
    host.program("swapon")
    return host


def test_devices() -> None:
    assert active_devices(SWAPS) == ["/dev/sda2", "/var/swap file"]
    assert active_devices(HEADING) == active_devices("") == []


def test_fstab() -> None:
    assert without_swap(FSTAB) == FSTAB.replace("/dev/sda2", MARK + "/dev/sda2")


@given(
    st.text(
        alphabet=st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
    )
)
def test_fstab_only_gains_marks(fstab: str) -> None:
    once = without_swap(fstab)
    assert once.replace(MARK, "") == fstab.replace(MARK, "")
    assert without_swap(once) == once


@pytest.mark.parametrize(
    ("swaps", "fstab", "differing"),
    [
        (SWAPS, FSTAB, {"devices", "text"}),
        (HEADING, FSTAB, {"text"}),
        (SWAPS, None, {"devices"}),
        (HEADING, without_swap(FSTAB), set()),
        (None, None, set()),
    ],
)
def test_compare(host: FakeHost, swaps: str | None, fstab: str | None, differing: set[str]) -> None:
    if swaps is not None:
        host.put("/proc/swaps", swaps)
    if fstab is not None:
        host.put("/etc/fstab", fstab)
    change = KIND.compare(SPEC, host)
    assert set(change.after if change else ()) == differing


def test_off_and_on_again(host: FakeHost) -> None:
    host.put("/proc/swaps", SWAPS)
    host.put("/etc/fstab", FSTAB, 0o640)
    change = converge(KIND, SPEC, host)
    assert change is not None
    assert (host.folder / "etc/fstab").stat().st_mode & 0o777 == 0o640
    assert host.backups == ["/etc/fstab"]
    assert host.calls() == [["swapoff", "-a"]]
    KIND.undo(SPEC, change, host)
    assert host.calls("swapon") == [["swapon", "/dev/sda2"], ["swapon", "/var/swap file"]]


def test_a_container_does_not_touch_its_machines_swap(host: FakeHost) -> None:
    host.put("/proc/swaps", SWAPS)
    host.put("/run/systemd/container", "systemd-nspawn")
    change = KIND.compare(SPEC, host)
    assert change is not None
    with pytest.raises(ResourceError, match="container"):
        KIND.apply(SPEC, change, host)
    assert host.calls() == []
