# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The admission policy of a site as typed values."""

from __future__ import annotations

import dataclasses
import typing as t

Scope = t.Literal["nowhere", "high_risk", "everywhere"]


@dataclasses.dataclass(frozen=True, slots=True)
class Exemption:
    """A namespace to which some rules do not apply.

    Args:
        namespace: its name.
        owner: who answers for it.
        reason: why.
        rules: names of the rules; none stands for all of them.
    """

    namespace: str
    owner: str
    reason: str
    rules: tuple[str, ...] = ()


class GrantException(t.NamedTuple):
    """A role or a binding for which the rule about grants does not hold."""

    kind: str
    name: str
    owner: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Args:
        name: as the policy file calls it.
        scope: in which namespaces it holds.
        values: its lists.
        word: its single value, a label or the name of a runtime class.
    """

    name: str
    scope: Scope
    values: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    word: str = ""

    @property
    def policy_name(self) -> str:
        """Return how the cluster calls its policy."""
        return f"ironspan-{self.name.replace('_', '-')}"


@dataclasses.dataclass(frozen=True, slots=True)
class PodSecurity:
    """The Pod Security Standard of namespaces without a label of their own."""

    level: str
    exemptions: tuple[Exemption, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """Everything that the policy file says, defaults included.

    Args:
        high_risk: label and value of the namespaces whose pods are not trusted.
        keepers: groups that may take this label away and make namespaces that are exempt.
        rules: by name, those that are off too.
        gpu_resources: names of resources that are GPUs; those that end in a slash are whole domains.
        exemptions: of the rules.
        pod_security: the Pod Security Standard.
        grant_exceptions: roles and bindings that may have what the rule about grants refuses.
    """

    high_risk: tuple[str, str]
    keepers: tuple[str, ...]
    rules: t.Mapping[str, Rule]
    gpu_resources: tuple[str, ...]
    exemptions: tuple[Exemption, ...]
    pod_security: PodSecurity
    grant_exceptions: tuple[GrantException, ...] = ()

    def exempt(self, rule: str) -> list[str]:
        """Return the namespaces to which a rule does not apply, sorted."""
        return sorted(
            {entry.namespace for entry in self.exemptions if not entry.rules or rule in entry.rules}
        )


SYSTEM_EXEMPTIONS = (
    Exemption("kube-system", "ironspan", "control plane, DNS and kube-proxy"),
    Exemption("kube-flannel", "ironspan", "the pod network"),
)
"""Exempt from everything, unless the policy file has an entry of its own for the namespace."""
