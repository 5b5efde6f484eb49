# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Job templates: one for each operation, its twin that checks, and the parts of workflows."""

from __future__ import annotations

import dataclasses
import posixpath
import typing as t
from collections.abc import Collection, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue import phases
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import (
    ALLOW_DESTRUCTIVE,
    PLAN,
    REPORT,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Argument, Operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.survey import survey_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import credentials
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import Settings

Content = dict[str, t.Any]
CONSENT = ALLOW_DESTRUCTIVE.name
CHECK, PLANNING, APPLYING = "(check)", "(plan)", "(apply plan)"
GUARD, LEFT = "awx_guard", "awx_left"
MEMBERS = "etcd:control_plane:haproxy:localhost"
PATIENCE = 4
"""A job is ended when it takes so many times as long as it is said to: it hangs."""
LEAST_TIMEOUT_S = 3600
_LEFT_OUT = frozenset({"reset", "plan", "awx_configure", GUARD, LEFT})
"""Operations without a template of their own: one deletes a cluster, the others are parts of workflows."""
_PARTS = frozenset(entry.name for entry in phases.OPERATIONS)
"""Phases of ``site``; run by themselves they are for people who are looking for a fault."""
_NOT_ASKED = (PLAN.name, REPORT.name)
"""Files of a job are gone with it."""


def offered() -> list[Operation]:
    """Return the operations that a controller has templates for, by name."""
    left_out = _LEFT_OUT | _PARTS
    return [entry for name, entry in catalogue.OPERATIONS.items() if name not in left_out]


def job_templates(settings: Settings) -> list[Content]:
    """Return all job templates, by name."""
    made = [*_of_operations(settings), *_of_changes(settings), *_of_workflows(settings)]
    return sorted(made, key=lambda entry: str(entry["name"]))


def _of_operations(settings: Settings) -> Iterator[Content]:
    for operation in offered():
        consent = (CONSENT,) if operation.consent else ()
        yield _template(settings, operation, asked=questions(settings, operation, consent))
        if operation.changes and operation.check_mode:
            yield _template(
                settings,
                operation,
                CHECK,
                "Shows what it would do, and changes nothing.",
                asked=questions(settings, operation),
                job_type="check",
            )
        if operation.approved and operation.planned:
            file = settings.plan_file(operation.name)
            yield _template(
                settings,
                dataclasses.replace(catalogue.OPERATIONS["plan"], minutes=operation.minutes),
                described=f"Writes down what {operation.name} would do, for its approval.",
                name=settings.name(operation.name, PLANNING),
                asked=questions(settings, operation),
                given={"ironspan_planned": operation.name, "ironspan_plan_file": file},
            )
            yield _template(settings, operation, APPLYING, "Does what was planned.", given={PLAN.name: file})


def _of_changes(settings: Settings) -> Iterator[Content]:
    """Yield the templates of the workflow that changes a site: members first, then workers in slices."""
    file = settings.plan_file("change")
    site = catalogue.OPERATIONS["site"]
    yield _template(
        settings,
        dataclasses.replace(catalogue.OPERATIONS["plan"], minutes=site.minutes),
        described="Writes down what would change, for its approval.",
        name=settings.name("change", PLANNING),
        given={"ironspan_plan_file": file},
    )
    yield _template(
        settings,
        site,
        described="Applies the plan to etcd, control planes and the load balancer.",
        name=settings.name("change members"),
        given={PLAN.name: file},
        limit=MEMBERS,
    )
    yield _template(
        settings,
        site,
        described="Applies the plan to the workers.",
        name=settings.name("change workers"),
        given={PLAN.name: file, "ironspan_slice": True},
        inventory=settings.name("workers"),
        job_slice_count=settings.slices,
    )


def _of_workflows(settings: Settings) -> Iterator[Content]:
    """Yield what only workflows run: the guard behind an approval, and what is said when one stops."""
    guard = _template(settings, catalogue.OPERATIONS[GUARD], name=settings.name("approval guard"))
    yield {**guard, "credentials": [settings.name(credentials.READER)]}
    yield _template(settings, catalogue.OPERATIONS[LEFT], name=settings.name("what is left"))


def questions(
    settings: Settings, operation: Operation, more: Collection[str] = (), *, also: Collection[Operation] = ()
) -> Content:
    """Return the survey of an operation in a controller; empty when nothing is asked.

    Args:
        settings: of the site; what its ``awx_answers`` answer is not asked.
        operation: what is asked about.
        more: questions that are only asked on request: consent.
        also: further operations of a workflow whose questions are asked, too.
    """
    arguments: dict[str, Argument] = {}
    for each in (operation, *also):
        for entry in each.arguments:
            if _asked(settings, each, entry, more):
                arguments.setdefault(entry.name, _insisting(each, entry))
    return survey_of(dataclasses.replace(operation, arguments=tuple(arguments.values())))


def _asked(settings: Settings, operation: Operation, argument: Argument, more: Collection[str]) -> bool:
    if argument.name == CONSENT:
        return CONSENT in more
    if argument.name == credentials.FACTORY:
        return not settings.bmc_accounts
    return argument.name not in _NOT_ASKED and argument.name not in settings.answers


def _insisting(operation: Operation, argument: Argument) -> Argument:
    """Return an argument that an empty answer cannot turn into everything."""
    if operation.changes and argument.all_when_empty:
        return dataclasses.replace(argument, required=True)
    return argument


def answered(settings: Settings, operations: Collection[Operation]) -> Content:
    """Return what the site answers once for all templates, as far as operations ask for it."""
    known = {entry.name for operation in operations for entry in operation.arguments}
    return {name: value for name, value in sorted(settings.answers.items()) if name in known}


def _template(
    settings: Settings,
    operation: Operation,
    suffix: str = "",
    described: str = "",
    *,
    name: str = "",
    asked: Content | None = None,
    given: Mapping[str, t.Any] | None = None,
    **more: t.Any,
) -> Content:
    about = [operation]
    if given and "ironspan_planned" in given:
        about.append(catalogue.OPERATIONS[given["ironspan_planned"]])
    summary = f"{operation.summary[:1].upper()}{operation.summary[1:]}."
    made: Content = {
        "name": name or settings.name(operation.name, *([suffix] if suffix else [])),
        "description": " ".join(filter(None, (summary if not name else "", described))) or summary,
        "organization": settings.organization,
        "project": settings.name("project"),
        "inventory": settings.name("site"),
        # As the controller lists them once it has the repository: without ./ in front.
        "playbook": posixpath.normpath(f"{settings.playbooks_folder}/{operation.name}.yml").lstrip("/"),
        "job_type": "run",
        "credentials": credentials.needed_by(settings, operation),
        "labels": labels_of(settings, operation, suffix),
        "limit": "",
        "extra_vars": {**answered(settings, about), **(given or {})},
        "timeout": max(LEAST_TIMEOUT_S, operation.minutes * 60 * PATIENCE),
        "allow_simultaneous": False,
        "job_slice_count": 1,
        "diff_mode": suffix == CHECK,
        # A push starts what reads, and nothing else: who pushed is nobody whom the guard could compare.
        "webhook_service": settings.webhook_service if (operation.name, suffix) == ("site", CHECK) else "",
        "survey_enabled": bool(asked),
        "survey_spec": asked or {},
        **dict.fromkeys(PROMPTS, False),
        **more,
    }
    if settings.execution_environment_image:
        made["execution_environment"] = settings.name("environment")
    if settings.instance_groups:
        made["instance_groups"] = list(settings.instance_groups)
    return made


PROMPTS = (
    "ask_variables_on_launch",
    "ask_limit_on_launch",
    "ask_inventory_on_launch",
    "ask_job_type_on_launch",
    "ask_job_slice_count_on_launch",
    "ask_credential_on_launch",
    "ask_execution_environment_on_launch",
)
"""Prompts that a template never has: each lets a launcher change what was thought of for him."""


def labels_of(settings: Settings, operation: Operation, suffix: str = "") -> list[str]:
    """Return the labels of a template: whose it is, whether it changes something, what is destructive."""
    reads = not operation.changes or suffix == CHECK
    found = [settings.prefix, "reads" if reads else "changes"]
    if operation.consent and not reads:
        found.append("destructive")
    if operation.approved and not reads:
        found.append("approved")
    return [f"{settings.prefix}-{word}" if word != settings.prefix else word for word in found]


LABELS = ("", "reads", "changes", "destructive", "approved", "workflow")


def labels(settings: Settings) -> list[Content]:
    """Return all labels that templates and workflows may have."""
    names = [f"{settings.prefix}-{word}" if word else settings.prefix for word in LABELS]
    return [{"name": name, "organization": settings.organization} for name in names]
