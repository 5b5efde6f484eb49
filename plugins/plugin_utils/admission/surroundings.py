# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The CEL of the rules about what surrounds pods: services, namespaces, network policies, volumes, tokens."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.cel import (
    Validation,
    allowed,
    keepers,
    literal,
    trusted,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Policy, Rule

DEFAULT_DENY = "ironspan-default-deny"
"""Name of the network policy that every namespace has to have before it has pods."""
LEVELS = ("privileged", "baseline", "restricted")
ENFORCE = "pod-security.kubernetes.io/enforce"
_CONTROLLERS = "'system:serviceaccounts:kube-system' in request.userInfo.groups"
"""The cluster's own controllers; they empty namespaces that go."""
_OPENS_NOTHING = "{0}.spec.?ingress.orValue([]).size() == 0 && {0}.spec.?egress.orValue([]).size() == 0"


def services(policy: Policy, rule: Rule) -> list[Validation]:
    """Return what services must be: names inside the cluster for pods inside the cluster."""
    return [
        Validation(
            "object.spec.?type.orValue('ClusterIP') == 'ClusterIP'",
            "a service here must be of type ClusterIP",
        ),
        Validation("object.spec.?externalIPs.orValue([]).size() == 0", "externalIPs are refused here"),
    ]


def persistent_volumes(policy: Policy, rule: Rule) -> list[Validation]:
    """Return who makes volumes that are folders of hosts: claims carry them past the rule ``volumes``."""
    return [
        Validation(
            f"{trusted(policy)} || !(has(object.spec.hostPath) || has(object.spec.local))",
            f"a PersistentVolume that is a folder of hosts may be made by {', '.join(policy.keepers)} only",
        )
    ]


def token_requests(policy: Policy, rule: Rule) -> list[Validation]:
    """Return whom tokens may be for that are asked of the API; kubelets ask for what pods were let have."""
    listed = literal([*allowed(policy.rules["token_audiences"]), *allowed(rule)])
    return [
        Validation(
            "'system:nodes' in request.userInfo.groups || "
            f"object.spec.?audiences.orValue([]).all(a, a in {listed})",
            "of token audiences only the API's and those of the policy file may be asked for here",
        )
    ]


def network_policies(policy: Policy, rule: Rule) -> list[Validation]:
    """Return who opens what network policies close: others may only make policies that close."""
    return [
        Validation(
            f"{trusted(policy)} || {_CONTROLLERS} || "
            f"(request.operation == 'CREATE' && {_OPENS_NOTHING.format('object')})",
            "network policies that open anything are made, and all are changed and removed here, "
            f"by {', '.join(policy.keepers)} only",
        )
    ]


def network_policy(policy: Policy, rule: Rule) -> list[Validation]:
    """Return what the network policy must be that pods wait for; without it the binding refuses them."""
    selector = "params.spec.?podSelector.?{}.orValue({}).size() == 0"
    return [
        Validation(
            f"{selector.format('matchLabels', '{}')} && {selector.format('matchExpressions', '[]')} && "
            "['Ingress', 'Egress'].all(t, t in params.spec.?policyTypes.orValue([])) && "
            + _OPENS_NOTHING.format("params"),
            f"the network policy {DEFAULT_DENY} of this namespace must select all pods and open nothing",
        )
    ]


def namespaces(policy: Policy, rule: Rule) -> list[Validation]:
    """Return who takes namespaces out of the rules."""
    key, value = (literal(text) for text in policy.high_risk)
    known, only = trusted(policy), f"{', '.join(keepers(policy))} only"
    security = policy.pod_security
    exempt = sorted({entry.namespace for entry in (*policy.exemptions, *security.exemptions)})
    labels = "{}.metadata.?labels[?{}].orValue({})"
    checks = [
        Validation(
            f"{known} || oldObject == null || {labels.format('oldObject', key, "''")} != {value} || "
            f"{labels.format('object', key, "''")} == {value}",
            f"the label {'='.join(policy.high_risk)} may be taken away by {only}",
        ),
        Validation(
            f"{known} || oldObject != null || !(object.metadata.name in {literal(exempt)})",
            f"a namespace that is exempt from rules may be made by {only}",
        ),
    ]
    if security.level in LEVELS:
        levels = {level: number for number, level in enumerate(LEVELS)}
        free = [entry.namespace for entry in security.exemptions]
        said, before = (
            labels.format(which, literal(ENFORCE), literal(security.level))
            for which in ("object", "oldObject")
        )
        checks.append(
            Validation(
                f"{known} || object.metadata.name in {literal(free)} || "
                f"(oldObject != null && {said} == {before}) || "
                f"{literal(levels)}[{said}] >= {levels[security.level]}",
                f"a Pod Security level below {security.level} may be set by {only}",
            )
        )
    return checks
