# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Policies that are there before all others.

One refuses addresses for services that are somebody else's: kube-proxy sends what goes to such an address
to the pods of whoever wrote it, on every host. Every cluster has it, with a policy file and without one.
The other refuses nothing. It keeps alive what API servers know of network policies, has to be there before
any policy that looks one up, and stays when the policy file goes:

kube-apiserver (1.36 and 1.37, ``policySource`` in apiserver/pkg/admission/plugin/policy/generic) starts the
informer of a kind of parameters with the first policy that names it and ends it with the last. For built-in
kinds that informer is of a shared factory, which starts each of them once in its life. So after the last
policy is gone, the next one looks at what was there then, until the API server restarts. The trial of
policies before they are in force is such a policy that comes and goes, and so is a rule that is turned off.

A cluster that never had a policy file does not have it: API servers of others (APIService) that run admission
themselves follow the same parameters, and one that may not list network policies is never ready then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.cel import literal
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import (
    API_VERSION,
    PARAMETERS,
    Object,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.variables import ADDRESSES, PROGRAMS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import owned

LABEL = {"app.kubernetes.io/managed-by": "ironspan", "app.kubernetes.io/component": "admission-always"}
RULE = "service_addresses"
KEEPERS = ("kubeadm:cluster-admins",)
"""Who may write any address where no policy file names others; ``system:masters`` always may."""
_CONTROLLERS = ("system:kube-controller-manager", "system:cloud-controller-manager")
_CONTROLLER_GROUP = "system:serviceaccounts:kube-system"
_SERVICE_ADDRESSES = "ironspan-service-addresses"
_PARAMETER_KINDS = "ironspan-keeps-network-policies-known"


def is_always(item: Object) -> bool:
    """Tell whether an object is one of these."""
    return bool(item["metadata"].get("labels", {}).items() >= LABEL.items())


def always(
    keepers: Sequence[str], networks: Sequence[str], programs: Sequence[str], *, others: bool
) -> list[Object]:
    """Return the policies, each with its binding behind it.

    Args:
        keepers: groups that may write any address.
        networks: addresses that anybody may write who may write services, as networks.
        programs: users that may say which address a service got, besides those of Kubernetes itself.
        others: whether there is a policy file.
    """
    return [*(_known_parameters() if others else []), *_service_addresses(keepers, networks, programs)]


def _known_parameters() -> list[Object]:
    nothing = {"apiGroups": ["ironspan.io"], "apiVersions": ["*"], "operations": ["CREATE"]}
    policy = {
        "failurePolicy": "Ignore",
        "paramKind": dict(PARAMETERS),
        "matchConstraints": {"resourceRules": [{**nothing, "resources": ["nothing"]}]},
        "validations": [{"expression": "true"}],
    }
    binding = {
        "policyName": _PARAMETER_KINDS,
        "validationActions": ["Audit"],
        "paramRef": {"name": "nothing", "parameterNotFoundAction": "Allow"},
    }
    return _pair(_PARAMETER_KINDS, policy, binding, {owned.LAYER: owned.SHARED})


def _service_addresses(
    keepers: Sequence[str], networks: Sequence[str], programs: Sequence[str]
) -> list[Object]:
    groups = sorted({*keepers, "system:masters"})
    own = " || ".join(f"cidr({literal(network)}).containsIP({{0}})" for network in networks) or "false"
    listed = f"(isIP({{0}}) && ({own}))" if networks else "false"
    before = "(oldObject == null ? [] : oldObject.spec.?externalIPs.orValue([]))"
    former = "(oldObject == null ? '' : oldObject.spec.?loadBalancerIP.orValue(''))"
    wished = "object.spec.?loadBalancerIP.orValue('')"
    only = f"; others may be written by {', '.join(groups)} only"
    which = f"addresses of {ADDRESSES}" + (f" ({', '.join(networks)})" if networks else " (none here)")
    tells = sorted({*_CONTROLLERS, *programs})
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["services", "services/status"],
                }
            ]
        },
        "matchConditions": [
            {
                "name": "others",
                "expression": f"!request.userInfo.groups.exists(g, g in {literal(groups)})",
            }
        ],
        "validations": [
            {
                "expression": f"object.spec.?externalIPs.orValue([]).all(a, a in {before} || "
                f"{listed.format('a')})",
                "message": f"externalIPs must be {which}{only} (rule {RULE})",
            },
            {
                "expression": f"{wished} == '' || {wished} == {former} || {listed.format(wished)}",
                "message": f"loadBalancerIP must be one of the {which}{only} (rule {RULE})",
            },
            {
                "expression": "oldObject == null || object.?status.?loadBalancer.?ingress.orValue([]) == "
                "oldObject.?status.?loadBalancer.?ingress.orValue([]) || "
                f"request.userInfo.username in {literal(tells)} || "
                f"{literal(_CONTROLLER_GROUP)} in request.userInfo.groups",
                "message": "which address a load balancer gave a service is written by Kubernetes' own "
                f"controllers and the users of {PROGRAMS} only (rule {RULE})",
            },
        ],
    }
    binding = {"policyName": _SERVICE_ADDRESSES, "validationActions": ["Deny", "Audit"]}
    return _pair(_SERVICE_ADDRESSES, policy, binding)


def _pair(
    name: str, policy: Object, binding: Object, labels: Mapping[str, str] | None = None
) -> list[Object]:
    kind = "ValidatingAdmissionPolicy"
    return [
        {
            "apiVersion": API_VERSION,
            "kind": each,
            "metadata": {"name": name, "labels": {**LABEL, **(labels or {})}},
            "spec": spec,
        }
        for each, spec in ((kind, policy), (f"{kind}Binding", binding))
    ]
