# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Parts of CEL that several rules use.

``object`` goes through ``dyn`` because one expression serves pods and everything that makes pods. Optional
fields are read with ``.?``, so that an absent field is no error. What comes from the policy file has only
characters that need no escaping (read.py).
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Policy, Rule

HOST_SPACES = ("hostNetwork", "hostPID", "hostIPC")


class Validation(t.NamedTuple):
    """What must be true, and the sentence for those for whom it is not."""

    expression: str
    message: str
    found: str = ""
    """A list of texts to end the message with."""


def literal(value: t.Any) -> str:
    """Return text, a number, or a list or dictionary of them, in CEL."""
    return json.dumps(value)


POD = (
    ("template", "has(dyn(object).spec.jobTemplate) ? dyn(object).spec.jobTemplate.spec.template : "
     "(has(dyn(object).spec.template) ? dyn(object).spec.template : dyn(object))"),
    ("pod", "variables.template.spec"),
    ("annotations", "variables.template.?metadata.?annotations.orValue({})"),
    ("labels", "variables.template.?metadata.?labels.orValue({})"),
    ("containers", "variables.pod.containers + variables.pod.?initContainers.orValue([]) + "
     "variables.pod.?ephemeralContainers.orValue([])"),
    ("volumes", "variables.pod.?volumes.orValue([])"),
    ("images", "variables.containers.map(c, c.?image.orValue('')) + "
     "variables.volumes.filter(v, has(v.image)).map(v, v.image.?reference.orValue(''))"),
)  # fmt: skip
"""Variables of every policy about pods, whatever makes them; they are worked out only where they are used."""


def gpu(policy: Policy, pod: str, containers: str) -> str:
    """Return an expression that tells whether a pod asks for a GPU, by resources or by claims.

    Args:
        policy: which resources are GPUs.
        pod: expression of the pod's specification.
        containers: expression of its containers.
    """
    names = [name for name in policy.gpu_resources if not name.endswith("/")]
    domains = [name for name in policy.gpu_resources if name.endswith("/")]
    wanted = f"(r in {literal(names)} || {literal(domains)}.exists(d, r.startsWith(d)))"
    # None of a GPU is no GPU: it would only be asked for to be taken for a pod that has one.
    some = "quantity(string(m[r])).isGreaterThan(quantity('0'))"
    return (
        f"{pod}.?resourceClaims.orValue([]).size() > 0 || "
        f"{containers}.exists(c, [c.?resources.?limits.orValue({{}}), c.?resources.?requests.orValue({{}})]"
        f".exists(m, m.exists(r, {wanted} && {some})))"
    )


def shares_host(pod: str) -> str:
    """Return an expression that tells whether a pod is in a namespace of the host, as it may where exempt."""
    return " || ".join(f"{pod}.?{name}.orValue(false)" for name in HOST_SPACES)


def sandboxed(policy: Policy, pod: str) -> str:
    """Return an expression that tells whether a pod has a class that is a sandbox."""
    return f"{pod}.?runtimeClassName.orValue('') in {literal(allowed(policy.rules['runtime_class']))}"


def keepers(policy: Policy) -> list[str]:
    """Return the groups that may do what is refused to others."""
    return sorted({*policy.keepers, "system:masters"})


def trusted(policy: Policy) -> str:
    """Return an expression that tells whether a request is of somebody in one of these groups."""
    return f"request.userInfo.groups.exists(g, g in {literal(keepers(policy))})"


def allowed(rule: Rule) -> list[str]:
    """Return what a rule allows."""
    return list(rule.values.get("allowed", ()))
