# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes a host match its document: one module execution, two when the host needs certificates."""

from __future__ import annotations

import functools
import json
import typing as t
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.ironspan.hybrid.plugins.plugin_utils import payload
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge import joins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.answer import read
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.attested import Attestor
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.consent import insist_on_consent
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.credentials import Credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.exchange import (
    ExchangeError,
    Result,
    Stopwatch,
    exchange,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.many_hosts import prepare
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.planned import plan_for
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.turn import Turn, turn_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.converge.verdicts import (
    REBOOT_GROUP,
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
    waits_for_boot,
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
    ROLLBACK,
    PlannedRun,
    insist_on_a_plan,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import HostNotes, RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

PROGRAM = "converge"
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
            "unlike",
        }
    )

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Converge one host."""
        result: Result = super().run(tmp, task_vars)
        try:
            return {**result, **self._in_mode(task_vars or {})}
        except SiteError as error:
            # As for validate: nothing was touched, and the run ends with 2.
            return {**result, "failed": True, "refused": True, "msg": str(error)}
        except (ExchangeError, PlanError) as error:
            return {**result, "failed": True, "msg": str(error)}

    def _in_mode(self, variables: dict[str, t.Any]) -> Result:
        """Do what the task asks for."""
        arguments = self._task.args
        mode = arguments.get("mode") or "apply"
        if "document" in arguments or mode in WITHOUT_DOCUMENT:
            # The module used directly, with a document of the caller's own.
            return read(self._on_host(dict(arguments), variables))
        if "trial" in arguments:
            raise AnsibleActionFail("trial goes with document; otherwise write -e ironspan_try=5m")
        modes: dict[str, Callable[[Turn], Result]] = {
            "apply": self._apply,
            "assess": self._assess,
            "plan": self._plan,
            "reset": self._reset,
            "rollback": self._rollback,
        }
        if mode not in modes:
            names = ", ".join([*modes, *WITHOUT_DOCUMENT])
            raise AnsibleActionFail(f"mode is {mode!r}; write one of {names}")
        roles_folder = Path(arguments.get("roles_folder") or ROLES_FOLDER)
        planned = plan_for(variables, roles_folder) if mode != "reset" else None
        if planned and planned.host(str(variables["inventory_hostname"])) is None:
            return {"changed": False, "msg": "Not in the plan; this host is left alone."}
        check = bool(self._task.check_mode)
        turn = turn_of(variables, arguments, RunFolder(), planned, roles_folder, check=check)
        return modes[mode](turn)

    def _apply(self, turn: Turn) -> Result:
        """Make the host as its document says."""
        if not turn.check:
            _lock(turn)
        if turn.planned:
            turn.planned.insist_compared(turn.host)
        elif not turn.check:
            insist_on_a_plan(turn.notes["approvals"])
        if alone := turn.left_alone():
            return {"changed": False, "warnings": [f"{turn.host} is left alone. {alone}"]}
        result, _ = self._ask(turn, "apply", turn.ways_back())
        later = result.pop("csrs", None)
        if later and not (turn.check or turn.notes["composed"]):
            joins.keep_requests(turn.folder, turn.host, turn.whole, later)
        if _answered(result):
            document = json.loads(turn.text)
            said = within(document, result)
            result["layers"] = document["layers"]
            self._join(membership_groups(document["layers"], said, assessed=False), turn.notes)
            self._join([] if turn.check else recovery_groups(said), turn.notes)
        if turn.planned:
            turn.planned.report(turn.host, result)
        return result

    def _assess(self, turn: Turn) -> Result:
        """Compare the host with its document, and say whether it is fit."""
        return self._judged(turn)[0]

    def _rollback(self, turn: Turn) -> Result:
        """Ask the host for the document that it had, and compare; a rollback's plan has that one already."""
        composed = turn.planned is not None and turn.planned.head()["operation"] == ROLLBACK
        return self._judged(turn, back=not composed)[0]

    def _plan(self, turn: Turn) -> Result:
        """Compare, and keep for the plan what would change."""
        from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import build

        back = (turn.folder.operation() or {}).get("name") == ROLLBACK
        result, turn = self._judged(turn, back=back)
        if _answered(result):
            entry = build.host_entry(json.loads(turn.text), result, turn.notes["mirror"])
            if back:
                # The document is the host's; which secrets it may name is the inventory's.
                entry["secrets"] = turn.notes["secrets"]
            turn.folder.put_assessment(turn.host, entry)
            # The plan shows it, for all hosts together.
            result.pop("diff", None)
        return result

    def _reset(self, turn: Turn) -> Result:
        """Delete from the host what it got."""
        consent = str(turn.arguments.get("consent") or "")
        site = json.loads(turn.whole)["site"]
        insist_on_consent(site, turn.host, consent, turn.variables, check_mode=turn.check)
        if not turn.check:
            _lock(turn)
        try:
            result, _ = self._ask(turn, "reset", {})
        except AnsibleConnectionFailure as error:
            if not turn.arguments.get("skip_unreachable"):
                raise
            self.add_group(UNREACHED_GROUP, parent_group_names=[])
            return {"changed": False, "reached": False, "msg": f"Not reached: {error}"}
        result.pop("csrs", None)
        if not (result.get("failed") or turn.check):
            gone = groups_after_reset(json.loads(turn.text)["layers"], json.loads(turn.whole)["layers"])
            self._join(gone, turn.notes)
        return result

    def _on_host(self, given: dict[str, t.Any], variables: dict[str, t.Any]) -> Result:
        """Run the engine on the host."""
        mode = given.get("mode")
        keep = not self._task.check_mode and mode not in WITHOUT_DOCUMENT
        at_once = mode == "assess" and RunFolder().bare_hosts_expected()
        return payload.execute(self._execute_module, PROGRAM, given, variables, keep, at_once)

    def _attestor(self, turn: Turn, credentials: Credentials) -> Attestor:
        """Return what asks the host's TPM, where its document says so."""
        run = functools.partial(payload.execute, self._execute_module, variables=turn.variables, keep=False)
        return Attestor(turn.host, run, credentials)

    def _ask(
        self, turn: Turn, mode: str, more: Mapping[str, t.Any], *, texts: bool = False
    ) -> tuple[Result, Stopwatch]:
        """Ask the host, sign what it asks for, and say what went wrong.

        Args:
            turn: the host's.
            mode: as ``Turn.request`` takes it.
            more: other parameters of the module.
            texts: the host returns what differs, whether it is shown or not.
        """
        credentials = Credentials(turn.notes["pki_store"], turn.notes["pki_key_file"])
        request = turn.request(mode, more, credentials)
        watch = Stopwatch(lambda given: read(self._on_host(given, turn.variables), given["mode"]))
        shown = self._task.diff
        self._task.diff = shown or texts
        try:
            result = dict(exchange(request, watch, credentials.sign, self._attestor(turn, credentials)))
        finally:
            self._task.diff = shown
        # The parameters come back with the answer, document included.
        result.pop("invocation", None)
        if result.get("failed"):
            result["msg"] = failure_message(result)
        return result, watch

    def _judged(self, turn: Turn, *, back: bool = False) -> tuple[Result, Turn]:
        """Compare the host with its document, or with the one that it had, and judge its answer."""
        more = turn.ways_back(now=back)
        # What is planned is the document of the inventory. The texts that differ are compared with its own.
        planned = None if back else turn.planned
        texts = bool(planned)
        result, watch = self._ask(turn, "rollback" if back else "assess", more, texts=texts)
        result.pop("csrs", None)
        if _answered(result):
            if back:
                turn = turn.gone_back(result, more)
            document = json.loads(turn.text)
            if planned:
                self._compare_with_plan(result, planned, turn.host, document)
            self._judge(result, turn.notes, watch, document)
        return result, turn

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

    def _judge(
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
        groups = [*groups_for(said), *([REBOOT_GROUP] if waits_for_boot(result) else [])]
        self._join([*groups, *membership_groups(document["layers"], said, assessed=True)], notes)
        result["groups"] = groups

    def _join(self, groups: Sequence[str], notes: HostNotes) -> None:
        """Put the host into groups, for the plays that follow."""
        for group in groups_of_composed(groups) if notes["composed"] else groups:
            self.add_group(group, parent_group_names=[])


def _answered(result: Mapping[str, t.Any]) -> bool:
    return not (result.get("failed") or result.get("unreachable"))


def _lock(turn: Turn) -> None:
    """Keep other runs off the site, or off what this slice of it is about."""
    store, run = turn.notes["pki_store"], turn.folder.path
    shared = turn.planned.slice_of() if turn.planned else ""
    site_lock.take_for_run(run, store, shared)
    if shared and all_layers().dependent & set(turn.layers):
        site_lock.take_for_run(run, store, part=site_lock.MEMBERS)
