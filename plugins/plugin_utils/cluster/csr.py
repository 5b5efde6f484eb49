# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Approves the kubelets' requests for serving certificates, if they are who the inventory says.

Nothing in Kubernetes approves these by itself: a node could ask for any name. Here a request is approved
when the node asks for itself, under its own name, for exactly the name and address the inventory gives it, to
serve and nothing else; anything else is denied, with the reason in the request's own conditions.
"""

from __future__ import annotations

import base64
import binascii
import concurrent.futures
import datetime
import time
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.profiles import JOINING_GROUP
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.signing_requests import checked_request

SIGNER = "kubernetes.io/kubelet-serving"
_PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_USER_PREFIX = "system:node:"
_NODES = "system:nodes"
_NEEDED_USAGES = frozenset({"digital signature", "server auth"})
_ALLOWED_USAGES = _NEEDED_USAGES | {"key encipherment"}
"""The kubelet-serving signer's rules: key encipherment only for RSA keys, and never client auth."""
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
_POLL_SECONDS = 0.5
_PROBE_SECONDS = 5.0
_PARALLEL = 16


class Verdict(t.NamedTuple):
    """What was decided about one request. ``reason`` is empty when it was approved."""

    request: str
    node: str
    reason: str


class Outcome(t.NamedTuple):
    """What a round of approvals did and whom it still waits for.

    ``joining`` are those who joined lately, ``unsigned`` those whose approved request nobody signed yet.
    """

    approved: list[Verdict]
    denied: list[Verdict]
    waiting: list[str]
    joining: Sequence[str] = ()
    unsigned: Sequence[str] = ()


def refusal(request: Object, nodes: Mapping[str, Sequence[str]]) -> str:
    """Compare a pending request with the inventory.

    Args:
        request: the CertificateSigningRequest.
        nodes: node name -> its addresses, from the inventory.

    Returns:
        Why it must be denied, "" when it is right.
    """
    spec = request["spec"]
    user = str(spec.get("username", ""))
    name = user.removeprefix(_USER_PREFIX)
    if not user.startswith(_USER_PREFIX) or _NODES not in spec.get("groups", ()):
        return f"the requestor {user!r} is not a node"
    if name not in nodes:
        return f"no host {name!r} is in the inventory's groups control_plane and nodes"
    usages = frozenset(spec.get("usages", ()))
    if not _NEEDED_USAGES <= usages <= _ALLOWED_USAGES:
        return f"it asks for the usages {', '.join(sorted(usages))}"
    try:
        pem = base64.b64decode(spec["request"], validate=True)
        checked_request(
            pem,
            {"common_name": user, "organizations": [_NODES], "dns": [name], "ips": list(nodes[name])},
        )
    except (binascii.Error, KeyError, PkiError) as error:
        return error.message if isinstance(error, PkiError) else "it holds no request"
    return ""


def approve_pending(api: Api, nodes: Mapping[str, Sequence[str]], *, dry_run: bool = False) -> Outcome:
    """Decide about every pending request for a serving certificate, once.

    Args:
        api: the cluster.
        nodes: node name -> its addresses.
        dry_run: decide, but tell nobody.

    Returns:
        What was decided; ``waiting`` names nodes with no approved request that the cluster still remembers
        from their present life (since they last joined).
    """
    approved: list[Verdict] = []
    denied: list[Verdict] = []
    served: set[str] = set()
    signed: set[str] = set()
    requests = api.get(_PATH)["items"]
    joined = _joined(requests)
    for request in requests:
        if request["spec"]["signerName"] != SIGNER:
            continue
        node = str(request["spec"].get("username", "")).removeprefix(_USER_PREFIX)
        conditions = {condition["type"] for condition in request.get("status", {}).get("conditions", ())}
        if not conditions:
            reason = refusal(request, nodes)
            verdict = Verdict(request["metadata"]["name"], node, reason)
            if not dry_run and not _decide(api, request, verdict):
                continue
            (denied if reason else approved).append(verdict)
            conditions = {"Denied" if reason else "Approved"}
        # Of a node that was reset and joined again, requests of its former life are still there.
        outlived = request["metadata"]["creationTimestamp"] < joined.get(node, "")
        if "Approved" in conditions and "Failed" not in conditions and not outlived:
            served.add(node)
            if request.get("status", {}).get("certificate"):
                signed.add(node)
    waiting = [name for name in nodes if name not in served]
    refused = {verdict.node for verdict in denied}
    joining = [name for name in waiting if name in joined and name not in refused]
    unsigned = tuple(name for name in nodes if name in served - signed)
    return Outcome(approved, denied, waiting, joining, unsigned)


def _joined(requests: Sequence[Object]) -> dict[str, str]:
    """Return when each node last joined: when it asked for its own client certificate with that of a join."""
    joined: dict[str, str] = {}
    for request in requests:
        spec = request["spec"]
        if spec["signerName"] == _CLIENT_SIGNER and JOINING_GROUP in spec.get("groups", ()):
            node = str(spec.get("username", "")).removeprefix(_USER_PREFIX)
            joined[node] = max(joined.get(node, ""), request["metadata"]["creationTimestamp"])
    return joined


