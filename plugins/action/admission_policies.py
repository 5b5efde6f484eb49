# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Puts the site's admission policies in force."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions import pruning
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.always import is_always
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.enforce import (
    LAYER,
    TOLD,
    Enforced,
    enforce,
    leave_files,
    try_new,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.part import objects_of, of_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.pod_security import (
    about_to_be_refused,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import UnreachableError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import (
    apply_objects,
    diff_of,
    name_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.owned import Owned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import listed

PATIENCE = 5.0
"""Seconds to wait for an API that may not have been built yet."""


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.admission_policies``."""

    CHANGES_THE_SITE = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["present", "tried"], "default": "present"},
    }

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Compile, try and apply."""
        admission, site = of_file(session.site), session.site.name
        declared = owned.labelled(objects_of(session.site), site, LAYER)
        if self.planned is not None:
            declared = self.planned["objects"].get(LAYER, [])
        policies = [item for item in declared if item["kind"] != "ConfigMap" and not is_always(item)]
        if admission and admission.from_files:
            policies = self._of_files(admission, declared, site)
        if arguments["state"] == "tried":
            return self._tried(session, declared, policies)
        api, check = session.api(), self._task.check_mode
        gone = pruning.undeclared(pruning.there(api, site), LAYER, declared)
        self._insist_listed(api, declared, gone)
        return _result(enforce(api, declared, policies, check=check, progress=self.say, gone=gone))

    def _insist_listed(self, api: Api, declared: list[t.Any], gone: list[Owned]) -> None:
        """Refuse to change objects in another way than the plan lists, if there is one."""
        if self.planned is not None:
            would = apply_objects(api, declared, dry_run=True)
            whole = [(name_of(item), item) for item in declared]
            listed.insist_on_objects(self.planned, would, whole, gone)
        if not self._task.check_mode:
            pruning.insist_on_consent(gone, self._variables)

    def _of_files(self, admission: Admission, declared: list[t.Any], site: str) -> list[t.Any]:
        """Return the policies that API servers read; those of a plan are in the hosts' documents."""
        policies = admission.policies()
        record = owned.labelled([admission.record()], site, LAYER)[0]
        if self.planned is not None and record not in declared:
            raise PlanError("the policy file has changed since the plan was made", "make a new plan")
        return policies

    def _tried(self, session: Session, declared: list[t.Any], policies: list[t.Any]) -> Result:
        """Try what API servers are about to read from files, or make objects of what they are about not to.

        Without an API there is nothing to lock out.
        """
        admission = of_file(session.site)
        if admission is None:
            return {"changed": False}
        try:
            api = session.api(PATIENCE)
            insecure = self._told(about_to_be_refused(api, admission))
            if self._task.check_mode:
                return {"changed": False, "refused": insecure}
            if not admission.from_files:
                gone = pruning.undeclared(pruning.there(api, session.site.name), LAYER, declared)
                insist = functools.partial(self._insist_listed, api, declared, gone)
                done = leave_files(api, declared, policies, self.say, insist, gone)
                return _result(done._replace(refused=[*insecure, *done.refused]))
            refused = try_new(api, declared, policies, self.say)
        except UnreachableError as error:
            return {"changed": False, "msg": f"Not tried: {error}"}
        return {"changed": False, "refused": [*insecure, *refused]}

    def _told(self, refused: list[str]) -> list[str]:
        """Tell of pods that Pod Security would refuse; they run on, so nothing is held up for them."""
        for line in refused[:TOLD]:
            self.say(f"could not be made again under Pod Security: {line}")
        if len(refused) > TOLD:
            self.say(f"{len(refused) - TOLD} more could not")
        return refused


def _result(done: Enforced) -> Result:
    return {
        "changed": bool(done.changes or done.removed),
        "objects": [change.name for change in done.changes],
        "removed": done.removed,
        "refused": done.refused,
        "diff": [diff_of(change) for change in done.changes],
    }
