# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Whether Cilium has taken the policies of the cluster.

The API takes a policy that Cilium then rejects: ``kubectl apply`` says "created", and the agents ignore it,
so the pods it was for stay as open as they were. Only the condition ``Valid``, which the operator writes,
tells.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError

GROUP = "cilium.io"
KINDS = {
    "ciliumnetworkpolicies": "CiliumNetworkPolicy",
    "ciliumclusterwidenetworkpolicies": "CiliumClusterwideNetworkPolicy",
}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLL_S = 1.0


class Policy(t.NamedTuple):
    """A policy, and what Cilium's operator says about it; ``valid`` is None as long as it says nothing."""

    name: str
    valid: bool | None
    message: str


def wait_for_kinds(api: Api, patience: float, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until the cluster knows Cilium's policies; the operator makes their kinds when it starts.

    Args:
        api: the cluster.
        patience: seconds to wait.
        pause: how to wait.

    Raises:
        ClusterError: it still does not know them.
    """
    _until(lambda: not _unknown(api), patience, pause)
    unknown = _unknown(api)
    if unknown:
        raise ClusterError(
            f"The cluster does not know {', '.join(unknown)} after {patience:.0f} seconds.",
            "Cilium's operator makes them: see kubectl -n kube-system logs deployment/cilium-operator.",
        )


def look(api: Api) -> list[Policy]:
    """Return all policies of the cluster in the order of their names, whoever made them."""
    found = [
        policy_state(item)
        for plural in KINDS
        for item in api.get(f"/apis/{GROUP}/v2/{plural}").get("items", ())
    ]
    return sorted(found)


def judged(
    api: Api, patience: float, settle: float, pause: Callable[[float], None] = time.sleep
) -> list[Policy]:
    """Return all policies once Cilium has said of each whether it takes it.

    Args:
        api: the cluster.
        patience: seconds to wait for it to speak.
        settle: seconds after which it is asked again: the condition of a policy that was changed a moment
            ago may still be that of its former text, and nothing in it says which one it is about.
        pause: how to wait.
    """
    _until(lambda: all(policy.valid is not None for policy in look(api)), patience, pause)
    pause(settle)
    return look(api)


def rejections(policies: Sequence[Policy]) -> list[str]:
    """Return one sentence for each policy that protects nobody."""
    silent = "Cilium's operator has not looked at it"
    return [
        f"{policy.name}: {policy.message if policy.valid is False else silent}"
        for policy in policies
        if not policy.valid
    ]


def policy_state(item: Object) -> Policy:
    """Return what Cilium's operator says of one policy, as the API gives it."""
    metadata = item["metadata"]
    # Items of a list have no kind of their own.
    kind = KINDS["ciliumnetworkpolicies" if metadata.get("namespace") else "ciliumclusterwidenetworkpolicies"]
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    for condition in (item.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Valid":
            return Policy(
                f"{kind} {name}", condition.get("status") == "True", str(condition.get("message", ""))
            )
    return Policy(f"{kind} {name}", None, "")


def _unknown(api: Api) -> list[str]:
    unknown = []
    for plural, kind in KINDS.items():
        definition = api.find(f"{_DEFINITIONS}/{plural}.{GROUP}") or {}
        conditions = (definition.get("status") or {}).get("conditions") or ()
        if not any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
            unknown.append(kind)
    return unknown


def _until(condition: Callable[[], bool], patience: float, pause: Callable[[float], None]) -> None:
    waited = 0.0
    while not condition() and waited < patience:
        pause(POLL_S)
        waited += POLL_S
