# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The estate in Azure."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    EVERYWHERE,
    PLAN,
    REPORT,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation

OPERATIONS = (
    Operation(
        name="azure",
        summary="the site's estate in Azure: networks, machines, disks, identities and accounts are deployed",
        details="Azure is asked first what the deployment would change. What it deletes is named, and needs "
        "--allow-destructive. The next run follows a deployment that a killed one has begun.",
        command=("azure",),
        arguments=(ALLOW_DESTRUCTIVE, REPORT, PLAN, *EVERYWHERE),
        compared="none",
        remote=("azure_estate",),
        cluster=False,
    ),
)
