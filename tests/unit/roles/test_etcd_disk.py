# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The disk of an etcd member: what is declared of it, and that etcd does not start without it."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError

from tests.support.public_side import UID
from tests.unit.roles.conftest import Rendered

Render = Callable[..., Rendered]
DISK = {"etcd_disk_devices": ["/dev/disk/azure/data/by-lun/0"], "etcd_disk_fdatasync_ms": 10}
NONE: dict[str, t.Any] = {"etcd_disk_devices": [], "etcd_disk_fdatasync_ms": 0}


def test_the_disk_comes_before_etcd_which_does_not_start_without_it(render: Render) -> None:
    found = render(variables=DISK).resources("az-2")
    ids = list(found)
    disk, latency = found["etcd_disk/file-system"], found["etcd_disk/latency"]
    assert ids.index(disk["id"]) < ids.index(latency["id"]) < ids.index("etcd/binaries")
    assert disk["mount_point"] == "/var/lib/etcd" and disk["label"].startswith("etcd-")
    assert latency["requires"] == ["etcd_disk/file-system"]
    assert latency["unless"] == f"/var/lib/etcd/{UID}/member"
    unit = found["etcd/unit"]["content"]
    assert "\nRequiresMountsFor=/var/lib/etcd\n" in unit
    assert "\nAssertPathIsMountPoint=/var/lib/etcd\n" in unit
    assert found["etcd/config"]["mount"] == found["etcd/started"]["mount"] == "/var/lib/etcd"


def test_each_member_has_a_file_system_of_its_own_and_always_the_same(render: Render) -> None:
    def uuid(host: str) -> str:
        return str(render(variables=DISK).resources(host)["etcd_disk/file-system"]["uuid"])

    assert uuid("az-1") != uuid("az-2")
    # Written down: a release that made another one would refuse the disks of every site.
    assert uuid("az-2") == "dbcb9716-382a-5e5c-a49b-b36509d817d5"


def test_without_a_disk_nothing_is_declared_of_one(render: Render) -> None:
    found = render(variables=NONE).resources("az-2")
    assert not [name for name in found if name.startswith("etcd_disk/")]
    assert "MountPoint" not in found["etcd/unit"]["content"] and "mount" not in found["etcd/config"]


def test_a_disk_is_measured_where_it_is_not_etcds_own(render: Render) -> None:
    found = render(variables={**NONE, "etcd_disk_fdatasync_ms": 25}).resources("az-2")
    assert found["etcd_disk/latency"]["limit_ms"] == 25 and "requires" not in found["etcd_disk/latency"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"etcd_disk_devices": ["/dev/sdc"]}, "write a path below /dev/disk"),
        ({"etcd_disk_devices": "/dev/disk/by-id/x y"}, "etcd_disk_devices"),
        ({"etcd_disk_fdatasync_ms": 5000}, "etcd_disk_fdatasync_ms"),
        ({"etcd_disk_device": "/dev/disk/by-id/x"}, "etcd_disk_devices"),
    ],
)
def test_wrong_values_are_refused(render: Render, wrong: dict[str, t.Any], said: str) -> None:
    with pytest.raises(SiteError) as caught:
        render(variables=wrong)
    assert said in str(caught.value) and "group_vars/all.yml:" in str(caught.value)
