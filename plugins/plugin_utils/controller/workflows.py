# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Workflows: what is planned, who approves it, what is done then, and what happens when something stops."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils import catalogue
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.kinds import Operation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import templates
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.settings import Settings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.templates import (
    APPLYING,
    CHECK,
    CONSENT,
    PLANNING,
)

Content = dict[str, t.Any]
_STOPPED = "what-is-left"


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A node that runs a job template.

    Args:
        template: words of its name behind the prefix.
        given: variables that the template's survey asks for.
        follows: it runs after something was changed, so its failure leads to what says what is left.
    """

    template: tuple[str, ...]
    given: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    follows: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Approval:
    """A node where people decide; behind it a guard refuses an approval of one's own."""

    name: str
    description: str


Node = Job | Approval


@dataclasses.dataclass(frozen=True, slots=True)
class Workflow:
    """One workflow, as a chain: each node begins when the one before it has succeeded.

    Args:
        name: words behind the prefix.
        summary: what it does, a sentence.
        nodes: in their order.
        asked: the operations whose arguments its survey asks for.
        consents: whether it asks for consent to what cannot be undone.
        without: arguments that its nodes have answered.
    """

    name: str
    summary: str
    nodes: Sequence[Node]
    asked: tuple[str, ...] = ()
    consents: bool = True
    without: Collection[str] = ()


def _look(*template: str) -> Job:
    return Job(template, follows=False)


_APPROVE = Approval("approve", "Read the output of the job before this one: it says what will be done.")
_VERIFY = Job(("verify",))

NAMED: t.Final = (
    Workflow(
        "change workflow",
        "Make hosts and cluster match the inventory: plan, approval, members, workers in slices, proof.",
        (
            _look("change", PLANNING),
            _APPROVE,
            Job(("change members",)),
            Job(("change workers",)),
            _VERIFY,
        ),
        asked=("site",),
    ),
    Workflow(
        "rack workflow",
        "Servers of a rack from their BMC to Ready workers.",
        (
            _look("bmc_setup", CHECK),
            _look("bare_metal", PLANNING),
            _APPROVE,
            Job(("bmc_setup",)),
            Job(("bare_metal", APPLYING)),
            Job(("node_add",)),
            Job(("net_check",)),
            _VERIFY,
        ),
        asked=("bare_metal", "bmc_setup"),
        without=("ironspan_rotate",),
    ),
    Workflow(
        "repair workflow",
        "Nodes of broken servers leave, get their operating system again, and join.",
        (
            _look("doctor"),
            _look("server_redeploy", PLANNING),
            _APPROVE,
            Job(("server_redeploy", APPLYING)),
            Job(("node_add",)),
            _VERIFY,
        ),
        asked=("server_redeploy",),
    ),
    Workflow(
        "upgrade workflow",
        "Bring etcd, control planes and nodes, wave after wave, to the versions of the inventory.",
        (
            _look("backup_verify"),
            _look("upgrade", PLANNING),
            _APPROVE,
            Job(("upgrade", APPLYING)),
            _VERIFY,
            Job(("certs",)),
        ),
        asked=("upgrade",),
        without=("ironspan_hosts",),
    ),
    Workflow(
        "restore workflow",
        "Rebuild etcd from a backup.",
        (
            _look("backup_list"),
            _look("etcd_restore", PLANNING),
            _APPROVE,
            Job(("etcd_restore", APPLYING)),
            _VERIFY,
        ),
        asked=("etcd_restore",),
        without=("ironspan_hosts",),
    ),
    Workflow(
        "authority workflow",
        "Change a certificate authority for another: trust it, issue from it, drop the old one. Each stage "
        "is approved.",
        (
            _look("certs"),
            Approval("approve-trust", "From then on all hosts trust the new authority, too."),
            Job(("ca_rotate",), {"ironspan_authority_stage": "trust"}),
            _VERIFY,
            Approval("approve-issue", "From then on certificates are issued by the new authority."),
            Job(("ca_rotate",), {"ironspan_authority_stage": "issue"}),
            _VERIFY,
            Approval("approve-drop", "Nobody trusts the old authority any more; wait for tokens to end."),
            Job(("ca_rotate",), {"ironspan_authority_stage": "drop"}),
            _VERIFY,
            Job(("certs",)),
        ),
        asked=("ca_rotate",),
        without=("ironspan_authority_stage",),
    ),
)
"""The six that people ask for. In those whose parts take the same argument with another meaning (hosts of a
backup, hosts of an upgrade), it is not asked: a workflow hands an answer to all of its jobs."""
_HAVE_ONE = frozenset({"site", "bare_metal", "server_redeploy", "upgrade", "etcd_restore", "ca_rotate"})


