# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""All judges of an estate, in the stages in which they are asked."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import (
    faults_gateway,
    faults_login,
    faults_machines,
    faults_network,
    faults_place,
    faults_pods,
    faults_services,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.faults import (
    not_computed,
    without_subscription,
)

STAGES = (
    (without_subscription,),
    (
        *faults_place.JUDGES,
        *faults_login.FIRST,
        *faults_network.FIRST,
        *faults_machines.FIRST,
        *faults_services.FIRST,
    ),
    (
        *faults_login.JUDGES,
        *faults_network.JUDGES,
        *faults_gateway.JUDGES,
        *faults_machines.JUDGES,
        *faults_pods.JUDGES,
        *faults_services.JUDGES,
    ),
    (not_computed,),
)
"""What a stage finds would make most of the next stage's findings: these are said when it finds nothing."""
