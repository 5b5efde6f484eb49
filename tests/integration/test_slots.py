# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The disk image with two roots, started by UEFI firmware under Secure Boot: a good start, and ways back."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
    config_drive,
)

from ironspan.artifacts import cache, index, lock_file, recipes
from ironspan.artifacts.lock import native_arch
from ironspan.artifacts.system import disk
from ironspan.lab import processes
from ironspan.lab.ports import free_port
from ironspan.lab.virtual import rack, servers
from ironspan.lab.virtual.servers import Server

pytestmark = [pytest.mark.lab, pytest.mark.long]
ADDRESS, GATEWAY = "10.0.2.15/24", "10.0.2.2"
"""Those of QEMU's own network, as a server of a site would have them declared."""
DEADLINE_S = 900
"""Of a system on trial: on a machine that does other things a first start takes minutes."""
START_S = 3000.0


class Machine:
    """A virtual server with that image on its disk.

    Args:
        folder: of its files.
        image: what is on its disk at first.
    """

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self.server = Server(folder, rack.ALONE, 1, disk_gib=14)
        self.server.make()
        disk.copy_into(image, self.server.disk, 0)
        self.port = free_port()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "login"], check=True)
        self._drive()
        self.process: subprocess.Popen[bytes] | None = None

    def _drive(self) -> None:
        """Make the config drive that Ironic would make."""
        key = KnownHosts(str(self.folder / "hosts")).new_key(ADDRESS.partition("/")[0], self.server.name)
        account = Account("ironspan", ((self.folder / "login.pub").read_text().strip(),))
        host = {
            "address": ADDRESS, "gateway": GATEWAY, "dns": [], "layout": "ab", "deadline_seconds": DEADLINE_S,
        }  # fmt: skip
        content = config_drive(self.server.name, host, self.server.mac, key, account)
        place = self.folder / "drive" / "openstack" / "latest"
        place.mkdir(parents=True)
        for name in ("meta_data", "network_data"):
            (place / f"{name}.json").write_text(json.dumps(content[name]))
        (place / "user_data").write_text(content["user_data"])
        subprocess.run(
            [
                "mkisofs",
                "-quiet",
                "-R",
                "-V",
                "config-2",
                "-o",
                self.folder / "drive.iso",
                self.folder / "drive",
            ],
            check=True,
        )

    def start(self) -> None:
        """Switch it on."""
        command = self.server.command()
        at = command.index("-netdev") + 1
        command[at] = f"user,id=port,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"
        command += [
            "-drive", f"if=none,id=drive,format=raw,readonly=on,file={self.folder / 'drive.iso'}",
            "-device", "virtio-blk-pci,drive=drive",
        ]  # fmt: skip
        subprocess.run(self.server.tpm_command(), check=True)
        self.process = subprocess.Popen(command)

    def off(self) -> None:
        """Switch it off."""
        if self.process is not None:
            processes.kill([self.process.pid])
            self.process.wait()
            # Its TPM, which ends a moment later, takes its socket with it.
            while any(self.server.tpm.glob("socket")):
                time.sleep(0.1)

    def run(self, command: str) -> str:
        """Run a command as root, and return what it prints; the host's key is the one of its config drive."""
        options = [
            "-F",
            "/dev/null",
            "-o",
            f"UserKnownHostsFile={self.folder / 'hosts'}",
            "-o",
            "BatchMode=yes",
        ]
        options += ["-o", "GlobalKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=yes"]
        options += ["-o", "HostKeyAlias=10.0.2.15", "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=60"]
        login = ["-i", str(self.folder / "login"), "-p", str(self.port), "ironspan@127.0.0.1"]
        done = subprocess.run(
            ["ssh", *options, *login, f"sudo sh -c '{command}'"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}{self.said()[-3000:]}"
        return done.stdout

    def said(self) -> str:
        """Return what is on its serial console."""
        return self.server.console.read_text(errors="replace") if self.server.console.exists() else ""

    def waits_for(self, text: str, after: int = 0) -> int:
        """Wait for a text on the serial console behind a place in it; return the place behind it."""
        until = time.monotonic() + START_S
        while text not in self.said()[after:]:
            assert time.monotonic() < until, f"{text!r} is not on the console: {self.said()[-6000:]}"
            assert self.process is not None
            assert self.process.poll() is None, "it is off"
            time.sleep(1)
        print(f"{time.monotonic():.0f} s: {text}", flush=True)
        return self.said().index(text, after) + len(text)

    def state(self) -> dict[str, object]:
        """Return what its program says."""
        return dict(json.loads(self.run("ironspan-slot status --json")))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if lacking := servers.missing():
        pytest.skip(f"apt-get install -y {' '.join(lacking)}")
    place, lock = cache.Cache(), lock_file.load()
    file = next(file for file in lock.files.values() if file.name == "server-disk-ab")
    held = recipes.entry_of(file, index.load(place.index_path), native_arch())
    if not isinstance(held, index.FileEntry):
        pytest.skip("ironspan artifacts build --set server-images-ab")
    made = Machine(tmp_path_factory.mktemp("slots"), place.below_mirror(held.path))
    try:
        yield made
    finally:
        made.off()


def test_a_first_start_that_passes_is_good_and_a_slot_that_does_not_leads_back(machine: Machine) -> None:
    machine.start()
    place = machine.waits_for("ironspan: slot a starts")
    place = machine.waits_for("ironspan-slot: slot a is on trial, tries left after this one: 2", place)
    place = machine.waits_for("ironspan-slot: slot a is good", place)
    assert machine.state() == {
        "slot": "a", "good": "a", "trial": "", "left": 0, "bad": {"a": "", "b": ""},
    }  # fmt: skip
    # The rest of the disk is for data, each slot in its own folder; the EFI partition is not mounted.
    mounts = machine.run("findmnt --noheadings --output TARGET,SOURCE,FSTYPE --real").splitlines()
    named = {line.split()[0].lstrip("├─└│ "): line.split()[1] for line in mounts}
    assert named["/"] == "/dev/vda2"
    assert named["/data"].startswith("/dev/vda")
    assert named["/var/lib/kubelet"].endswith("[/a/kubelet]")
    assert named["/var/lib/containerd"].endswith("[/a/containerd]")
    assert not [line for line in mounts if "vfat" in line]

    # A system without an SSH server: it starts, and does not pass.
    machine.run("mount /dev/vda3 /mnt && rm /mnt/usr/sbin/sshd && umount /mnt")
    assert "slot b is tried at the next start" in machine.run("ironspan-slot try b --tries 1")
    machine.run("systemctl reboot --no-block")
    place = machine.waits_for("ironspan: slot b starts", place)
    place = machine.waits_for("ironspan-slot: slot b is on trial, tries left after this one: 0", place)
    place = machine.waits_for("ironspan-slot: slot b has not passed in time; the server starts again", place)
    place = machine.waits_for("ironspan: slot b failed its trial", place)
    place = machine.waits_for("ironspan: slot a starts", place)
    place = machine.waits_for("ironspan-slot: slot a is good; slot b failed:", place)
    place = machine.waits_for("login:", place)
    state = machine.state()
    assert (state["slot"], state["good"], state["trial"]) == ("a", "a", "")
    assert "ssh: no server answers on port 22" in str(state["bad"])
    # `ironspan doctor` reads it here.
    assert "no server answers" in machine.run("cat /run/ironspan/slots.json")

    # A slot that is empty costs no try at all.
    machine.run("mount /dev/vda3 /mnt && rm /mnt/boot/grub/grub.cfg && umount /mnt")
    machine.run("ironspan-slot try b")
    machine.run("systemctl reboot --no-block")
    place = machine.waits_for("ironspan: no system is in slot b", place)
    place = machine.waits_for("ironspan: slot a starts", place)
    place = machine.waits_for("ironspan-slot: slot a is good; slot b failed: no system is in it", place)
