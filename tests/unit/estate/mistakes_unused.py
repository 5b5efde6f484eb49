# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is written in the estate and would be nobody's, or somebody else's."""

from __future__ import annotations

from .mistakes import _SET, _UUID, add, edit

_GPUS = "Standard_NC40ads_H100_v5"
_LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHvTgzvdMMV0tNd2Y8n7ypp3I7ePEg4pGBt9Z"
_KEY = f'azure_authorized_keys: ["{_LINE}'
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
    add(
        "name that is a number",
        "azure_names: {load-balancer: 5}",
        "azure_names.load-balancer: must be text, is 5",
    ),
    add("name of a number", "azure_names: {1: lb-api}", "is nothing that has a name"),
    add("tag of Azure's own", "azure_tags: {Azure-Owner: x}", "begins with azure"),
    edit("sandboxes without GPUs", "[nodes, gpu]", "[nodes, gvisor_gpu]", "has gvisor_gpu without gpu"),
    edit(
        "GPUs of no workers",
        _SET,
        f"{_SET}\n  - {{name: w, groups: [gpu], size: {_GPUS}}}",
        "has gpu without nodes",
    ),
    edit("pool of Ironics", "[nodes, gpu]", "[nodes, gpu, ironic]", "ironic is one host's"),
    edit(
        "two that launch jobs",
        _SET,
        f"{_SET}\n  - {{name: two, count: 2, groups: [events]}}",
        "events is one host's",
    ),
    edit("key that was cut off", f"{_KEY}bDEqk3y", f"{_KEY}bDEq", "has 65 digits"),
    edit(
        "key twice",
        f"{_KEY}bDEqk3y operations",
        f'{_KEY}bDEqk3y a", "{_LINE}bDEqk3y b',
        "azure_authorized_keys[1]: is there twice",
    ),
    edit(
        "machines in the place of hosts",
        _SET,
        _SET.replace("name: az", "name: ctl"),
        "ctl-1 would get 10.20.0.11, which the inventory says of az-1",
    ),
)
