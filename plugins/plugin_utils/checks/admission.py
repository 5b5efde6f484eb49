# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The admission policy file, and whether the API server can read policies from files."""

from __future__ import annotations

import ipaddress
import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.variables import (
    ADDRESSES,
    FILE,
    FROM_FILES,
    PROGRAMS,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Place, SiteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed

_ACCOUNT = "system:serviceaccount:"
_OF_ACCOUNT = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""Namespace and name."""
_GROUP = re.compile(r"system:(serviceaccounts(:.*)?|masters|nodes|authenticated|unauthenticated|monitoring)")
"""Groups of Kubernetes that are easily taken for users."""
OLDEST_OBJECTS, OLDEST_FILES = (1, 36), (1, 37)
"""Mutating policies are stable since the first, and policies from files are on by default since the second
(apiserver/pkg/features/kube_features.go)."""


def check_policy(draft: Draft) -> None:
    """The file is there and says what is understood; its own lines are named."""
    path = draft.site_file(FILE)
    if path is None:
        if draft.site_value(FROM_FILES):
            place = draft.site_place(FROM_FILES)
            draft.problems.add(place, FROM_FILES, f"needs {FILE}", f"write '{FILE}: ...' too")
        return
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.read import read_policy

    try:
        read_policy(path)
    except SiteError as error:
        for problem in error.problems:
            at_file = problem.line == 0
            place = draft.site_place(FILE) if at_file else Place(problem.file, problem.line)
            draft.problems.add(place, FILE if at_file else problem.path, problem.message, problem.remedy)


def check_release(draft: Draft) -> None:
    """Every API server understands what it gets."""
    if not draft.site_value(FILE):
        return
    oldest = OLDEST_FILES if draft.site_value(FROM_FILES) else OLDEST_OBJECTS
    variable = FROM_FILES if draft.site_value(FROM_FILES) else FILE
    for host in draft.members("control_plane"):
        found = re.match(r"(\d+)\.(\d+)\.", str(host.values.get("site_kubernetes_version")))
        if found and (int(found[1]), int(found[2])) < oldest:
            needed = ".".join(map(str, oldest))
            version = host.values["site_kubernetes_version"]
            message = f"needs Kubernetes {needed}, and {host.name} has {version}"
            draft.problems.add(
                draft.site_place(variable), variable, message, f"upgrade to {needed} first, or take this out"
            )
            return


def check_addresses(draft: Draft) -> None:
    """What ends up in an expression is a network, or the name of a user."""
    api = parsed(str(draft.site_value("site_api_address")))
    for index, text in enumerate(draft.site_value(ADDRESSES) or ()):
        if text is None:
            continue  # It has been named as none.
        try:
            network = ipaddress.ip_network(text)
        except ValueError as error:
            _add(draft, ADDRESSES, index, f"is no network: {error}", "write one such as 203.0.113.0/28")
            continue
        if network.is_loopback or network.is_multicast or network.is_link_local or network.is_unspecified:
            message = f"{network} has no addresses that a service is reached at"
            _add(draft, ADDRESSES, index, message, "write one such as 203.0.113.0/28")
        elif api is not None and api in network:
            message = f"{network} has the API's address {api}, which a service could take over"
            _add(draft, ADDRESSES, index, message, "write networks without it")
    for index, text in enumerate(draft.site_value(PROGRAMS) or ()):
        is_account = str(text).startswith(_ACCOUNT)
        wrong = is_account and not _OF_ACCOUNT.fullmatch(str(text).removeprefix(_ACCOUNT))
        remedy = "write one such as system:serviceaccount:metallb-system:controller"
        if wrong or not re.fullmatch(r"[A-Za-z0-9:._@/-]+", str(text)):
            _add(draft, PROGRAMS, index, f"{text!r} is no name of a user", remedy)
        elif _GROUP.fullmatch(str(text)):
            _add(draft, PROGRAMS, index, f"{text!r} is a group, and no user", remedy)


def _add(draft: Draft, variable: str, index: int, message: str, remedy: str) -> None:
    writer = draft.writer(variable)
    place = draft.inner_place(writer, variable, index) if writer else draft.home()
    draft.problems.add(place, f"{variable}[{index}]", message, remedy)


CHECKS = (check_policy, check_release, check_addresses)
