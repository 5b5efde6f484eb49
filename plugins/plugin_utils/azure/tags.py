# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tags by which resources in Azure say what they are of."""

from __future__ import annotations

SITE = "ironspan-site"
"""Everything: the name of the site."""
DIGEST = "ironspan-digest"
"""Deployments: SHA-256 of the template."""
HOST = "ironspan-host"
"""Machines: the name of the host."""
POOL = "ironspan-pool"
"""Scale sets and their instances: the name of the pool."""
GROUPS = "ironspan-groups"
"""Machines and scale sets: groups of the inventory, with commas between."""
