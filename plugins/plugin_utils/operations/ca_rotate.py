# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changing an authority or the service account key for another: one stage a run.

Which hosts have followed is asked of them when the stage is entered (certificates/gate.py); here only the
order of the stages is checked, so that a plan can be made without contacting a host.
"""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import Context
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import (
    BACK,
    DROP,
    ISSUE,
    SERVICE_ACCOUNT,
    TRUST,
    Generations,
    moved,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError, Step

_DISRUPTION = {
    ("etcd", TRUST): "members and API servers restart, one after the other",
    ("etcd", DROP): "members and API servers restart, one after the other",
    (
        "kubernetes",
        TRUST,
    ): "kubelets and, one after the other, control planes restart; so do flannel and CoreDNS",
    ("kubernetes", ISSUE): "kubelets, controller managers and schedulers restart",
    ("kubernetes", DROP): "kubelets and, one after the other, control planes restart",
}
_SECONDS_A_CONTROL_PLANE = 45
_SECONDS_A_MEMBER = 15


def steps(context: Context) -> list[Step]:
    """Return the stage to enter, or to finish.

    Raises:
        OperationError: stages come in another order, or nothing is being changed.
    """
    wish = rotation.wish_of(context.arguments, context.site.hosts)
    state = context.session.store.generations(wish.name)
    if wish.stage == rotation.GO_ON and not state.stage:
        raise OperationError(
            f"{wish.name} is not being changed", f"start with -e {rotation.STAGE_VARIABLE}={TRUST}"
        )
    stage = _stage(wish, state)
    return [
        Step(
            action=f"authority-{wish.stage}",
            target="",
            what=rotation.sentence(wish, stage, len(context.site.hosts)),
            arithmetic=_arithmetic(wish, state),
            disruption=_disruption(wish.name, stage),
            seconds=_seconds(context, wish.name),
        )
    ]


def _stage(wish: rotation.Wish, state: Generations) -> str:
    if wish.stage == rotation.GO_ON:
        return state.stage
    try:
        after = moved(wish.name, state, wish.stage, "")
    except PkiError as error:
        raise OperationError(error.message, error.remedy) from None
    return BACK if wish.stage == BACK else after.stage


def _arithmetic(wish: rotation.Wish, state: Generations) -> str:
    trusted = " and ".join(map(str, state.trusted))
    present = f"generation {state.signing} signs, {trusted} trusted"
    if wish.stage == rotation.GO_ON:
        following = rotation.next_move(state)
        return f"{present}; stage {following} only if all hosts have followed {state.stage}"
    after = moved(wish.name, state, wish.stage, "")
    return f"{present}; after: {after.signing} signs, {' and '.join(map(str, after.trusted))} trusted"


def _disruption(name: str, stage: str) -> str:
    if name in (SERVICE_ACCOUNT, "front-proxy") and stage in (TRUST, ISSUE, DROP):
        return "control planes restart, one after the other"
    return _DISRUPTION.get((name, stage), "")


def _seconds(context: Context, name: str) -> int:
    control_planes = len(context.site.group("control_plane")) * _SECONDS_A_CONTROL_PLANE
    members = len(context.site.group("etcd")) * _SECONDS_A_MEMBER if name == "etcd" else 0
    return control_planes + members
