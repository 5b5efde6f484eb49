# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Secrets that are not stored as the inventory says, and changes of that which were not finished."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.doctor.findings import (
    NOTICE,
    PROBLEM,
    Evidence,
    Finding,
    operation,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.wanted import VARIABLE, wanted_kind
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    IDENTITY,
    READ,
    kind_of,
)

ROTATE = "encryption_rotate -e ironspan_encryption_stage={stage}"


def secrets(evidence: Evidence) -> Iterator[Finding]:
    """How secrets are stored."""
    state, wanted = evidence.controller.encryption, wanted_kind(evidence.site)
    if not evidence.controller.built:
        return
    if state.stage:
        what = f"a change of the encryption of secrets is in the stage {state.stage} since {state.since}"
        yield Finding(NOTICE, what, operation(evidence.site, ROTATE.format(stage="next")))
    elif kind_of(state.writes) != wanted:
        clear = kind_of(state.writes) == IDENTITY
        stored = "in clear" if clear else f"with {state.writes}"
        what = f"secrets are stored {stored} in etcd, and {VARIABLE} says otherwise"
        yield Finding(PROBLEM if clear else NOTICE, what, operation(evidence.site, ROTATE.format(stage=READ)))
