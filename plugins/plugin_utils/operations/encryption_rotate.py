# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changing the key, or the way, that secrets are encrypted with in etcd: one stage a run.

Which API servers have followed, and how secrets are stored, is asked when the stage is entered
(encryption/rotation.py); here only the order of the stages is checked, so that a plan can be made without
contacting anything.
"""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption import rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.wanted import wanted_kind
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption import moved
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import Encryption
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

_SECONDS_A_CONTROL_PLANE = 45
_SECONDS_TO_LOAD = 60
"""An API server looks at its file once a minute."""


def steps(context: Context) -> list[Step]:
    """Return the stage to enter, or to finish.

    Raises:
        OperationError: stages come in another order, or nothing is being changed.
    """
    stage = rotation.stage_of(context.arguments)
    state = context.session.store.encryption.state()
    if stage == rotation.GO_ON and not state.stage:
        raise OperationError(
            f"secrets are stored with {state.writes}, and that is not being changed",
            f"start with -e {rotation.STAGE_VARIABLE}=read",
        )
    entered, after = _entered(stage, state, wanted_kind(context.site))
    count = len(context.site.group("control_plane"))
    # A flag, and the folder of the plugin's socket, are parts of the manifest; keys are not.
    restart = (state.used, state.needs_plugin) != (after.used, after.needs_plugin)
    return [
        Step(
            action=f"encryption-{entered}",
            target="",
            what=rotation.sentence(state, after, entered, count),
            arithmetic=f"now: {_shown(state)}; after: {_shown(after)}",
            disruption="API servers restart, one after the other" if restart else "",
            seconds=count * _SECONDS_A_CONTROL_PLANE * restart + _SECONDS_TO_LOAD,
        )
    ]


def _entered(stage: str, state: Encryption, kind: str) -> tuple[str, Encryption]:
    """Return the stage that a run enters, or goes on with, and how secrets are stored then."""
    if stage == rotation.REWRITE:
        return stage, state
    if stage == rotation.GO_ON:
        return state.stage, state
    try:
        return stage, moved(state, stage, kind, "")
    except PkiError as error:
        raise OperationError(error.message, error.remedy) from None


def _shown(state: Encryption) -> str:
    others = ", ".join(state.providers[1:])
    return f"{state.writes} writes" + (f", read with {others} too" if others else "")