def serves(api: Api, node: str) -> bool:
    """Tell whether the API reaches a node's kubelet, which needs a serving certificate for that.

    The cluster forgets approved requests after an hour, so a node that joined earlier is known by this.
    """
    try:
        api.request("GET", f"/api/v1/nodes/{node}/proxy/healthz", timeout=5, patience=0)
    except ClusterError:
        return False
    return True


def approve_until_all_serve(
    api: Api,
    nodes: Mapping[str, Sequence[str]],
    wanted: Sequence[str],
    seconds: float,
    progress: t.Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Approve requests as they come until every wanted node has a serving certificate.

    Signed, and not only approved: then the cluster's signer runs, and a kubelet that joins gets its client
    certificate at once. One that must wait for it asks for services in vain meanwhile and comes back to its
    first pods only some 15 s later.

    Args:
        api: the cluster.
        nodes: node name -> its addresses; all of the inventory.
        wanted: the nodes to wait for.
        seconds: how long to wait.
        progress: told whenever the set of nodes still missing gets smaller.

    Returns:
        All decisions; ``waiting`` is empty.

    Raises:
        ClusterError: time is over, or a wanted node's request was denied; names the nodes and the reasons.
    """
    approved: list[Verdict] = []
    denied: list[Verdict] = []
    end = time.monotonic() + seconds
    served: set[str] = set()
    missing = list(wanted)
    next_probe = 0.0
    while True:
        outcome = approve_pending(api, nodes)
        approved += outcome.approved
        denied += outcome.denied
        served.update(name for name in nodes if name not in {*outcome.waiting, *outcome.unsigned})
        before = len(missing)
        missing = [name for name in wanted if name not in served]
        refused = [verdict for verdict in denied if verdict.node in missing]
        if refused:
            raise ClusterError(
                "; ".join(
                    f"The request of {verdict.node} was denied: {verdict.reason}" for verdict in refused
                ),
                "Make the inventory and the host agree (site_address, host name), then restart its kubelet.",
            )
        if missing and not outcome.approved and time.monotonic() >= next_probe:
            served.update(_serving(api, missing))
            missing = [name for name in missing if name not in served]
            next_probe = time.monotonic() + _PROBE_SECONDS
        if len(missing) < before:
            progress(f"{len(wanted) - len(missing)} of {len(wanted)} kubelets have a serving certificate")
        if not missing:
            return Outcome(approved, denied, [])
        if time.monotonic() > end:
            raise _late(seconds, missing, outcome.unsigned)
        time.sleep(_POLL_SECONDS)


def _late(seconds: float, missing: Sequence[str], unsigned: Sequence[str]) -> ClusterError:
    silent = [name for name in missing if name not in unsigned]
    if silent:
        return ClusterError(
            f"After {seconds:.0f} s no request for a serving certificate came from {', '.join(silent)}.",
            "Look at the kubelet's log there: journalctl -u kubelet (serverTLSBootstrap must be true).",
        )
    return ClusterError(
        f"After {seconds:.0f} s nobody has signed the approved certificate of {', '.join(missing)}.",
        "Look at what signs them: kubectl -n kube-system logs -l component=kube-controller-manager",
    )


def finish_joins(
    api: Api,
    nodes: Mapping[str, Sequence[str]],
    seconds: float,
    progress: t.Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Decide about what is pending, and see those joins through that an interrupted run left without this.

    Args:
        api: the cluster.
        nodes: node name -> its addresses; all of the inventory.
        seconds: how long to wait for the requests of nodes that joined lately.
        progress: see ``approve_until_all_serve``.

    Returns:
        All decisions.

    Raises:
        ClusterError: as ``approve_until_all_serve``.
    """
    outcome = approve_pending(api, nodes)
    late = [name for name in outcome.joining if api.find(f"/api/v1/nodes/{name}") is not None]
    if not late:
        return outcome
    rest = approve_until_all_serve(api, nodes, late, seconds, progress)
    return Outcome(outcome.approved + rest.approved, outcome.denied + rest.denied, [])


def _serving(api: Api, names: Sequence[str]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        answers = pool.map(lambda name: serves(api, name), names)
        return [name for name, answer in zip(names, answers, strict=True) if answer]


def _decide(api: Api, judged: Object, verdict: Verdict) -> bool:
    """Write the decision into the request; False when someone else decided first or it is another one now.

    What is sent is the request that was judged, with its UID and version, and it is not read again: one that
    was deleted meanwhile and recreated under its name is refused by the API server, and judged next time.
    """
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    condition = {
        "type": "Denied" if verdict.reason else "Approved",
        "status": "True",
        "reason": "DiffersFromInventory" if verdict.reason else "MatchesInventory",
        "message": f"ironspan: {verdict.reason or 'name, address and usages are those of the inventory'}",
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    }
    body = {
        **judged,
        # Items of a list come without these.
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "status": {**judged.get("status", {}), "conditions": [condition]},
    }
    try:
        api.put(f"{_PATH}/{verdict.request}/approval", body)
    except ApiError as error:
        if error.status in (404, 409):
            return False
        raise
    return True
