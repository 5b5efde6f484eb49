# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a host is started with, on either kind of machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ironspan.lab import accounts, base_image, host, keys, processes
from ironspan.lab.errors import LabError
from ironspan.lab.layout import LabHost, Layout
from ironspan.lab.machine import Machine
from ironspan.lab.mounts import Mount
from ironspan.lab.state import Resource

LAYOUT = Layout("lab", 2, 1, 1)
LAB = Path("/state/lab")


@pytest.fixture
def rack() -> LabHost:
    return LAYOUT.host("rack-1")


def test_script_is_valid_shell_and_joins_every_hierarchy(test_machine: Machine, rack: LabHost) -> None:
    script = host.run_script(test_machine, LAB, rack)
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    for place in test_machine.cgroup_mounts:
        assert f"{place}/ironspan-lab-rack-1/cgroup.procs" in script


def test_script_boots_again_only_when_asked_to(
    test_machine: Machine, rack: LabHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = tmp_path / "cg" / rack.cgroup
    groups.mkdir(parents=True)
    counter = tmp_path / "count"
    command = ["sh", "-c", f'echo boot >>{counter}; [ "$(wc -l <{counter})" -lt 3 ] && exit 133; exit 7']
    monkeypatch.setattr(host, "nspawn_command", lambda *_: command)
    script = host.run_script(replace(test_machine, cgroup_mounts=(str(tmp_path / "cg"),)), tmp_path, rack)
    assert subprocess.run(["sh", "-c", script], check=False, timeout=300).returncode == 7
    assert counter.read_text() == "boot\n" * 3
    assert (groups / "cgroup.procs").read_text().strip().isdigit()


def test_host_that_cannot_join_its_cgroups_does_not_boot(
    test_machine: Machine, rack: LabHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "nspawn_command", lambda *_: ["touch", str(tmp_path / "booted")])
    script = host.run_script(replace(test_machine, cgroup_mounts=(str(tmp_path / "none"),)), tmp_path, rack)
    assert subprocess.run(["sh", "-c", script], check=False, stderr=subprocess.DEVNULL).returncode == 1
    assert not (tmp_path / "booted").exists()


def test_unit_holds_nspawn_itself_and_restarts_it_for_a_reboot(workstation: Machine, rack: LabHost) -> None:
    command = host.unit_command(workstation, LAB, rack)
    assert command[0] == "systemd-run"
    assert "--unit=ironspan-lab-rack-1.service" in command
    for setting in ("Delegate=yes", "RestartForceExitStatus=133", "SuccessExitStatus=133"):
        assert f"--property={setting}" in command
    assert f"--setenv={processes.MARKER}={LAB}" in command
    # A shell beside nspawn in a unified cgroup would keep the controllers from the host.
    assert command[-len(host.nspawn_command(workstation, LAB, rack)) :] == host.nspawn_command(
        workstation, LAB, rack
    )


def test_nspawn_gets_the_hosts_own_bridge_and_data(workstation: Machine, rack: LabHost) -> None:
    command = host.nspawn_command(workstation, LAB, rack)
    assert "--network-bridge=isr2" in command
    assert "--machine=is2-rack-1" in command
    for name in ("containerd", "kubelet", "etcd"):
        assert f"--bind=/state/lab/hosts/rack-1/{name}:/var/lib/{name}" in command
    assert "--bind-ro=/sys/kernel/btf" in command
    assert "--bind-ro=/sys/kernel/btf" not in host.nspawn_command(
        replace(workstation, features=()), LAB, rack
    )


@pytest.mark.parametrize(("version", "unified"), [(1, "0"), (2, "1")])
def test_hierarchy_inside_is_that_of_the_machine(workstation: Machine, version: int, unified: str) -> None:
    found = host.environment(replace(workstation, cgroup_version=version), LAB)
    assert found["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] == unified


@pytest.mark.parametrize(("version", "remounts"), [(1, True), (2, False)])
def test_boot_script_is_valid_shell(
    workstation: Machine, rack: LabHost, tmp_path: Path, version: int, remounts: bool
) -> None:
    keys.ensure(tmp_path, LAYOUT)
    found = host.tree_files(replace(workstation, cgroup_version=version), tmp_path, rack)
    boot = found["etc/ironspan-lab/boot"][0]
    assert subprocess.run(["sh", "-n"], input=boot, text=True, check=False).returncode == 0
    assert ("remount,rw,bind" in boot) is remounts
    assert "ip route replace default via 10.98.5.254" in boot
    assert found["etc/ssh/ssh_host_ed25519_key"][1] == 0o600
    assert found["etc/resolv.conf"][0].startswith("nameserver 10.98.5.1\n")


def test_recorded_resources_name_what_is_made(
    workstation: Machine, test_machine: Machine, rack: LabHost
) -> None:
    own = host.resources(test_machine, LAB, rack)
    assert Resource("cgroup", "ironspan-lab-rack-1") in own
    assert Resource("link", "vb-is2-rack-1") in own
    assert Resource("mount", "/state/lab/hosts/rack-1/root") in own
    assert Resource("unit", "ironspan-lab-rack-1") in host.resources(workstation, LAB, rack)


def test_keys_are_made_once_private_and_known_beforehand(tmp_path: Path) -> None:
    keys.ensure(tmp_path, LAYOUT)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    keys.ensure(tmp_path, LAYOUT)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert all(p.stat().st_mode & 0o077 == 0 for p in before if p.suffix != ".pub")
    known = keys.known_hosts(tmp_path).read_text().splitlines()
    assert [line.split(",")[0] for line in known] == ["10.98.4.11", "10.98.5.11"]
    public = keys.host_key(tmp_path, "rack-1").with_suffix(".pub").read_text().split()[1]
    assert known[1].endswith(f" ssh-ed25519 {public}")


def test_half_made_key_is_made_again(tmp_path: Path) -> None:
    keys.folder(tmp_path).mkdir()
    keys.private_key(tmp_path).write_text("half")
    keys.ensure(tmp_path, LAYOUT)
    assert "OPENSSH PRIVATE KEY" in keys.private_key(tmp_path).read_text()


def _debian(tree: Path) -> None:
    for name, text in {
        "etc/ssh/ssh_host_rsa_key": "secret of the image",
        "etc/machine-id": "1234",
        "usr/lib/sysctl.d/50-pid-max.conf": "# comment\nkernel.pid_max = 4194304\n",
        "usr/lib/sysctl.d/60-net.conf": "net.ipv4.ip_forward = 0\n",
        "etc/systemd/system/multi-user.target.wants/haproxy.service": "",
        "var/cache/apt/archives/x.deb": "big",
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)


def test_base_tree_holds_nothing_of_one_host_and_nothing_for_the_whole_machine(tmp_path: Path) -> None:
    _debian(tmp_path)
    base_image.customise(tmp_path)
    base_image.customise(tmp_path)  # twice is as good as once
    assert list((tmp_path / "etc/ssh").glob("ssh_host_*")) == []
    assert not (tmp_path / "etc/machine-id").exists()
    assert (tmp_path / "etc/sysctl.d/50-pid-max.conf").readlink() == Path("/dev/null")
    assert not (tmp_path / "etc/sysctl.d/60-net.conf").exists()
    assert (tmp_path / "etc/systemd/system/systemd-binfmt.service").readlink() == Path("/dev/null")
    assert not (tmp_path / "etc/systemd/system/multi-user.target.wants/haproxy.service").exists()
    assert list((tmp_path / "var/cache/apt").iterdir()) == []
    assert "PasswordAuthentication no" in (tmp_path / "etc/ssh/sshd_config.d/ironspan-lab.conf").read_text()


def test_another_recipe_is_another_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    before = base_image.tree_path()
    assert before == base_image.tree_path()
    monkeypatch.setattr(base_image, "PACKAGES", (*base_image.PACKAGES, "vim"))
    assert base_image.tree_path() != before


def test_tree_that_is_there_is_taken(tmp_path: Path) -> None:
    base_image.tree_path().mkdir(parents=True)
    steps: list[str] = []
    assert (
        base_image.ensure("lab", tmp_path, lambda _, step, __: steps.append(step)) == base_image.tree_path()
    )
    assert steps == ["skip"]


def test_failed_debootstrap_leaves_no_tree_and_shows_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "unshare").write_text("#!/bin/sh\necho E: no such archive\nexit 1\n")
    (programs / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    with pytest.raises(LabError, match="no such archive"):
        base_image.ensure("lab", tmp_path, lambda *_: None)
    assert not base_image.tree_path().exists()


def test_without_the_archives_keys_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_image, "KEYRING", tmp_path / "none.gpg")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("something was run"))
    with pytest.raises(LabError, match="apt-get install -y debian-archive-keyring"):
        base_image.ensure("lab", tmp_path, lambda *_: None)
    assert not base_image.tree_path().exists()


