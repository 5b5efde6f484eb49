# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The CEL of the rule about grants: what roles may hold, and what bindings may bind.

RBAC itself lets nobody give more than they have. This rule holds for those who have much: operators and
service accounts that write roles, and whoever got hold of one of them.
"""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.cel import (
    Validation,
    keepers,
    literal,
    trusted,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Policy, Rule

AGGREGATION = "system:serviceaccount:kube-system:clusterrole-aggregation-controller"
"""Writes the rules of roles that are gathered from others."""
EVERYBODY = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts")
_RULES = "(dyn(object).?rules.orValue(null) == null ? [] : dyn(object).rules)"
_SUBJECTS = "(dyn(object).?subjects.orValue(null) == null ? [] : dyn(object).subjects)"
_CHANGED = "oldObject == null || " + " || ".join(
    f"dyn(object).?{field} != dyn(oldObject).?{field}"
    for field in ("rules", "aggregationRule", "roleRef", "subjects")
)


def conditions(policy: Policy) -> list[dict[str, t.Any]]:
    """Return to which requests the rule applies: what is new, of people that are not trusted with it.

    Args:
        policy: who is trusted, and which roles and bindings are exceptions.
    """
    named = [f"{entry.kind}/{entry.name}" for entry in policy.grant_exceptions]
    own = "request.kind.kind + '/' + object.metadata.?name.orValue('')"
    return [
        {"name": "changed", "expression": _CHANGED},
        {"name": "others", "expression": f"!({trusted(policy)})"},
        {"name": "people", "expression": f"request.userInfo.username != {literal(AGGREGATION)}"},
        {"name": "ordinary", "expression": f"!(({own}) in {literal(named)})"},
    ]


def grants(policy: Policy, rule: Rule) -> list[Validation]:
    """Return what the rule asks for.

    Args:
        policy: who is trusted.
        rule: the rule; its roles are those that others may not bind.
    """
    roles = list(rule.values["roles"])
    only = f"may be given by {', '.join(keepers(policy))} only"
    fields = ("verbs", "resources", "apiGroups")
    wildcard = " && ".join(f"r.?{field}.orValue([]).all(x, !x.contains('*'))" for field in fields)
    return [
        Validation(
            f"{_RULES}.all(r, {wildcard} && r.?nonResourceURLs.orValue([]).all(x, !(x in ['*', '/*'])))",
            f"a wildcard (*) in a role {only}",
        ),
        Validation(
            f"{_RULES}.all(r, r.verbs.all(v, !(v in ['escalate', 'bind']) && !v.startsWith('impersonate')))",
            f"the verbs escalate, bind and impersonate {only}",
        ),
        Validation(
            "!has(dyn(object).aggregationRule) || dyn(object).aggregationRule == null",
            f"roles that are gathered from others by labels {only}",
        ),
        Validation(
            "!has(dyn(object).roleRef) || dyn(object).roleRef.kind != 'ClusterRole' || "
            f"!(dyn(object).roleRef.name in {literal(roles)})",
            f"the roles {', '.join(roles) or '(none)'} {only}",
        ),
        Validation(
            f"{_SUBJECTS}.all(s, !(s.kind == 'Group' && s.name in {literal(list(EVERYBODY))}) && "
            "!(s.kind == 'User' && s.name == 'system:anonymous'))",
            f"rights for everybody {only}",
        ),
    ]
