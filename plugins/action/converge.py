# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes a host match its document: one module execution, two when the host needs certificates."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import joins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.answer import read
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.consent import insist_on_consent
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    JOIN_INPUT,
    ExchangeError,
    Request,
    Stopwatch,
    exchange,
    layers_asked,
    only_layers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.many_hosts import prepare
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.planned import plan_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    UNREACHED_GROUP,
    clock_verdict,
    failure_message,
    groups_after_reset,
    groups_for,
    groups_of_composed,
    membership_groups,
    python_verdict,
    recovery_groups,
    release_verdicts,
    unfit_message,
    within,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import site_lock
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.members import slice_verdict
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.moved import (
    kinds_verdict,
    plan_verdict,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import (
    PlannedRun,
    insist_on_a_plan,
    plan_file,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.kinds import DESIRED, RESET
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import HostNotes, RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.secret_names import named_in_text
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

PROGRAM = "converge"
ONE_TIME_INPUTS = ("etcd-membership", "cluster-start", "upgrade", JOIN_INPUT)
"""What only the controller can say, in one run: how a host without data starts, that it is its turn to join,
that one may be upgraded."""
MODES = ("apply", "assess", "plan", "reset", "rollback")
WITHOUT_DOCUMENT = ("history", "confirm", "revert")
"""Modes that are the module's alone."""

bind_children()
prepare()
payload.engine()  # all three here, because the main process imports this file before it starts workers


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.converge``."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = True
    _VALID_ARGS = frozenset(
        {
            "layers",
            "phase",
            "mode",
            "secrets",
            "inputs",
            "consent",
            "skip_unreachable",
            "root",
            "roles_folder",
            "document",
            "certificates",
            "mirror",
            "trial",
        }
    )

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Converge one host."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = self._task.args
        mode = arguments.get("mode") or "apply"
        if "document" in arguments or mode in WITHOUT_DOCUMENT:
            # The module used directly, with a document of the caller's own.
            return {**result, **read(self._on_host(dict(arguments), variables))}
        if "trial" in arguments:
            raise AnsibleActionFail("trial goes with document; otherwise write -e ironspan_try=5m")
        if mode not in MODES:
            names = ", ".join([*MODES, *WITHOUT_DOCUMENT])
            raise AnsibleActionFail(f"mode is {mode!r}; write one of {names}")
        roles_folder = Path(arguments.get("roles_folder") or ROLES_FOLDER)
        host = str(variables["inventory_hostname"])
        try:
            planned = plan_for(variables, roles_folder) if mode != "reset" else None
            if planned and planned.host(host) is None:
                return {**result, "changed": False, "msg": "Not in the plan; this host is left alone."}
            text, notes = self._document(mode, variables, roles_folder)
            if mode == "reset":
                consent = str(arguments.get("consent") or "")
                check = bool(self._task.check_mode)
                insist_on_consent(json.loads(text)["site"], host, consent, variables, check_mode=check)
            if mode in ("apply", "reset") and not self._task.check_mode:
                shared = planned.slice_of() if planned else ""
                site_lock.take_for_run(RunFolder().path, notes["pki_store"], shared)
                if shared and all_layers().dependent & set(layers_asked(arguments)):
                    site_lock.take_for_run(RunFolder().path, notes["pki_store"], part=site_lock.MEMBERS)
            if mode == "apply" and planned:
                planned.insist_compared(host)
            elif mode == "apply" and not self._task.check_mode:
                insist_on_a_plan(notes["approvals"])
            ask = "assess" if mode == "plan" or (planned and mode == "rollback") else mode
            more = {} if mode == "reset" else self._ways_back(mode, variables, notes)
            if more.get("to") is not None:
                ask = "rollback"
            elif mode == "apply" and (alone := _left_alone(text, host)):
                return {**result, "changed": False, "warnings": [f"{host} is left alone. {alone}"]}
            whole, layers = text, layers_asked(arguments)
            if layers:
                text = only_layers(text, layers)
            credentials = Credentials(notes["pki_store"], notes["pki_key_file"])
            secrets = _secrets(arguments, text, notes, credentials, ask)
            request = Request(
                document=whole,
                mode="apply" if mode == "reset" else ask,
                mirror=notes["mirror"],
                secrets=secrets,
                certificates=joins.certificates_for(RunFolder(), host) if JOIN_INPUT in secrets else {},
                check_mode=self._task.check_mode,
                root=arguments.get("root") or "/",
                plan=planned.head()["digest"] if planned else "",
                layers=layers,
                more=more,
                composed=notes["composed"],
            )
            execute = Stopwatch(lambda given: read(self._on_host(given, variables), given["mode"]))
            shown = self._task.diff
            # The texts that differ are compared with those of the plan.
            self._task.diff = shown or bool(planned and mode in ("assess", "rollback"))
            answer = exchange(request, execute, credentials.sign)
            self._task.diff = shown
        except (ExchangeError, PlanError, SiteError) as error:
            return {**result, "failed": True, "msg": str(error)}
        except AnsibleConnectionFailure as error:
            if mode != "reset" or not arguments.get("skip_unreachable"):
                raise
            self.add_group(UNREACHED_GROUP, parent_group_names=[])
            return {**result, "changed": False, "reached": False, "msg": f"Not reached: {error}"}
        result.update(answer)
        # The parameters come back with the answer, document included.
        result.pop("invocation", None)
        later = result.pop("csrs", None)
        if later and mode == "apply" and not (self._task.check_mode or notes["composed"]):
            joins.keep_requests(RunFolder(), host, whole, later)
        if result.get("failed"):
            result["msg"] = failure_message(result)
        elif mode in ("assess", "plan", "rollback") and not result.get("unreachable"):
            if ask == "rollback":
                from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back

                text = back.lay_out(result, host, more["to"], RunFolder())
                notes = {**notes, "composed": True}
            if planned:
                self._compare_with_plan(result, planned, host, json.loads(text))
            self._assess(result, notes, execute, json.loads(text))
            if mode == "plan" and not result.get("failed"):
                from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import build

                entry = build.host_entry(json.loads(text), result, notes["mirror"])
                if ask == "rollback":
                    # The document is the host's; which secrets it may name is the inventory's.
                    entry["secrets"] = notes["secrets"]
                RunFolder().put_assessment(host, entry)
                # The plan shows it, for all hosts together.
                result.pop("diff", None)
        elif mode == "reset" and not self._task.check_mode:
            self._join(groups_after_reset(json.loads(text)["layers"], json.loads(whole)["layers"]), notes)
        elif mode == "apply" and not result.get("unreachable"):
            document = json.loads(text)
            said = within(document, result)
            result["layers"] = document["layers"]
            self._join(membership_groups(document["layers"], said, assessed=False), notes)
            self._join([] if self._task.check_mode else recovery_groups(said), notes)
        if planned and mode == "apply":
            planned.report(host, result)
        return result

    def _on_host(self, given: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        mode = given.get("mode")
        keep = not self._task.check_mode and mode not in WITHOUT_DOCUMENT
        at_once = mode == "assess" and RunFolder().bare_hosts_expected()
        return payload.execute(self._execute_module, PROGRAM, given, variables, keep, at_once)

    def _ways_back(self, mode: str, variables: dict[str, t.Any], notes: HostNotes) -> dict[str, t.Any]:
        """Return the module's parameters for trials and rollbacks; ``to`` only when a host goes back."""
        more: dict[str, t.Any] = {"release": notes.get("release")}
        planning = mode == "plan" and (RunFolder().operation() or {}).get("name") == "rollback"
        going_back = planning or (mode == "rollback" and not plan_file(variables))
        if going_back or variables.get("ironspan_try"):
            # Imported late: most runs go forward.
            from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back

            more["trial"] = back.trial_of(variables, RunFolder())
            if going_back:
                more["to"] = value_of(variables, back.DIGEST_VARIABLE) or ""
        return more

    def _compare_with_plan(
        self, result: dict[str, t.Any], planned: PlannedRun, host: str, document: dict[str, t.Any]
    ) -> None:
        """Add verdicts: a host that moved, or must not be changed unapproved, is one that does not fit."""
        head = planned.head()
        verdicts = [plan_verdict(planned.host(host) or {}, result, head["digest"])]
        if not self._task.diff:
            result.pop("diff", None)
        if head["free"] is not None:
            verdicts.append(kinds_verdict(document, result, head["free"]))
        if head["slice"]:
            verdicts.append(slice_verdict(result, head["elsewhere"]))
        result.setdefault("verdicts", []).extend(verdicts)
        if all(verdict["ok"] for verdict in verdicts):
            planned.mark_compared(host)

    def _document(self, mode: str, variables: dict[str, t.Any], roles_folder: Path) -> tuple[str, HostNotes]:
        folder = RunFolder()
        template = RESET if mode == "reset" else DESIRED

        def make() -> tuple[t.Any, t.Any]:
            # Imported late: as a rule the validate action has written the documents already.
            from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import (
                site_of_run,
            )
            from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.prepare import renderer_for

            site = site_of_run(variables, roles_folder)
            if site.is_slice:
                raise ExchangeError("what a host shall be depends on all hosts, and this job sees a slice")
            making = template == DESIRED and not self._task.check_mode
            return site, renderer_for(site, roles_folder, make=making)[0]

        # In an operation only its targets are reset.
        targets = variables.get("groups", {}).get("__ironspan_targets") if template == RESET else None
        folder.ensure(template, make, targets)
        host = str(variables["inventory_hostname"])
        try:
            return folder.read(host, template)
        except KeyError:
            raise ExchangeError(
                f"host {host} is not in the inventory that was validated",
                "list it there, in one of its groups",
            ) from None

    def _assess(
        self, result: dict[str, t.Any], notes: HostNotes, watch: Stopwatch, document: Mapping[str, t.Any]
    ) -> None:
        """Judge the clock, fail a host that does not fit, and mark one that has something to do."""
        verdicts = result.setdefault("verdicts", [])
        largest, host_time = notes["max_clock_skew_s"], (result.get("facts") or {}).get("time_unix")
        if largest is not None and host_time is not None and watch.started and watch.ended:
            verdicts.append(clock_verdict(float(host_time), watch.started, watch.ended, largest))
        python = (result.get("facts") or {}).get("python")
        if notes["pythons"] and python:
            verdicts.append(python_verdict(str(python), notes["pythons"]))
        if "upgrade" not in (self._task.args.get("inputs") or {}):
            verdicts.extend(release_verdicts(result.get("changes") or (), result.get("pending") or ()))
        unfit = unfit_message(verdicts)
        if unfit:
            # What would be changed on it does not matter then, and would hide the reasons.
            for name in ("changes", "pending", "diff", "timings"):
                result.pop(name, None)
            result.update(failed=True, msg=unfit, verdicts=[v for v in verdicts if not v.get("ok")])
            return
        said = within(document, result)
        groups = groups_for(said)
        self._join([*groups, *membership_groups(document["layers"], said, assessed=True)], notes)
        result["groups"] = groups

    def _join(self, groups: Sequence[str], notes: HostNotes) -> None:
        """Put the host into groups, for the plays that follow."""
        for group in groups_of_composed(groups) if notes["composed"] else groups:
            self.add_group(group, parent_group_names=[])


def _left_alone(text: str, host: str) -> str:
    """Return why a host stays as it is in a rollback of several, an empty text otherwise."""
    if '"rollback": {' not in text:
        return ""
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import back

    return back.left_alone(json.loads(text), host, RunFolder())


def _secrets(
    arguments: dict[str, t.Any], text: str, notes: HostNotes, credentials: Credentials, mode: str
) -> dict[str, str]:
    """Return what goes beside the document: the secrets that it names, where they are written to the host."""
    if "secrets" in arguments:
        raise AnsibleActionFail("secrets goes with document; otherwise a host gets those its document names")
    secrets: dict[str, str] = {}
    if mode == "apply":
        secrets = credentials.secrets(set(named_in_text(text)) & set(notes["secrets"]))
    for name, value in (arguments.get("inputs") or {}).items():
        if name not in ONE_TIME_INPUTS:
            raise AnsibleActionFail(f"inputs has {name!r}; write one of {', '.join(ONE_TIME_INPUTS)}")
        secrets[name] = str(value)
    return secrets
