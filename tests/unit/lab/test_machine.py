# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Machines are told apart, what they lack is said all at once, mounts are read right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ironspan.lab import mounts
from ironspan.lab.errors import LabError
from ironspan.lab.machine import Machine, cgroup_layout, detect, forward_drops

LINE = "36 35 0:30 / {path} rw,relatime shared:9 - {kind} none rw,cpu"
V1 = [("/sys/fs/cgroup", "tmpfs"), ("/sys/fs/cgroup/cpu", "cgroup"), ("/sys/fs/cgroup/memory", "cgroup")]


@pytest.mark.parametrize(
    ("found", "version", "places"),
    [
        ([("/sys/fs/cgroup", "cgroup2")], 2, ("/sys/fs/cgroup",)),
        (V1, 1, ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory")),
        # "Hybrid": a unified hierarchy beside v1 ones has no controllers to speak of.
        (
            [*V1, ("/sys/fs/cgroup/unified", "cgroup2")],
            1,
            ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"),
        ),
        # A unified hierarchy that somebody mounted elsewhere does not make the machine a v2 one.
        ([*V1, ("/mnt/cg", "cgroup2")], 1, ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/mnt/cg")),
        ([("/", "ext4")], 1, ()),
    ],
)
def test_cgroup_version(found: list[tuple[str, str]], version: int, places: tuple[str, ...]) -> None:
    text = "\n".join(LINE.format(path=path, kind=kind) for path, kind in found)
    assert cgroup_layout(mounts.parse(text)) == (version, places)


def test_mounts_are_read_with_their_escapes_and_options() -> None:
    text = (
        r"1 2 0:5 / /a\040b\134c rw,noatime - overlay overlay rw,lowerdir=/base,upperdir=/up"
        "\n"
        "3 1 8:1 / /x ro shared:1 master:2 - ext4 /dev/sda1 rw\n"
        "rubbish\n"
    )
    first, second = mounts.parse(text)
    assert first.path == "/a b\\c"
    assert "lowerdir=/base" in first.options
    assert (second.path, second.filesystem, "ro" in second.options) == ("/x", "ext4", True)


def test_machine_without_faults_passes(workstation: Machine, test_machine: Machine) -> None:
    workstation.require()
    test_machine.require()


def test_everything_that_is_missing_is_said_at_once(workstation: Machine) -> None:
    poor = replace(
        workstation, missing_programs=("dnsmasq", "systemd-nspawn", "ssh", "ssh-keygen"), overlay=False,
        features=(), capabilities=0, cgroup_mounts=(),
    )  # fmt: skip
    with pytest.raises(LabError) as caught:
        poor.require()
    text = str(caught.value)
    assert "apt-get install -y --no-install-recommends dnsmasq-base openssh-client systemd-container" in text
    for part in ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "overlay", "/dev/net/tun", "no cgroup hierarchy"):
        assert part in text
    assert caught.value.code == 2


def test_other_users_are_told_to_become_root(workstation: Machine) -> None:
    with pytest.raises(LabError, match="run it as root"):
        replace(workstation, root=False, capabilities=0).require()


def test_each_concession_has_its_cause(workstation: Machine, test_machine: Machine) -> None:
    def causes(machine: Machine) -> str:
        return " ".join(c["what"] for c in machine.concessions())

    assert "nspawn" in causes(workstation)
    for part in ("cgroup v1", "CAP_SYS_RESOURCE", "not process 1"):
        assert part in causes(test_machine)
        assert part not in causes(workstation)
    assert workstation.launcher == "unit"
    assert test_machine.launcher == "cgroup"


@pytest.mark.parametrize(
    ("drops", "netfilter", "warned"), [(True, True, 1), (True, False, 0), (False, True, 0)]
)
def test_firewall_that_may_hold_bridged_packets_is_warned_of(
    workstation: Machine, drops: bool, netfilter: bool, warned: int
) -> None:
    assert len(replace(workstation, forward_drops=drops, bridge_netfilter=netfilter).warnings()) == warned


@pytest.mark.parametrize(
    ("chain", "drops"),
    [
        ("hook forward priority filter; policy drop;", True),
        ("hook forward priority filter; policy accept;", False),
        ("hook input priority filter; policy drop;", False),
        (
            "hook forward priority 0; policy accept; }\n chain y { hook input priority 0; policy drop;",
            False,
        ),
    ],
)
def test_dropping_forward_chain_is_recognised(chain: str, drops: bool) -> None:
    assert forward_drops(f"table ip filter {{\n chain X {{\n  type filter {chain}\n }}\n}}") is drops


@pytest.mark.parametrize("kind", ["overlay", "nfs4"])
def test_folder_that_cannot_hold_overlays_is_refused_with_the_variable(
    workstation: Machine, kind: str
) -> None:
    with pytest.raises(LabError, match=rf"is on {kind}, which .*IRONSPAN_LAB_ROOT"):
        replace(workstation, state_filesystem=kind).require()


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/a/b/c", "xfs"), ("/a/b", "xfs"), ("/a/bc", "ext4"), ("/z", "overlay"), ("/a", "ext4")],
)
def test_file_system_of_a_folder_is_that_of_the_nearest_mount(
    monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    table = [("/", "overlay"), ("/a", "ext4"), ("/a/b", "tmpfs"), ("/a/b", "xfs")]  # the later one is on top
    monkeypatch.setattr(mounts, "current", lambda: [mounts.Mount(p, k, frozenset()) for p, k in table])
    assert mounts.filesystem_of(Path(path)) == kind


def test_this_machine_can_be_looked_at_by_anybody() -> None:
    found = detect().as_dict()
    assert found["cgroup_version"] in (1, 2)
    assert found["cpus"] >= 1
    assert found["memory_bytes"] > 2**20


def test_remove_tree_takes_the_tree_and_nothing_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "tree/link").symlink_to(tmp_path / "kept")
    mounts.remove_tree(tmp_path / "tree")
    mounts.remove_tree(tmp_path / "tree")
    assert (tmp_path / "kept").read_text() == "kept"
    assert not (tmp_path / "tree").exists()


def test_remove_tree_refuses_when_a_mount_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree/proc").mkdir(parents=True)
    stuck = mounts.Mount(str(tmp_path / "tree/proc"), "proc", frozenset())
    monkeypatch.setattr(mounts, "current", lambda: [stuck])
    monkeypatch.setattr(mounts, "unmount_below", lambda _: None)
    with pytest.raises(LabError, match="still has mounts"):
        mounts.remove_tree(tmp_path / "tree")
    assert (tmp_path / "tree/proc").is_dir()
