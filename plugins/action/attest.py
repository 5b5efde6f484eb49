# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Shows what a host's TPM says beside what is recorded of it, and records it for a person who accepts it."""

from __future__ import annotations

import functools
import json
import typing as t
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.attested import Attestor, policy_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.turn import turn_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]

bind_children()
payload.engine()  # both here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.attest``."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Look at one host; errors become messages with a remedy."""
        result: Result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            argument_spec={
                "accept": {"type": "str", "default": ""},
                "named": {"type": "bool", "default": True},
                "roles_folder": {"type": "path", "default": str(ROLES_FOLDER)},
            }
        )
        try:
            return {**result, **self._looked(task_vars or {}, arguments)}
        except SiteError as error:
            return {**result, "failed": True, "refused": True, "msg": str(error)}
        except ActionableError as error:
            return {**result, "failed": True, "msg": str(error)}

    def _looked(self, variables: dict[str, t.Any], arguments: Result) -> Result:
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import tpm_accept

        check, person = bool(self._task.check_mode), str(arguments["accept"])
        if person and not arguments["named"]:
            raise ActionableError(
                "nobody accepts TPMs without naming their hosts", "name those that were looked at"
            )
        turn = turn_of(variables, {}, RunFolder(), None, Path(arguments["roles_folder"]), check=check)
        policy = policy_of(json.loads(turn.whole))
        if policy is None and not arguments["named"]:
            return {"changed": False, "skipped": True, "skip_reason": "node_attestation is off"}
        if policy is None:
            raise ActionableError(
                f"node_attestation is off for {turn.host}", "write record or require for its group"
            )
        run = functools.partial(payload.execute, self._execute_module, variables=variables, keep=False)
        credentials = Credentials(turn.notes["pki_store"], turn.notes["pki_key_file"])
        attestor = Attestor(turn.host, run, credentials)
        notes = not (check or person)
        seen = tpm_accept.asked(attestor, policy) if notes else tpm_accept.look(attestor, policy, person)
        accepts = bool(person) and not seen.settled
        if accepts and not check:
            attestor.keep(seen.now)
        said = f"{turn.host}: {tpm_accept.said(seen)}" + (f"; {person} accepts it" if accepts else "")
        Display().display(f"  {said}")
        result: Result = {
            "changed": accepts,
            "endorsement": seen.now.endorsement,
            "pcrs": {str(number): value for number, value in seen.now.pcrs.items()},
            "differences": seen.lines,
        }
        if accepts and self._task.diff:
            before = f"{seen.before.text()}\n" if seen.before else ""
            result["diff"] = {"before": before, "after": f"{seen.now.text()}\n"}
        if not (person or seen.settled):
            result.update(failed=True, msg=f"{said}; if it is right: --accept NAME")
        return result
