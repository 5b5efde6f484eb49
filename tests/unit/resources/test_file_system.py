# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kind ``file_system``: disks are files here, which the real blkid and mkfs.ext4 take as they do disks.

What is a stand-in: the number of a device, the mount table, and systemd.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _block_device
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources.file_system import (
    KIND,
    unit_of,
    unit_text,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Change, ResourceError

from tests.support.faults import insist

from .fake_host import FakeHost, converge, filled

PATH = "/dev/disk/azure/scsi1/lun0"
POINT = "/var/lib/etcd"
UUID = "6f1c3b9a-5a0e-4b0f-9d0e-0c6a1f6f2b11"
UNIT = "/etc/systemd/system/var-lib-etcd.mount"
NUMBER = "8:32"
MIB = 1 << 20
SPEC = filled(
    KIND,
    id="etcd_disk/file-system",
    devices=["/dev/disk/azure/data/by-lun/0", PATH],
    uuid=UUID,
    label="etcd-berlin",
    mount_point=POINT,
)
ENABLE = f"""
wants="$IRONSPAN_ROOT/etc/systemd/system/multi-user.target.wants"
case "$1" in
enable) mkdir -p "$wants"; ln -sf {UNIT} "$wants/var-lib-etcd.mount";;
disable) rm -f "$wants/var-lib-etcd.mount";;
start) echo '40 1 {NUMBER} / {POINT} rw,noatime - ext4 /dev/sdc rw' >>"$IRONSPAN_ROOT/proc/self/mountinfo";;
stop) : >"$IRONSPAN_ROOT/proc/self/mountinfo";;
esac
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path)
    host.program("systemctl", ENABLE)
    host.put("/proc/self/mountinfo", "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(_block_device, "number", lambda *_: NUMBER)
    # What is remembered needs a transaction only to be written down.
    monkeypatch.setattr(host, "write", lambda *_, **__: None)
    return host


@pytest.fixture
def disk(host: FakeHost) -> Path:
    """A blank disk: sdc, which udev gave a lasting name."""
    path = Path(host.path("/dev/sdc"))
    name = Path(host.path(PATH))
    name.parent.mkdir(parents=True)
    with path.open("wb") as stream:
        stream.truncate(16 * MIB)
    name.symlink_to(path)
    return path


def made(disk: Path, *arguments: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", *arguments, str(disk)], check=True, capture_output=True)


def refused(host: FakeHost, **more: Any) -> str:
    with pytest.raises(ResourceError) as caught:
        KIND.compare({**SPEC, **more}, host)
    assert caught.value.remedy
    return f"{caught.value.message} {caught.value.remedy}"


def test_a_blank_disk_gets_its_file_system_and_is_mounted(host: FakeHost, disk: Path) -> None:
    change = converge(KIND, SPEC, host)
    assert change is not None and change.action == "create" and "blank" in change.reason
    assert change.after["file_system"] == f"ext4 (etcd-berlin, {UUID})" and change.after["device"] == PATH
    found = _block_device.signature(host, PATH)
    assert found is not None and (found["UUID"], found["LABEL"]) == (UUID, "etcd-berlin")
    assert host.text(UNIT) == unit_text(SPEC)
    assert [call[1] for call in host.calls("systemctl")] == ["daemon-reload", "enable", "start"]
    # Checked as e2fsck does it, which finds nothing to repair.
    assert subprocess.run(["e2fsck", "-fn", str(disk)], capture_output=True, check=False).returncode == 0


def test_comparing_writes_nothing(host: FakeHost, disk: Path) -> None:
    before = disk.read_bytes()
    assert KIND.compare(SPEC, host)
    assert disk.read_bytes() == before and not host.calls("systemctl") and not Path(host.path(UNIT)).exists()


def test_its_own_file_system_is_mounted_and_kept(host: FakeHost, disk: Path) -> None:
    """A machine that was made anew gets its disk back with all that is on it."""
    made(disk, "-U", UUID, "-L", "etcd-berlin")
    before = disk.read_bytes()
    change = converge(KIND, SPEC, host)
    assert change is not None and change.action == "update" and "file_system" not in change.after
    assert disk.read_bytes() == before


def test_after_a_boot_that_did_not_mount_it_is_mounted_again(host: FakeHost, disk: Path) -> None:
    converge(KIND, SPEC, host)
    host.put("/proc/self/mountinfo", "")
    change = converge(KIND, SPEC, host)
    assert change is not None and set(change.after) == {"mounted"}


def test_another_text_of_the_unit_unmounts_nobody(host: FakeHost, disk: Path) -> None:
    converge(KIND, SPEC, host)
    host.put(UNIT, "# older\n")
    host.forget_calls()
    change = converge(KIND, SPEC, host)
    assert change is not None and change.reason == "unit file" and change.before["text"] == "# older\n"
    assert [call[1] for call in host.calls("systemctl")] == ["daemon-reload", "enable"]


def table(disk: Path) -> None:
    # A partition of Linux in the old table: 8 MiB from the first MiB on.
    entry = bytes([0, 0, 2, 0, 0x83, 0, 2, 0]) + (2048).to_bytes(4, "little") + (16384).to_bytes(4, "little")
    with disk.open("r+b") as stream:
        stream.seek(446)
        stream.write(entry.ljust(64, b"\0") + b"\x55\xaa")


def of_another_tool(disk: Path) -> None:
    with disk.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"somebody's header")


def at_the_end(disk: Path) -> None:
    with disk.open("r+b") as stream:
        stream.seek(-8192, 2)
        stream.write(b"somebody's metadata")


@pytest.mark.parametrize(
    ("fill", "said"),
    [
        (lambda disk: made(disk, "-L", "home"), "holds ext4 (label home, UUID"),
        (lambda disk: made(disk, "-L", "etcd-berlin"), "tune2fs -U " + UUID),
        (table, "a partition table (dos)"),
        (of_another_tool, "is not blank"),
        (at_the_end, "is not blank"),
        (lambda disk: subprocess.run(["mkswap", str(disk)], check=True, capture_output=True), "holds swap"),
    ],
    ids=[
        "foreign",
        "right label of another disk",
        "partitions",
        "unknown data",
        "unknown data at the end",
        "swap",
    ],
)
def test_what_is_on_a_disk_is_refused_and_stays(host: FakeHost, disk: Path, fill: Any, said: str) -> None:
    fill(disk)
    before = disk.read_bytes()
    text = refused(host)
    assert said in text and PATH in text
    # Also when it came there between the plan and its turn.
    with pytest.raises(ResourceError):
        KIND.apply(SPEC, Change("create", {}, {"mounted": POINT}), host)
    assert disk.read_bytes() == before and not host.calls("systemctl")


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("/sys/dev/block/8:32/sdc1/partition", "1\n", "it has the partition sdc1"),
        ("/sys/dev/block/8:32/holders/md0", "", "md0 is made of it"),
        ("/proc/self/mountinfo", "50 1 8:32 / /srv rw - ext4 /dev/sdc rw\n", "it is mounted at /srv"),
    ],
)
def test_a_disk_that_somebody_uses_is_refused(
    host: FakeHost, disk: Path, path: str, text: str, said: str
) -> None:
    host.put(path, text)
    assert said in refused(host)


def test_swap_is_a_user(host: FakeHost, disk: Path) -> None:
    host.put("/proc/swaps", "Filename Type Size Used Priority\n/dev/sdc partition 1 0 -2\n")
    assert "it is swap" in refused(host)


def test_a_disk_that_is_not_there(host: FakeHost) -> None:
    text = refused(host)
    assert "there is no disk at /dev/disk/azure/data/by-lun/0 or " + PATH in text and "azure-vm-utils" in text
    insist("etcd-disk-missing", text)


def test_only_a_block_device_is_a_disk(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.put("/dev/disk/file", "")
    with pytest.raises(ResourceError, match="is no block device"):
        _block_device.number(host, "/dev/disk/file")


def test_data_on_the_disk_of_the_operating_system_are_not_hidden(host: FakeHost, disk: Path) -> None:
    host.put(f"{POINT}/0a1b/member/wal/0.wal", "x")
    text = refused(host)
    assert f"({POINT}/0a1b/member/wal/0.wal)" in text and "member_replace.yml" in text
    shutil.rmtree(host.path(f"{POINT}/0a1b/member"))
    # Folders without a file are no loss.
    assert KIND.compare(SPEC, host) is not None


def test_another_disk_at_the_mount_point_is_refused(host: FakeHost, disk: Path) -> None:
    host.put("/proc/self/mountinfo", f"50 1 8:48 / {POINT} rw - ext4 /dev/sdd rw\n")
    assert f"/dev/sdd is mounted at {POINT}" in refused(host)


def test_a_disk_that_was_mounted_by_hand_is_refused_with_the_way_to_keep_it(
    host: FakeHost, disk: Path
) -> None:
    made(disk, "-L", "mine")
    insist("etcd-disk-foreign", refused(host))
    host.put("/proc/self/mountinfo", f"50 1 {NUMBER} / {POINT} rw - ext4 /dev/sdc rw\n")
    assert f"tune2fs -U {UUID} -L etcd-berlin" in refused(host)
    # tune2fs renames what is not mounted; a file is never.
    subprocess.run(["e2fsck", "-fp", str(disk)], check=True, capture_output=True)
    subprocess.run(["tune2fs", "-U", UUID, "-L", "etcd-berlin", str(disk)], check=True, capture_output=True)
    change = KIND.compare(SPEC, host)
    assert change is not None and set(change.after) == {"text", "enabled"}


def killed_at(program: str, host: FakeHost, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run end at a program; mkfs has written a part of its work by then."""
    real = host.run

    def run(argv: Any, *arguments: Any, **more: Any) -> Any:
        if argv[0] != program:
            return real(argv, *arguments, **more)
        if program == "mkfs.ext4":
            with disk.open("r+b") as stream:
                stream.seek(8192)
                stream.write(b"half of a file system")
        raise KeyboardInterrupt

    change = KIND.compare(SPEC, host)
    assert change is not None
    with monkeypatch.context() as patch:
        patch.setattr(host, "run", run)
        with pytest.raises(KeyboardInterrupt):
            KIND.apply(SPEC, change, host)


def test_what_a_killed_run_left_half_written_is_made_again(
    host: FakeHost, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at("mkfs.ext4", host, disk, monkeypatch)
    again = converge(KIND, SPEC, host)
    assert again is not None and again.action == "create"
    assert subprocess.run(["e2fsck", "-fn", str(disk)], capture_output=True, check=False).returncode == 0


def test_half_written_on_another_disk_is_not_this_runs(
    host: FakeHost, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at("mkfs.ext4", host, disk, monkeypatch)
    with disk.open("r+b") as stream:
        stream.truncate(17 * MIB)
    assert "is not blank" in refused(host)


def test_killed_between_making_and_mounting(
    host: FakeHost, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at("systemctl", host, disk, monkeypatch)
    before = disk.read_bytes()
    again = converge(KIND, SPEC, host)
    assert again is not None and again.action == "update" and disk.read_bytes() == before


def test_a_file_system_in_use_once_is_never_made_again(host: FakeHost, disk: Path) -> None:
    """Also where a run was killed right after it had made it, and somebody has mounted it since."""
    made(disk, "-U", UUID)
    host.remember(SPEC["id"], {"making": UUID, "on": [str(disk), 16 * MIB]})
    change = KIND.compare(SPEC, host)
    assert change is not None and change.action == "create"
    with disk.open("r+b") as stream:
        stream.seek(1024 + 44)
        stream.write((1764000000).to_bytes(4, "little"))
    change = KIND.compare(SPEC, host)
    assert change is not None and change.action == "update"


def test_a_mount_that_fails_says_so(host: FakeHost, disk: Path) -> None:
    host.program("systemctl", '[ "$1" != start ] || { echo "Job failed" >&2; exit 1; }')
    change = KIND.compare(SPEC, host)
    assert change is not None
    with pytest.raises(ResourceError, match="was not mounted at /var/lib/etcd: Job failed"):
        KIND.apply(SPEC, change, host)


def test_undo_unmounts_and_leaves_the_file_system(host: FakeHost, disk: Path) -> None:
    change = converge(KIND, SPEC, host)
    assert change is not None
    KIND.undo(SPEC, change, host)
    assert [call[1] for call in host.calls("systemctl")[-2:]] == ["stop", "disable"]
    assert host.backups == [UNIT]
    again = KIND.compare(SPEC, host)
    assert again is not None and "file_system" not in again.after


def test_a_blank_disk_is_known_to_have_no_data(host: FakeHost, disk: Path) -> None:
    KIND.compare(SPEC, host)
    assert host.cached(_block_device.BLANK + POINT, bool)
    made(disk, "-U", UUID)
    host.forget_all_cached()
    KIND.compare(SPEC, host)
    assert not host.cached(_block_device.BLANK + POINT, bool)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"devices": []}, "devices is empty"),
        ({"devices": ["sdc"]}, "no path below /dev"),
        ({"devices": ["/dev/../etc/shadow"]}, "no path below /dev"),
        ({"uuid": UUID.upper()}, "small letters"),
        ({"label": "etcd-of-a-long-name"}, "1 to 16 bytes"),
        ({"mount_point": "/var/lib/a-b"}, "mount_point"),
    ],
)
def test_wrong_values(wrong: dict[str, Any], said: str) -> None:
    (mistake,) = KIND.check({**SPEC, **wrong})
    assert said in mistake
    assert KIND.check(SPEC) == []


def test_names_of_units() -> None:
    assert unit_of(POINT) == "var-lib-etcd.mount"
