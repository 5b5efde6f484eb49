# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Virtual servers with a real Ironic beside them: what a rack with its deployment host is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ironspan.lab import ironic
from ironspan.lab.errors import LabError
from ironspan.lab.virtual import servers
from ironspan.lab.virtual.servers import ADDRESS, Bmcs, Server

MIRROR_PORT, MEDIA_PORT = 8087, 8088
Progress = Callable[[str, str, str], None]


@dataclasses.dataclass(frozen=True)
class World:
    """What is up.

    Args:
        ironic: its API, with the login.
        bmcs: the BMCs, with theirs.
        servers: the servers, powered off.
    """

    ironic: ironic.Ironic
    bmcs: Bmcs
    servers: list[Server]


@dataclasses.dataclass(frozen=True)
class Image:
    """A file of the mirror as servers of the lab reach it.

    Args:
        url: where it is served.
        sha256: hexadecimal.
    """

    url: str
    sha256: str


def images() -> dict[str, Image]:
    """Return the files of systems that the mirror has, by the names of the lock file (``server-disk``).

    Raises:
        LabError: nobody built them.
    """
    from ironspan.artifacts import cache, index, lock_file, recipes
    from ironspan.artifacts.lock import native_arch

    held = index.load(cache.Cache().index_path)
    found: dict[str, Image] = {}
    for file in lock_file.load().files.values():
        if file.system:
            entry = recipes.entry_of(file, held, native_arch())
            if not isinstance(entry, index.FileEntry):
                raise LabError(
                    f"{file.key} is not built: run `ironspan artifacts build --set server-images`",
                )
            found[file.name] = Image(f"http://{ADDRESS}:{MIRROR_PORT}{entry.path}", entry.sha256)
    return found


def up(folder: Path, count: int, progress: Progress) -> World:
    """Bring servers, BMCs, image servers and Ironic up.

    Args:
        folder: for their files.
        count: how many servers.
        progress: called with (what, state, detail).

    Raises:
        LabError: something is not installed or not built, or does not start.
    """
    from ironspan.artifacts.mirror import Mirror
    from ironspan.lab.mirror import folder_path

    found = images()
    bmcs, machines = servers.up(folder, count)
    progress("servers", "done", f"{count}, powered off; BMCs at {bmcs.url}")
    media = folder / "media"
    media.mkdir(exist_ok=True)
    for name, root, port in (("mirror", folder_path(), MIRROR_PORT), ("media-server", media, MEDIA_PORT)):
        (folder / name).mkdir(exist_ok=True)
        Mirror(root).start(folder / name, listen=[f"{ADDRESS}:{port}"])
    lab = ironic.start(folder / "ironic", _sections(found, media))
    progress("ironic", "done", f"{lab.url}, cloud `lab` of {lab.clouds}")
    return World(lab, bmcs, machines)


def down(folder: Path) -> None:
    """End everything of a folder; its files stay."""
    from ironspan.artifacts.mirror import Mirror

    if (folder / "ironic").is_dir():
        ironic.stop(folder / "ironic")
    for name in ("mirror", "media-server"):
        if (folder / name).is_dir():
            Mirror(folder).stop(folder / name)
    servers.down(folder)


def _sections(found: dict[str, Image], media: Path) -> ironic.Sections:
    """Return what Ironic has to know beside what the lab's always knows."""
    interfaces = {
        "bios": "no-bios", "boot": "redfish-virtual-media", "console": "no-console", "deploy": "direct",
        "firmware": "no-firmware", "inspect": "agent,no-inspect", "management": "redfish", "power": "redfish",
        "raid": "no-raid", "rescue": "agent,no-rescue", "vendor": "no-vendor",
    }  # fmt: skip
    system = {name: found[f"agent-{name}"].url for name in ("kernel", "ramdisk", "esp")}
    return {
        "DEFAULT": {
            "enabled_hardware_types": "redfish",
            **{f"enabled_{name}_interfaces": value for name, value in interfaces.items()},
            "my_ip": ADDRESS,
            "grub_config_path": "EFI/debian/grub.cfg",
        },
        "api": {"host_ip": ADDRESS},
        "conductor": {
            "automated_clean": "false",
            "deploy_kernel": system["kernel"],
            "deploy_ramdisk": system["ramdisk"],
            "rescue_kernel": system["kernel"],
            "rescue_ramdisk": system["ramdisk"],
            "bootloader": system["esp"],
        },
        "deploy": {
            "http_url": f"http://{ADDRESS}:{MEDIA_PORT}/",
            "http_root": media,
            "default_boot_mode": "uefi",
        },
        "redfish": {"use_swift": "false", "kernel_append_params": "nomodeset console=ttyS0"},
        "inspector": {
            "require_managed_boot": "true",
            "extra_kernel_params": "ipa-inspection-collectors=default,lldp,pci-devices",
        },
    }