@pytest.mark.skipif(not shutil.which("debootstrap") or os.geteuid() != 0, reason="needs debootstrap and root")
@pytest.mark.parametrize(
    "signature", ["", "-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n"]
)
def test_an_archive_that_debian_did_not_sign_makes_no_tree(
    signature: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = tmp_path / "archive/dists" / base_image.SUITE
    release.mkdir(parents=True)
    fields = f"Origin: Debian\nSuite: {base_image.SUITE}\nCodename: {base_image.SUITE}\nComponents: main\n"
    (release / "Release").write_text(f"{fields}Architectures: amd64 arm64\nSHA256:\n")
    if signature:
        (release / "Release.gpg").write_text(signature)
    monkeypatch.setattr(base_image, "ARCHIVE", f"file://{tmp_path}/archive")
    with pytest.raises(LabError, match=r"(?i)signature|signed|Release\.gpg"):
        base_image.ensure("lab", tmp_path, lambda *_: None)
    assert not base_image.tree_path().exists()


def test_purge_refuses_while_a_lab_stands_on_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = base_image.tree_path()
    tree.mkdir(parents=True)
    used = Mount("/x", "overlay", frozenset({f"lowerdir={tree}"}))
    monkeypatch.setattr("ironspan.lab.mounts.current", lambda: [used])
    with pytest.raises(LabError, match="in use by /x"):
        base_image.purge()
    assert tree.is_dir()
    monkeypatch.setattr("ironspan.lab.mounts.current", list)
    assert base_image.purge() == [str(tree)]
    assert not tree.parent.exists()
    assert base_image.purge() == []


def test_arguments_survive_the_shell(test_machine: Machine, rack: LabHost) -> None:
    odd = Path("/state/with space/lab")
    script = host.run_script(test_machine, odd, rack)
    assert shlex.quote(f"--directory={odd}/hosts/rack-1/root") in script


def test_a_disk_of_a_machine_is_not_in_the_folder_of_its_host(tmp_path: Path) -> None:
    layout = Layout("lab", 2, 1, 1)
    plain, machine = layout.host("az-1"), replace(layout.host("az-1"), disk="etcd-1")
    assert host.data_folder(tmp_path, plain, "etcd") == host.folder(tmp_path, plain) / "etcd"
    assert host.data_folder(tmp_path, machine, "etcd") == tmp_path / "disks" / "etcd-1"
    assert host.data_folder(tmp_path, machine, "kubelet") == host.folder(tmp_path, machine) / "kubelet"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_machine_has_the_account_that_azure_makes(tmp_path: Path) -> None:
    base, tree = tmp_path / "base", tmp_path / "tree"
    (base / "etc").mkdir(parents=True)
    for name in ("passwd", "group", "shadow", "gshadow"):
        (base / "etc" / name).write_text("root:x:0:0\n")
    accounts.create(base, tree, "ops", ("ssh-ed25519 AAAA a", "ssh-ed25519 BBBB b"))
    assert (tree / "etc/passwd").read_text().splitlines() == [
        "root:x:0:0",
        "ops:x:1000:1000::/home/ops:/bin/bash",
    ]
    assert (tree / "etc/shadow").read_text().splitlines()[-1].startswith("ops:*:")  # no password opens it
    assert (tree / "etc/sudoers.d/90-azure").stat().st_mode & 0o777 == 0o440
    allowed = tree / "home/ops/.ssh/authorized_keys"
    assert allowed.read_text() == "ssh-ed25519 AAAA a\nssh-ed25519 BBBB b\n"
    assert (allowed.stat().st_uid, allowed.parent.stat().st_mode & 0o777) == (1000, 0o700)
