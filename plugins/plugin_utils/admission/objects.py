# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The objects of an admission policy: one policy a rule, bound to the namespaces where the rule holds.

Rules about pods refuse pods. Of what makes pods (deployments, jobs, ...) they only warn, because a controller
that is refused tells nobody, and because such an object may have been there before the rule.
"""

from __future__ import annotations

import typing as t
from collections.abc import Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.cel import (
    POD,
    Validation,
    gpu,
    literal,
    sandboxed,
    shares_host,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.expressions import validations
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.grants import conditions
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Policy, Rule
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.surroundings import DEFAULT_DENY

Object = dict[str, t.Any]
API_VERSION = "admissionregistration.k8s.io/v1"
"""ValidatingAdmissionPolicy is in it since Kubernetes 1.30, MutatingAdmissionPolicy since 1.36."""
LABEL = {"app.kubernetes.io/managed-by": "ironspan", "app.kubernetes.io/component": "admission"}
_WRITE = ("CREATE", "UPDATE")
_METADATA_NAME = "kubernetes.io/metadata.name"


def _rules(group: str, *resources: str, operations: Sequence[str] = _WRITE) -> Object:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": list(resources),
    }


_PODS = [_rules("", "pods", "pods/ephemeralcontainers")]
_WITH_STATUS = [_rules("", "pods", "pods/ephemeralcontainers", "pods/status")]
_OF_METADATA = ("gpu_queue", "sandbox_annotations")
"""Rules that rest on labels or annotations of pods, which who may write their status can change.

