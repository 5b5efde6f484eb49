# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changes of a running site, one module each: what has to be done, in which order, and what forbids it."""

from __future__ import annotations

SITE = "site"
"""What site.yml does: hosts are made to match their documents, and there are no steps beside that."""

OPERATIONS: dict[str, str] = {
    "backup_store": "backup_store",
    "member_add": "member_add",
    "member_remove": "member_remove",
    "member_replace": "member_replace",
    "ca_rotate": "ca_rotate",
    "certs_renew": "certs_renew",
    "cni_migrate": "cni_migrate",
    "encryption_rotate": "encryption_rotate",
    "etcd_restore": "etcd_restore",
    "node_add": "node_add",
    "node_remove": "node_remove",
    "node_replace": "node_replace",
    "rollback": "rollback",
    "upgrade": "upgrade",
}
"""Name of an operation, which is that of its playbook, to the module here that knows its steps."""
