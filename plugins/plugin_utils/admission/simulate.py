# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Asks the API server itself what policies would say of the pods that are there, before they are in force.

The server judges by policies that it has, so it gets copies of them that apply to nothing but objects with a
label that nobody else knows. Then a copy of every pod, with this label, is sent as a dry run to the namespace
it is in. Nobody else's requests are judged meanwhile, and nothing but the copies of the policies is written.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import secrets
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.expressions import MIRROR
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.objects import (
    API_VERSION,
    WITHOUT_IT,
    Object,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import SYSTEM_EXEMPTIONS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.surroundings import DEFAULT_DENY
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import Paths

PREFIX = "ironspan-try-"
COMPONENT = {"app.kubernetes.io/managed-by": "ironspan", "app.kubernetes.io/component": "admission-try"}
KINDS = (
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "mutatingadmissionpolicies",
)
"""Where the API keeps policies; bindings first, so that what is deleted in this order ends at once."""
_NONCE = "ironspan.io/admission-try"
_MARK = "ironspan.io/admission-tried"
_SECONDS = 60
_PAGE = "500"
_ORDINARY_PODS = 300
"""How many pods that are not the system's are tried; what makes many of the same is tried once."""
_DENIED = re.compile(
    rf"ValidatingAdmissionPolicy '{PREFIX}\S+' with binding '(?P<binding>\S+)' "
    "denied request: (?P<reason>.*)",
    re.S,
)


class Refused(t.NamedTuple):
    """A pod that could not be made again."""

    pod: str
    """NAMESPACE/NAME."""
    reason: str


class Outcome(t.NamedTuple):
    """What would be refused: pods that the cluster itself needs, and others."""

    system: list[Refused]
    others: list[Refused]
    tried: int
    left_out: int


def check_expressions(api: Api, objects: Sequence[Object]) -> None:
    """Have the API server compile every expression, without keeping anything.

    Raises:
        ClusterError: it refuses one; all that it refuses are named.
    """
    paths, problems = Paths(api), []
    for item in objects:
        try:
            api.apply(paths.of(item), item, dry_run=True)
        except ApiError as error:
            problems.append(f"{item['kind']} {item['metadata']['name']}: {error.args[0]}")
    if problems:
        raise ClusterError(
            "The API server does not take these admission policies: " + "\n".join(problems),
            "Nothing was changed. Use Kubernetes 1.36 or later, or set the rule's scope to nowhere.",
        )


def simulate(
    api: Api, objects: Sequence[Object], progress: Callable[[str], None] = lambda text: None
) -> Outcome:
    """Try policies against the pods that are there.

    Args:
        api: the cluster.
        objects: policies and bindings, none of which need be in the cluster.
        progress: told what goes on.

    Returns:
        Which pods could not be made again.

    Raises:
        ClusterError: the copies of the policies do not come into force.
    """
    pods, left_out = _chosen(_live_pods(api))
    progress(f"trying the admission policies on {len(pods)} pods")
    with _copies_in_force(api, objects) as nonce:
        system: list[Refused] = []
        others: list[Refused] = []
        for pod in pods:
            reason = _verdict(api, _copy(pod, nonce))
            if reason:
                name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                (system if is_system(pod) else others).append(Refused(name, reason))
        if not _canary(api, nonce):
            raise ClusterError(
                "The copies of the admission policies went out of force while they were tried.",
                "Somebody deleted them, or another API server answers: run it again.",
            )
    return Outcome(system, others, len(pods), left_out)


def insist_on_no_lock_out(outcome: Outcome) -> None:
    """Refuse policies that the cluster's own pods do not pass.

    Raises:
        ClusterError: at least one could not be made again.
    """
    if outcome.system:
        found = "\n".join(f"  {refused.pod}: {refused.reason}" for refused in outcome.system)
        raise ClusterError(
            f"The admission policy would lock out pods that the cluster needs:\n{found}",
            "Nothing was changed. Exempt their namespace from these rules in the policy file.",
        )


def is_system(pod: Object) -> bool:
    """Tell whether the cluster needs a pod: by its namespace, or by its priority."""
    spaces = {entry.namespace for entry in SYSTEM_EXEMPTIONS}
    priority = str(pod["spec"].get("priorityClassName", ""))
    return pod["metadata"]["namespace"] in spaces or priority.startswith("system-")


def _live_pods(api: Api) -> Iterator[Object]:
    token = ""
    while True:
        query = {"limit": _PAGE, **({"continue": token} if token else {})}
        page = api.get("/api/v1/pods", **query)
        yield from page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return


def _chosen(pods: Iterator[Object]) -> tuple[list[Object], int]:
    """Return one pod of each owner, all of the system's owners, and how many of the others are left out."""
    found: dict[tuple[str, str], Object] = {}
    for pod in pods:
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            continue
        owners = pod["metadata"].get("ownerReferences", [])
        owner = next((entry["uid"] for entry in owners if entry.get("controller")), pod["metadata"]["name"])
        found.setdefault((pod["metadata"]["namespace"], owner), pod)
    others = [pod for pod in found.values() if not is_system(pod)]
    system = [pod for pod in found.values() if is_system(pod)]
    return system + others[:_ORDINARY_PODS], max(0, len(others) - _ORDINARY_PODS)


def _copy(pod: Object, nonce: str) -> Object:
    """Return a pod as it would be made again: without what the scheduler, the kubelet and debuggers add."""
    metadata = pod["metadata"]
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if key != MIRROR}
    spec = copy.deepcopy(pod["spec"])
    for field in ("nodeName", "ephemeralContainers", "schedulingGates"):
        spec.pop(field, None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{PREFIX}{secrets.token_hex(4)}",
            "namespace": metadata["namespace"],
            "labels": {**metadata.get("labels", {}), _NONCE: nonce},
            "annotations": annotations,
        },
        "spec": spec,
    }