Annotations of AppArmor and of mirror pods are none of them: the API server lets nobody add those later.
"""
_BINDINGS = [_rules("", "bindings", "pods/binding", operations=["CREATE"])]
"""Who binds a pod to a node gives it the annotations of the binding."""
_WORKLOADS = [
    _rules("", "replicationcontrollers"),
    _rules("apps", "daemonsets", "deployments", "replicasets", "statefulsets"),
    _rules("batch", "cronjobs", "jobs"),
]
_NEW_PODS = [_rules("", "pods", operations=["CREATE"])]
_RBAC = ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
_OTHERS = {
    "network_policy": _NEW_PODS,
    "network_policies": [_rules("networking.k8s.io", "networkpolicies", operations=[*_WRITE, "DELETE"])],
    "services": [_rules("", "services")],
    "persistent_volumes": [_rules("", "persistentvolumes")],
    "token_requests": [_rules("", "serviceaccounts/token", operations=["CREATE"])],
    "namespaces": [_rules("", "namespaces", "namespaces/finalize", "namespaces/status")],
    "grants": [_rules("rbac.authorization.k8s.io", *_RBAC)],
}
_ALWAYS = ("network_policies", "namespaces")
"""Rules that look at more than what the condition below compares; the first has no object when one goes."""
_OF_THE_CLUSTER = ("namespaces", "grants", "persistent_volumes")
"""Rules that hold whatever namespaces are exempt."""
_CHANGED = (
    "oldObject == null || object.spec != oldObject.spec || "
    "object.metadata.?annotations != oldObject.metadata.?annotations || "
    "object.metadata.?labels != oldObject.metadata.?labels"
)
"""Controllers take their finalizers off pods that were there before a rule, and off those that go."""
_OWNED = f"{_CHANGED} || object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences"
WITHOUT_IT = f"ironspan-network-policy.make-networkpolicy-{DEFAULT_DENY}-in-this-namespace-first"
"""Name of the binding that refuses pods whose namespace lacks this network policy."""
PARAMETERS = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}


def policy_objects(policy: Policy) -> list[Object]:
    """Return the objects of a policy.

    Args:
        policy: from the policy file.

    Returns:
        Policies, each with its bindings behind it, in the order of the rules; those that mutate come first.
    """
    rules = [rule for rule in policy.rules.values() if rule.scope != "nowhere"]
    made: list[Object] = []
    for rule in rules:
        made += _mutation(policy, rule)
    for rule in rules:
        made += _validation(policy, rule)
    return made


def _validation(policy: Policy, rule: Rule) -> list[Object]:
    of_pods = rule.name not in _OTHERS
    pods = _WITH_STATUS if rule.name in _OF_METADATA else _PODS
    spec: Object = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [*pods, *_WORKLOADS] if of_pods else _OTHERS[rule.name]},
        "validations": [_stated(rule, validation) for validation in validations(policy, rule)],
    }
    if of_pods:
        spec["variables"] = [{"name": name, "expression": expression} for name, expression in POD]
    if rule.name == "grants":
        spec["matchConditions"] = conditions(policy)
    elif rule.name not in _ALWAYS:
        changed = _OWNED if rule.name == "mirror_pods" else _CHANGED
        spec["matchConditions"] = [{"name": "changed", "expression": changed}]
    name, where = rule.policy_name, _namespaces(policy, rule)
    binding = _binding(name, name, {**where, "resourceRules": pods} if of_pods else where, ["Deny", "Audit"])
    if rule.name == "network_policy":
        # Looked up in the namespace of the pod: without it the pod is refused, in the API server's own words.
        # The name of the binding is all that can say what to do.
        spec["paramKind"] = dict(PARAMETERS)
        binding["metadata"]["name"] = WITHOUT_IT
        binding["spec"]["paramRef"] = {"name": DEFAULT_DENY, "parameterNotFoundAction": "Deny"}
    made = [_object("ValidatingAdmissionPolicy", name, spec), binding]
    if rule.name == "sandbox_annotations":
        made += _of_bindings(rule, spec["validations"], where)
    if of_pods:
        only = {**where, "resourceRules": _WORKLOADS}
        made.append(_binding(f"{name}-workloads", name, only, ["Warn", "Audit"]))
    return made


def _of_bindings(rule: Rule, validations: Sequence[Object], where: Object) -> list[Object]:
    name = f"{rule.policy_name}-bindings"
    annotations = {"name": "annotations", "expression": "object.metadata.?annotations.orValue({})"}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": _BINDINGS},
        "variables": [annotations],
        "validations": list(validations),
    }
    made = _object("ValidatingAdmissionPolicy", name, spec)
    return [made, _binding(name, name, where, ["Deny", "Audit"])]


def _stated(rule: Rule, validation: Validation) -> Object:
    message = f"{validation.message} (rule {rule.name})"
    stated = {"expression": validation.expression, "message": message}
    if validation.found:
        stated["messageExpression"] = f"{literal(message + ': ')} + {validation.found}.join(', ')"
    return stated


def _mutation(policy: Policy, rule: Rule) -> list[Object]:
    pod, where = "object.spec", _namespaces(policy, rule)
    if rule.name == "runtime_class":
        conditions = ["!has(object.spec.runtimeClassName)"]
        change = f"{{op: 'add', path: '/spec/runtimeClassName', value: '{rule.word}'}}"
    elif rule.name == "user_namespaces":
        containers = f"({pod}.containers + {pod}.?initContainers.orValue([]))"
        conditions = [
            "!has(object.spec.hostUsers)",
            f"!({sandboxed(policy, pod)})",
            f"!({gpu(policy, pod, containers)})",
            f"!({shares_host(pod)})",
        ]
        change = "{op: 'add', path: '/spec/hostUsers', value: false}"
    else:
        return []
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": _NEW_PODS},
        "matchConditions": [
            {"name": f"condition-{number}", "expression": expression}
            for number, expression in enumerate(conditions, 1)
        ],
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[JSONPatch{change}]"}},
        ],
    }
    name = f"{rule.policy_name}-default"
    return [
        _object("MutatingAdmissionPolicy", name, spec),
        _object(
            "MutatingAdmissionPolicyBinding",
            name,
            {"policyName": name, **({"matchResources": where} if where else {})},
        ),
    ]


def _namespaces(policy: Policy, rule: Rule) -> Object:
    """Return where a rule holds."""
    expressions: list[Object] = []
    if rule.scope == "high_risk":
        expressions.append(_high_risk(policy, "In"))
    elif rule.name == "user_namespaces" and policy.rules["runtime_class"].scope != "nowhere":
        # Pods there get a sandbox, and neither of two mutations is sure to be the first.
        expressions.append(_high_risk(policy, "NotIn"))
    exempt = policy.exempt(rule.name)
    if exempt and rule.name not in _OF_THE_CLUSTER:
        expressions.append({"key": _METADATA_NAME, "operator": "NotIn", "values": exempt})
    return {"namespaceSelector": {"matchExpressions": expressions}} if expressions else {}


def _high_risk(policy: Policy, operator: str) -> Object:
    key, value = policy.high_risk
    return {"key": key, "operator": operator, "values": [value]}


def _object(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "labels": dict(LABEL)}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _binding(name: str, policy: str, where: Object, actions: Sequence[str]) -> Object:
    spec: Object = {"policyName": policy, "validationActions": list(actions)}
    if where:
        spec["matchResources"] = where
    return _object("ValidatingAdmissionPolicyBinding", name, spec)
