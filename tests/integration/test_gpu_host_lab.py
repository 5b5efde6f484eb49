# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The layer gpu_host on a real host: real systemd, and Debian's own update-grub and grub-mkconfig.

What is not real: the hosts have no disk that grub-probe and grub-mkrelpath could look at, so their answers
are written here, and the kernel is an empty file. No host boots from it; that a boot is asked for is seen.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import typing as t
from collections.abc import Iterator

import pytest

from ironspan.lab import Lab
from tests.integration.conftest import Cluster, lab_name
from tests.support.playbooks import ROOT, Played, play

pytestmark = [pytest.mark.lab, pytest.mark.long]

HOST, MENU = "rack-1", "/boot/grub/grub.cfg"
FILE, REQUEST = "/etc/default/grub.d/60-ironspan-gpu.cfg", "/run/ironspan/reboot"
PLAY = """\
- ansible.builtin.import_playbook: {root}/playbooks/validate.yml
  vars: {{__ironspan_purpose: apply}}
- ansible.builtin.import_playbook: {root}/playbooks/assess.yml
- ansible.builtin.import_playbook: {root}/playbooks/prepare.yml
  vars: {{__ironspan_scope: ":&gpu:&__ironspan_pending"}}
"""
PROBE = """\
#!/bin/sh
case "$*" in
*--target=device*) echo /dev/vda1 ;;
*--target=fs_uuid*) echo 0b4cbf2e-0000-4000-8000-000000000001 ;;
*--target=fs*) echo ext2 ;;
*--target=partmap*) echo gpt ;;
*) exit 1 ;;
esac
"""
ASKED = {
    "gpu_host_iommu": "passthrough",
    "gpu_host_acs": "disabled",
    "gpu_host_relaxed_ordering": True,
    "gpu_host_hugepages_1gib_count": 1,
    "gpu_host_kernel_arguments": "numa_balancing=disable",
}
WORDS = (
    "intel_iommu=on iommu=pt pci=disable_acs_redir=pci:0:0 hugepagesz=1G hugepages=1 numa_balancing=disable"
)


class Site(Cluster):
    """A host with a boot loader's files."""

    def converged(self, asked: dict[str, t.Any], *options: str) -> Played:
        """Run the phases up to the preparation of GPU hosts."""
        more = self.folder / "gpu.yml"
        gpus = {"hosts": {HOST: None}, "vars": {"base_min_memory_mib": 4096, **asked}}
        more.write_text(json.dumps({"all": {"children": {"gpu": gpus}}}))
        return play(str(self.folder / "play.yml"), self.inventory, self.folder, "-i", str(more), *options)

    def menu(self) -> list[str]:
        """Return the lines of the boot loader's menu that start a kernel."""
        lines = self.on(HOST, f"cat {MENU}").splitlines()
        return [" ".join(line.split()) for line in lines if line.split()[:1] == ["linux"]]

    def bring_grub(self) -> None:
        """Copy Debian's programs, which the tree of lab hosts does not have."""
        packages, tree = self.folder / "packages", self.folder / "tree"
        packages.mkdir()
        # Below it apt gives up its rights.
        packages.chmod(0o777)
        fetched = subprocess.run(
            ["apt-get", "download", "grub-common", "grub2-common"],
            cwd=packages,
            check=False,
            capture_output=True,
        )
        if fetched.returncode != 0:
            pytest.skip("Debian's packages cannot be reached")
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True)
        shutil.copy(tree / "usr/share/grub/default/grub", tree / "etc/default/grub")
        (tree / "usr/sbin/grub-probe").write_text(PROBE)
        (tree / "usr/bin/grub-mkrelpath").write_text('#!/bin/sh\nreadlink -f "$1"\n')
        for name in ("20_linux_xen", "30_os-prober", "30_uefi-firmware", "05_debian_theme"):
            (tree / "etc/grub.d" / name).unlink()
        (tree / "boot/grub").mkdir(parents=True)
        for name in ("vmlinuz-6.1.0-1-amd64", "initrd.img-6.1.0-1-amd64", "config-6.1.0-1-amd64"):
            (tree / "boot" / name).touch()
        linked = subprocess.run(
            ["ldd", str(tree / "usr/bin/grub-script-check")], check=False, capture_output=True, text=True
        ).stdout.split()
        libraries = tree / "usr/lib/x86_64-linux-gnu"
        libraries.mkdir(parents=True)
        for library in (word for word in linked if word.startswith("/")):
            shutil.copy(library, libraries)
        parts = ["boot", "etc/default", "etc/grub.d", "usr/sbin", "usr/bin", "usr/share/grub", "usr/lib"]
        packed = ["tar", "-c", "--owner=0", "--group=0", "-C", str(tree), *parts]
        archive = subprocess.run(packed, check=True, capture_output=True).stdout
        unpack = self.lab.ssh_command(
            HOST, ["tar", "-x", "--keep-directory-symlink", "--skip-old-files", "-C", "/"]
        )
        subprocess.run(unpack, input=archive, check=True, capture_output=True)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The host, with nothing installed but a boot loader."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="isg-", dir="/tmp"))
    folder.chmod(0o755)
    made = Site(Lab(lab_name("ghost")), folder)
    (folder / "play.yml").write_text(PLAY.format(root=ROOT))
    try:
        made.lab.up(azure=1, rack=1, azure_services=False)
        made.bring_grub()
        made.on(HOST, "update-grub")
        yield made
    finally:
        made.lab.down()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_check_says_what_would_be_and_changes_nothing(site: Site) -> None:
    before = site.menu()
    assert before and WORDS not in before[0], before
    checked = site.converged(ASKED, "--check", "--diff")
    assert checked.status == 0, checked.output[-6000:]
    assert WORDS in checked.output and "NVreg_EnablePCIERelaxedOrderingMode=1" in checked.output
    assert site.on(HOST, f"ls {FILE} {REQUEST}", check=False) == ""
    assert site.menu() == before


