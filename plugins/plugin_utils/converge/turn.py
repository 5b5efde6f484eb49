# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One host's turn: its document, what the controller noted of it, and what goes beside it."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import joins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    JOIN_INPUT,
    ExchangeError,
    Request,
    Result,
    layers_asked,
    only_layers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import PlannedRun
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.kinds import DESIRED, RESET
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import HostNotes, RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.secret_names import named_in_text
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

ONE_TIME_INPUTS = ("etcd-membership", "cluster-start", "upgrade", JOIN_INPUT)
"""What only the controller can say, in one run: how a host without data starts, that it is its turn to join,
that one may be upgraded."""


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """One host's turn.

    Args:
        host: its name.
        variables: of the task.
        arguments: of the task.
        check: nothing is changed.
        folder: of the run.
        planned: the plan that is applied, None without one.
        whole: the document, which the host keeps.
        layers: those that this is about; all of the document's when empty.
        text: the document with nothing but these.
        notes: what the controller noted of the host.
    """

    host: str
    variables: dict[str, t.Any]
    arguments: Mapping[str, t.Any]
    check: bool
    folder: RunFolder
    planned: PlannedRun | None
    whole: str
    layers: Sequence[str]
    text: str
    notes: HostNotes

    def request(self, mode: str, more: Mapping[str, t.Any], credentials: Credentials) -> Request:
        """Return what is asked of the host.

        Args:
            mode: ``apply``, ``assess``, ``rollback``, or ``reset``, which applies another document.
            more: other parameters of the module.
            credentials: of the site.
        """
        secrets = self._secrets(mode, credentials)
        return Request(
            document=self.whole,
            mode="apply" if mode == "reset" else mode,
            mirror=self.notes["mirror"],
            secrets=secrets,
            certificates=joins.certificates_for(self.folder, self.host) if JOIN_INPUT in secrets else {},
            check_mode=self.check,
            root=self.arguments.get("root") or "/",
            plan=self.planned.head()["digest"] if self.planned else "",
            layers=self.layers,
            more=more,
            composed=self.notes["composed"],
        )

    def _secrets(self, mode: str, credentials: Credentials) -> dict[str, str]:
        """Return what goes beside the document: the secrets that it names, where they are written."""
        if "secrets" in self.arguments:
            raise AnsibleActionFail(
                "secrets goes with document; otherwise a host gets those its document names"
            )
        secrets: dict[str, str] = {}
        if mode == "apply":
            secrets = credentials.secrets(set(named_in_text(self.text)) & set(self.notes["secrets"]))
        for name, value in (self.arguments.get("inputs") or {}).items():
            if name not in ONE_TIME_INPUTS:
                raise AnsibleActionFail(f"inputs has {name!r}; write one of {', '.join(ONE_TIME_INPUTS)}")
            secrets[name] = str(value)
        return secrets

    def ways_back(self, *, now: bool = False) -> dict[str, t.Any]:
        """Return the module's parameters for trials and rollbacks.

        Args:
            now: the host goes back, or is asked how it would; ``to`` says where to.
        """
        more: dict[str, t.Any] = {"release": self.notes.get("release")}
        if now or self.variables.get("ironspan_try"):
            # Imported late: most runs go forward.
            from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back

            more["trial"] = back.trial_of(self.variables, self.folder)
            if now:
                more["to"] = value_of(self.variables, back.DIGEST_VARIABLE) or ""
                if asked := self.arguments.get("unlike"):
                    more["unlike"] = back.unlike(json.loads(self.whole), str(asked))
        return more

    def gone_back(self, result: Result, asked: Mapping[str, t.Any]) -> Turn:
        """Return the turn with the document that the host composed in the place of the inventory's.

        Args:
            result: of the module. Where this is about some layers, so is the document from then on.
            asked: what ``ways_back`` said.
        """
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back

        if self.layers:
            result["document"] = json.loads(only_layers(json.dumps(result["document"]), self.layers))
        text = back.lay_out(result, self.host, asked["to"] or str(asked.get("unlike", "")), self.folder)
        return dataclasses.replace(self, text=text, notes={**self.notes, "composed": True})

    def left_alone(self) -> str:
        """Return why a host stays as it is in a rollback of several, an empty text otherwise."""
        if '"rollback": {' not in self.whole:
            return ""
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back

        return back.left_alone(json.loads(self.whole), self.host, self.folder)


def turn_of(
    variables: dict[str, t.Any],
    arguments: Mapping[str, t.Any],
    folder: RunFolder,
    planned: PlannedRun | None,
    roles_folder: Path,
    *,
    check: bool,
) -> Turn:
    """Return the turn of a host, whose document is made unless it is there.

    Args:
        variables: of the task.
        arguments: of the task.
        folder: of the run.
        planned: the plan that is applied, None without one.
        roles_folder: where the roles are.
        check: nothing is changed.

    Raises:
        ExchangeError: the host, or a layer, is in no document.
        SiteError: the inventory has problems.
    """
    template = RESET if arguments.get("mode") == "reset" else DESIRED

    def make() -> tuple[t.Any, t.Any]:
        # Imported late: as a rule the validate action has written the documents already.
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import site_of_run
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for

        site = site_of_run(variables, roles_folder)
        if site.is_slice:
            raise ExchangeError("what a host shall be depends on all hosts, and this job sees a slice")
        return site, renderer_for(site, roles_folder, make=template == DESIRED and not check)[0]

    # In an operation only its targets are reset.
    targets = variables.get("groups", {}).get("__ironspan_targets") if template == RESET else None
    folder.ensure(template, make, targets)
    host = str(variables["inventory_hostname"])
    try:
        whole, notes = folder.read(host, template)
    except KeyError:
        raise ExchangeError(
            f"host {host} is not in the inventory that was validated", "list it there, in one of its groups"
        ) from None
    layers = layers_asked(arguments)
    text = only_layers(whole, layers) if layers else whole
    return Turn(host, variables, arguments, check, folder, planned, whole, layers, text, notes)
