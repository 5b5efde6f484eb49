# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reading and checking a site of 5,000 hosts: what a run costs before it does anything."""

from __future__ import annotations

import os
import pathlib
import resource
import subprocess
import sys

from tests.bench.table import Table

HOSTS = 5000
CPU_S, MEMORY_MIB = 12.0, 400.0
"""Of the whole process, with the start of Python and Ansible."""
READ = """
import pathlib, resource, sys
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site
site, problems = load_site([pathlib.Path(sys.argv[1])])
assert site is not None, problems[:3]
print(len(site.hosts), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def site(folder: pathlib.Path) -> pathlib.Path:
    """Write the inventory; return its folder."""
    servers = {number: f"az-{number}: {{ansible_host: 10.20.0.1{number}}}" for number in (1, 2, 3)}
    lines = [
        "all:",
        "  vars: {site_name: big, site_api_endpoint: 'api.example.internal:6443',",
        "    site_api_address: 10.20.0.10,",
        "    site_pod_cidr: 10.128.0.0/11, site_mirror_url: 'http://mirror.example.internal:8080',",
        f"    site_pki_store: {folder}/pki}}",
        "  children:",
        f"    azure: {{hosts: {{{', '.join(servers.values())}}}}}",
        *(f"    {group}: {{children: {{azure: }}}}" for group in ("etcd", "control_plane")),
        "    on_prem: {children: {nodes: }}",
        "    nodes:",
        "      hosts:",
    ]
    for number in range(HOSTS):
        address = f"10.30.{number // 200}.{number % 200 + 1}"
        rack = f"r{number // 40:03d}"
        lines.append(f"        w-{number:05d}: {{ansible_host: {address}, site_rack: {rack}}}")
    inventory = folder / "site"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text("\n".join(lines) + "\n")
    return inventory


def test_five_thousand_hosts(tmp_path: pathlib.Path, table: Table) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "IRONSPAN_PKI_KEY": "A" * 43 + "="}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-c", READ, str(site(tmp_path))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.returncode == 0, ended.stderr
    hosts, memory = map(int, ended.stdout.split()[-2:])
    assert hosts == HOSTS + 3
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    section = f"validate: {HOSTS:,} hosts read and checked"
    table.add(section, "CPU", cpu, CPU_S, "s", "one process, with its start")
    table.add(section, "memory", float(memory), MEMORY_MIB, "MiB")
    table.check()