def test_the_menu_has_the_arguments_and_a_boot_is_asked_for(site: Site) -> None:
    done = site.converged(ASKED)
    assert done.status == 0, done.output[-6000:]
    # All entries of the menu but those for rescue, which take GRUB_CMDLINE_LINUX too.
    assert site.menu() and all(WORDS in line for line in site.menu()), site.menu()
    assert "arguments of the kernel" in site.on(HOST, f"cat {REQUEST}/*")
    # What runs has not changed.
    assert "hugepagesz" not in site.on(HOST, "cat /proc/cmdline")


def test_a_second_run_changes_nothing(site: Site) -> None:
    menu = site.on(HOST, f"stat -c %Y {MENU}")
    done = site.converged(ASKED)
    assert done.status == 0 and done.recap[HOST]["changed"] == 0, done.output[-4000:]
    assert site.converged(ASKED, "--check").changed == {}
    assert site.on(HOST, f"stat -c %Y {MENU}") == menu


def test_a_boot_loader_that_fails_takes_the_change_back(site: Site) -> None:
    site.on(
        HOST,
        "mv /usr/sbin/grub-mkconfig /usr/sbin/was; printf '#!/bin/sh\\nexit 7\\n' >/usr/sbin/grub-mkconfig",
    )
    site.on(HOST, "chmod 755 /usr/sbin/grub-mkconfig")
    done = site.converged({**ASKED, "gpu_host_iommu": "disabled"})
    site.on(HOST, "mv /usr/sbin/was /usr/sbin/grub-mkconfig")
    assert done.status != 0 and "ironspan-kernel-arguments" in done.output, done.output[-4000:]
    assert WORDS in site.on(HOST, f"cat {FILE}")
    assert site.converged(ASKED).status == 0
    assert all(WORDS in line for line in site.menu())


def test_the_way_back(site: Site) -> None:
    site.on(HOST, f"rm {REQUEST}/*")
    done = site.converged({"gpu_host_arguments_managed": True})
    assert done.status == 0, done.output[-6000:]
    # The menu is as it was, and the boot that takes the arguments away is asked for.
    assert not any("hugepages" in line or "iommu" in line for line in site.menu()), site.menu()
    assert "arguments of the kernel" in site.on(HOST, f"cat {REQUEST}/*")
    done = site.converged({})
    assert done.status == 0, done.output[-6000:]
    assert site.on(HOST, f"ls {FILE} /etc/modprobe.d/51-ironspan-nvidia-ordering.conf", check=False) == ""
    assert site.on(HOST, "systemctl is-active ironspan-kernel-arguments", check=False) != "active"
    again = site.converged({})
    assert again.status == 0 and again.recap.get(HOST, {}).get("changed", 0) == 0, again.output[-4000:]
