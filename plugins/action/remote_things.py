# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Plans remote things, makes them as they are wanted, or as a plan wants them."""

from __future__ import annotations

import json
import statistics
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.ansible_run import (
    plan_of_run,
    site_of_run,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError, PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_report
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.context import CONSENT_VARIABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.stuck import add_stuck
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.run import (
    insist_on_a_plan,
    plan_file,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.begun import Begun
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.compare import compared
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.run import (
    Consent,
    Outcome,
    bring,
    bring_as_planned,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    Kind,
    Left,
    Thing,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import kind_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.worker import bind_children

Result = dict[str, t.Any]

bind_children()  # here, because the main process imports this file before it starts workers


SITE = "site"
"""What a kind names among its variables when it reads the model of the site."""


class Chosen(t.NamedTuple):
    """Which things a task is about.

    Args:
        only: their names; None for all.
        without: names of those that it is not about.
    """

    only: t.Sequence[str] | None
    without: t.Sequence[str]

    def has(self, name: str) -> bool:
        """Tell whether it is about a thing."""
        return (self.only is None or name in self.only) and name not in self.without


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action ``ironspan.hybrid.remote_things``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "kinds": {"type": "list", "elements": "str", "default": []},
        "mode": {"type": "str", "choices": ["apply", "plan"], "default": "apply"},
        "held": {"type": "list", "elements": "str", "default": []},
        "held_because": {"type": "str", "default": ""},
        "only": {"type": "list", "elements": "str"},
        "without": {"type": "list", "elements": "str", "default": []},
        "on_failure": {"type": "str", "choices": ["fail", "continue"], "default": "fail"},
    }
    _variables: Mapping[str, t.Any] = {}  # replaced, never changed

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Compare, and do what is asked for; errors become messages with a remedy."""
        result: Result = super().run(tmp, task_vars)
        self._variables = task_vars or {}
        _, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENTS)
        try:
            if arguments["mode"] == "plan":
                return {**result, **self._plan()}
            held = dict.fromkeys(arguments["held"], arguments["held_because"])
            chosen = Chosen(arguments["only"], arguments["without"])
            outcomes = [self._brought(name, held, chosen) for name in arguments["kinds"]]
        except ActionableError as error:
            return {**result, "failed": True, "msg": str(error)}
        answer = _answer(outcomes, self.say)
        if arguments["on_failure"] == "continue":
            add_stuck(RunFolder().path, {name: [why] for one in outcomes for name, why in one.failed.items()})
            # What is wrong with no thing of its own nobody would tell later.
            if all(len(one.problems) == len(one.failed) and not one.wrong for one in outcomes):
                answer.pop("failed", None)
        report = {key: answer[key] for key in ("things", "timings")}
        write_report(
            str(self._variables.get("ironspan_report") or ""), {**report, "failed": answer.get("msg", "")}
        )
        return {**result, **answer}

    def _plan(self) -> Result:
        """Keep the things of the operation that is planned for the plan."""
        operation = RunFolder().operation() or {}
        things: list[Thing] = []
        for name in operation.get("remote", ()):
            kind, variables = self._opened(name)
            things += compared(kind, kind_file(name).declared(variables, self._variables))
        RunFolder().put_remote([thing.as_dict() for thing in things])
        steps = [step.what for thing in things for step in thing.steps]
        return {"changed": False, "steps": steps}

    def _brought(self, name: str, held: Mapping[str, str], chosen: Chosen) -> Outcome:
        kind, variables = self._opened(name)
        allowed = bool(value_of(self._variables, CONSENT_VARIABLE))
        if plan_file(self._variables):
            return self._as_planned(kind, allowed, held, chosen)
        site = site_of_run(dict(self._variables))
        if not self._task.check_mode:
            insist_on_a_plan(site.plan.approvals)
        named = str(self._variables.get(kind.consent) or "") if kind.consent else ""
        declared = kind_file(name).declared(variables, self._variables)
        wanted = {each: state for each, state in declared.items() if chosen.has(each)}
        consent = Consent(allowed, (named,) if named else ())
        return bring(kind, wanted, consent, self.say, held=held, check=self._task.check_mode)

    def _as_planned(self, kind: Kind, allowed: bool, held: Mapping[str, str], chosen: Chosen) -> Outcome:
        head = plan_of_run(self._variables).head()
        planned = [
            thing for thing in head["remote"] if thing["kind"] == kind.name and chosen.has(thing["name"])
        ]
        free = head["free"]
        if free is not None and kind.name not in free and any(thing["steps"] for thing in planned):
            raise PlanError(
                f"the plan was not approved, and changes of {kind.name} need it",
                "make a new plan, and let it be approved",
            )
        begun = Begun(Path(head["kept"]) if head["kept"] else None)
        check = self._task.check_mode
        return bring_as_planned(kind, planned, allowed, begun, self.say, held=held, check=check)

    def _opened(self, name: str) -> tuple[Kind, Result]:
        """Return a kind and what it reads of the inventory; nothing else of it is templated."""
        file = kind_file(name)
        found = {each: self._variables[each] for each in file.VARIABLES if each in self._variables}
        variables = t.cast("Result", self._templar.template(found))
        if SITE in file.VARIABLES:
            variables[SITE] = site_of_run(dict(self._variables))
        return file.opened(variables), variables

    def say(self, text: str) -> None:
        """Show progress while the task runs."""
        Display().display(f"  {text}")


def _answer(outcomes: list[Outcome], say: t.Callable[[str], None]) -> Result:
    things = [thing for outcome in outcomes for thing in outcome.things]
    problems = [text for outcome in outcomes for text in outcome.problems]
    wrong = [text for outcome in outcomes for text in outcome.wrong]
    done = [step for outcome in outcomes for step in outcome.done]
    files = [outcome.left for outcome in outcomes if outcome.left]
    changed = [file for file in files if file.before != file.after]
    done += [f"write {file.path}" for file in changed]
    notes = [note for thing in things for note in thing.found.notes]
    timings = {name: steps for outcome in outcomes for name, steps in outcome.timings.items()}
    for text in (*done, *notes, *(note for file in files for note in file.notes), *said_of_timings(timings)):
        say(text)
    answer: Result = {
        "changed": bool(done),
        "changes": done,
        "diff": [*(diff_of(thing) for thing in things if thing.steps), *map(diff_of_file, changed)],
        "things": [{**thing.as_dict(), "more": dict(thing.found.more)} for thing in things],
        "brought": [
            thing.name for outcome in outcomes for thing in outcome.things if thing.name not in outcome.failed
        ],
    }
    answer["timings"] = {
        name: [{"step": what, "seconds": round(seconds, 3)} for what, seconds in steps]
        for name, steps in timings.items()
    }
    if wrong:
        problems.append(f"this is not as it should be, and no step fixes it: {'; '.join(wrong)}")
    if problems:
        answer.update(failed=True, msg="\n".join(problems))
    return answer


def said_of_timings(timings: Mapping[str, list[tuple[str, float]]]) -> list[str]:
    """Return for each step how many things took it and how long, in the order in which it was taken first."""
    taken: dict[str, list[float]] = {}
    for steps in timings.values():
        for what, seconds in steps:
            taken.setdefault(what, []).append(seconds)
    return [
        f"{what}: {len(seconds)} times, median {statistics.median(seconds):.1f} s, "
        f"longest {max(seconds):.1f} s"
        for what, seconds in taken.items()
    ]


def diff_of(thing: Thing) -> dict[str, str]:
    """Return what a thing is and will be as ``--diff`` shows it."""
    return {
        "before_header": thing.title,
        "after_header": thing.title,
        "before": _shown(thing.found.state),
        "after": _shown(thing.after),
    }


def diff_of_file(file: Left) -> dict[str, str]:
    """Return what a file has and will have as ``--diff`` shows it."""
    headers = {"before_header": file.path, "after_header": file.path}
    return {**headers, "before": file.before, "after": file.after}


def _shown(state: Mapping[str, t.Any] | None) -> str:
    return json.dumps(state, indent=1, sort_keys=True) + "\n" if state else ""