def _verdict(api: Api, body: Object) -> str:
    """Return why the copies of the policies refuse something, nothing for what others have against it."""
    try:
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/{body['kind'].lower()}s"
        api.request("POST", path, body, query={"dryRun": "All"})
    except ApiError as error:
        found = _DENIED.search(str(error))
        if found and found["binding"] == f"{PREFIX}{WITHOUT_IT}" and "no params found" in found["reason"]:
            return f"its namespace has no network policy {DEFAULT_DENY}: make it first (rule network_policy)"
        return found["reason"].rpartition(" (HTTP")[0] if found else ""
    return ""


@contextlib.contextmanager
def _copies_in_force(api: Api, objects: Sequence[Object]) -> Iterator[str]:
    nonce = secrets.token_hex(8)
    remove(api)
    try:
        paths = Paths(api)
        for item in (*_tried(objects, nonce), *_sentinels(nonce)):
            api.apply(paths.of(item), item)
        if rollouts.until(lambda: [] if _canary(api, nonce) else ["not in force"], _SECONDS, pause=0.2):
            raise ClusterError(
                f"After {_SECONDS} s the API server does not judge by a policy that it has.",
                "Look for errors about admission policies in its log.",
            )
        yield nonce
    finally:
        remove(api)


def remove(
    api: Api, selector: t.Mapping[str, str] = COMPONENT, keep: t.Container[tuple[str, str]] = ()
) -> list[str]:
    """Delete admission policies.

    Args:
        api: the cluster.
        selector: labels of those to delete.
        keep: kind and name of those that stay.

    Returns:
        Kind and name of those that were there.
    """
    gone = []
    for kind, name, path in found(api, selector):
        if (kind, name) not in keep and api.delete(path):
            gone.append(f"{kind} {name}")
    return gone


def found(api: Api, selector: t.Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return kind, name and path of the admission policies and bindings that have these labels."""
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    listed = []
    for plural in KINDS:
        base = f"/apis/{API_VERSION}/{plural}"
        page = api.get(base, labelSelector=labels)
        kind = str(page["kind"]).removesuffix("List")
        names = [str(item["metadata"]["name"]) for item in page["items"]]
        listed += [(kind, name, f"{base}/{name}") for name in names]
    return listed


def _tried(objects: Sequence[Object], nonce: str) -> Iterator[Object]:
    """Yield copies of what decides about pods, for those with the label only."""
    for item in objects:
        made: Object = json.loads(json.dumps(item))
        spec = made["spec"]
        made["metadata"] = {"name": PREFIX + item["metadata"]["name"], "labels": dict(COMPONENT)}
        if "policyName" in spec:
            if spec.get("validationActions", ["Deny"])[0] != "Deny":
                continue
            spec["policyName"] = PREFIX + spec["policyName"]
            spec.setdefault("matchResources", {})["objectSelector"] = {"matchLabels": {_NONCE: nonce}}
            if "validationActions" in spec:
                spec["validationActions"] = ["Deny"]
        yield made


def _sentinels(nonce: str) -> list[Object]:
    """Return two more policies, made last: once both are in force, so are all."""
    maps = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec: Object = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [maps],
            "objectSelector": {"matchLabels": {_NONCE: nonce, _MARK: "no"}},
        },
    }
    mutation = (
        f"[JSONPatch{{op: 'replace', path: '/metadata/labels/{jsonpatch_escaped(_MARK)}', value: 'yes'}}]"
    )
    mutating = {
        **spec,
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": mutation}}],
    }
    match = {**spec["matchConstraints"], "objectSelector": {"matchLabels": {_NONCE: nonce, _MARK: "yes"}}}
    validating = {
        **spec,
        "matchConstraints": match,
        "validations": [{"expression": "false", "message": "canary"}],
    }
    name = f"{PREFIX}zz-canary"
    return [
        _object("MutatingAdmissionPolicy", name, mutating),
        _object("MutatingAdmissionPolicyBinding", name, {"policyName": name}),
        _object("ValidatingAdmissionPolicy", name, validating),
        _object(
            "ValidatingAdmissionPolicyBinding", name, {"policyName": name, "validationActions": ["Deny"]}
        ),
    ]


def jsonpatch_escaped(key: str) -> str:
    """Return a key as a JSON pointer has it (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _canary(api: Api, nonce: str) -> bool:
    """Tell whether the sentinels are in force: one marks what is sent, the other refuses it for the mark."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{PREFIX}{secrets.token_hex(4)}",
            "namespace": "kube-system",
            "labels": {_NONCE: nonce, _MARK: "no"},
        },
    }
    return _verdict(api, body) == "canary"


def _object(kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "labels": dict(COMPONENT)},
        "spec": spec,
    }
