# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Takes an authority to its next stage in the PKI store, or says whether all hosts have followed."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.gate import END
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.run import observed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import BACK, Generations
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.authority_stage``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["entered", "followed"], "required": True}
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Enter the stage asked for, or judge whether hosts have followed the present one."""
        wish = rotation.wish_of(self._variables, session.site.hosts)
        state = session.store.generations(wish.name)
        if arguments["state"] == "followed":
            return self._followed(session, wish, state)
        return self._entered(session, wish, state)

    def _entered(self, session: Session, wish: rotation.Wish, state: Generations) -> Result:
        move = rotation.next_move(state) if wish.stage == rotation.GO_ON else wish.stage
        if move == state.stage or (wish.stage == rotation.GO_ON and move == END):
            return self._stays(wish, state, [])
        reasons = self._reasons(session, wish, move, state)
        if reasons and wish.stage == rotation.GO_ON:
            return self._stays(wish, state, reasons)
        if reasons:
            raise OperationError(
                f"the stage {move} of {wish.name} would break what is not ready for it: "
                f"{rotation.listed(reasons)}",
                f"fix what is named; -e {rotation.STAGE_VARIABLE}={rotation.GO_ON} lets hosts follow",
            )
        if not self._task.check_mode:
            state = session.store.move(wish.name, move)
        self.say(f"{wish.name}: {f'stage {state.stage}' if move != BACK else 'a stage back'}")
        return {"changed": True, "stage": state.stage, "generations": state.as_dict()}

    def _followed(self, session: Session, wish: rotation.Wish, state: Generations) -> Result:
        """Say what the next stage waits for; end the last one when all have followed."""
        move = rotation.next_move(state)
        reasons = self._reasons(session, wish, move, state) if state.stage else []
        ending = move == END and not reasons and bool(state.stage)
        if ending and not self._task.check_mode:
            state = session.store.end_stage(wish.name)
        if ending:
            self.say(f"{wish.name}: all hosts have followed, the change is complete")
        elif reasons:
            self.say(f"{wish.name}: before the stage {move}: {rotation.listed(reasons)}")
        elif state.stage:
            self.say(f"{wish.name}: all hosts have followed; the stage {move} may be entered")
        return {
            "changed": ending,
            "stage": state.stage,
            "followed": not reasons,
            "reasons": reasons,
            "next": move if state.stage else "",
        }

    def _stays(self, wish: rotation.Wish, state: Generations, reasons: list[str]) -> Result:
        self.say(
            f"{wish.name}: stays in the stage {state.stage}" + (" so that all follow" if reasons else "")
        )
        for reason in reasons[: rotation.SHOWN]:
            self.say(f"  {reason}")
        return {"changed": False, "stage": state.stage, "reasons": reasons}

    def _reasons(self, session: Session, wish: rotation.Wish, move: str, state: Generations) -> list[str]:
        store = session.store
        return rotation.reasons_against(
            wish,
            move,
            state,
            observed(session.site, store),
            store.service_account_public_key(),
            session.api,
            store.ca("kubernetes").certificate_pem,
        )
