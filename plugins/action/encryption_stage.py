# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes the encryption of secrets to its next stage in the PKI store, rewrites secrets, and judges."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption import loaded, rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.rewrite import Outcome, rewrite
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.wanted import wanted_kind
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption import through
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    DROP,
    KMS,
    Encryption,
    kind_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

REWRITING_PATIENCE_S = 30.0
"""For a request that fails, as those to the load balancer have it."""


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.encryption_stage``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["entered", "followed"], "required": True}
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Enter the stage asked for, or let secrets follow and judge whether all have."""
        stage = rotation.stage_of(self._variables)
        state = session.store.encryption.state()
        if arguments["state"] == "followed":
            return self._followed(session, stage, state)
        return self._entered(session, stage, state)

    def _entered(self, session: Session, stage: str, state: Encryption) -> Result:
        move = rotation.next_move(state) if stage == rotation.GO_ON else stage
        if move in (state.stage, rotation.REWRITE, rotation.END) or (move == DROP and through(state)):
            return self._stays(state, [])
        reasons = self._reasons(session, state, move)
        if reasons and stage == rotation.GO_ON:
            return self._stays(state, reasons)
        if reasons:
            raise OperationError(
                f"the stage {move} would make secrets unreadable: {rotation.listed(reasons)}",
                f"fix what is named; -e {rotation.STAGE_VARIABLE}={rotation.GO_ON} lets all follow",
            )
        if not self._task.check_mode:
            state = session.store.encryption.move(move, wanted_kind(session.site))
        self.say(f"encryption of secrets: the stage {move}")
        return {"changed": True, **_told(state)}

    def _followed(self, session: Session, stage: str, state: Encryption) -> Result:
        if self._task.check_mode or not state.used:
            return {"changed": False, **_told(state), "followed": False, "reasons": []}
        apis, configuration = rotation.apis_of(session), session.store.encryption.configuration()
        reasons = loaded.wait(apis, configuration)
        result: Result = {}
        if not reasons and (stage == rotation.REWRITE or state.stage not in ("", DROP)):
            outcome = self._rewritten(session, state, everything=stage == rotation.REWRITE)
            reasons = outcome.refused or rotation.left_behind(outcome.left, state.writes)
            result = {"stored": outcome.stored, "written": outcome.asked}
        ending = state.stage == DROP and not reasons
        if ending:
            state = session.store.encryption.end_stage()
        self._tell(state, reasons, ending=ending)
        return {
            **result,
            "changed": ending or bool(result.get("written")),
            **_told(state),
            "followed": not reasons,
            "reasons": reasons,
            "next": rotation.next_move(state) if state.stage else "",
        }

    def _rewritten(self, session: Session, state: Encryption, *, everything: bool) -> Outcome:
        everything = everything or kind_of(state.writes) == KMS
        apis = [api() for api in rotation.apis_of(session, REWRITING_PATIENCE_S).values()]
        outcome = rewrite(apis, rotation.reader_of(session), state.writes, everything=everything)
        for label, count in outcome.stored.items():
            self.say(f"{count} secrets are stored with {label}")
        return outcome

    def _tell(self, state: Encryption, reasons: list[str], *, ending: bool) -> None:
        if ending:
            self.say(f"encryption of secrets: the change is complete, {state.writes} is alone")
        elif reasons:
            self.say(f"encryption of secrets: not everything has followed: {rotation.listed(reasons)}")
        elif not state.stage:
            self.say(f"encryption of secrets: {state.writes} is alone, and no change is under way")
        else:
            self.say(f"all API servers have followed; the stage {rotation.next_move(state)} may be entered")

    def _stays(self, state: Encryption, reasons: list[str]) -> Result:
        if state.stage:
            self.say(f"encryption of secrets: stays in the stage {state.stage}")
        for reason in reasons[: rotation.SHOWN]:
            self.say(f"  {reason}")
        return {"changed": False, **_told(state), "reasons": reasons}

    def _reasons(self, session: Session, state: Encryption, move: str) -> list[str]:
        return rotation.refusals(
            state,
            move,
            lambda: loaded.not_loaded(rotation.apis_of(session), session.store.encryption.configuration()),
            rotation.reader_of(session),
        )


def _told(state: Encryption) -> Result:
    return {"stage": state.stage, "providers": list(state.providers)}
