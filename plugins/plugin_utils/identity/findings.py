# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is remarkable about the rights that a cluster gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.grants import (
    Grant,
    Object,
    Subject,
    allows,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.used import Usage

EXPECTED = {
    "ClusterRoleBinding kubeadm:cluster-admins": "the site's controller",
    "ClusterRoleBinding ironspan:access-controller": "grants what was asked for and approved",
    "ClusterRoleBinding ironspan:break-glass": "the sealed certificate for emergencies",
}
"""Bindings of the site's own that give much, and what they are for."""
EVERYBODY = frozenset(
    {
        Subject("Group", "system:authenticated"),
        Subject("Group", "system:unauthenticated"),
        Subject("Group", "system:serviceaccounts"),
        Subject("User", "system:anonymous"),
    }
)
_LEADS_FURTHER: Sequence[tuple[str, str, str]] = (
    ("get", "secrets", "reads secrets"),
    ("list", "secrets", "reads secrets"),
    ("watch", "secrets", "reads secrets"),
    ("create", "pods/exec", "runs commands in others' containers"),
    ("create", "serviceaccounts/token", "makes tokens of service accounts"),
    ("get", "nodes/proxy", "reaches kubelets past the API's checks"),
    ("create", "nodes/proxy", "reaches kubelets past the API's checks"),
    ("update", "certificatesigningrequests/approval", "decides about certificates"),
    ("create", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "changes others' requests"),
    ("delete", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "turns off policies"),
    ("create", "persistentvolumes", "makes volumes that lead to hosts"),
)
_ESCALATION = ("escalate", "bind", "impersonate")


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that somebody should look at.

    Args:
        kind: wildcard, escalation, leads_further, everybody, no_role, no_account or unused.
        binding: which binding.
        text: what about it.
        expected: why it is meant to be so, empty when it is not.
    """

    kind: str
    binding: str
    text: str
    expected: str = ""


def findings_of(
    grants: Sequence[Grant], accounts: Collection[str], usage: Usage | None = None
) -> list[Finding]:
    """Look at bindings that are not built in.

    Args:
        grants: all bindings.
        accounts: service accounts there are, NAMESPACE/NAME.
        usage: what the audit log says; None when there is none.

    Returns:
        What was found, by binding, those that nobody expects first.
    """
    found: list[Finding] = []
    for grant in grants:
        if grant.built_in:
            continue
        expected = EXPECTED.get(grant.name, "")
        for kind, text in _look(grant, accounts, usage):
            # Whatever a binding is for, it is not meant to be useless.
            found.append(Finding(kind, grant.name, text, expected if kind not in _USELESS else ""))
    return sorted(found, key=lambda finding: bool(finding.expected))


_USELESS = ("no_role", "no_account", "unused")


def _look(grant: Grant, accounts: Collection[str], usage: Usage | None) -> Iterator[tuple[str, str]]:
    whom = ", ".join(map(str, grant.subjects)) or "nobody"
    if grant.rules is None:
        yield "no_role", f"its role {grant.role[0]} {grant.role[1]} does not exist"
    else:
        yield from _of_rules(grant, grant.rules, whom)
    for subject in grant.subjects:
        if subject in EVERYBODY:
            yield "everybody", f"{subject} stands for everybody who gets that far"
        elif subject.kind == "ServiceAccount" and subject.name not in accounts:
            yield "no_account", f"{subject} does not exist; whoever makes it has these rights"
    if usage is not None and grant.rules is not None and grant.key not in usage.bindings:
        yield "unused", f"{whom} used it for nothing from {usage.since} to {usage.until}"


def _of_rules(grant: Grant, rules: Sequence[Object], whom: str) -> Iterator[tuple[str, str]]:
    role = f"{grant.role[0]} {grant.role[1]} in {grant.where}"
    fields = [name for name in WILDCARD_FIELDS if any("*" in rule.get(name, ()) for rule in rules)]
    if fields:
        yield "wildcard", f"{whom}: {role} has * in {', '.join(fields)}"
    direct = sorted(
        {verb for rule in rules for verb in rule.get("verbs", ()) if verb.startswith(_ESCALATION)}
    )
    if direct:
        yield "escalation", f"{whom}: {role} may {', '.join(direct)}"
    further = dict.fromkeys(
        text for verb, resource, text in _LEADS_FURTHER if any(allows(rule, verb, resource) for rule in rules)
    )
    if further and not fields:
        yield "leads_further", f"{whom}: {role} {', '.join(further)}"


WILDCARD_FIELDS = ("verbs", "resources", "apiGroups", "nonResourceURLs")


def who_can(
    grants: Sequence[Grant], verb: str, resource: str, namespace: str = ""
) -> list[tuple[Subject, Grant]]:
    """Return who may do something, by which binding.

    Args:
        grants: all bindings.
        verb: such as ``create``.
        resource: see ``allows``.
        namespace: where; without one, bindings of every namespace count.
    """
    holds: Callable[[Grant], bool] = lambda grant: not namespace or grant.key[1] in ("", namespace)  # noqa: E731
    return [
        (subject, grant)
        for grant in grants
        if holds(grant) and any(allows(rule, verb, resource) for rule in grant.rules or ())
        for subject in grant.subjects
    ]
