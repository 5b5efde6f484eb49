# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Puts a plan together from what hosts and cluster answered."""

from __future__ import annotations

import json
import math
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import PlanError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations import SITE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import estimate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.content import (
    SCHEMA,
    Content,
    Plan,
    digest_of,
    pooled,
    seal,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.texts import texts_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import CONSENTED, EFFECTS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import CLUSTER_OBJECT, Site

_INTERRUPTING = ("restart", "stop")


def host_entry(document: Mapping[str, t.Any], answer: Mapping[str, t.Any], mirror: str) -> Content:
    """Return what an assessment says of one host, for the plan.

    Args:
        document: what the host was compared with.
        answer: the module's result, made with diffs.
        mirror: base URL of the mirror it fetches from.
    """
    resources = {resource["id"]: resource for resource in document["resources"]}
    texts = texts_of(answer.get("diff") or ())
    changes = [
        {**change, **({"text": texts[change["resource"]]} if change["resource"] in texts else {})}
        for change in answer.get("changes") or ()
    ]
    pending = list(answer.get("pending") or ())
    units = [
        (str(resources.get(change["resource"], {}).get("name", change["resource"])), change["action"])
        for change in changes
        if change["kind"] == "systemd_unit"
    ]
    touched = [entry["resource"] for entry in (*changes, *pending)]
    layers = estimate.by_layer(resources, dict.fromkeys(touched))
    return {
        "document": dict(document),
        "digest": answer["digest"],
        "fingerprint": answer["fingerprint"],
        "mirror": mirror,
        "changes": changes,
        "pending": [
            {**entry, "kind": str(resources.get(entry["resource"], {}).get("kind"))} for entry in pending
        ],
        "interrupts": [unit for unit, action in units if action in _INTERRUPTING],
        "starts": [unit for unit, action in units if action not in _INTERRUPTING],
        "seconds": math.ceil(sum(layers.values())),
        "layer_seconds": {layer: math.ceil(seconds) for layer, seconds in layers.items()},
        "left": [f"{e['resource']} ({e['why']})" for e in answer.get("rollback", {}).get("left", ())],
    }


def inventory_digest(site: Site) -> str:
    """Return the SHA-256 of everything that the inventory says of the site's hosts.

    Groups that a run makes of its own accord, all called ``ironspan_...``, are not the inventory's.
    """
    return digest_of(
        {
            name: [
                host.address,
                host.ansible_host,
                [group for group in host.groups if not group.startswith("ironspan_")],
                json.loads(_json(dict(host.variables))),
            ]
            for name, host in site.hosts.items()
        }
    )


def _json(value: t.Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)


def build(
    site: Site,
    hosts: Mapping[str, Content],
    cluster: Content,
    now: int,
    left_out: Sequence[str] = (),
    forks: int = 50,
    operation: Content | None = None,
    remote: Sequence[Content] = (),
) -> Plan:
    """Return the plan.

    Args:
        site: from the inventory.
        hosts: host name to its entry.
        cluster: objects, nodes, and how they differ.
        now: seconds since 1970.
        left_out: hosts that were asked and gave no usable answer.
        forks: how many hosts are worked on at the same time.
        operation: ``name``, ``arguments``, ``bound`` (the state it is for) and ``steps``; what site.yml does
            when left out.
        remote: remote things, as they were compared.

    Raises:
        PlanError: there is nothing to plan, or a document holds a private key.
    """
    operation = operation or {"name": SITE, "steps": []}
    steps = operation["steps"]
    if not hosts and operation["name"] == SITE:
        raise PlanError("no host could be compared with its document", "fix what the run says above")
    pool: dict[str, t.Any] = {}
    entries = {
        name: {**entry, "document": pooled(entry["document"], pool)} for name, entry in sorted(hosts.items())
    }
    seconds = [entry.pop("layer_seconds") for entry in entries.values()]
    kept = {name: left for name, entry in entries.items() if (left := entry.pop("left", []))}
    busy = [entry for entry in entries.values() if entry["changes"] or entry["pending"]]
    content: Content = {
        "schema": SCHEMA,
        "site": {"name": site.name, "uid": site.uid},
        "created": now,
        "expires": now + int(site.plan.expires_hours * 3600),
        "inventory": inventory_digest(site),
        "policy": {
            "approvals": site.plan.approvals,
            "unapproved_kinds": sorted(site.plan.unapproved_kinds),
        },
        "operation": operation["name"],
        "arguments": operation.get("arguments", {}),
        "bound": operation.get("bound", {}),
        "steps": steps,
        "resources": pool,
        "hosts": entries,
        "cluster": cluster,
        "remote": list(remote),
        "left_out": sorted(left_out),
        "summary": {
            "hosts": len(entries),
            "hosts_changing": len(busy),
            "changes": sum(len(entry["changes"]) for entry in busy),
            "pending": sum(len(entry["pending"]) for entry in busy),
            "cluster_changes": len(cluster["changes"]),
            "remote_changes": sum(len(thing["steps"]) for thing in remote),
            "interrupts": sum(len(entry["interrupts"]) for entry in busy),
            "reboots": len(_reboots(entries)),
            "steps": len(steps),
            "seconds": estimate.of_site([layers for layers in seconds if layers], forks)
            + sum(step["seconds"] for step in steps)
            + estimate.of_things(remote),
            "seconds_source": estimate.SOURCE,
        },
        "warnings": [
            *_destructions(steps),
            *_remote_warnings(remote),
            *_warnings(entries, cluster, left_out),
            *(f"{name} does not go back in: {', '.join(left)}." for name, left in kept.items()),
        ],
    }
    plan = seal(content)
    if b"PRIVATE KEY-----" in plan.data:
        raise PlanError(
            "a document or object of this plan holds a private key, and a plan is read by many",
            "give it to the host as a secret, see the resource kind 'file'",
        )
    return plan


def _destructions(steps: Sequence[Content]) -> list[str]:
    gone = [str(step["what"]) for step in steps if step["destructive"]]
    return [f"Cannot be undone: {'; '.join(gone)}."] if gone else []


def _remote_warnings(remote: Sequence[Content]) -> list[str]:
    risky = [
        f"{step['what']} ({', '.join(EFFECTS[effect] for effect in step['effects'] if effect in CONSENTED)})"
        for thing in remote
        for step in thing["steps"]
        if CONSENTED & set(step["effects"])
    ]
    faults = [f"{thing['kind']} {thing['name']}: {thing['fault']}" for thing in remote if thing["fault"]]
    return [
        *([f"Needs consent: {'; '.join(risky)}."] if risky else []),
        *(f"Left alone: {fault}." for fault in faults),
    ]


def _warnings(entries: Mapping[str, Content], cluster: Content, left_out: Sequence[str]) -> list[str]:
    warnings = []
    if left_out:
        names = ", ".join(sorted(left_out))
        warnings.append(
            f"Not in this plan, because unreachable or unfit: {names}. Applying it leaves them alone."
        )
    if cluster["state"] != "compared":
        warnings.append(f"Objects of the cluster were not compared: {cluster['state']}")
    if lost := lost_in_the_cluster({"cluster": cluster}):
        warnings.append(f"Needs consent, because what is in brackets is lost: {', '.join(lost)} deleted.")
    refused = cluster.get("refused") or []
    if refused:
        warnings.append(
            f"These run on, and could not be made again under the Pod Security level that begins with this: "
            f"{'; '.join(refused[:20])}{f'; and {len(refused) - 20} more' if len(refused) > 20 else ''}. "
            "Fix them, or exempt their namespaces in the policy file."
        )
    for unit, what in (
        ("kubelet.service", "nodes are unready for a moment"),
        ("containerd.service", "containers keep running, none starts meanwhile"),
    ):
        hosts = [name for name, entry in entries.items() if unit in entry["interrupts"]]
        if hosts:
            warnings.append(f"{unit} restarts on {len(hosts)} hosts ({what}): {', '.join(hosts[:20])}.")
    reboots = _reboots(entries)
    for reason in sorted({reason for reasons in reboots.values() for reason in reasons}):
        hosts = [name for name, reasons in reboots.items() if reason in reasons]
        warnings.append(
            f"Takes effect with the next boot of {', '.join(hosts[:20])} ({reason}). Nodes are "
            "rebooted in waves by `ironspan upgrade NODE ...` only; ironspan doctor names those that wait."
        )
    return warnings


def _reboots(entries: Mapping[str, Content]) -> dict[str, list[str]]:
    """Return why hosts are to be rebooted after this plan, by their names."""
    reasons = {
        name: [
            str(change["after"]["because"])
            for change in entry["changes"]
            if change["kind"] == "reboot_request" and "because" in change["after"]
        ]
        for name, entry in entries.items()
    }
    return {name: found for name, found in reasons.items() if found}


def kinds_of(content: Mapping[str, t.Any]) -> set[str]:
    """Return the kinds of everything that a plan says it changes.

    ``cluster_object`` stands for objects of the cluster, the name of the operation for its steps, and each
    kind of remote things for itself. What is
    really done is held against this where it is done (listed.py).
    """
    kinds = {
        str(entry["kind"])
        for host in content["hosts"].values()
        for entry in (*host["changes"], *host["pending"])
    }
    if content["cluster"]["changes"]:
        kinds.add(CLUSTER_OBJECT)
    if content["steps"]:
        kinds.add(str(content["operation"]))
    return kinds | {str(thing["kind"]) for thing in content["remote"] if thing["steps"]}


def needs_consent(content: Mapping[str, t.Any]) -> bool:
    """Tell whether a plan does something that is asked about once more where it is applied."""
    steps = [step for thing in content["remote"] for step in thing["steps"]]
    return (
        any(step["destructive"] for step in content["steps"])
        or any(CONSENTED & set(step["effects"]) for step in steps)
        or bool(lost_in_the_cluster(content))
    )


def lost_in_the_cluster(content: Mapping[str, t.Any]) -> list[str]:
    """Return the objects whose deletion takes data or somebody's access with it."""
    lines = content["cluster"]["changes"]
    return [f"{line['name']} ({line['loss']})" for line in lines if line.get("loss")]
