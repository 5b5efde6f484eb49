# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The Ansible inventory of a lab."""

from __future__ import annotations

import contextlib
import textwrap
from pathlib import Path

import yaml

from ironspan.lab import files, keys
from ironspan.lab.azure import estate, variables
from ironspan.lab.layout import API_NAME, API_PORT, MIRROR_PORT, Layout
from ironspan.lab.virtual import variables as servers

#: Feature groups and settings that hold in every lab; part of the repository.
GROUP_VARS = Path(__file__).resolve().parents[2] / "inventories" / "lab" / "group_vars"

_PLUGIN = """\
# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
# Written by `ironspan lab up`: the machines of the estate that hosts.yml declares.
---
plugin: ironspan.hybrid.azure
"""


def groups(layout: Layout) -> dict[str, list[str]]:
    """Which host plays which part.

    etcd takes the largest odd number of Azure hosts up to five, the control plane the first two, the API
    endpoint the last one; every rack host is a worker and runs gVisor pods. Of an estate the inventory plugin
    says it.
    """
    azure = [host.name for host in layout.hosts if host.site.key == "azure"]
    rack = [host.name for host in layout.hosts if host.site.key == "rack"]
    if layout.estate:
        return {"nodes": rack, "gvisor": rack}
    members = min(len(azure), 5)
    return {
        "etcd": azure[: members - 1 + members % 2],
        "control_plane": azure[:2],
        "haproxy": [layout.api_host.name],
        "nodes": rack,
        "gvisor": rack,
    }


def render(
    layout: Layout, folder: Path, wan_mtu: int, etcd_backup: bool = False, bare_metal: bool = False
) -> str:
    """The text of hosts.yml for the lab in `folder`.

    Args:
        layout: of the lab.
        folder: of the lab.
        wan_mtu: bytes per packet on the WAN.
        etcd_backup: etcd is backed up to the emulated Azure.
        bare_metal: there are virtual servers.

    Raises:
        LabError: there are virtual servers, and nobody built the images that they get.
    """
    extra = variables.backup(layout, folder) if etcd_backup and not layout.estate else {}
    if bare_metal:
        extra |= servers.site(layout, folder)
    if layout.estate:
        extra |= estate.site(layout, folder, etcd_backup)
    known = f"-o UserKnownHostsFile={keys.known_hosts(folder)}"
    lines = [
        "# Copyright (c) the ironspan developers",
        "# SPDX-License-Identifier: Apache-2.0",
        "# Written by `ironspan lab up`; group_vars/ beside it holds what is the same in every lab.",
        "---",
        "all:",
        "  vars:",
        "    ansible_user: root",
        f"    ansible_ssh_private_key_file: {keys.private_key(folder)}",
        "    ansible_ssh_common_args: >-",
        f"      -F /dev/null{'' if layout.estate else ' ' + known}",
        "      -o GlobalKnownHostsFile=/dev/null -o IdentitiesOnly=yes",
        f"    site_name: lab-{layout.name}",
        f"    site_api_endpoint: {API_NAME}:{estate.API_PORT if layout.estate else API_PORT}",
        f"    site_api_address: {layout.api_address}",
        f"    site_pki_store: {folder}/pki",
        f"    site_pki_key_file: {folder}/pki.key",
        f"    site_wan_mtu: {wan_mtu}",
        *(_variable(name, value) for name, value in extra.items()),
        "  children:",
    ]
    for site in layout.sites:
        lines += [f"    {site.group}:", "      vars:"]
        lines.append(f"        site_mirror_url: http://{site.controller}:{MIRROR_PORT}")
        if layout.estate and site.key == "azure":
            continue
        if layout.estate:  # of its own: ssh takes the first of several, and machines have another file
            lines.append(f"        ansible_ssh_extra_args: {known}")
        lines.append("      hosts:")
        for host in layout.hosts:
            if host.site.key == site.key:
                lines += [f"        {host.name}:", f"          ansible_host: {host.address}"]
                if site.key == "rack":
                    lines.append("          site_rack: rack-a")
    for group, names in groups(layout).items():
        lines += [f"    {group}:", "      hosts:", *(f"        {name}: {{}}" for name in names)]
    for group, settings in (servers.group(folder) if bare_metal else {}).items():
        lines += [f"    {group}:", "      vars:"]
        lines += [textwrap.indent(_variable(name, value), "    ") for name, value in settings.items()]
    return "\n".join(lines) + "\n"


class _Indented(yaml.SafeDumper):
    """Writes lists as the project's own files have them, below their key and indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _variable(name: str, value: object) -> str:
    """A variable as YAML, indented for `render`."""
    text = yaml.dump({name: value}, Dumper=_Indented, sort_keys=False, width=150)
    return textwrap.indent(text.rstrip(), "    ")


def path(folder: Path) -> Path:
    """Where the inventory of the lab in `folder` is."""
    return folder / "inventory" / "hosts.yml"


def source(layout: Layout, folder: Path) -> Path:
    """What Ansible is given with `-i`: of an estate the folder, with the plugin's file too."""
    return path(folder).parent if layout.estate else path(folder)


def write(
    layout: Layout, folder: Path, wan_mtu: int, etcd_backup: bool = False, bare_metal: bool = False
) -> Path:
    """Write the inventory and the link to the repository's group_vars beside it; see `render`."""
    target = path(folder)
    files.write_if_changed(target, render(layout, folder, wan_mtu, etcd_backup, bare_metal))
    if layout.estate:
        files.write_if_changed(target.parent / "azure.yml", _PLUGIN)
    link = target.parent / "group_vars"
    if GROUP_VARS.is_dir() and not (link.is_symlink() and link.readlink() == GROUP_VARS):
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(GROUP_VARS)
    return target
