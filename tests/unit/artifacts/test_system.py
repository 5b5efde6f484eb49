# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Systems of Debian packages: declaration, recipe, bill of materials, and that builds repeat."""

from __future__ import annotations

import datetime
import functools
import json
import os
import pathlib
import re
import runpy
import sys
import types
import typing as t
import zipfile

import pytest
import yaml

from ironspan.artifacts import cache, index, lock_file, make
from ironspan.artifacts.lock import Lock
from ironspan.artifacts.lock_checks import Reader
from ironspan.artifacts.system import bill, build, declared, disk, pins, ramdisk, tree
from ironspan.artifacts.system.declared import System
from ironspan.cli.outcome import CommandError

ROOT = pathlib.Path(__file__).resolve().parents[3]
REAL = lock_file.load(ROOT / "artifacts.lock.yml")
EPOCH = 1_700_000_000
SERVER = """
schema: 1
systems:
  server:
    kind: disk
    suite: trixie
    date: 2026-11-21
    packages: [udev]
    files: server
    units: {enable: [a.service]}
files:
  server-disk/1: {licence: see bom, path: /ironspan/disk.raw, system: server/disk.raw}
"""


def read(text: str) -> tuple[Lock, list[str]]:
    reader = Reader()
    return reader.lock(yaml.safe_load(text), pathlib.Path("lock.yml")), reader.problems


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kind: disk", "kind: tape", "systems.server.kind: is 'tape'; it can be disk or ramdisk"),
        ("date: 2026-11-21", "date: soon", "systems.server.date: must be a date such as 2026-11-21"),
        ("files: server", "files: nobody", "systems.server.files: there is no folder"),
        ("[a.service]", '["a b"]', "systems.server.units.enable: 'a b' is not the name of a systemd unit"),
        ("enable:", "start:", "unknown field 'start'; known: disable, enable, mask"),
        ("packages:", "wheels: [a==1]\n    packages:", "systems.server.python: is missing"),
        ("system: server/disk.raw", "system: sever/disk.raw", "there is no system 'sever'; known: server"),
        ("system: server/disk.raw", "system: server/kernel", "a disk has no 'kernel'; it has disk.raw"),
        (", system: server/disk.raw", "", "nobody publishes it and it has no go recipe"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_system_is_said_with_its_place(old: str, new: str, problem: str) -> None:
    assert read(SERVER)[1] == []
    assert old in SERVER
    assert any(problem in found for found in read(SERVER.replace(old, new))[1])


def test_every_file_of_the_real_systems_is_on_the_mirror_and_no_part_of_a_site_without_bare_metal() -> None:
    offered = {file.system for file in REAL.files.values() if file.system}
    assert offered == {
        f"{name}/{member}" for name, system in REAL.systems.items() for member in system.members
    }
    assert not [item for item in REAL.needed() if getattr(item, "system", "")]
    assert {item.key for item in REAL.needed(["server-images"])} > {item.key for item in REAL.needed()}


def test_a_server_has_what_the_base_layer_asks_for_and_the_agent_has_the_tools_it_calls() -> None:
    base = yaml.safe_load((ROOT / "roles/base/defaults/main.yml").read_text())["base_packages"]
    assert set(base) <= set(REAL.systems["server"].packages)
    # Of the layer node, where the TPM is asked before a host joins.
    assert "tpm2-tools" in REAL.systems["server"].packages
    # Without fuser (psmisc) cleaning fails, without the rest some step that a server needs once.
    wanted = {
        "psmisc",
        "gdisk",
        "parted",
        "qemu-utils",
        "mdadm",
        "nvme-cli",
        "hdparm",
        "efibootmgr",
        "lshw",
    }
    assert wanted <= set(REAL.systems["agent"].packages)


@pytest.mark.parametrize("name", sorted(name for name, system in REAL.systems.items() if system.wheels))
def test_all_wheels_are_pinned_by_digest(name: str) -> None:
    system = REAL.systems[name]
    lines = [line for line in system.pinned.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.!+]+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    names = {line.partition(" ")[0].replace("_", "-") for line in lines}
    assert {wheel.replace("_", "-") for wheel in system.wheels} <= names
    assert f"pin --wheels {name}`" in system.pinned.read_text()


def test_no_password_and_no_key_is_in_a_system_and_its_programs_are_executable() -> None:
    for system in REAL.systems.values():
        for name, path in system.own_files().items():
            assert "PRIVATE KEY" not in path.read_text(), path
            assert not re.search(r"\$[156y]\$", path.read_text()), path
            assert name.startswith(("etc/", "usr/local/")), f"{path}: packages own that place"
        assert path.read_bytes()[:2] == b"#!" or "/bin/" not in path.as_posix()
    assert "ssh.service" in REAL.systems["agent"].units["disable"], "a rescue alone starts SSH"


@pytest.mark.parametrize(
    ("asked", "collected"),
    [("default,lldp", "default,lldp,ironspan-tpm"), (None, None), ("", "")],
)
def test_who_asks_the_agent_for_an_inspection_gets_the_tpm_too(
    asked: str | None, collected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without collectors it inspects nothing: an agent that writes a disk must not begin to."""
    conf = types.SimpleNamespace(inspection_collectors=asked)
    conf.set_default = functools.partial(setattr, conf)
    modules: dict[str, dict[str, t.Any]] = {
        "ironic_python_agent": {},
        "ironic_python_agent.cmd": {},
        "ironic_python_agent.cmd.agent": {"run": lambda: 0},
        "oslo_config": {"cfg": types.SimpleNamespace(CONF=conf)},
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit):
        runpy.run_path(str(declared.FOLDER / "agent/usr/local/bin/ironic-python-agent"))
    assert conf.inspection_collectors == collected
    points = (
        declared.FOLDER / "agent/usr/local/lib/ironspan/ironspan_tpm-1.dist-info/entry_points.txt"
    ).read_text()
    assert "ironspan-tpm = ironspan_tpm:collect" in points
    assert sys.path[:2] == ["/opt/python", "/usr/local/lib/ironspan"]


def system(kind: str = "disk", **changes: object) -> System:
    values = {
        "name": "small", "kind": kind, "suite": "trixie", "date": datetime.date(2023, 11, 14),
        "packages": ("udev",), "files": "small", "units": {"enable": ("a.service",)},
        "python": "3.13", "wheels": (), "drop": (), **changes,
    }  # fmt: skip
    return System(**values)  # type: ignore[arg-type]


@pytest.fixture
def own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Give systems files of the test's own; return their folder."""
    return own_files(tmp_path, monkeypatch)


def own_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Give systems files of the test's own; return their folder."""
    folder = tmp_path / "files"
    (folder / "small/etc").mkdir(parents=True)
    (folder / "small/etc/motd").write_text("hello\n")
    (folder / "small.lock").write_text("a==1 --hash=sha256:00\n")
    monkeypatch.setattr(declared, "FOLDER", folder)
    return folder


def test_a_system_is_another_one_when_anything_that_decides_it_changes(own: pathlib.Path) -> None:
    seen = {system().recipe("amd64")}
    for other in (
        system(packages=("udev", "dbus")),
        system(date=datetime.date(2023, 11, 15)),
        system(units={"mask": ("a.service",)}),
        system(wheels=("a==1",)),
    ):
        assert other.recipe("amd64") not in seen
        seen.add(other.recipe("amd64"))
    assert system().recipe("arm64") not in seen
    (own / "small/lib/__pycache__").mkdir(parents=True)
    (own / "small/lib/__pycache__/a.pyc").write_bytes(b"of this machine")
    assert system().recipe("amd64") in seen
    (own / "small/etc/motd").write_text("other\n")
    assert system().recipe("amd64") not in seen
    before = system(wheels=("a==1",)).recipe("amd64")
    (own / "small.lock").write_text("a==1 --hash=sha256:01\n")
    assert system(wheels=("a==1",)).recipe("amd64") != before


def small_tree(folder: pathlib.Path) -> pathlib.Path:
    """Make a tree with what a disk or ramdisk takes out of it."""
    for name, text in {
        "boot/vmlinuz-6": "kernel", "boot/initrd.img-6": "initrd", "sbin/init": "init",
        "etc/os-release": "NAME=Debian\n",
        "usr/lib/shim/shimx64.efi.signed": "shim" * 999, "usr/lib/shim/mmx64.efi.signed": "manager",
        "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed": "grub" * 9999,
        "var/lib/dpkg/status": "Package: udev\nStatus: install ok installed\nVersion: 1-2\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "initrd.img").symlink_to("boot/initrd.img-6")
    tree.settle(folder, EPOCH)
    return folder


def test_ramdisk_and_boot_partition_come_out_the_same_a_day_later(
    own: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    found: list[dict[str, str]] = []
    for name in ("one", "two"):
        scratch = tmp_path / name
        made = small_tree(scratch / "tree")
        # What was touched on another day is settled to the same time.
        (made / "sbin/init").write_text("init")
        os.utime(made / "sbin/init", (EPOCH + len(name) * len(found) * 86400,) * 2)
        ramdisk.make(system("ramdisk"), "amd64", made, scratch)
        found.append(
            {member: cache.digest_of(scratch / member) for member in ("kernel", "ramdisk", "esp.img")}
        )
    assert found[0] == found[1]
    listing = tree.call(["mdir", "-b", "-/", "-i", tmp_path / "one/esp.img"], EPOCH).split()
    assert {"::/EFI/BOOT/BOOTX64.EFI", "::/EFI/BOOT/grubx64.efi", "::/EFI/BOOT/mmx64.efi"} <= set(listing)
    text = tree.call(["mtype", "-i", tmp_path / "one/esp.img", "::/EFI/debian/grub.cfg"], EPOCH)
    assert "search --no-floppy --set=root --label VMEDIA_BOOT_ISO" in text
    # A search by file finds the same file on the disk of a server that was deployed before.
    assert "--file" not in text


def test_a_ramdisk_holds_the_tree_without_what_boots_it(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = small_tree(tmp_path / "tree")
    ramdisk.make(system("ramdisk"), "amd64", made, tmp_path)
    assert (tmp_path / "kernel").read_text() == "kernel"
    tree.call(["zstd", "-q", "-d", tmp_path / "ramdisk", "-o", tmp_path / "cpio"], EPOCH)
    names = tree.call(["cpio", "--quiet", "--list", f"--file={tmp_path / 'cpio'}"], EPOCH).split()
    assert {"init", "sbin/init", "etc/os-release"} <= set(names)
    assert not [name for name in names if name.startswith("boot/")]


def test_what_is_secret_or_the_same_on_all_servers_is_taken_out(tmp_path: pathlib.Path) -> None:
    gone = (
        "etc/ssh/ssh_host_ed25519_key",
        "etc/nvme/hostnqn",
        "etc/hostname",
        "run/lock/x",
        "var/log/dpkg.log",
    )
    stays = ("etc/ssh/sshd_config", "etc/nvme/discovery.conf", "var/log/README")
    for name in (*gone, *stays):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "run/link").symlink_to("/etc")
    tree._forget(tmp_path)
    assert not [name for name in (*gone, "run/link") if (tmp_path / name).exists()]
    assert all((tmp_path / name).exists() for name in stays)
    assert pathlib.Path("/etc/hostname").exists(), "what a link points to is not the tree's"


def test_a_system_with_two_kernels_is_refused(tmp_path: pathlib.Path) -> None:
    made = small_tree(tmp_path)
    (made / "boot/vmlinuz-7").touch()
    with pytest.raises(
        CommandError, match="boots one kernel, and the packages brought: vmlinuz-6, vmlinuz-7"
    ):
        tree.kernel(made)


def test_a_root_has_room_for_what_is_in_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "large").write_bytes(b"")
    os.truncate(tmp_path / "large", 200 << 20)
    assert disk.size_mib(tmp_path) == 256 + disk.FREE_MIB


def test_a_bill_names_packages_and_licences(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = small_tree(tmp_path / "tree")
    copyright_file = made / "usr/share/doc/udev/copyright"
    copyright_file.parent.mkdir(parents=True)
    copyright_file.write_text("Files: *\nLicense: GPL-2+\nFiles: a\nLicense: MIT\n text\n")
    wheel = tmp_path / "agent-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("agent-1.0.dist-info/METADATA", "Name: agent\nLicense-Expression: Apache-2.0\n")
    found = json.loads(bill.render(system(), "amd64", made, [wheel]))
    assert found["bomFormat"] == "CycloneDX"
    told = {
        part["purl"]: [licence["license"]["name"] for licence in part["licenses"]]
        for part in found["components"]
    }
    assert told == {
        "pkg:deb/debian/udev@1-2?arch=amd64&distro=trixie": ["GPL-2+", "MIT"],
        "pkg:pypi/agent@1.0": ["Apache-2.0"],
    }


def test_licences_of_an_older_copyright_file_are_those_it_refers_to(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "copyright"
    assert bill.licences(path) == ["unknown"]
    path.write_text("See `/usr/share/common-licenses/GPL-2', and\n/usr/share/common-licenses/LGPL-2.1.\n")
    assert bill.licences(path) == ["GPL-2", "LGPL-2.1"]
    path.write_text("All rights are nobody's.\n")
    assert bill.licences(path) == ["see its copyright file"]


@pytest.fixture
def makes(own: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let systems be made of a small tree; return the list of what was made."""
    made: list[str] = []

    def small(system: System, arch: str, scratch: pathlib.Path, brought: list[pathlib.Path]) -> pathlib.Path:
        made.append(system.name)
        return small_tree(scratch / "tree")

    monkeypatch.setattr(tree, "make", small)
    return made


def test_a_system_is_made_once_and_again_when_it_is_damaged_or_asked_for(
    makes: list[str], place: cache.Cache
) -> None:
    wanted = system("ramdisk")
    built = build.build(wanted, "amd64", place, print)
    assert built.made_from == "Debian trixie, 1 packages"
    assert {path.name for path in built.folder.iterdir()} == {*wanted.members, "record.json"}
    build.build(wanted, "amd64", place, print)
    assert makes == ["small"]
    (built.folder / "kernel").write_text("other")
    build.build(wanted, "amd64", place, print)
    build.build(wanted, "amd64", place, print, newer_than=(built.folder / "record.json").stat().st_mtime + 1)
    assert makes == ["small"] * 3


def test_systems_of_other_recipes_go_once_nobody_uses_them(makes: list[str], place: cache.Cache) -> None:
    first = build.build(system("ramdisk"), "amd64", place, print).folder
    second = build.build(system("ramdisk", packages=("dbus",)), "amd64", place, print).folder
    assert first.is_dir(), "another checkout may use it"
    os.utime(first, (EPOCH, EPOCH))
    os.utime(second, (EPOCH, EPOCH))
    build.build(system("ramdisk", packages=("dbus",)), "amd64", place, print)
    build.build(system("ramdisk", packages=("kmod",)), "amd64", place, print)
    assert not first.exists()
    assert second.is_dir(), "it was used since"


def test_files_of_a_system_come_onto_the_mirror_with_one_build(makes: list[str], place: cache.Cache) -> None:
    text = SERVER.replace("kind: disk", "kind: ramdisk").replace(
        "  server-disk/1: {licence: see bom, path: /ironspan/disk.raw, system: server/disk.raw}",
        "  kernel/1: {licence: x, path: /kernel, system: server/kernel}\n"
        "  ramdisk/1: {licence: x, path: /ramdisk, system: server/ramdisk}",
    )
    lock, problems = read(text.replace("files: server", "files: small"))
    assert problems == []
    maker = make.Maker(lock, place, "amd64", rebuild=True)
    for item in lock.select(None):
        with place.locked(item.key) as scratch:
            entry = maker.make(item, "debian", scratch, print)
        assert isinstance(entry, index.FileEntry)
        assert cache.has_digest(place.below_mirror(entry.path), f"sha256:{entry.sha256}")
        assert entry.recipe == f"{lock.systems['server'].recipe('amd64')}/{entry.name}"
    assert makes == ["server"]


def test_a_build_that_could_not_end_is_refused_with_what_to_install(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda tool, path: None if tool == "sgdisk" else tool)
    monkeypatch.setattr(build, "DEBIAN_KEYRING", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(CommandError) as caught:
        build.require()
    assert "apt-get install -y gdisk" in caught.value.message
    assert "run it as root" in caught.value.message
    assert caught.value.code == 2


def test_wheels_are_pinned_only_where_there_are_some() -> None:
    with pytest.raises(CommandError, match="small has no wheels"):
        pins.pin(system())


def test_a_program_that_fails_is_named_with_what_it_said() -> None:
    with pytest.raises(CommandError, match=r"(?s)sh failed:.*no such thing"):
        tree.call([*tree.ALONE, "sh", "-c", "echo no such thing >&2; exit 3"], EPOCH)
