# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The review of a cluster's rights as a report: who can do what, what is remarkable, what is unused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.findings import (
    Finding,
    findings_of,
    who_can,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.grants import (
    Grant,
    Subject,
    grants_of,
    read_cluster,
    shown_rule,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.used import Usage
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api

_GUARD = "ironspan-grants"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_TITLES = {
    "wildcard": "wildcards",
    "escalation": "ways to more rights",
    "leads_further": "rights that lead further",
    "everybody": "given to everybody",
    "no_role": "roles that do not exist",
    "no_account": "accounts that do not exist",
    "unused": "unused",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Review:
    """What a review found.

    Args:
        grants: bindings, without those that every cluster has unless they were asked for.
        findings: see findings.py.
        usage: what the audit log says, None without one.
        guarded: whether an admission policy refuses wildcards in new roles and bindings.
        asked: verb, resource and namespace that were asked for.
        can: who may do that, by which binding.
    """

    grants: Sequence[Grant]
    findings: Sequence[Finding]
    usage: Usage | None
    guarded: bool
    asked: str = ""
    can: Sequence[tuple[Subject, Grant]] = ()

    @property
    def unexpected(self) -> list[Finding]:
        """Return the findings that nothing explains."""
        return [finding for finding in self.findings if not finding.expected]

    def as_json(self) -> dict[str, Any]:
        """Return the whole review for programs."""
        usage = self.usage
        return {
            "guarded": self.guarded,
            "ok": not self.unexpected,
            "audit": usage
            and {"since": usage.since, "until": usage.until, "events": usage.events, "unread": usage.unread},
            "bindings": [self._binding(grant) for grant in self.grants],
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "asked": self.asked,
            "can": [{"subject": str(subject), "binding": grant.name} for subject, grant in self.can],
        }

    def _binding(self, grant: Grant) -> dict[str, Any]:
        use = self.usage.bindings.get(grant.key) if self.usage else None
        return {
            "binding": grant.name,
            "namespace": grant.key[1],
            "role": " ".join(grant.role),
            "subjects": [str(subject) for subject in grant.subjects],
            "rules": None if grant.rules is None else list(grant.rules),
            "requests": None if self.usage is None else use.count if use else 0,
            "last_used": use.last if use else "",
        }

    def as_text(self) -> str:
        """Return the review for people."""
        return "\n".join([*self._who(), *self._findings(), *self._rest()])

    def _who(self) -> Iterator[str]:
        if self.asked:
            yield f"who can {self.asked}:"
            yield from (f"  {subject}, by {grant.name}" for subject, grant in self.can)
            if not self.can:
                yield "  nobody"
            return
        given: dict[Subject, list[Grant]] = {}
        for grant in self.grants:
            for subject in grant.subjects:
                given.setdefault(subject, []).append(grant)
        for subject, grants in sorted(given.items()):
            yield str(subject)
            for grant in grants:
                yield f"  {grant.where}: {grant.role[0]} {grant.role[1]}{self._used(grant)}"
                yield from (f"    {shown_rule(rule)}" for rule in grant.rules or ())

    def _used(self, grant: Grant) -> str:
        if self.usage is None:
            return ""
        use = self.usage.bindings.get(grant.key)
        return f", {use.count} requests, last {use.last}" if use else ", unused"

    def _findings(self) -> Iterator[str]:
        for kind, title in _TITLES.items():
            found = [finding for finding in self.findings if finding.kind == kind]
            if found:
                yield f"{title}: {len(found)}"
            for finding in found:
                reason = f" (expected: {finding.expected})" if finding.expected else ""
                yield f"  {finding.binding}: {finding.text}{reason}"

    def _rest(self) -> Iterator[str]:
        usage = self.usage
        if usage is None:
            yield "what is unused is not known: give the audit logs of all API servers"
        else:
            yield f"audit log: {usage.events} events from {usage.since} to {usage.until}"
            if usage.unread:
                yield f"  {usage.unread} lines are no audit events"
        state = "refused" if self.guarded else "not refused: turn on the admission rule grants"
        yield f"wildcards in new roles and bindings are {state}"


def review(
    api: Api,
    usage: Usage | None = None,
    *,
    everything: bool = False,
    subject: str = "",
    can: tuple[str, str] | None = None,
    namespace: str = "",
    admission: Admission | None = None,
) -> Review:
    """Read a cluster's rights and look at them. Changes nothing.

    Args:
        api: the cluster.
        usage: what the audit log says.
        everything: show bindings that every cluster has too.
        subject: show only subjects that have this in their kind or name.
        can: verb and resource to ask for.
        namespace: where ``can`` is asked for.
        admission: the site's policy, which the API does not show where API servers read it from files.

    Returns:
        The review; findings are about all bindings, whatever is shown.

    Raises:
        ClusterError: the API does not answer.
    """
    found = read_cluster(api)
    grants = grants_of(found)
    accounts = {
        f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in found["ServiceAccount"]
    }
    shown = [_narrowed(grant, subject) for grant in grants if everything or can or not grant.built_in]
    return Review(
        grants=[grant for grant in shown if grant.subjects or not subject],
        findings=findings_of(grants, accounts, usage),
        usage=usage,
        guarded=_is_from_file(admission) or api.find(f"{_BINDINGS}/{_GUARD}") is not None,
        asked=" ".join(filter(None, [*can, namespace and f"in {namespace}"])) if can else "",
        can=who_can(grants, *can, namespace) if can else (),
    )


def _is_from_file(admission: Admission | None) -> bool:
    if admission is None or not admission.from_files:
        return False
    return any(item["metadata"]["name"] == _GUARD for item in admission.policies())


def _narrowed(grant: Grant, text: str) -> Grant:
    if not text:
        return grant
    kept = tuple(subject for subject in grant.subjects if text in str(subject))
    return dataclasses.replace(grant, subjects=kept)