def workflows() -> list[Workflow]:
    """Return all workflows: those with a name of their own, then one for each operation that is approved."""
    rest = [_of(operation) for operation in templates.offered() if _needs_one(operation)]
    return [*NAMED, *rest]


def _needs_one(operation: Operation) -> bool:
    return operation.approved and operation.name not in _HAVE_ONE


def _of(operation: Operation) -> Workflow:
    name = operation.name
    first = _look(name, PLANNING) if operation.planned else _look(name, CHECK)
    then = Job((name, APPLYING) if operation.planned else (name,))
    summary = f"{operation.summary[:1].upper()}{operation.summary[1:]}, after an approval."
    return Workflow(f"{name} workflow", summary, (first, _APPROVE, then, _VERIFY), asked=(name,))


def workflow_templates(settings: Settings) -> list[Content]:
    """Return all workflow job templates with their nodes, by name."""
    made = [_template(settings, workflow) for workflow in workflows()]
    return sorted(made, key=lambda entry: str(entry["name"]))


def survey(settings: Settings, workflow: Workflow) -> Content:
    """Return what a workflow asks."""
    operations = [catalogue.OPERATIONS[name] for name in workflow.asked]
    consent = [CONSENT] if workflow.consents else []
    asked = templates.questions(settings, operations[0], consent, also=operations[1:])
    if not asked:
        return {}
    spec = [question for question in asked["spec"] if question["variable"] not in workflow.without]
    name = settings.name(workflow.name)
    return {"name": name, "description": workflow.summary, "spec": spec} if spec else {}


def _template(settings: Settings, workflow: Workflow) -> Content:
    asked = survey(settings, workflow)
    return {
        "name": settings.name(workflow.name),
        "description": workflow.summary,
        "organization": settings.organization,
        "labels": [f"{settings.prefix}-workflow", settings.prefix],
        "allow_simultaneous": False,
        "ask_variables_on_launch": False,
        "ask_limit_on_launch": False,
        "ask_inventory_on_launch": False,
        "extra_vars": {},
        "survey_enabled": bool(asked),
        "survey_spec": asked,
        "simplified_workflow_nodes": list(_nodes(settings, workflow)),
    }


def _nodes(settings: Settings, workflow: Workflow) -> Iterator[Content]:
    chain = list(_with_guards(workflow.nodes))
    names = [f"{number:02}-{_word(node)}" for number, node in enumerate(chain, start=1)]
    stops = False
    for number, (name, node) in enumerate(zip(names, chain, strict=True)):
        made: Content = {"identifier": name}
        if isinstance(node, Approval):
            made["approval_node"] = {
                "name": f"{settings.name(workflow.name)}: {node.name}",
                "description": node.description,
                "timeout": settings.approval_minutes * 60,
            }
        else:
            made["unified_job_template"] = settings.name(*node.template)
            made["lookup_organization"] = settings.organization
            if node.given:
                made["extra_data"] = dict(node.given)
        if number + 1 < len(chain):
            made["success_nodes"] = [names[number + 1]]
        if isinstance(node, Job) and node.follows:
            made["failure_nodes"] = [_STOPPED]
            stops = True
        yield made
    if stops:
        yield {
            "identifier": _STOPPED,
            "unified_job_template": settings.name("what is left"),
            "lookup_organization": settings.organization,
        }


def _with_guards(nodes: Sequence[Node]) -> Iterator[Node]:
    changed = False
    for node in nodes:
        yield node
        if isinstance(node, Approval):
            # Before the first change a guard that refuses leaves nothing behind.
            yield Job(("approval guard",), follows=changed)
        else:
            changed = changed or node.follows


def _word(node: Node) -> str:
    words = node.name if isinstance(node, Approval) else " ".join(node.template)
    return "".join(char if char.isalnum() else "-" for char in words).strip("-").replace("--", "-")
