# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is written in the estate and would be nobody's, or somebody else's."""

from __future__ import annotations

from .mistakes import _SET, _UUID, add, edit

UNUSED = (
    add(
        "keys of hosts in another file", "azure_known_hosts: /etc/passwd", "has other lines than public keys"
    ),
    add("people without their key", f"azure_vault: {{administrators: [{_UUID}]}}", "keys has no pki"),
    add("name of no vault", "azure_vault: {name: kv-west, keys: []}", "so there is no vault"),
    add(
        "readers of no account",
        f"azure_backup: {{container: '', readers: [{_UUID}]}}",
        "azure_backup.readers: is written, and container is empty",
    ),
    add(
        "collectors of no account",
        f"azure_backup: {{container: '', collectors: [{_UUID}]}}",
        "azure_backup.collectors: is written, and container is empty",
    ),
    edit(
        "machines in the place of hosts",
        _SET,
        _SET.replace("name: az", "name: ctl"),
        "ctl-1 would get 10.20.0.11, which the inventory says of az-1",
    ),
)
