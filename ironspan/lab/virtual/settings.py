# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the Ironic of virtual servers is told, and what a site says of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ironspan.lab import ironic
from ironspan.lab.errors import LabError
from ironspan.lab.virtual.rack import Rack

IRONIC_PORT = 6385
SET = "server-images"
"""What the lab's servers get and are written by; they have one root."""


@dataclasses.dataclass(frozen=True)
class Image:
    """A file of the mirror as servers of the lab reach it.

    Args:
        url: where it is served.
        sha256: hexadecimal.
    """

    url: str
    sha256: str


def images(mirror: str) -> dict[str, Image]:
    """Return the files of systems that the mirror has, by the names of the lock file (``server-disk``).

    Args:
        mirror: its URL.

    Raises:
        LabError: nobody built them.
    """
    from ironspan.artifacts import cache, index, lock_file, recipes
    from ironspan.artifacts.lock import native_arch

    held = index.load(cache.Cache().index_path)
    found: dict[str, Image] = {}
    for file in lock_file.load().files.values():
        if file.system and file.set_name == SET:
            entry = recipes.entry_of(file, held, native_arch())
            if not isinstance(entry, index.FileEntry):
                raise LabError(
                    f"{file.key} is not built: run `ironspan artifacts build --set server-images`",
                )
            found[file.name] = Image(f"{mirror}{entry.path}", entry.sha256)
    return found


def sections(rack: Rack, found: dict[str, Image], media: Path, media_port: int) -> ironic.Sections:
    """Return what Ironic has to know beside what the lab's always knows.

    Args:
        rack: whose servers it looks after.
        found: the images.
        media: the folder that it puts media into.
        media_port: where that folder is served.
    """
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
            "my_ip": rack.controller,
            "grub_config_path": "EFI/debian/grub.cfg",
        },
        "api": {"host_ip": rack.controller, "port": IRONIC_PORT},
        "conductor": {
            "automated_clean": "false",
            "deploy_kernel": system["kernel"],
            "deploy_ramdisk": system["ramdisk"],
            "rescue_kernel": system["kernel"],
            "rescue_ramdisk": system["ramdisk"],
            "bootloader": system["esp"],
        },
        "deploy": {
            "http_url": f"http://{rack.controller}:{media_port}/",
            "http_root": media,
            "default_boot_mode": "uefi",
        },
        # QEMU's emulation of several processors can fail a kernel that patches its own code: it starts again.
        "redfish": {"use_swift": "false", "kernel_append_params": "nomodeset console=ttyS0 panic=10"},
        "inspector": {
            "require_managed_boot": "true",
            "extra_kernel_params": "ipa-inspection-collectors=default,lldp,pci-devices",
        },
    }
