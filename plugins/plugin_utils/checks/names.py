# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names of hosts, labels and taints, by the rules of DNS and Kubernetes.

Sources: RFC 1123 section 2.1 (host names); Kubernetes documentation, "Object Names and IDs" (a node name is a
DNS subdomain), "Labels and Selectors, Syntax and character set", "Taints and Tolerations".
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.facts import LABELS as MEASURED
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import address_of, owners_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import is_taken_for_address

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
# kubernetes.io/hostname carries the node name, and a label value has at most 63 characters.
_LONGEST_NODE_NAME = 63
_LONGEST_SUBDOMAIN = 253
_WRITTEN_OUT = re.compile(r"[0-9]+(\.[0-9]+){3}")
"""An address that reads as one: hosts are named like theirs in small sites."""
_NAME_RULE = "letters, digits, '-', '_' or '.', with a letter or digit at both ends"
_OWNED_LABELS = ("kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os")
_CONDITIONS = tuple(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
        "unschedulable",
    )
)
"""k8s.io/api, core/v1, well_known_taints.go: what the node lifecycle controller writes."""
OURS = "ironspan.io"
POOL = "ironspan.io/pool"
"""Of the inventory of Azure's machines (azure/machines.py)."""


def is_label(name: str) -> bool:
    """Tell whether a name is an RFC 1123 label in lower case, as Kubernetes wants it."""
    return _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Tell whether a name is one or more labels separated by dots."""
    return len(name) <= _LONGEST_SUBDOMAIN and all(is_label(part) for part in name.split("."))


def key_problem(key: str) -> str:
    """Return what is wrong with the key of a label or taint, an empty text when nothing is."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return f"the prefix {prefix!r} is not a DNS name in lower case"
    if not _QUALIFIED_NAME.fullmatch(name):
        return f"the name {name!r} is not 1 to 63 {_NAME_RULE}"
    return ""


def value_problem(value: str) -> str:
    """Return what is wrong with the value of a label or taint, an empty text when nothing is."""
    if value and not _QUALIFIED_NAME.fullmatch(value):
        return f"the value {value!r} is not up to 63 {_NAME_RULE}"
    return ""


def corrected(name: str) -> str:
    """Return a name like this one that is a label."""
    better = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    return better[:63].strip("-") or "host-1"


def _with_letters(name: str) -> str:
    """Return a name like this one whose last part is no number."""
    before, dot, last = name.rpartition(".")
    return f"{before}{dot}node-{last}"


def check_host_names(draft: Draft) -> None:
    """A host's inventory name becomes its node name."""
    seen: dict[str, str] = {}
    owners = owners_of(draft)
    for name in draft.hosts:
        place = draft.host_place(name)
        path = f"hosts.{name}"
        if not is_subdomain(name) or len(name) > _LONGEST_NODE_NAME:
            better = ".".join(corrected(part) for part in name.split("."))[:_LONGEST_NODE_NAME]
            draft.problems.add(
                place,
                path,
                "is no valid node name: lower-case letters, digits and '-', at most 63 characters (RFC 1123)",
                f"write {better}",
            )
        if name in ("localhost", "127.0.0.1", "::1"):
            draft.problems.add(
                place,
                path,
                "is the machine that Ansible runs on",
                "give hosts of the site names of their own",
            )
        elif is_taken_for_address(name) and not _WRITTEN_OUT.fullmatch(name):
            draft.problems.add(
                place,
                path,
                "is an address to every resolver, because its last part is a number",
                f"write a name with letters there, for example {_with_letters(name)}",
            )
        elif (owner := owners.get(name)) is not None and owner.name != name:
            draft.problems.add(
                place,
                path,
                f"is the address of host {owner.name}",
                f"write {address_of(draft.hosts[name])}, or a name",
            )
        folded = name.lower()
        if folded in seen:
            draft.problems.add(
                place, path, f"is the same name as {seen[folded]} to DNS", "give every host its own name"
            )
        seen.setdefault(folded, name)
        if name in draft.inventory.group_layers:
            draft.problems.add(
                place, path, "a group has the same name", "give the host or the group another name"
            )


def check_site_names(draft: Draft) -> None:
    """Names of the site and of its DNS domain."""
    name = draft.site_value("site_name")
    if isinstance(name, str) and name and not is_label(name):
        draft.problems.add(
            draft.site_place("site_name"),
            "site_name",
            f"{name!r} is not a name of lower-case letters, digits and '-' (RFC 1123)",
            f"write {corrected(name)}",
        )
    domain = draft.site_value("site_cluster_domain")
    if isinstance(domain, str) and (not is_subdomain(domain) or is_taken_for_address(domain)):
        draft.problems.add(
            draft.site_place("site_cluster_domain"),
            "site_cluster_domain",
            f"{domain!r} is not a DNS domain in lower case",
            "write a domain such as cluster.local",
        )


def check_labels(draft: Draft) -> None:
    """Labels of nodes."""
    for host in draft.hosts.values():
        for variable in ("site_labels", "site_measured_labels"):
            labels = host.values.get(variable)
            for key, value in labels.items() if isinstance(labels, dict) else ():
                _check_label(draft, host, variable, key, value)


def _check_label(draft: Draft, host: HostDraft, variable: str, key: t.Any, value: t.Any) -> None:
    place = draft.inner_place(host, variable, key)
    path = f"{variable}.{key}"
    problem = key_problem(str(key))
    if problem:
        draft.problems.add(place, path, problem, "write a key such as example.com/rack-row")
    if key in _OWNED_LABELS:
        draft.problems.add(place, path, "belongs to the kubelet, which sets it itself", "remove it")
    elif str(key).partition("/")[0].endswith(OURS) and key not in (*MEASURED, POOL):
        message = f"labels of {OURS} are set by ironspan, or mean nothing"
        draft.problems.add(
            place, path, message, "write a key of your own domain, such as example.com/rack-row"
        )
    if not isinstance(value, str):
        is_one = isinstance(value, bool | int | float)
        remedy = f'write it in quotes: "{str(value).lower()}"' if is_one else 'write one text, "" for none'
        draft.problems.add(place, path, f"the value {value} is not text", remedy)
    elif problem := value_problem(value):
        draft.problems.add(place, path, problem, "write a shorter or simpler value")


def check_taints(draft: Draft) -> None:
    """Taints of nodes; one key and effect may be there once."""
    for host in draft.hosts.values():
        taints = host.values.get("site_taints")
        if not isinstance(taints, list):
            continue
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(taints):
            if not isinstance(taint, dict) or not isinstance(taint.get("key"), str):
                continue
            place = draft.inner_place(host, "site_taints", index)
            path = f"site_taints[{index}]"
            key, value = taint["key"], taint.get("value") or ""
            if key in _CONDITIONS:
                message = f"{key} is set and taken away by Kubernetes, as the state of the node is"
                draft.problems.add(place, path, message, "write a key of your own domain")
            if key.partition("/")[0].endswith(OURS):
                message = f"taints of {OURS} are set and taken away while the site runs"
                draft.problems.add(place, path, message, "write a key of your own domain")
            for problem in (key_problem(key), value_problem(str(value))):
                if problem:
                    draft.problems.add(
                        place, path, problem, "write for example {key: nvidia.com/gpu, effect: NoSchedule}"
                    )
            pair = (key, str(taint.get("effect")))
            if pair in seen:
                draft.problems.add(
                    place, path, f"{key} with effect {pair[1]} is there twice", "write each pair once"
                )
            seen.add(pair)


CHECKS = (
    check_host_names,
    check_site_names,
    check_labels,
    check_taints,
)
