# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Entries for the forward proxy, and the namespaces that network policies close."""

from __future__ import annotations

import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import egress
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.egress_names import proxied_name
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.entry import Entry, entries
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.values import Rejected

ALLOW, NAMESPACES, IMAGE, PROXIES = (
    "egress_allow",
    "egress_namespaces",
    "egress_policy_image",
    "egress_proxy",
)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+(:[\w.-]+)?@sha256:[0-9a-f]{64}")
_SYSTEM = ("kube-system", "kube-flannel", "kube-public", "kube-node-lease")


def check_proxied(draft: Draft) -> None:
    """Names for the proxy are names, not too wide, and there is a proxy that knows them."""
    for entry in entries(draft, ALLOW):
        if entry.value.get("through") != egress.PROXY:
            continue
        try:
            proxied_name(entry.text("destination"))
        except Rejected as rejected:
            entry.problem("destination", rejected.message, rejected.remedy)
        if entry.value.get("protocol") == "udp":
            entry.problem("protocol", "is udp, which no proxy passes on", "leave it out")
        if not draft.members(PROXIES):
            entry.problem("through", f"is proxy, and no host is in the group {PROXIES}", "put a host into it")


def check_namespaces(draft: Draft) -> None:
    """Namespaces are named once and are not the system's, and entries name only them."""
    seen: set[str] = set()
    for entry in entries(draft, NAMESPACES):
        name = entry.text("name")
        if name in _SYSTEM:
            entry.problem("name", f"{name} is the system's own, which would be cut off", "remove the entry")
        elif not _NAMESPACE.fullmatch(name):
            entry.problem("name", f"{name!r} is no name of a namespace", "write for example team-a")
        elif name in seen:
            entry.problem("name", "is there twice", "write one entry for a namespace")
        seen.add(name)
    for entry in entries(draft, ALLOW):
        _check_users(entry, seen)


def _check_users(entry: Entry, known: set[str]) -> None:
    for name in entry.value.get("namespaces") or ():
        if name not in known:
            entry.problem(
                "namespaces",
                f"{name} is not in {NAMESPACES}, so it has no network policies",
                f"add it there, or write {' or '.join(sorted(known)) or 'no namespaces'}",
            )


def check_image(draft: Draft) -> None:
    """What judges all packets is named by its content."""
    image = draft.site_value(IMAGE)
    if image and not _IMAGE.fullmatch(str(image)):
        message = f"{image!r} is no image with its registry and its digest"
        remedy = "write for example registry.k8s.io/networking/kube-network-policies@sha256:..."
        draft.problems.add(draft.site_place(IMAGE), IMAGE, message, remedy)


CHECKS = (check_proxied, check_namespaces, check_image)
