# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The objects of a policy, the files of a control plane, and what a change of them costs."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.declared import STATIC, Admission
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import (
    WITHOUT_IT,
    Object,
    policy_objects,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import PodSecurity, Policy
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import built_in_policy

POLICY = built_in_policy()
SURROUNDINGS = {
    "network_policies",
    "network_policy",
    "services",
    "persistent_volumes",
    "token_requests",
    "namespaces",
    "grants",
}
"""Rules about what is no pod, and the one that holds for new pods only."""


def scoped(rule: str, scope: str) -> Policy:
    """Return the built-in policy with another scope of one rule."""
    changed = dataclasses.replace(POLICY.rules[rule], scope=scope)  # type: ignore[arg-type]
    return dataclasses.replace(POLICY, rules={**POLICY.rules, rule: changed})


def named(objects: list[Object], kind: str, name: str) -> Object | None:
    found = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found[0] if found else None


@pytest.mark.parametrize("rule", sorted(POLICY.rules))
def test_a_rule_is_one_policy_and_nowhere_is_none(rule: str) -> None:
    name = POLICY.rules[rule].policy_name
    there = named(policy_objects(scoped(rule, "everywhere")), "ValidatingAdmissionPolicy", name)
    assert there is not None
    gone = policy_objects(scoped(rule, "nowhere"))
    assert not [item for item in gone if item["metadata"]["name"].startswith(name)]


@pytest.mark.parametrize("rule", sorted(set(POLICY.rules) - SURROUNDINGS))
def test_pods_are_denied_and_what_makes_them_is_warned(rule: str) -> None:
    objects = policy_objects(scoped(rule, "everywhere"))
    name = POLICY.rules[rule].policy_name
    kind = "ValidatingAdmissionPolicyBinding"
    pods, workloads = named(objects, kind, name), named(objects, kind, f"{name}-workloads")
    assert pods and workloads
    assert pods["spec"]["validationActions"] == ["Deny", "Audit"]
    assert workloads["spec"]["validationActions"] == ["Warn", "Audit"]
    selector = pods["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-flannel", "kube-system"],
    } in (selector)


@pytest.mark.parametrize(
    ("rule", "resources"),
    [
        ("gpu_queue", {"pods", "pods/ephemeralcontainers", "pods/status"}),
        ("sandbox_annotations", {"pods", "pods/ephemeralcontainers", "pods/status"}),
        ("volumes", {"pods", "pods/ephemeralcontainers"}),
        ("namespaces", {"namespaces", "namespaces/finalize", "namespaces/status"}),
    ],
)
def test_subresources_by_which_what_a_rule_rests_on_can_change(rule: str, resources: set[str]) -> None:
    """Both where the policy looks and where it refuses."""
    objects, name = policy_objects(scoped(rule, "everywhere")), POLICY.rules[rule].policy_name
    policy = named(objects, "ValidatingAdmissionPolicy", name)
    binding = named(objects, "ValidatingAdmissionPolicyBinding", name)
    assert policy and binding
    assert resources <= {
        resource
        for each in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in each["resources"]
    }
    bound = binding["spec"].get("matchResources", {}).get("resourceRules")
    assert bound is None or {resource for each in bound for resource in each["resources"]} == resources


def test_a_high_risk_rule_holds_where_the_label_is() -> None:
    binding = named(policy_objects(POLICY), "ValidatingAdmissionPolicyBinding", "ironspan-digests")
    assert binding
    selector = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert {"key": "ironspan.io/risk", "operator": "In", "values": ["high"]} in selector


def test_files_have_what_objects_have() -> None:
    admission = Admission(POLICY, from_files=True)
    items = [*admission.manifest("mutating")["items"], *admission.manifest("validating")["items"]]
    assert all(item["metadata"]["name"].endswith(STATIC) for item in items)
    assert all(item["spec"].get("policyName", STATIC).endswith(STATIC) for item in items)
    # A policy that looks another object up cannot be in a file.
    record, *kept = admission.objects()
    assert record["kind"] == "ConfigMap"
    assert {item["metadata"]["name"] for item in kept} == {"ironspan-network-policy", WITHOUT_IT}
    assert len(items) + len(kept) == len(policy_objects(POLICY))


def test_objects_stay_in_the_api_where_there_are_no_files() -> None:
    admission = Admission(POLICY, from_files=False)
    assert admission.objects()[1:] == policy_objects(POLICY)
    plugins = admission.configuration()["plugins"]
    assert [plugin["name"] for plugin in plugins] == ["PodSecurity"]


def test_the_system_is_exempt_from_pod_security() -> None:
    (plugin,) = Admission(POLICY, from_files=False).configuration()["plugins"]
    assert plugin["configuration"]["exemptions"]["namespaces"] == ["kube-flannel", "kube-system"]
    assert plugin["configuration"]["defaults"]["enforce"] == "restricted"


def test_nothing_is_on_disk_without_a_reason() -> None:
    policy = dataclasses.replace(POLICY, pod_security=PodSecurity("none", ()))
    assert not Admission(policy, from_files=False).on_disk
    assert Admission(policy, from_files=True).on_disk


def test_the_record_changes_with_the_policy() -> None:
    first, second = (
        Admission(policy, from_files=True).objects()[0]["data"]["sha256"]
        for policy in (POLICY, scoped("digests", "everywhere"))
    )
    assert first != second
